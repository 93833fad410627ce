"""Finds the content of a stream from its first message, and positions of messages by position or publish time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from aeron_spark.errors import OptionError
from aeron_spark.log.api import Log, PublishTimes, Range, RecordingState, StreamContent
from aeron_spark.log.decoding import PlacedGroup, of_recording, read_range, schema_of_group
from aeron_spark.wire.chunks import Content, decode, is_framed
from aeron_spark.wire.values import Rows


def content_of(log: Log, states: list[RecordingState]) -> StreamContent | None:
    """Return the content of the first message of the newest recording with messages, or None without messages."""
    for state in sorted(states, key=lambda state: (state.start_timestamp, state.key), reverse=True):
        found = _content(log, state)
        if found is not None:
            return found
    return None


def _content(log: Log, state: RecordingState) -> StreamContent | None:
    single = log.counting(framed=False)
    first, begin = None, state.start
    while first is None:
        boundary = single.boundary(state.key, begin, begin, state.end, 1)
        if boundary.position <= begin:
            return None
        if boundary.rows:  # a damaged part has none
            first = next(iter(single.read(_range(state, begin, boundary.position))), None)
        begin = boundary.position
    message = first.values[0].as_py()
    if not is_framed(message):
        return StreamContent("raw")
    with of_recording(state.key, first.positions[0].as_py()):
        content = decode(message).header.content
    if content is Content.BYTES:
        return StreamContent("framed")
    groups = log.counting(framed=True)
    begin = first.positions[0].as_py()
    end = groups.boundary(state.key, begin, begin, state.end, None).position
    with of_recording(state.key):
        for found in read_range(groups, _range(state, begin, end)) if end > begin else ():
            if isinstance(found, PlacedGroup):
                return StreamContent("arrow", schema_of_group(found))
    return StreamContent("arrow")


def at_message(log: Log, state: RecordingState, position: int) -> int:
    """Return the first position at or after ``position`` at which a message begins, or the last one ends."""
    if position <= state.start:
        return state.start
    limit = min(position, state.end)
    before = log.boundary(state.key, state.start, limit, state.end, None).position
    # If the first message ends beyond the limit, the log returned its end.
    if before >= limit:
        return before
    return log.boundary(state.key, before, before, state.end, None).position


def damage_before(log: Log, state: RecordingState, position: int) -> int | None:
    """Return where a damaged part begins that hides whether a message begins at ``position``, or None."""
    if position <= state.start or position > state.end:
        return None
    single = log.counting(framed=False)
    before = single.boundary(state.key, state.start, position, state.end, None).position
    if before >= position:
        return None
    found = single.boundary(state.key, before, before, state.end, 1)
    return before if found.position > before and not found.rows else None  # a damaged part has no rows


def messages_between(log: Log, state: RecordingState, begin: int, end: int) -> list[tuple[int, bytes, int]]:
    """Return position, value and reserved value of the complete messages that begin in ``[begin, end)``.

    Reads at most one term of frame headers, and no other messages.
    """
    single = log.counting(framed=False)
    first = at_message(single, state, begin)
    stop = single.boundary(state.key, first, max(first, min(end, state.end)), state.end, None).position
    found: list[tuple[int, bytes, int]] = []
    for rows in single.read(_range(state, first, stop)) if stop > first else ():
        positions, reserved = (
            cast("list[int]", rows.positions.to_pylist()),
            cast("list[int]", rows.reserved.to_pylist()),
        )
        found += zip(positions, _values(rows), reserved, strict=True)
    return [message for message in found if message[0] < end]


def last_message(log: Log, state: RecordingState) -> int:
    """Return the end of a recording's last complete message."""
    if state.end <= state.start:
        return state.start
    return log.boundary(state.key, state.start, state.end, state.end, None).position


def within(
    one: Range, state: RecordingState, start: int | None, end: int | None, at: Callable[[RecordingState, int], int]
) -> Range | None:
    """Return the part of the range ``one`` whose messages begin in ``[start, end)``, or None if it is empty.

    ``at`` returns the first begin of a message at or after a position.
    """
    begin = one.start if start is None else max(one.start, at(state, start))
    stop = one.end if end is None else min(one.end, at(state, end))
    if begin >= stop:
        return None
    return replace(one, start=begin, end=stop, overrun=stop, epoch=state.epoch_at(stop))


def position_at(log: Log, state: RecordingState, time_ns: int, times: PublishTimes) -> int:
    """Return the position of the first message published at or after ``time_ns``, or the end of the last message.

    ``times`` returns the publish time of each message, in ns since 1970. They must not decrease within a recording.
    """
    single = log.counting(framed=False)
    end = last_message(log, state)
    terms = _terms(state, end)
    low, high = 0, len(terms)  # the index of the first term with a first message at or after the time
    while low < high:
        middle = (low + high) // 2
        first = _first_time(single, state, terms[middle], end, times)
        if first is None or first >= time_ns:
            high = middle
        else:
            low = middle + 1
    # The message is in the term before that one, or it is that term's first message.
    begin = terms[max(0, low - 1)] if terms else state.start
    for position, time in _message_times(single, _range(state, begin, end), times, framed=log.framed):
        if time is not None and time >= time_ns:
            return position
    return end


def framed_times(rows: Rows) -> pa.Array[Any]:
    """Return the publish times in the headers of framed messages; null for a message without a header."""
    return pa.array(
        [decode(value).header.published_ns if is_framed(value) else None for value in _values(rows)], pa.int64()
    )


def _values(rows: Rows) -> list[bytes]:
    return cast("list[bytes]", rows.values.to_pylist())


def no_times(state: RecordingState, option: str = "startingTimestamp") -> OptionError:
    """Return the error to raise if the query needs publish times without option 'timestampFrom'."""
    return OptionError(
        f"option '{option}' needs publish times, which are unknown for the messages of recording {state.key}",
        remedy="Set 'timestampFrom' to 'reserved-ns', 'reserved-ms' or a byte offset.",
    )


def _terms(state: RecordingState, end: int) -> list[int]:
    first = state.start - state.start % state.term_length + state.term_length
    return [state.start, *range(first, end, state.term_length)] if end > state.start else []


def _first_time(log: Log, state: RecordingState, start: int, end: int, times: PublishTimes) -> int | None:
    stop = log.boundary(state.key, start, start, end, None).position
    if stop <= start:
        return None
    rows = next(iter(log.read(_range(state, start, stop))), None)
    return None if rows is None else times(rows)[0].as_py()


def _message_times(log: Log, wanted: Range, times: PublishTimes, *, framed: bool) -> Iterator[tuple[int, int | None]]:
    for rows in log.read(wanted):
        found = times(rows)
        for index, (position, time) in enumerate(zip(rows.positions.to_pylist(), found.to_pylist(), strict=True)):
            # Skip chunks inside a group.
            if not framed or decode(cast("bytes", rows.values[index].as_py())).header.first:
                yield cast("int", position), cast("int | None", time)


def _range(state: RecordingState, start: int, end: int) -> Range:
    return Range(state.key, state.fingerprint, start, end, end, state.term_length)
