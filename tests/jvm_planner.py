"""Answers to cases of planning, in the form of ``PlannerAnswers``, the Java program of the same cases."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import pyarrow as pa

from aeron_spark.errors import AeronSparkError
from aeron_spark.log.api import Boundary, Range, RecordingState, StreamContent, direct_stream
from aeron_spark.log.inspection import content_of
from aeron_spark.log.offsets import Offset, advance, begin, finish, is_rewritten, mark_before
from aeron_spark.log.planning import plan_end
from aeron_spark.log.query import QueryPlanner
from aeron_spark.options import ReadOptions
from aeron_spark.wire.values import Rows


class Bytes:
    """The log of one recording, as hexadecimal digits from position 0."""

    def __init__(self, digits: str) -> None:
        self._data = bytes.fromhex(digits)

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        return self._data[position : position + length] if position + length <= len(self._data) else None


def planner_answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a case, or its error."""
    try:
        if case["do"] == "mark":
            return {"mark": _mark(case)}
        if case["do"] == "end":
            return {"end": _end(case)}
        if case["do"] == "query":
            return {"answers": _query(case)}
        start = Offset.parse(json.loads(case["start"])) if "start" in case else None
        offset = _offset(case, start)
    except AeronSparkError as error:
        return {"error": {"class": type(error).__name__, "what": error.what, "remedy": error.remedy}}
    return {"text": json.dumps(offset.to_dict()), "same": offset is start}


def _offset(case: Mapping[str, Any], start: Offset | None) -> Offset:
    if case["do"] == "first":
        return Offset.first(case["positions"], _states(case), direct_stream(case["channel"], case["streamId"]))
    assert start is not None  # the other cases have it
    match case["do"]:
        case "begin":
            return begin(start, Offset.parse(json.loads(case["end"])))
        case "ofStream":
            return start.of_stream(direct_stream(case["channel"], case["streamId"]))
        case "finish":
            return finish(start, case["finished"])
        case "advance":
            return advance(
                start,
                case["positions"],
                _states(case),
                begins=case["begins"],
                finished=case["finished"],
                turn=case["turn"],
                moved=case["moved"],
            )
    return start


def _mark(case: Mapping[str, Any]) -> list[Any] | None:
    (state,) = _states(case)
    mark = mark_before(Bytes(case["log"]), state, case["position"])
    if mark is None:
        return None
    return [mark.length, mark.checksum, is_rewritten(Bytes(case["later"]), state, case["position"], mark)]


class Messages:
    """The ends of messages of each recording."""

    def __init__(self, ends: Mapping[str, list[int]]) -> None:
        self._ends = ends

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        position, rows = start, 0
        for one in self._ends[key]:
            fits = one <= limit and (max_rows is None or rows < max_rows)
            if start < one <= end and (rows == 0 or fits):
                position, rows = one, rows + 1
        return Boundary(position, rows)


def _end(case: Mapping[str, Any]) -> dict[str, Any]:
    limits = {"max_bytes": case["maxBytes"], "max_rows": case["maxRows"], "turn": case["turn"]}
    plan = plan_end(case["positions"], _states(case), case["wanted"], Messages(case["messages"]), **limits)
    return {"turn": plan.turn, "positions": dict(plan.positions), "finished": sorted(plan.finished)}


def _states(case: Mapping[str, Any]) -> list[RecordingState]:
    return [
        RecordingState(
            one["key"], one["fingerprint"], one["start"], one["end"], one["active"], one["termLength"], mtu=one["mtu"]
        )
        for one in case["states"]
    ]


class MemoryLog:
    """A log with recordings as a case has them: of each its state, and ``[length, content]`` of its frames from 0.

    A frame is a message, whose value is its content. Equal contents at equal positions have equal bytes.
    """

    framed = False
    stream = direct_stream("aeron:ipc", 1001)

    def __init__(self, log: Mapping[str, Any]) -> None:
        self.archives = tuple(log["archives"])
        self._recordings = {one["key"]: one for one in log["recordings"]}

    def states(self) -> list[RecordingState]:
        return [self.state(key) for key in self._recordings]

    def state(self, key: str) -> RecordingState:
        one = self._recordings[key]
        stop = one["stopTimestamp"]
        return RecordingState(
            key, one["fingerprint"], one["start"], one["end"], one["active"], one["termLength"], one["initialTermId"],
            one["mtu"], 1001, one["sessionId"], "aeron:ipc", start_timestamp=one["startTimestamp"], stop_timestamp=stop,
        )  # fmt: skip

    def counting(self, *, framed: bool) -> MemoryLog:
        return self

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Do nothing: the archive records the stream."""

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        return content_of(self, states)  # type: ignore[arg-type]  # a planner calls no more of a log

    def lags_s(self, positions: Mapping[str, int]) -> None:
        return None

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        ends = list(accumulate(length for length, _ in self._recordings[key]["frames"]))
        return Messages({key: ends}).boundary(key, start, limit, end, max_rows)

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        one = self._recordings[key]
        if not one["files"] or position < one["start"] or position + length > one["end"]:
            return None
        blocks = [content for size, content in one["frames"] for _ in range(size // 32)]
        return b"".join(
            struct.pack("<ii", blocks[at], at) * 4 for at in range(position // 32, (position + length) // 32)
        )

    def messages(self, key: str, start: int, end: int) -> list[tuple[int, int]]:
        """Return position and content of each message that begins in ``[start, end)``."""
        frames = self._recordings[key]["frames"]
        begins = accumulate((length for length, _ in frames), initial=0)
        return [(at, content) for at, (_, content) in zip(begins, frames, strict=False) if start <= at < end]

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of a range."""
        found = self.messages(wanted.key, wanted.start, wanted.end)
        contents = [content for _, content in found]
        values = pa.array([struct.pack("<i", content) for content in contents], pa.binary())
        yield Rows(values, pa.array([at for at, _ in found], pa.int64()), pa.array(contents, pa.int64()))


def _query(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the answers of one planner to the steps of a streaming query."""
    run = QueryRun(case["options"], case["now"])
    return [run.answer(step) for step in case["steps"]]


class QueryRun:
    """A run of a streaming query: ``answer`` executes a step on a log at a time, and returns its result or error."""

    def __init__(self, options: Mapping[str, str], now: int) -> None:
        parsed = ReadOptions.parse(options, streaming=True)
        self._now = now
        self._log = MemoryLog({"archives": [], "recordings": []})
        settled = "raw" if parsed.payload == "auto" else None
        open_log: Any = lambda *_: self._log  # noqa: E731
        self._planner = QueryPlanner(parsed, open_log, framed=False, settled=settled, clock=lambda: self._now)

    def answer(self, step: Mapping[str, Any]) -> dict[str, Any]:
        self._log, self._now = MemoryLog(step["log"]), step["now"]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                answer = self._result(step)
            except AeronSparkError as error:
                answer = {"error": {"class": type(error).__name__, "what": error.what, "remedy": error.remedy}}
        return answer | {"warned": [str(one.message) for one in warned]}

    def _result(self, step: Mapping[str, Any]) -> dict[str, Any]:
        planner = self._planner
        match step["do"]:
            case "initial":
                return {"text": json.dumps(planner.initial().to_dict())}
            case "availableNow":
                planner.prepare_available_now()
                return {}
            case "latest":
                start = Offset.parse(json.loads(step["start"]))
                end = planner.latest(start, limited=step["limited"])
                return {"text": json.dumps(end.to_dict()), "same": end is start, "report": self._report()}
        start, end = (Offset.parse(json.loads(step[name])) for name in ("start", "end"))
        return {"ranges": [_range(one) for one in planner.between(start, end)]}

    def _report(self) -> str | None:
        ends, lag = self._planner.ends(), self._planner.lag()
        assert lag is not None  # a batch was planned
        report = {"lag": lag.to_dict(), "recordings": ends, "stream": MemoryLog.stream.to_dict(), "v": 1}
        return json.dumps(report) if ends else None


def _range(one: Range) -> list[Any]:
    mark = None if one.mark is None else [one.mark.length, one.mark.checksum]
    return [one.key, one.fingerprint, one.start, one.end, one.overrun, one.term_length, mark]
