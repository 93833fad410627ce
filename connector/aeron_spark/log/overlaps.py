"""Divides the messages of recordings that overlap, so that a query reads each message once.

An archive records a publication twice if two recording subscriptions receive it, or if a subscription records it while
its publisher extends an earlier recording; two archives may record it, too. Rules:

* Two recordings have the same log where they overlap if the bytes at the begin and at the end of the overlap are equal.
  An Aeron session id is no proof: the catalog has only the last one of an extended recording, and a program may choose
  one. Of an archive that cannot be read as files, messages are compared, which a replay has.
* The positions before a recording's next one are read. Another recording with the same log skips them.
* Of several recordings at the same position, the one that reaches farthest is read, and the others wait. A recording is
  read up to the start of another one, which has the messages from there on.

The owner of a position may change from batch to batch. The offset of a batch's end has the positions at which the batch
begins (``Offset.begins``), so a repeated batch has the same rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from aeron_spark.aeron.recording import FRAME_HEADER_LENGTH
from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import Range, RecordedBytes, RecordingState, split_key

COMPARED_BYTES: Final = 2048  # at the end of an overlap

Messages = Sequence[tuple[int, bytes, int]]  # position, value and reserved value of each
ReadMessages = Callable[[RecordingState, int, int], Messages]
"""Returns the complete messages of a recording that begin between two positions."""


def _kind(state: RecordingState) -> tuple[int, int, int]:
    """Return what recordings of the same log have in common."""
    return state.stream_id, state.initial_term_id, state.term_length


class Overlaps:
    """Tells which of ``states`` have the same log. Compares bytes, or ``messages``, only of those that may have."""

    def __init__(self, states: Iterable[RecordingState], log: RecordedBytes, messages: ReadMessages) -> None:
        self._log = log
        self._messages = messages
        self._alike: defaultdict[tuple[int, int, int], list[RecordingState]] = defaultdict(list)
        for state in states:
            if state.end > state.start:
                self._alike[_kind(state)].append(state)
        self._known: dict[tuple[str, str], bool] = {}
        self._bytes: dict[tuple[str, int, int], bytes | None] = {}

    @cached_property
    def candidates(self) -> list[RecordingState]:
        """The recordings with the stream id, initial term id and term length of another one."""
        return [state for alike in self._alike.values() if len(alike) > 1 for state in alike]

    def of(self, state: RecordingState) -> list[RecordingState]:
        """Return the other recordings with the same log where they overlap ``state``."""
        alike = self._alike.get(_kind(state), ())
        return [other for other in alike if other.key != state.key and self.have_same_log(state, other)]

    def have(self, state: RecordingState, position: int) -> bool:
        """Whether another recording has the messages from ``position`` to the start of ``state``."""
        return any(other.start <= position for other in self.of(state))

    def have_same_log(self, one: RecordingState, other: RecordingState) -> bool:
        """Whether two recordings overlap, and have the same log there.

        Raises DataFormatError if they have the same log at the begin of the overlap only.
        """
        start, end = max(one.start, other.start), min(one.end, other.end)
        if start >= end or _kind(one) != _kind(other):
            return False
        key = (one.key, other.key) if one.key < other.key else (other.key, one.key)
        if key not in self._known:
            self._known[key] = self._compare(one, other, start, end)
        return self._known[key]

    def _compare(self, one: RecordingState, other: RecordingState, start: int, end: int) -> bool:
        # The archive of our node writes the checksum of a message into its frame's header.
        first = self._are_equal(one, other, start, min(FRAME_HEADER_LENGTH, end - start))
        if first is None:
            return self._compare_messages(one, other, start, end)
        # Equal messages of two publications have equal bytes. A recording that was extended has messages of another
        # session than the catalog says, but both recordings were active at the time of these messages.
        if not first or (one.session_id != other.session_id and not _are_simultaneous(one, other)):
            return False
        term = one.term_length
        length = min(COMPARED_BYTES, end - start, (end - 1) % term + 1)
        if self._are_equal(one, other, end - length, length) is False:
            raise _extended_twice(one, other, start, end)
        return True

    def _compare_messages(self, one: RecordingState, other: RecordingState, start: int, end: int) -> bool:
        """Compare the first message of an overlap, and the messages before its end, of all archives alike."""
        if one.session_id != other.session_id and not _are_simultaneous(one, other):
            return False

        def are_equal(begin: int, limit: int, count: int | None = None) -> bool | None:
            pair = self._messages(one, begin, limit), self._messages(other, begin, limit)
            common = max(found[0][0] for found in pair) if all(pair) else None
            if common is None:
                return None
            first, second = ([message for message in found if message[0] >= common] for found in pair)
            return first[:count] == second[:count]

        is_same = are_equal(start, min(end, start + COMPARED_BYTES), 1)
        if is_same is None:  # no complete message there
            return one.session_id == other.session_id
        if is_same and are_equal(max(start, end - COMPARED_BYTES), end) is False:
            raise _extended_twice(one, other, start, end)
        return is_same

    def _are_equal(self, one: RecordingState, other: RecordingState, at: int, length: int) -> bool | None:
        pair = self._read(one.key, at, length), self._read(other.key, at, length)
        return None if pair[0] is None or pair[1] is None else pair[0] == pair[1]

    def _read(self, key: str, at: int, length: int) -> bytes | None:
        place = key, at, length
        if place not in self._bytes:
            self._bytes[place] = self._log.recorded_bytes(key, at, length)
        return self._bytes[place]


def _extended_twice(one: RecordingState, other: RecordingState, start: int, end: int) -> DataFormatError:
    return DataFormatError(
        f"recordings {one.key} and {other.key} have the same messages from position {start}, but other ones before "
        f"position {end}: each was extended by another publication",
        remedy="Delete one of them ('aeron-spark recordings delete'), or read them with two queries and the option "
        "'sessionIds'.",
    )


def _are_simultaneous(one: RecordingState, other: RecordingState) -> bool:
    """Whether two recordings were active at the same time, by their archives' clocks."""
    return all(
        first.stop_timestamp is None or last.start_timestamp <= first.stop_timestamp
        for first, last in ((one, other), (other, one))
    )


def skip(positions: Mapping[str, int], overlaps: Overlaps) -> dict[str, int]:
    """Return the positions after the messages that the query has read in another recording."""
    found = dict(positions)
    is_changed = True
    while is_changed:
        is_changed = False
        for state in overlaps.candidates:
            at = found[state.key]
            if at >= state.end:
                continue
            reached = max(
                (found[other.key] for other in overlaps.of(state) if other.start <= at < found[other.key]), default=at
            )
            reached = min(reached, state.end)
            if reached > at:
                found[state.key], is_changed = reached, True
    return found


def share_out(
    states: Collection[RecordingState],
    positions: Mapping[str, int],
    overlaps: Overlaps,
    at_message: Callable[[RecordingState, int], int],
) -> list[RecordingState]:
    """Return ``states`` with ends up to which a batch from ``positions`` may read them; ``positions`` are of ``skip``.

    ``at_message`` returns the first begin of a message at or after a position. The result is only for planning.
    """
    by_key = {state.key: state for state in states}
    ends: dict[str, int] = {}
    for one in overlaps.candidates:
        state, at = by_key.get(one.key), positions[one.key]
        if state is None or at >= state.end:
            continue
        for other in (by_key[other.key] for other in overlaps.of(one) if other.key in by_key):
            if other.start > at:
                end = at_message(state, other.start)
            elif positions[other.key] == at and _reach(other) > _reach(state):
                end = at
            else:
                continue
            ends[state.key] = min(end, ends.get(state.key, end))
    # Active, so that the planner does not regard a recording as finished there.
    return [
        replace(state, end=ends[state.key], active=True) if ends.get(state.key, state.end) < state.end else state
        for state in states
    ]


def keep_up(
    begins: Mapping[str, int], ends: Mapping[str, int], overlaps: Overlaps
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the begins and ends of a batch in which recordings without rows keep up with those read in their place.

    Otherwise a later purge or deletion of their messages would look like data loss.
    """
    reached = skip(ends, overlaps)
    waiting = {key: at for key, at in reached.items() if ends[key] == begins[key]}
    return {**begins, **waiting}, {**ends, **waiting}


def _reach(state: RecordingState) -> tuple[int, str, int]:
    return state.end, *split_key(state.key)


def covered(positions: Mapping[str, int], overlaps: Overlaps) -> set[str]:
    """Return the recordings whose unread messages are all in another one, which comes first."""
    return {
        state.key
        for state in overlaps.candidates
        if positions[state.key] < state.end
        and any(other.start <= positions[state.key] and _reach(other) > _reach(state) for other in overlaps.of(state))
    }


@dataclass(frozen=True, slots=True)
class Wanted:
    """A range of a batch query, and the recording that it is of."""

    range: Range
    state: RecordingState


def each_once(wanted: Collection[Wanted], overlaps: Overlaps) -> list[Range]:
    """Return the ranges of a batch query without the messages that another of them has; in the order of ``wanted``."""
    kept: dict[str, Wanted] = {}
    for one in sorted(wanted, key=lambda one: (one.range.start, -one.range.end, split_key(one.range.key))):
        start = _first_missing(one, kept, overlaps)
        if start < one.range.end:
            kept[one.range.key] = replace(one, range=replace(one.range, start=start))
    return [kept[one.range.key].range for one in wanted if one.range.key in kept]


def repeated_bytes(states: Collection[RecordingState], overlaps: Overlaps) -> int:
    """Return how many bytes of the log are in more than one recording, without those that a reader reads."""
    whole = [
        Wanted(Range(one.key, one.fingerprint, one.start, one.end, one.end, one.term_length), one)
        for one in states
        if one.end > one.start
    ]
    return sum(one.range.length for one in whole) - sum(one.length for one in each_once(whole, overlaps))


def _first_missing(one: Wanted, kept: Mapping[str, Wanted], overlaps: Overlaps) -> int:
    start = one.range.start
    others = [kept[other.key].range for other in overlaps.of(one.state) if other.key in kept]
    while True:
        reached = max((other.end for other in others if other.start <= start < other.end), default=start)
        if reached == start:
            return start
        start = reached


def earliest_wanted(
    positions: Mapping[str, int], overlaps: Overlaps, last_message: Callable[[RecordingState], int]
) -> dict[str, int]:
    """Return the first positions of a query, so that ``skip`` skips nothing that one of ``positions`` wants."""
    found = dict(positions)
    for state in overlaps.candidates:
        for other in overlaps.of(state):
            if positions[other.key] < found[state.key] and positions[other.key] < last_message(other):
                found[state.key] = max(state.start, positions[other.key])
    return found
