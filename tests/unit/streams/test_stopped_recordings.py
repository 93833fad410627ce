"""A recording that stopped although its publication is open is reported once, and the next commit continues it."""

from __future__ import annotations

import pytest

from aeron_spark.errors import TransportError
from aeron_spark.facts import Bus
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.model import RecordingStopped, Shape
from aeron_spark.streams.partition import Partition
from aeron_spark.streams.store_parts import StoreParts, StreamSettings
from aeron_spark.transport.channel import ChannelUri
from tests.unit.stream_client.recorded import ADDRESS, MemoryArchive, stand_in

TERM_BYTES = 1 << 16


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> MemoryArchive:
    made = MemoryArchive()
    stand_in(made, monkeypatch)
    return made


def test_a_stopped_recording_is_reported_once_and_continued(archive: MemoryArchive) -> None:
    _, recording_id = archive.opened(ChannelUri("ipc"), 7, None)
    archive.stop(recording_id)
    found = archive.recording(recording_id)
    assert found is not None
    facts, stopped = Bus(), list[RecordingStopped]()
    facts.on(RecordingStopped, stopped.append)
    partition = Partition(
        Definition("prices", 1, (7,), TERM_BYTES), 0, Shape.of(found), StoreParts(ADDRESS, facts=facts)
    )
    partition.prepare(0, "")
    partition.prepare(0, "")
    assert stopped == []
    archive.stop(recording_id)
    for _ in range(2):
        partition.prepare(0, "")
    [fact] = stopped
    assert (fact.stream, fact.partition, fact.recording_id) == ("prices", 0, recording_id)
    assert fact.error.what == f"recording {recording_id} of {partition.name} stopped"
    assert archive.find_stop_position(recording_id) is None
    partition.close_publication()  # by the store itself
    partition.prepare(0, "")
    assert len(stopped) == 1


def test_a_publication_that_was_not_opened_takes_nothing_of_the_limit_of_logs(archive: MemoryArchive) -> None:
    _, recording_id = archive.opened(ChannelUri("ipc"), 7, None)
    archive.stop(recording_id)
    found = archive.recording(recording_id)
    assert found is not None
    parts = StoreParts(ADDRESS, StreamSettings(log_bytes=3 * TERM_BYTES))
    partition = Partition(Definition("prices", 1, (7,), TERM_BYTES), 0, Shape.of(found), parts)
    archive.fails.add("opened")
    with pytest.raises(TransportError, match="does not opened"):
        partition.prepare(0, "")
    archive.fails.clear()
    assert partition.prepare(0, "") == 0
