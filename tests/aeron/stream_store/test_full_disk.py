"""A node that is started on a nearly full disk: its recordings can be read, purged and deleted."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node as nodes
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import TransportError
from aeron_spark.node.locks import is_locked
from aeron_spark.node.paths import space_of
from aeron_spark.streams.store import OK, StreamStore
from aeron_spark.waiting import wait_for
from tests.aeron.stream_store.rows import SETTINGS, read_values, write
from tests.aeron.streams import TIMEOUT_S, close_everything

MIB = 1 << 20
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or mount a file system")


@pytest.fixture
def node_dir(aeron_dir: Path, small_file_system: Path) -> Iterator[Path]:
    """Yield the directory of a node that the test may kill."""
    yield aeron_dir
    close_everything()
    nodes.stop(aeron_dir, force=True, timeout=30)
    shutil.rmtree(aeron_dir, ignore_errors=True)
    shutil.rmtree(nodes.local_node_paths(aeron_dir).folder, ignore_errors=True)


def test_a_killed_node_starts_with_less_than_33_mib_free_and_its_rows_can_be_read_and_purged(
    node_dir: Path, small_file_system: Path
) -> None:
    """Regression: the node was not started again; reads and purges waited for their timeout."""
    rows = [bytes(1_000)] * 1_000
    with (
        nodes.ensure(node_dir, archive_dir=small_file_system / "archive", segment_length="1m") as handle,
        StreamStore(small_file_system / "streams", embedded(handle), SETTINGS) as store,
    ):
        stream = store.create("a", 1, term_bytes=64 << 10)
        for transaction in range(3):
            write(stream, transaction, {0: rows})
        os.kill(handle.pid, signal.SIGKILL)
        wait_for(lambda: not is_locked(nodes.local_node_paths(node_dir).alive_lock), TIMEOUT_S, "the node to end")
    (small_file_system / "other").write_bytes(bytes(space_of(small_file_system).free - 8 * MIB))
    with pytest.warns(RuntimeWarning, match=r"archive's directory .* has [78] MiB free, and 33 MiB are needed: .*read"):
        handle = nodes.ensure(node_dir, archive_dir=small_file_system / "archive", segment_length="1m")
    with handle, StreamStore(small_file_system / "streams", embedded(handle), SETTINGS) as store:
        assert "Free some space on this disk" in handle.warning
        assert store.condition("a").state == OK
        stream = store.get("a")
        assert read_values(stream, 0) == rows * 3
        (purged,) = stream.purge(before_position=stream.states()[0].end)
        assert purged.freed_bytes > 0
        assert [one.why for one in purged.held] == ["recording"]  # the archive begins no other one
        with pytest.raises(
            TransportError, match=rf"the disk of the archive's folder {small_file_system}/archive has too few free"
        ):
            write(stream, 3, {0: rows})
        assert read_values(stream, 0) == []
        with (small_file_system / "rest").open("wb", buffering=0) as rest:
            rest.write(bytes(64 * MIB))  # writes as many as there is room for
            with pytest.raises(OSError, match="No space left on device"):
                rest.write(b".")
        store.delete("a")
        assert space_of(small_file_system).free > 0
