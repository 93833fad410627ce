"""Runs the Java subscriber, which uses plain Aeron."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.peers.publishing import TIMEOUT_S
from tests.programs import JAR

SOURCE: Final = Path(__file__).parent / "java" / "Subscriber.java"
JAVA: Final = ("java", "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED", "-cp", str(JAR), str(SOURCE))


@contextmanager
def java_subscriber(
    aeron_dir: str, channel: str, stream_id: int, count: int, file: Path
) -> Iterator[Callable[[], list[bytes]]]:
    """Run a subscriber of ``count`` messages; yield a function that waits for its end and returns them."""
    arguments = (aeron_dir, channel, str(stream_id), str(count), str(file))
    errors = file.with_suffix(".log")
    with errors.open("wb") as log:
        process = subprocess.Popen([*JAVA, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)

    def messages() -> list[bytes]:
        assert process.wait(TIMEOUT_S) == 0, errors.read_text()
        return list(_messages_in(file.read_bytes()))

    try:
        line = process.stdout.readline()  # ends if the program ends
        assert line == "subscribed\n", errors.read_text()
        yield messages
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def _messages_in(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from("<I", data, position)
        position += 4 + length
        yield data[position - length : position]
