"""A query's planner remembers facts between batches that no offset has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, cast

import pytest

from aeron_spark.errors import DataLossError, OptionError, TransportError
from aeron_spark.log.api import Log, RecordingState, StreamContent
from aeron_spark.log.query import QueryPlanner, ReadLag
from aeron_spark.options import ReadOptions
from aeron_spark.options.values import parse_end
from tests.unit.log.fake_log import FakeLog

OPTIONS = {"channel": "aeron:ipc", "streamId": "1001", "startingOffsets": "earliest"}


class RecordedLog(FakeLog):
    """A log that is recorded already, and that finds the position of a time by itself."""

    archives = ("embedded",)

    def content(self, states: list[RecordingState]) -> StreamContent:
        return StreamContent(f"{len(states)} recordings")

    def position_at(self, state: RecordingState, time_ns: int, times: object) -> int:
        assert times is None
        return time_ns if state.key == "embedded/1" else state.end

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        assert record == "auto"

    def check_recorded(self, states: list[RecordingState]) -> None:
        assert states


def stream_of(log: FakeLog, **options: str) -> QueryPlanner:
    parsed = ReadOptions.parse(OPTIONS | options, streaming=True)
    return QueryPlanner(parsed, lambda options, framed: cast("Log", log), framed=False)


def two_recordings() -> Mapping[str, Sequence[tuple[int, int]]]:
    return {"embedded/0": [(64, 1)], "embedded/1": [(64, 1)]}


def test_a_recording_that_was_seen_to_have_ended_may_be_deleted() -> None:
    log = RecordedLog(two_recordings())
    stream = stream_of(log)
    read = stream.latest(stream.initial(), limited=True)
    assert read.recordings == {"embedded/0": 64, "embedded/1": 64}
    log.stopped = frozenset({"embedded/0"})
    assert stream.latest(read, limited=True) is read  # no position moved, so no offset has the end
    log.messages = {"embedded/1": [(64, 1)]}
    for _ in range(3):
        assert stream.latest(read, limited=True) is read


class TimedLog(RecordedLog):
    """A log with commit times: the first unread row is as old as its position, in seconds."""

    def lags_s(self, positions: Mapping[str, int]) -> dict[str, float] | None:
        return {key: float(position) for key, position in positions.items()}


class UntimedLog(RecordedLog):
    """A log without commit times."""

    def lags_s(self, positions: Mapping[str, int]) -> None:
        return None


class LostLog(RecordedLog):
    """A log whose server does not respond any more."""

    def lags_s(self, positions: Mapping[str, int]) -> NoReturn:
        raise TransportError("the server is gone")


def lag_after_a_limited_batch(log: FakeLog) -> ReadLag | None:
    """Read 64 bytes of the first of two recordings, and one recording to its end."""
    stream = stream_of(log, maxBytesPerTrigger="96")
    assert stream.lag() is None
    stream.latest(stream.initial(), limited=True)
    return stream.lag()


def unread_recordings() -> Mapping[str, Sequence[tuple[int, int]]]:
    return {"embedded/0": [(64, 1), (64, 1), (64, 1)], "embedded/1": [(32, 1)]}


def test_the_lag_is_that_of_the_rows_after_the_planned_batch() -> None:
    lag = lag_after_a_limited_batch(TimedLog(unread_recordings()))
    assert lag == ReadLag({"embedded/0": 128}, {"embedded/0": 64.0})
    partitions = {"embedded/0": {"bytes": 128, "seconds": 64.0}}
    assert lag.to_dict() == {"bytes": 128, "partitions": partitions, "seconds": 64.0}


def test_the_lag_has_no_seconds_if_the_log_has_no_commit_times() -> None:
    lag = lag_after_a_limited_batch(UntimedLog(unread_recordings()))
    assert lag == ReadLag({"embedded/0": 128}, None)
    assert lag.to_dict() == {"bytes": 128, "partitions": {"embedded/0": {"bytes": 128}}}


def test_the_lag_of_a_query_that_has_read_everything_is_zero() -> None:
    stream = stream_of(TimedLog(unread_recordings()))
    stream.latest(stream.initial(), limited=True)
    lag = stream.lag()
    assert lag.to_dict() == {"bytes": 0, "partitions": {}, "seconds": 0.0}


def test_a_query_continues_if_its_lag_cannot_be_measured(caplog: pytest.LogCaptureFixture) -> None:
    assert lag_after_a_limited_batch(LostLog(unread_recordings())) == ReadLag({"embedded/0": 128}, None)
    assert "has no seconds: the server is gone" in caplog.text


def test_deleting_a_recording_that_was_last_seen_active_is_a_data_loss() -> None:
    log = RecordedLog(two_recordings())
    stream = stream_of(log)
    read = stream.latest(stream.initial(), limited=True)
    log.messages = {"embedded/1": [(64, 1)]}
    with pytest.raises(DataLossError, match="recording 0 of archive embedded"):
        stream.latest(read, limited=True)


def test_available_now_reads_no_messages_that_were_recorded_after_its_begin() -> None:
    log = RecordedLog({"embedded/0": [(64, 1)]})
    stream = stream_of(log)
    start = stream.initial()
    stream.prepare_available_now()
    log.messages = {"embedded/0": [(64, 1), (96, 1)], "embedded/1": [(64, 1)]}
    end = stream.latest(start, limited=True)
    assert end.position("embedded/0") == 64
    assert stream.latest(end, limited=True) is end


@pytest.mark.parametrize(
    ("end", "positions"),
    [
        ('{"embedded/0": 64}', {"embedded/0": 64, "embedded/1": 32}),
        ('{"embedded/0": 0, "embedded/1": 0}', {"embedded/0": 0, "embedded/1": 0}),
        ("latest", {"embedded/0": 192, "embedded/1": 32}),
        ("1970-01-01T00:00:00Z", {"embedded/0": 192, "embedded/1": 0}),
    ],
)
def test_available_now_ends_at_positions_or_at_a_time(end: str, positions: dict[str, int]) -> None:
    stream = stream_of(TimedLog(unread_recordings()))
    read = stream.initial()
    stream.prepare_available_now(parse_end(end))
    read = stream.latest(read, limited=False)
    assert {key: read.position(key) for key in positions} == positions
    assert stream.latest(read, limited=False) is read


def test_available_now_reads_nothing_if_its_end_is_before_the_start_of_the_query() -> None:
    stream = stream_of(TimedLog(unread_recordings()), startingOffsets='{"embedded/0": 128, "embedded/1": "latest"}')
    start = stream.initial()
    stream.prepare_available_now(parse_end('{"embedded/0": 64}'))
    assert stream.latest(start, limited=False) is start


@pytest.mark.parametrize(("options", "gib", "gib_of_available_now"), [({}, 1, 4), ({"maxBytesPerTrigger": "2g"}, 2, 2)])
def test_batches_of_available_now_are_larger_unless_an_option_limits_them(
    options: dict[str, str], gib: int, gib_of_available_now: int
) -> None:
    log = RecordedLog({"embedded/0": [(1 << 30, 1)] * 9})
    stream = stream_of(log, **options)
    assert stream.latest(stream.initial(), limited=True).position("embedded/0") == gib << 30
    stream = stream_of(log, **options)
    stream.prepare_available_now()
    assert stream.latest(stream.initial(), limited=True).position("embedded/0") == gib_of_available_now << 30


def test_the_planner_gets_the_content_and_the_position_of_a_time_from_the_log() -> None:
    stream = stream_of(RecordedLog(two_recordings()))
    assert stream.content() == StreamContent("2 recordings")
    at = {name: value for name, value in OPTIONS.items() if name != "startingOffsets"} | {
        "startingTimestamp": "1970-01-01T00:00:00.000000Z"
    }
    options = ReadOptions.parse(at, streaming=True)
    stream = QueryPlanner(options, lambda *_: cast("Log", RecordedLog(two_recordings())), framed=False)
    assert stream.initial().recordings == {"embedded/0": 64, "embedded/1": 0}


def test_a_starting_time_for_a_stream_without_recordings_needs_the_option_timestamp_from() -> None:
    at = {"channel": "aeron:ipc", "streamId": "1001", "startingTimestamp": "-10m"}
    stream = QueryPlanner(ReadOptions.parse(at, streaming=True), lambda *_: cast("Log", RecordedLog({})), framed=False)
    with pytest.raises(OptionError, match="needs 'timestampFrom' for a stream that has nothing recorded yet"):
        stream.initial()


def test_an_ending_time_needs_publish_times_on_the_direct_route() -> None:
    parsed = ReadOptions.parse(OPTIONS | {"endingTimestamp": "-1min"}, streaming=False)
    log = RecordedLog(two_recordings())
    planner = QueryPlanner(parsed, lambda options, framed: cast("Log", log), framed=False)
    with pytest.raises(OptionError, match="option 'endingTimestamp' needs publish times, which are unknown"):
        planner.whole()


def test_a_batch_that_ends_before_its_start_is_refused() -> None:
    """Regression: it gave 0 rows."""
    log = RecordedLog({"embedded/0": [(64, 1)] * 3})
    given = {"startingOffsets": '{"embedded/0": 128}', "endingOffsets": '{"embedded/0": 64}'}
    parsed = ReadOptions.parse(OPTIONS | given, streaming=False)
    planner = QueryPlanner(parsed, lambda options, framed: cast("Log", log), framed=False)
    with pytest.raises(
        OptionError, match="position 64 of recording embedded/0 is before the start of the batch at 128"
    ):
        planner.whole()
