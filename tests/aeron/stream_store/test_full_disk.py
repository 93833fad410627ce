"""A node that is started on a nearly full disk: its recordings can be read, purged and deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aeron_spark import node as nodes
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import TransportError
from aeron_spark.node.paths import space_of
from aeron_spark.streams.store import OK, StreamStore
from aeron_spark.streams.store_parts import StoreParts
from tests.aeron.stream_store.rows import SETTINGS, read_values, write
from tests.nodes import kill_node
from tests.stream_requests import create_request

MIB = 1 << 20
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or mount a file system")


def test_a_killed_node_starts_with_less_than_33_mib_free_and_its_rows_can_be_read_and_purged(
    small_file_system: Path, own_dir: Path
) -> None:
    """Regression: the node was not started again; reads and purges waited for their timeout."""
    rows = [bytes(1_000)] * 1_000
    with (
        nodes.ensure(own_dir, archive_dir=small_file_system / "archive", segment_length="1m") as handle,
        StreamStore(small_file_system / "streams", StoreParts(embedded(handle), SETTINGS)) as store,
    ):
        stream = store.create(create_request("a", 1, segment_bytes=64 << 10))
        for transaction in range(3):
            write(stream, transaction, {0: rows})
        kill_node(own_dir)
    (small_file_system / "other").write_bytes(bytes(space_of(small_file_system).free - 8 * MIB))
    with pytest.warns(RuntimeWarning, match=r"archive's directory .* has [78] MiB free, and 33 MiB are needed: .*read"):
        handle = nodes.ensure(own_dir, archive_dir=small_file_system / "archive", segment_length="1m")
    with handle, StreamStore(small_file_system / "streams", StoreParts(embedded(handle), SETTINGS)) as store:
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
