"""One query reads several streams: planning, offsets, joins, losses, and streams that do not fit together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, DataLossError, OptionError
from aeron_spark.log.api import (
    DirectStream,
    Log,
    RecordingState,
    ServerStream,
    StreamContent,
    StreamSet,
    joined_stream,
    parse_stream,
    stream_set,
)
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import QueryPlanner
from aeron_spark.log.several import SeveralLog
from aeron_spark.options import ReadOptions
from tests.unit.log.fake_log import FakeLog

OPTIONS: Final = {"channel": "aeron:ipc", "streamId": "1001,1002", "startingOffsets": "earliest"}
PRICES: Final = pa.schema([("symbol", pa.string()), ("price", pa.float64())])


class StreamLog(FakeLog):
    """The log of one stream of ``channel``."""

    archives = ("embedded",)
    content_of_stream: StreamContent | None = None

    def __init__(self, stream_id: str, *sizes: Sequence[int]) -> None:
        super().__init__({f"embedded/{number}": [(size, 1) for size in one] for number, one in enumerate(sizes)})
        self.stream_id = int(stream_id)

    @property
    def stream(self) -> DirectStream:
        return DirectStream("aeron:ipc", self.stream_id)

    def states(self) -> list[RecordingState]:
        return [replace(state, stream_id=self.stream_id) for state in super().states()]

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        assert all(state.key.count("/") == 1 for state in states)
        return self.content_of_stream

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        assert all(state.key.count("/") == 1 for state in states)

    def check_recorded(self, states: list[RecordingState]) -> None:
        if not states:
            raise OptionError(f"{self.stream.label} is not recorded", remedy="Record it.")

    def state(self, key: str) -> RecordingState:
        return next(state for state in self.states() if state.key == key)

    def lags_s(self, positions: dict[str, int]) -> dict[str, float]:
        return {key: float(position) for key, position in positions.items()}


class Streams:
    """The streams of a query, by name; tests add and remove some."""

    def __init__(self, **options: str) -> None:
        self.logs: dict[str, StreamLog] = {}
        self.options = OPTIONS | options

    def add(self, name: str, *sizes: Sequence[int]) -> StreamLog:
        self.logs[name] = StreamLog(name, *sizes)
        return self.logs[name]

    def log(self) -> SeveralLog:
        return SeveralLog(
            lambda: sorted(self.logs), lambda name: cast("Log", self.logs[name]), framed=False, identity="streams"
        )

    def planner(self, *, streaming: bool = True, settled: str | None = None) -> QueryPlanner:
        return QueryPlanner(
            ReadOptions.parse(self.options, streaming=streaming),
            lambda options, framed: cast("Log", self.log()),
            framed=False,
            settled=settled,
        )


def restarted(offset: Offset) -> Offset:
    """Return an offset as a checkpoint keeps it."""
    return Offset.parse(json.loads(json.dumps(offset.to_dict())))


def test_the_stream_is_a_part_of_each_recordings_key() -> None:
    streams = Streams()
    streams.add("1001", [64, 64])
    streams.add("1002", [96])
    planner = streams.planner()
    end = planner.latest(planner.initial(), limited=True)
    assert end.recordings == {"embedded/1001/0": 128, "embedded/1002/0": 96}
    assert restarted(end) == end
    assert end.to_dict()["stream"] == {
        "streams": [{"channel": "aeron:ipc", "id": 1001}, {"channel": "aeron:ipc", "id": 1002}]
    }
    assert streams.planner().latest(restarted(end), limited=True) == end


def test_limits_are_divided_fairly_among_the_recordings_of_all_streams() -> None:
    streams = Streams(maxBytesPerTrigger="256")
    streams.add("1001", [64] * 100)
    streams.add("1002", [64] * 100)
    planner = streams.planner()
    end = planner.latest(planner.initial(), limited=True)
    assert end.positions() == {"embedded/1001/0": 128, "embedded/1002/0": 128}


def test_a_stream_that_appears_joins_from_its_beginning() -> None:
    streams = Streams()
    streams.add("1001", [64])
    planner = streams.planner()
    first = planner.latest(planner.initial(), limited=True)
    streams.add("1002", [96], [32])
    second = planner.latest(first, limited=True)
    assert second.positions() == {"embedded/1001/0": 64, "embedded/1002/0": 96, "embedded/1002/1": 32}
    ranges = planner.between(restarted(first), restarted(second))
    assert [(one.key, one.start, one.end) for one in ranges] == [("embedded/1002/0", 0, 96), ("embedded/1002/1", 0, 32)]


def test_trigger_available_now_ends_at_the_ends_of_all_streams() -> None:
    streams = Streams()
    streams.add("1001", [64])
    streams.add("1002", [64])
    planner = streams.planner()
    planner.prepare_available_now()
    start = planner.initial()
    streams.logs["1002"].messages = {"embedded/0": [(64, 1), (64, 1)]}
    end = planner.latest(start, limited=True)
    assert end.positions() == {"embedded/1001/0": 64, "embedded/1002/0": 64}
    assert planner.latest(end, limited=True) is end


def test_a_stream_that_is_gone_is_a_data_loss_only_if_it_was_not_read_to_its_end() -> None:
    streams = Streams()
    streams.add("1001", [64])
    streams.add("1002", [64])
    planner = streams.planner()
    start = planner.initial()
    del streams.logs["1002"]
    with pytest.raises(DataLossError, match="recording 0 of archive embedded/1002 was deleted"):
        planner.latest(start, limited=True)
    streams.options["failOnDataLoss"] = "false"
    with pytest.warns(UserWarning, match="embedded/1002"):
        end = streams.planner().latest(start, limited=True)
    assert end.positions()["embedded/1001/0"] == 64


@pytest.mark.parametrize("name", ["embedded/1002/0", "1002/0"])
def test_a_start_is_given_by_stream(name: str) -> None:
    streams = Streams(startingOffsets=json.dumps({name: 64}))
    streams.add("1001", [64])
    streams.add("1002", [64, 64])
    assert streams.planner().initial().positions() == {"embedded/1001/0": 0, "embedded/1002/0": 64}


def test_an_id_without_its_stream_is_refused() -> None:
    streams = Streams(startingOffsets='{"0": 64}')
    streams.add("1001", [64])
    streams.add("1002", [64])
    with pytest.raises(OptionError, match="several archives") as caught:
        streams.planner().initial()
    assert "embedded/1001, embedded/1002" in caught.value.remedy


def test_a_batch_ends_where_its_options_say_by_stream() -> None:
    streams = Streams(endingOffsets='{"1001/0": 64}')
    streams.add("1001", [64, 64])
    streams.add("1002", [96])
    ranges = streams.planner(streaming=False).whole()
    assert [(one.key, one.end) for one in ranges] == [("embedded/1001/0", 64), ("embedded/1002/0", 96)]


def test_a_batch_names_the_stream_that_is_not_recorded() -> None:
    streams = Streams()
    streams.add("1001", [64])
    streams.add("1002")
    with pytest.raises(OptionError, match="stream 1002 of aeron:ipc is not recorded"):
        streams.planner(streaming=False).whole()


def test_a_batch_without_any_stream_is_refused() -> None:
    with pytest.raises(OptionError, match="no stream of the server matches"):
        Streams().planner(streaming=False).whole()


def test_the_lag_has_all_streams() -> None:
    streams = Streams(maxBytesPerTrigger="96")
    streams.add("1001", [64, 64])
    streams.add("1002", [64])
    planner = streams.planner()
    planner.latest(planner.initial(), limited=True)
    lag = planner.lag()
    assert lag is not None
    assert lag.bytes == {"embedded/1001/0": 64, "embedded/1002/0": 64}
    assert lag.seconds == {"embedded/1001/0": 64.0, "embedded/1002/0": 0.0}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (StreamContent("raw"), "stream 1002 of aeron:ipc has raw rows"),
        (
            StreamContent("arrow", pa.schema([("symbol", pa.string())])),
            "stream 1002 of aeron:ipc has arrow rows with the columns symbol string",
        ),
    ],
)
def test_streams_with_two_payloads_or_schemas_are_refused_with_both(content: StreamContent, text: str) -> None:
    streams = Streams()
    streams.add("1001", [64]).content_of_stream = StreamContent("arrow", PRICES)
    streams.add("1002", [64]).content_of_stream = content
    for refused in (streams.planner().content, streams.planner(streaming=False).whole):
        with pytest.raises(DataFormatError) as caught:
            refused()
        assert "stream 1001 of aeron:ipc has arrow rows with the columns symbol string, price double" in str(
            caught.value
        )
        assert text in str(caught.value)


def test_streams_whose_columns_differ_in_null_alone_fit_together() -> None:
    streams = Streams()
    streams.add("1001", [64]).content_of_stream = StreamContent("arrow", PRICES)
    strict = pa.schema([field.with_nullable(False) for field in PRICES])
    streams.add("1002", [64]).content_of_stream = StreamContent("arrow", strict)
    streams.add("1003")
    assert streams.planner().content() == StreamContent("arrow", PRICES)


def test_a_stream_that_joins_with_another_schema_ends_the_query() -> None:
    streams = Streams()
    streams.add("1001", [64]).content_of_stream = StreamContent("arrow", PRICES)
    planner = streams.planner(settled="arrow")
    first = planner.latest(planner.initial(), limited=True)
    assert first.payload == "arrow"
    streams.add("1002", [64]).content_of_stream = StreamContent("arrow", pa.schema([("other", pa.int8())]))
    with pytest.raises(DataFormatError, match="stream 1002 of aeron:ipc has arrow rows with the columns other int8"):
        planner.latest(first, limited=True)


def test_the_bytes_of_raw_messages_are_not_compared() -> None:
    streams = Streams(payload="raw")
    streams.add("1001", [64]).content_of_stream = StreamContent("raw")
    streams.add("1002", [64]).content_of_stream = StreamContent("arrow", PRICES)
    assert len(streams.planner(streaming=False).whole()) == 2


ONE, TWO, THREE = (DirectStream("aeron:ipc", number) for number in (1, 2, 3))
FLIGHTS = ServerStream("flights", {"feeds:1": "key-1"})


def test_a_set_of_streams_grows_and_keeps_those_that_a_query_omits() -> None:
    both = stream_set([TWO, ONE])
    assert parse_stream(both.to_dict()) == both
    assert joined_stream(both, stream_set([TWO])) is both
    assert joined_stream(both, stream_set([])) is both
    assert joined_stream(both, stream_set([TWO, THREE])) == stream_set([ONE, TWO, THREE])
    assert joined_stream(StreamSet(()), both) == both


@pytest.mark.parametrize(
    ("known", "read"),
    [
        (ONE, stream_set([ONE, TWO])),
        (stream_set([ONE, TWO]), ONE),
        (stream_set([ONE]), stream_set([TWO, THREE])),
        (stream_set([FLIGHTS]), stream_set([ServerStream("flights", {"feeds:1": "key-2"})])),
    ],
)
def test_a_checkpoint_of_other_streams_is_refused(known: StreamSet | DirectStream, read: StreamSet) -> None:
    with pytest.raises(OptionError, match="the checkpoint is of stream"):
        joined_stream(known, read)
