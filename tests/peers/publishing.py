"""Runs the foreign publishers, and reads with ``aeron-spark receive`` what they published."""

from __future__ import annotations

import base64
import random
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.cli.conftest import pipe
from tests.ports import free_port

BUILT: Final = Path(__file__).parent / "built"
GO: Final = "go-publisher"
RUST: Final = "rust-publisher"
DRIVER: Final = "aeronmd"
TERM_LENGTH: Final = "2m"  # for messages of up to 256 KiB
LARGEST: Final = 249_491
# around the alignment of frames (32), around the payload of one and of two fragments (1,376 each), and far beyond
LENGTHS: Final = (1, 31, 32, 33, 1_375, 1_376, 1_377, 2_752, 2_753, 8_192, 65_536, LARGEST)
TIMEOUT_S: Final = 120.0


def built(name: str) -> Path:
    """Return a program that ``make test-peers`` has built."""
    path = BUILT / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `make test-peers`, which builds it before these tests")
    return path


def messages_of_many_lengths(rng: random.Random, count: int = 300) -> list[bytes]:
    """Return random messages: the lengths of :data:`LENGTHS` first, then short ones."""
    lengths = [*LENGTHS, *(rng.randrange(1, 300) for _ in range(count - len(LENGTHS)))]
    return [rng.randbytes(length) for length in lengths]


def channel_of(medium: str) -> str:
    """Return a channel of "ipc" or "udp"; on UDP with a free port, so that messages pass through sockets."""
    return "aeron:ipc" if medium == "ipc" else f"aeron:udp?endpoint=127.0.0.1:{free_port()}"


def publish(program: str, aeron_dir: str | Path, channel: str, stream_id: int, messages: Sequence[bytes]) -> None:
    """Run a publisher until it has published ``messages`` to the driver in ``aeron_dir``."""
    done = subprocess.run(
        [built(program), str(aeron_dir), channel, str(stream_id)],
        input=b"".join(struct.pack("<I", len(message)) + message for message in messages),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert int(done.stdout) == len(messages)


def received(count: int, options: Sequence[str]) -> list[bytes]:
    """Return the first ``count`` messages of a recorded stream, which may still be recorded."""
    return [value_of(line) for line in receive_json(count, [*options, "--payload", "raw"])]


def receive_json(count: int, options: Sequence[str]) -> list[Any]:
    """Return the first ``count`` rows of ``aeron-spark receive``, and fail if the stream has more."""
    follow = ("--start", "earliest", "--follow", "--count", str(count), "--timeout", str(TIMEOUT_S))
    done = pipe(b"", "receive", *options, "--json", *follow)
    assert done.code == 0, done.err
    rest = pipe(b"", "receive", *options, "--json")
    assert rest.code == 0, rest.err
    assert len(rest.lines) == count
    return done.lines


def value_of(line: dict[str, Any]) -> bytes:
    """Return the bytes of a raw message from its JSON."""
    return str(line["value"]).encode() if "value" in line else base64.b64decode(line["valueBase64"])
