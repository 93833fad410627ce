"""What a stream says it holds: the first message of its newest recording, looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.log.groups import Placed, of_recording, read_range
from aeron_spark.wire.batches import decode_batches
from aeron_spark.wire.frame import Content, decode, is_framed


@dataclass(frozen=True, slots=True)
class StreamContent:
    """``payload`` is ``raw``, ``framed`` or ``arrow``; ``schema`` that of the first Arrow batch."""

    payload: str
    schema: pa.Schema | None = None


def content_of(log: Log, states: list[RecordingState]) -> StreamContent | None:
    """Return what the newest recording with a message begins with, or None where no recording has one."""
    for state in sorted(states, key=lambda state: (state.start_timestamp, state.key), reverse=True):
        found = _content(log, state)
        if found is not None:
            return found
    return None


def _content(log: Log, state: RecordingState) -> StreamContent | None:
    single = log.counting(framed=False)
    end = single.boundary(state.key, state.start, state.start, state.end, None).position
    first = next(iter(single.read(_range(state, end))), None) if end > state.start else None
    if first is None:
        return None
    message = first.values[0].as_py()
    if not is_framed(message):
        return StreamContent("raw")
    with of_recording(state.key, first.positions[0].as_py()):
        content = decode(message).header.content
    if content is Content.BYTES:
        return StreamContent("framed")
    whole = log.counting(framed=True)
    end = whole.boundary(state.key, state.start, state.start, state.end, None).position
    with of_recording(state.key):
        for found in read_range(whole, _range(state, end)) if end > state.start else ():
            if isinstance(found, Placed):
                for batch in decode_batches(found.group.payload):
                    return StreamContent("arrow", batch.schema)
    return StreamContent("arrow")


def _range(state: RecordingState, end: int) -> Range:
    return Range(state.key, state.fingerprint, state.start, end, end, state.term_length)


def at_message(log: Log, state: RecordingState, position: int) -> int:
    """Return the first position at or after ``position`` where a message begins (or the last one ends)."""
    if position <= state.start:
        return state.start
    limit = min(position, state.end)
    before = log.boundary(state.key, state.start, limit, state.end, None).position
    # Where the first message is beyond the limit, its own end is what was given.
    if before >= limit:
        return before
    return log.boundary(state.key, before, before, state.end, None).position


def last_message(log: Log, state: RecordingState) -> int:
    """Return where the last complete message of a recording ends."""
    if state.end <= state.start:
        return state.start
    return log.boundary(state.key, state.start, state.end, state.end, None).position


def within(one: Range, state: RecordingState, log: Log, start: int | None, end: int | None) -> Range | None:
    """Return the part of ``one`` whose messages begin in ``[start, end)``, or None where there is nothing."""
    begin = one.start if start is None else max(one.start, at_message(log, state, start))
    stop = one.end if end is None else min(one.end, at_message(log, state, end))
    if begin >= stop:
        return None
    return replace(one, start=begin, end=stop, overrun=stop, epoch=state.epoch_at(stop))
