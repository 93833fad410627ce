"""A writer of a server whose disk has no free byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aeron_spark.errors import TransportError
from aeron_spark.node import NodeHandle
from aeron_spark.stream_client.writer import Writer
from tests.aeron.streams import TIMEOUT_S
from tests.server_processes import connect, serving

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or mount a file system")


def fill(folder: Path) -> Path:
    """Write files until the file system has no room for a byte; return the largest one."""
    for name, size in (("large", 1 << 20), ("small", 1)):
        with (folder / name).open("wb", buffering=0) as file:
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return folder / "large"


def commit_until_full(out: Writer) -> list[bytes]:
    """Commit rows until the blocks that the journal has are full; return the committed ones."""
    for number in range(20_000):
        out.write([b"%d" % number])
        try:
            out.commit()
        except TransportError as error:
            if "No space left on device" not in error.what:
                raise
            return [b"%d" % one for one in range(number)]
    raise AssertionError("the disk has room")


def test_a_commit_that_fails_on_a_full_disk_can_be_aborted(
    node: NodeHandle, small_file_system: Path, tmp_path: Path
) -> None:
    """Regression: the abort was refused, which docs/streams.md reads as "the transaction is in the stream"."""
    with (
        serving(node, tmp_path, small_file_system / "streams", disk_reserve="0") as server,
        connect(server.addresses[0], node.aeron_dir, timeout=TIMEOUT_S) as client,
    ):
        client.create_stream("full")
        with client.writer("full", timeout=2.0) as out:
            out.write([b"first"])
            out.commit()
            large = fill(small_file_system)
            committed = commit_until_full(out)
            out.abort()
            out.write([b"dropped"])
            out.abort()
            large.unlink()
            out.write([b"last"])
            out.commit()
        rows = [row for batch in client.reader("full") for row in batch.column("value").to_pylist()]
        assert rows == [b"first", *committed, b"last"]
