"""Where a micro-batch ends: limits shared fairly over the recordings, and never exceeded. Pure arithmetic.

Only the log knows where messages end, so ``plan_end`` asks a ``Boundaries``, a few times for a recording. Rules:

* Never more than the limits, except one message that is larger than a limit: it makes a batch of its own.
* Where there is a complete message at all, the batch has one: it never sticks.
* Nothing starves. Shares are max-min fair; but a share may be smaller than a recording's next message, batch after
  batch. So one recording is served first, with at least one message, and where another got none, the offset keeps
  whose ``turn`` it was: the next batch begins with the one after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aeron_spark.log.api import Boundaries, RecordingState
from aeron_spark.log.offsets import Offset

_UNLIMITED: Final = 2**63 - 1
_ROUNDS: Final = 4  # of sharing out rows that others left; each costs one more walk of a recording's batch


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a batch ends in each recording planned for, and what is known from finding that out."""

    positions: Mapping[str, int]
    finished: frozenset[str]  # no longer recorded, and nothing complete is left
    turn: str | None  # who was served first, where others got nothing


def backlogs(offset: Offset, positions: Mapping[str, int], states: Collection[RecordingState]) -> dict[str, int]:
    """Give the bytes of the log not read yet, of each recording that has any; ``positions`` are settled ones.

    The unfinished tail of a finished recording is no backlog until the recording is extended.
    """
    found: dict[str, int] = {}
    for state in states:
        position = positions[state.key]
        done = offset.done.get(state.key)
        over = done is not None and (done.position, done.seen, done.fingerprint) == (
            position,
            state.end,
            state.fingerprint,
        )
        if state.end > position and not over:
            found[state.key] = state.end - position
    return found


def cap(states: Collection[RecordingState], targets: Mapping[str, int]) -> list[RecordingState]:
    """Give the states as ``Trigger.AvailableNow`` may read them: nothing beyond what there was when it began.

    ``targets`` are the ends of then. Recordings that came later are left out. Use the result for planning only: what
    was lost shows in the states themselves.
    """
    capped = []
    for state in states:
        target = targets.get(state.key)
        if target is None:
            continue
        # More follows behind the target, so that reaching it does not finish the recording.
        capped.append(state if state.end <= target else replace(state, end=max(state.start, target), active=True))
    return capped


def due(backlog: int, *, min_bytes: int | None, max_delay_ns: int, since_ns: int, now_ns: int) -> bool:
    """Say whether a batch is to be made now; ``since_ns`` is when the last one was (or when the query began)."""
    return min_bytes is None or backlog >= min_bytes or (backlog > 0 and now_ns - since_ns >= max_delay_ns)


def share(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """Share a limit over what is wanted, max-min fairly: nobody gets more than it wants while another has less than it.

    Whoever wants anything gets at least 1 where the limit allows. Otherwise the first of them do, in the order of
    ``wanted``; rotating that order is up to the caller.
    """
    shares = dict.fromkeys(wanted, 0)
    eager = [key for key, amount in wanted.items() if amount > 0]
    if limit < len(eager):
        shares.update(dict.fromkeys(eager[: max(0, limit)], 1))
        return shares
    left = limit
    # The smallest first; among equals the last first, since what division leaves over goes to the later in this order.
    ordered = sorted(enumerate(eager), key=lambda item: (wanted[item[1]], -item[0]))
    for place, (_, key) in enumerate(ordered):
        shares[key] = min(wanted[key], left // (len(eager) - place))
        left -= shares[key]
    return shares


def plan_end(
    positions: Mapping[str, int],
    states: Collection[RecordingState],
    wanted: Collection[str],
    boundaries: Boundaries,
    *,
    max_bytes: int | None = None,
    max_rows: int | None = None,
    turn: str | None = None,
) -> Plan:
    """Find where the next batch ends in the recordings ``wanted`` (those with a backlog), from settled ``positions``.

    ``turn`` is the start offset's. A limit below 1 counts as 1. See the head of this file for what is promised.
    """
    by_key = {state.key: state for state in states if state.key in wanted}
    lanes = [_Lane(key, positions[key], by_key[key].end) for key in _rotated(by_key, turn)]
    budget = _Budget(
        _UNLIMITED if max_bytes is None else max(1, max_bytes),
        None if max_rows is None else max(1, max_rows),
        boundaries,
    )
    first = _serve_first(lanes, budget)
    if first is not None:
        rounds = 1 if max_rows is None else _ROUNDS
        for turns in range(rounds):
            _serve_shares([lane for lane in lanes if turns or lane is not first], budget)
        for lane in lanes:
            budget.offer(lane, budget.left_bytes, budget.left_rows)
    starved = any(lane.at == positions[lane.key] and not lane.over for lane in lanes)
    return Plan(
        {lane.key: lane.at for lane in lanes},
        frozenset(lane.key for lane in lanes if lane.over and not by_key[lane.key].active),
        first.key if first is not None and starved else None,
    )


def _rotated(keys: Collection[str], turn: str | None) -> list[str]:
    ordered = sorted(keys)
    if turn is None:
        return ordered
    return [key for key in ordered if key > turn] + [key for key in ordered if key <= turn]


class _Lane:
    """One recording while a batch is being planned."""

    __slots__ = ("at", "end", "key", "needs", "over", "unused")

    def __init__(self, key: str, at: int, end: int) -> None:
        self.key = key
        self.at = at
        self.end = end
        self.over = at >= end  # nothing complete is left
        self.needs: tuple[int, int] | None = None  # bytes and rows of the next message, where known
        self.unused = (
            -1,
            -1,
        )  # bytes and rows that were left of the last try: the next message needs more of one of them


class _Budget:
    """What is left of the limits, and whom to ask for boundaries."""

    def __init__(self, left_bytes: int, left_rows: int | None, boundaries: Boundaries) -> None:
        self.left_bytes = left_bytes
        self.left_rows = left_rows
        self._boundaries = boundaries

    def offer(self, lane: _Lane, share_bytes: int, share_rows: int | None) -> None:
        """Let ``lane`` take as many messages as its share holds."""
        if (
            lane.over
            or share_bytes <= 0
            or (share_rows is not None and share_rows <= 0)
            or _in_vain(lane, share_bytes, share_rows)
        ):
            return
        limit = min(lane.end, lane.at + share_bytes)
        found = self._boundaries.boundary(lane.key, lane.at, limit, lane.end, share_rows)
        size, rows = found.position - lane.at, 0 if share_rows is None else found.rows
        if size == 0:
            lane.over = True
        elif size > share_bytes or (share_rows is not None and rows > share_rows):
            lane.needs = (size, rows)
        else:
            self.take(lane, size, rows)
            lane.unused = (share_bytes - size, 0 if share_rows is None else share_rows - rows)
            # With a limit of rows, a next message may be complete and have too many of them.
            lane.over = lane.at == lane.end or (limit == lane.end and share_rows is None)

    def take(self, lane: _Lane, size: int, rows: int) -> None:
        """Put that many bytes and rows of ``lane`` into the batch."""
        lane.at += size
        lane.needs = None
        self.left_bytes -= size
        if self.left_rows is not None:
            self.left_rows -= rows


def _in_vain(lane: _Lane, share_bytes: int, share_rows: int | None) -> bool:
    if lane.needs is not None:
        size, rows = lane.needs
        return size > share_bytes or (share_rows is not None and rows > share_rows)
    unused_bytes, unused_rows = lane.unused
    return share_bytes <= unused_bytes and (share_rows is None or share_rows <= unused_rows)


def _serve_first(lanes: Sequence[_Lane], budget: _Budget) -> _Lane | None:
    """Give the first lane that has a complete message its share, or that message; None where there is none at all.

    A message larger than a limit leaves the budget below zero: it goes alone.
    """
    for place, lane in enumerate(lanes):
        rest = lanes[place:]
        before = lane.at
        budget.offer(lane, *_shares(rest, budget)[0])
        if lane.needs is not None:
            budget.take(lane, *lane.needs)
            lane.over = lane.at == lane.end
        if lane.at > before:
            return lane
    return None


def _serve_shares(lanes: Sequence[_Lane], budget: _Budget) -> None:
    hungry = [lane for lane in lanes if not lane.over]
    for lane, (share_bytes, share_rows) in zip(hungry, _shares(hungry, budget), strict=True):
        budget.offer(lane, share_bytes, share_rows)


def _shares(lanes: Sequence[_Lane], budget: _Budget) -> list[tuple[int, int | None]]:
    byte_shares = share({lane.key: lane.end - lane.at for lane in lanes}, budget.left_bytes)
    if budget.left_rows is None:
        return [(byte_shares[lane.key], None) for lane in lanes]
    # How many rows a recording holds is not known, so all are taken to want all.
    row_shares = share({lane.key: budget.left_rows for lane in lanes}, budget.left_rows)
    return [(byte_shares[lane.key], row_shares[lane.key]) for lane in lanes]
