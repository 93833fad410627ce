"""A publisher acknowledges messages only when the archive reports their positions, never for lack of a response."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark import node
from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import StreamAddress, embedded
from aeron_spark.direct.writing import PublishAddress, Publisher
from aeron_spark.errors import TransportError
from tests.nodes import kill_node
from tests.waiting import suspend

STREAM = 4711


@pytest.mark.sampled
def test_messages_published_to_a_killed_node_are_not_acknowledged_by_the_next_one(own_dir: Path) -> None:
    with node.ensure(own_dir) as first:
        archive = embedded(first)
        ArchiveLog(StreamAddress("aeron:ipc", STREAM, (archive,))).start_recording()
        publisher = Publisher(PublishAddress(str(own_dir), "aeron:ipc", STREAM, archive))
        publisher.publish_values(pa.array([b"recorded"], pa.binary()), None)
        publisher.wait_acknowledged()
        suspend(first.pid)  # it records no more messages, but its publications still accept some
        publisher.publish_values(pa.array([b"not recorded bytes"] * 100, pa.binary()), None)
        kill_node(own_dir)
    with node.ensure(own_dir):
        with pytest.raises(TransportError, match=r"closed|ended|stopped"):
            publisher.wait_acknowledged()
        (state,) = ArchiveLog(StreamAddress("aeron:ipc", STREAM, (archive,))).states()
        assert state.end == 64  # the first message only: a header and 8 bytes, aligned


@pytest.mark.sampled
def test_a_session_of_an_ended_client_raises_an_error_and_reads_no_unmapped_memory(own_dir: Path) -> None:
    with node.ensure(own_dir) as first:
        address = embedded(first)
        log = ArchiveLog(StreamAddress("aeron:ipc", STREAM, (address,)))
        log.start_recording()
        publisher = Publisher(PublishAddress(str(own_dir), "aeron:ipc", STREAM, address))
        publisher.publish_values(pa.array([b"recorded"], pa.binary()), None)
        publisher.wait_acknowledged()
        session = archive_of(address)
        session.client.close()
        for _ in range(1000):  # once compiled, a read of unmapped memory ends the process
            with pytest.raises(TransportError, match="ended"):
                session.position(0)
            with pytest.raises(TransportError, match="ended"):
                session.find_stop_position(0)
            with pytest.raises(TransportError, match="ended"):
                session.recording_of_session(1, STREAM)
        assert archive_of(address).position(0) == 64
