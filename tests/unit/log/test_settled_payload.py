"""A query with ``payload=auto`` has the payload of the first message for good, or fails with both names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import Log, RecordingState, StreamContent
from aeron_spark.log.decoding import refuse_framed
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import QueryPlanner
from aeron_spark.options import ReadOptions
from aeron_spark.wire.chunks import Content, Header, encode
from aeron_spark.wire.values import Rows
from tests.unit.log.fake_log import FakeLog


class HeldLog(FakeLog):
    """A log with the payload ``held``."""

    archives = ("embedded",)
    held: str = "raw"
    looks: int = 0

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        self.looks += 1
        return StreamContent(self.held) if any(self.messages.values()) else None

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        pass


def planner(log: HeldLog, settled: str | None = "raw") -> QueryPlanner:
    options = ReadOptions.parse(
        {"channel": "aeron:ipc", "streamId": "1001", "startingOffsets": "earliest"}, streaming=True
    )
    return QueryPlanner(options, lambda *_: cast("Log", log), framed=settled not in (None, "raw"), settled=settled)


def begin_without_rows() -> tuple[HeldLog, Offset]:
    log = HeldLog({"embedded/0": []})
    return log, planner(log).initial()


def test_the_first_message_settles_the_payload_and_the_checkpoint_keeps_it() -> None:
    log, start = begin_without_rows()
    query = planner(log)
    assert query.latest(start, limited=True) is start
    log.messages = {"embedded/0": [(64, 1)]}
    end = query.latest(start, limited=True)
    assert end.to_dict()["payload"] == "raw"
    log.messages = {"embedded/0": [(64, 1), (64, 1)]}
    restarted = planner(log)
    later = restarted.latest(Offset.parse(end.to_dict()), limited=True)
    assert (later.payload, log.looks) == ("raw", 1)  # a settled payload needs no further look


@pytest.mark.parametrize("held", ["arrow", "framed"])
def test_a_query_that_began_before_the_first_row_fails_with_both_names_and_succeeds_when_it_is_started_again(
    held: str,
) -> None:
    log, start = begin_without_rows()
    log.messages, log.held = {"embedded/0": [(64, 1)] * 1_000}, held
    with pytest.raises(DataFormatError, match=f"has {held} rows, .* columns of raw ones.* Start the query again"):
        planner(log).latest(start, limited=True)
    assert planner(log, held).latest(start, limited=True).payload == held


def test_a_checkpoint_of_another_payload_is_refused_with_both_names() -> None:
    log, start = begin_without_rows()
    log.messages, log.held = {"embedded/0": [(64, 1)]}, "arrow"
    end = planner(log, "arrow").latest(start, limited=True)
    for refused in (lambda: planner(log).latest(end, limited=True), lambda: planner(log).between(start, end)):
        with pytest.raises(
            DataFormatError, match=r"checkpoint is of arrow rows .* columns of raw ones.* payload=arrow"
        ):
            refused()


def test_an_old_checkpoint_without_a_payload_goes_on() -> None:
    log = HeldLog({"embedded/0": [(64, 1)]})
    old = planner(log, None)
    end = old.latest(old.initial(), limited=True)
    assert "payload" not in end.to_dict()
    assert planner(log).latest(end, limited=True) is end
    log.messages = {"embedded/0": [(64, 1), (64, 1)]}
    assert planner(log).latest(end, limited=True).payload == "raw"


def test_the_options_decide_for_a_query_whose_options_name_the_payload() -> None:
    log, start = begin_without_rows()
    log.messages, log.held = {"embedded/0": [(64, 1)]}, "arrow"
    assert planner(log, None).latest(start, limited=True).payload is None


def rows(*messages: bytes, begin: int = 0) -> Rows:
    numbers = pa.array(range(len(messages)), pa.int64())
    return Rows(pa.array(messages, pa.binary()).slice(begin), numbers.slice(begin), numbers.slice(begin))


def framed(content: Content) -> bytes:
    return encode(Header(content, 5), b"value")


@pytest.mark.parametrize(("content", "name"), [(Content.ARROW, "arrow"), (Content.BYTES, "framed")])
def test_a_message_in_the_wire_format_is_never_a_raw_value(content: Content, name: str) -> None:
    with pytest.raises(DataFormatError, match=f"position 2 of recording a/1 is {name}, .*raw") as refused:
        refuse_framed(rows(b"AsF1", b"", framed(content), b"x", begin=1), "a/1")
    assert f"payload={name}" in refused.value.remedy


@pytest.mark.parametrize("messages", [(), (b"",), (b"AsF1", b"A" * 100, b"AsF2" + bytes(100), bytes(70))])
def test_other_messages_are_raw_values(messages: Sequence[bytes]) -> None:
    refuse_framed(rows(*messages), "a/1")
