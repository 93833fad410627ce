"""A recording that was truncated before a query's position and then extended is data loss, and no row is skipped."""

from __future__ import annotations

from typing import cast

import pytest

from aeron_spark.errors import DataLossError
from aeron_spark.log.api import Log, Mark
from aeron_spark.log.available import state_for
from aeron_spark.log.offsets import Offset, mark_before, pack_marks, unpack_marks
from aeron_spark.log.query import DataLossWarning
from tests.unit.log.publications import TERM, Archives, Publication, Query, Recording, planner_of

FIRST = " ".join(f"m{number}" for number in range(10))
NEXT = " ".join(f"n{number}" for number in range(8))


def publish(publication: Publication, rows: str) -> list[str]:
    for row in rows.split():
        publication.publish(row)
    return rows.split()


def truncate(recording: Recording, position: int) -> None:
    """Truncate a stopped recording, as truncateRecording and the repair after a loss of power do."""
    recording.active = False
    del recording.data[position - recording.start :]


def read_ten_messages(log: Archives, *, stopped: bool) -> tuple[Query, Recording]:
    """Return a query that has read a recording up to position 640, and the recording."""
    one = log.publication()
    recording = log.record(one)
    query = Query(log)
    publish(one, FIRST)
    recording.active = not stopped
    assert query.batch() == FIRST.split()
    assert query.offset.position(recording.key) == 640
    one.close()
    return query, recording


@pytest.mark.parametrize("stopped", [False, True], ids=["it was active", "it had stopped"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_recording_that_was_truncated_and_extended_is_data_loss(stopped: bool, restarts: bool) -> None:
    log = Archives()
    query, recording = read_ten_messages(log, stopped=stopped)
    truncate(recording, 320)
    publish(log.publication(recording), NEXT)
    assert recording.end == 832
    if restarts:
        query.restart()
    with pytest.raises(DataLossError, match="recording 0 of archive embedded was replaced from a position before 640"):
        query.batch()


def test_without_failing_the_query_goes_on_after_its_position() -> None:
    log = Archives()
    query, recording = read_ten_messages(log, stopped=False)
    truncate(recording, 320)
    publish(log.publication(recording), NEXT)
    lenient = Query(log, failOnDataLoss="false")
    lenient.offset = query.offset
    with pytest.warns(DataLossWarning, match="replaced from a position before 640"):
        assert lenient.batch() == NEXT.split()[-3:]


def test_an_extension_without_truncation_is_no_loss() -> None:
    log = Archives()
    for stopped in (False, True):
        query, recording = read_ten_messages(log, stopped=stopped)
        publish(log.publication(recording), NEXT)
        assert query.batch() == NEXT.split()
        log.recordings.clear()


def test_a_planned_batch_of_other_rows_is_data_loss() -> None:
    log = Archives()
    one = log.publication()
    recording = log.record(one)
    query = Query(log)
    publish(one, FIRST)
    end = query.plan()
    assert end is not None
    one.close()
    truncate(recording, 320)
    publish(log.publication(recording), NEXT)
    query.restart()
    with pytest.raises(DataLossError, match="replaced"):
        query.run(end)


def test_a_truncation_in_an_earlier_term_is_found() -> None:
    log = Archives()
    one = log.publication()
    recording = log.record(one)
    query = Query(log)
    publish(one, "a " * (TERM // 64) + "b " * 10)
    query.batch()
    one.close()
    truncate(recording, TERM - 640)
    publish(log.publication(recording), "c " * 40)
    with pytest.raises(DataLossError, match="replaced"):
        query.batch()


def test_bytes_that_were_purged_are_not_compared() -> None:
    log = Archives()
    query, recording = read_ten_messages(log, stopped=False)
    recording.purged = 640
    publish(log.publication(recording), NEXT)
    assert query.batch() == NEXT.split()


def test_an_offset_of_an_earlier_release_is_not_compared() -> None:
    log = Archives()
    query, recording = read_ten_messages(log, stopped=False)
    old = query.offset.to_dict()
    assert old.pop("marks")
    query.offset = Offset.parse(old)
    publish(log.publication(recording), NEXT)
    assert query.batch() == NEXT.split()
    assert query.offset.marks


def test_a_mark_is_of_one_term_and_of_available_bytes() -> None:
    log = Archives()
    one = log.publication()
    recording = log.record(one)
    assert mark_before(log, log.state(recording.key), 0) is None
    publish(one, "a " * (TERM // 64 + 1))
    state = log.state(recording.key)
    lengths = [getattr(mark_before(log, state, at), "length", None) for at in (64, 640, 6400, TERM, TERM + 64)]
    assert lengths == [64, 640, 1408, 1408, 64]


def test_marks_have_one_text() -> None:
    marks = {"embedded/1": Mark(64, 7), "a/300": Mark(1408, 2**32 - 1)}
    text = pack_marks(marks)
    assert unpack_marks(text) == marks == unpack_marks(pack_marks(dict(reversed(marks.items()))))
    with pytest.raises(ValueError, match=r"truncated|base64"):
        unpack_marks(text[:-4])


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
def test_a_range_that_was_rewritten_between_planning_and_reading_is_data_loss(streaming: bool) -> None:
    log = Archives()
    one = log.publication()
    recording = log.record(one)
    query = Query(log)
    publish(one, FIRST)
    if streaming:
        end = query.plan()
        assert end is not None
        (wanted,) = query.planner.between(query.offset, end)
    else:
        (wanted,) = planner_of(log, streaming=False).whole()
    one.close()
    source = cast("Log", log)
    assert state_for(source, wanted, fail_on_data_loss=True) == log.state(recording.key)
    truncate(recording, 320)
    publish(log.publication(recording), NEXT)
    with pytest.raises(DataLossError, match="recording 0 of archive embedded was replaced from a position before 640"):
        state_for(source, wanted, fail_on_data_loss=True)
    with pytest.warns(DataLossWarning, match="was replaced from a position before 640"):
        assert state_for(source, wanted, fail_on_data_loss=False) is None
