"""A recording that stopped although its publication is open is reported once, and the next commit continues it."""

from __future__ import annotations

import pytest

from aeron_spark.errors import AeronSparkError, TransportError
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.model import Shape
from aeron_spark.streams.partition import Partition, RecordedLogs
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
    stopped: list[tuple[int, AeronSparkError]] = []
    partition = Partition(
        Definition("prices", 1, (7,), TERM_BYTES), 0, Shape.of(found), ADDRESS,
        on_stopped=lambda *fact: stopped.append(fact),
    )  # fmt: skip
    partition.prepare(0, "")
    partition.prepare(0, "")
    assert stopped == []
    archive.stop(recording_id)
    for _ in range(2):
        partition.prepare(0, "")
    [(stopped_id, error)] = stopped
    assert (stopped_id, error.what) == (recording_id, f"recording {recording_id} of {partition.name} stopped")
    assert archive.find_stop_position(recording_id) is None
    partition.close_publication()  # by the store itself
    partition.prepare(0, "")
    assert len(stopped) == 1


def test_a_publication_that_was_not_opened_takes_nothing_of_the_limit_of_logs(archive: MemoryArchive) -> None:
    _, recording_id = archive.opened(ChannelUri("ipc"), 7, None)
    archive.stop(recording_id)
    found = archive.recording(recording_id)
    assert found is not None
    partition = Partition(
        Definition("prices", 1, (7,), TERM_BYTES), 0, Shape.of(found), ADDRESS,
        on_stopped=lambda *_: None, recorded_logs=RecordedLogs(3 * TERM_BYTES),
    )  # fmt: skip
    archive.fails.add("opened")
    with pytest.raises(TransportError, match="does not opened"):
        partition.prepare(0, "")
    archive.fails.clear()
    assert partition.prepare(0, "") == 0
