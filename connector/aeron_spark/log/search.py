"""Finding a time: by binary search over the terms of a recording, then within one term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa

from aeron_spark.errors import OptionError
from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.log.content import last_message
from aeron_spark.wire.frame import decode, is_framed
from aeron_spark.wire.rows import Rows

Times = Callable[[Rows], "pa.Array[Any]"]


def position_at(log: Log, state: RecordingState, time_ns: int, times: Times) -> int:
    """Return where the first message published at or after ``time_ns`` begins; the last one's end where there is none.

    ``times`` gives the publish time of each message, ns since the epoch. They are taken to rise within a recording.
    """
    single = log.counting(framed=False)
    end = last_message(log, state)
    terms = _terms(state, end)
    low, high = 0, len(terms)  # the first term that begins at or after the time is in [low, high]
    while low < high:
        middle = (low + high) // 2
        first = _first_time(single, state, terms[middle], end, times)
        if first is None or first >= time_ns:
            high = middle
        else:
            low = middle + 1
    # What is wanted lies in the term before it, if not at its beginning.
    begin = terms[max(0, low - 1)] if terms else state.start
    for position, time in _beginnings(single, _range(state, begin, end), times, framed=log.framed):
        if time is not None and time >= time_ns:
            return position
    return end


def framed_times(rows: Rows) -> pa.Array[Any]:
    """Return the publish times that stand in the headers of a framed stream; null for a message without one."""
    return pa.array(
        [decode(value).header.published_ns if is_framed(value) else None for value in _values(rows)], pa.int64()
    )


def _values(rows: Rows) -> list[bytes]:
    return cast("list[bytes]", rows.values.to_pylist())


def no_times(state: RecordingState) -> OptionError:
    """Return the error for a stream of which nobody said where its times are."""
    return OptionError(
        f"option 'startingTimestamp' needs publish times, and none are known of the messages of recording {state.key}",
        remedy="Say where they are with 'timestampFrom': 'reserved-ns', 'reserved-ms' or a byte offset.",
    )


def _terms(state: RecordingState, end: int) -> list[int]:
    first = state.start - state.start % state.term_length + state.term_length
    return [state.start, *range(first, end, state.term_length)] if end > state.start else []


def _first_time(log: Log, state: RecordingState, start: int, end: int, times: Times) -> int | None:
    stop = log.boundary(state.key, start, start, end, None).position
    if stop <= start:
        return None
    rows = next(iter(log.read(_range(state, start, stop))), None)
    return None if rows is None else times(rows)[0].as_py()


def _beginnings(log: Log, wanted: Range, times: Times, *, framed: bool) -> Iterator[tuple[int, int | None]]:
    for rows in log.read(wanted):
        found = times(rows)
        for index, (position, time) in enumerate(zip(rows.positions.to_pylist(), found.to_pylist(), strict=True)):
            # A chunk inside a group is no place to begin.
            if not framed or decode(cast("bytes", rows.values[index].as_py())).header.first:
                yield cast("int", position), cast("int | None", time)


def _range(state: RecordingState, start: int, end: int) -> Range:
    return Range(state.key, state.fingerprint, start, end, end, state.term_length)
