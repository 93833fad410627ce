"""Answers to cases of planning, in the form of ``PlannerAnswers``, the Java program of the same cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aeron_spark.errors import AeronSparkError
from aeron_spark.log.api import Boundary, RecordingState, direct_stream
from aeron_spark.log.offsets import Offset, advance, begin, finish, is_rewritten, mark_before
from aeron_spark.log.planning import plan_end


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
