"""Where a micro-batch ends: limits shared fairly over the recordings, and never exceeded. Pure arithmetic.

Only the log knows where messages end, so ``plan_end`` asks a ``Boundaries``, a few times for a recording. Rules:

* Never more than the limits, except one message that is larger than a limit: it makes a batch of its own.
* Where there is a complete message at all, the batch has one: it never sticks.
* Nothing starves. Shares are max-min fair; but a share may be smaller than a recording's next message, batch after
  batch. So one recording is served first, with at least one message, and where another got none, the offset keeps
  whose ``turn`` it was: the next batch begins with the one after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from aeron_spark.errors import OptionError
from aeron_spark.log.api import Boundaries, Range, RecordingState, recording_key, split_key
from aeron_spark.log.losses import Diverged, Finding, Purged, Replaced, Truncated, deleted, refuse
from aeron_spark.log.offsets import Offset
from aeron_spark.options import WantedOffsets

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
    lanes = [_RecordingPlan(key, positions[key], by_key[key].end) for key in _rotated(by_key, turn)]
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


class _RecordingPlan:
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

    def offer(self, lane: _RecordingPlan, share_bytes: int, share_rows: int | None) -> None:
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

    def take(self, lane: _RecordingPlan, size: int, rows: int) -> None:
        """Put that many bytes and rows of ``lane`` into the batch."""
        lane.at += size
        lane.needs = None
        self.left_bytes -= size
        if self.left_rows is not None:
            self.left_rows -= rows


def _in_vain(lane: _RecordingPlan, share_bytes: int, share_rows: int | None) -> bool:
    if lane.needs is not None:
        size, rows = lane.needs
        return size > share_bytes or (share_rows is not None and rows > share_rows)
    unused_bytes, unused_rows = lane.unused
    return share_bytes <= unused_bytes and (share_rows is None or share_rows <= unused_rows)


def _serve_first(lanes: Sequence[_RecordingPlan], budget: _Budget) -> _RecordingPlan | None:
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


def _serve_shares(lanes: Sequence[_RecordingPlan], budget: _Budget) -> None:
    hungry = [lane for lane in lanes if not lane.over]
    for lane, (share_bytes, share_rows) in zip(hungry, _shares(hungry, budget), strict=True):
        budget.offer(lane, share_bytes, share_rows)


def _shares(lanes: Sequence[_RecordingPlan], budget: _Budget) -> list[tuple[int, int | None]]:
    byte_shares = share({lane.key: lane.end - lane.at for lane in lanes}, budget.left_bytes)
    if budget.left_rows is None:
        return [(byte_shares[lane.key], None) for lane in lanes]
    # How many rows a recording holds is not known, so all are taken to want all.
    row_shares = share({lane.key: budget.left_rows for lane in lanes}, budget.left_rows)
    return [(byte_shares[lane.key], row_shares[lane.key]) for lane in lanes]


PACK_BYTES: Final = 32 << 20  # of the log in one partition of small ranges: some tens of milliseconds of reading

MAX_FIXED_PARTITIONS: Final = 256  # tasks of a batch in which each partition of a stream has one of its own


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What a batch reads, and what of it was found to be lost (to be warned of)."""

    ranges: tuple[Range, ...]
    findings: tuple[Finding, ...]


def ranges_between(
    begun: Offset, end: Offset, states: Collection[RecordingState], *, fail_on_data_loss: bool
) -> PlannedBatch:
    """Give what lies between two offsets, by recording; of a streaming batch, ``begun`` is ``begin(start, end)``.

    A batch may be planned again long after its end was chosen, so what it wants may be gone: raises ``DataLossError``
    listing all of that, or leaves it out where that is not to fail.
    """
    by_key = {state.key: state for state in states}
    ranges: list[Range] = []
    findings: list[Finding] = []
    for key, stop in sorted(end.positions().items(), key=lambda item: split_key(item[0])):
        state, start = by_key.get(key), begun.position(key) or 0
        at_start = None if state is None else _diverged(begun, state, start)
        if at_start is not None:
            findings.append(at_start)
            start = at_start.at
        if start >= stop:
            continue
        finding = deleted(key, start, end, states) if state is None else _lost(end, start, stop, state)
        if finding is not None and at_start is None:
            findings.append(finding)
        if state is None or isinstance(finding, Replaced):
            continue
        limit = finding.at if isinstance(finding, Diverged) else state.end
        start, stop = max(start, state.start), min(stop, limit)
        if start < stop:
            ranges.append(Range(key, state.fingerprint, start, stop, stop, state.term_length, state.epoch_at(stop)))
    refuse(findings, fail_on_data_loss=fail_on_data_loss)
    return PlannedBatch(tuple(ranges), tuple(findings))


def _diverged(offset: Offset, state: RecordingState, position: int) -> Diverged | None:
    epoch, known = offset.epochs.get(state.key), offset.fingerprint(state.key)
    if epoch is None or known != state.fingerprint or position < state.start:
        return None
    at = state.diverged_at(epoch, position)
    return None if at is None else Diverged(state.key, state.channel, position, at)


def _lost(end: Offset, start: int, stop: int, state: RecordingState) -> Finding | None:
    key = state.key
    known = end.fingerprint(key)
    if known is not None and known != state.fingerprint:
        return Replaced(key, start, known, state.fingerprint)
    if state.start > start:
        return Purged(key, start, state.start)
    if (at := state.diverged_at(end.epochs.get(key), stop)) is not None:
        return Diverged(key, state.channel, stop, at)
    if state.end < stop:
        return Truncated(key, stop, state.end)
    return None


def partition_by_size(
    ranges: Iterable[Range], min_partitions: int | None = None, pack_bytes: int = PACK_BYTES
) -> list[tuple[Range, ...]]:
    """Lay ranges out in partitions: many small ones in one, and a large one in its own.

    With ``min_partitions``, large ranges are split at term boundaries, which are message boundaries, into pieces so
    small that there are at least so many partitions, or no terms left to split. All ranges together cover exactly what
    was given; those of one recording keep their order; ``overrun`` stays where the batch ends in the recording.
    """
    given = [one for one in ranges if one.length > 0]
    target = max(1, pack_bytes)
    if min_partitions is None:
        return _packed(given, target)
    # Split no further than is asked for: every partition more costs a task.
    piece = max(1, -(-sum(one.length for one in given) // max(1, min_partitions)))
    while True:
        # Pieces are whole terms, so they may come out larger than wanted, and fewer.
        pieces = [part for one in given for part in _split(one, piece)]
        partitions = _packed(pieces, min(target, piece))
        if len(partitions) >= min_partitions or piece == 1:
            return partitions
        piece = max(1, piece // 2)


def partition_by_key(
    ranges: Iterable[Range], keys: Sequence[str], most: int = MAX_FIXED_PARTITIONS
) -> list[tuple[Range, ...]]:
    """Lay ranges out so that those of one key are in the same partition in every batch, whatever else there is.

    Key number i of ``keys`` has partition i, counted modulo ``most``; there may be empty ones. So what is written by
    partition keeps the order within each key from batch to batch.
    """
    places = {key: index % most for index, key in enumerate(keys)}
    found: list[list[Range]] = []
    for one in ranges:
        place = places.get(one.key, 0)
        found.extend([] for _ in range(place + 1 - len(found)))
        found[place].append(one)
    return [tuple(part) for part in found]


def _packed(ranges: Iterable[Range], target: int) -> list[tuple[Range, ...]]:
    partitions: list[tuple[Range, ...]] = []
    packed: list[Range] = []
    filled = 0
    for one in ranges:
        if packed and filled + one.length > target:
            partitions.append(tuple(packed))
            packed, filled = [], 0
        packed.append(one)
        filled += one.length
    if packed:
        partitions.append(tuple(packed))
    return partitions


def _split(one: Range, target: int) -> Sequence[Range]:
    """Split at the term boundaries nearest to equal pieces of about ``target`` bytes."""
    if one.term_length <= 0:
        return (one,)
    # More than two pieces a term find no more boundaries.
    wanted = min(-(-one.length // target), 2 * (one.length // one.term_length + 1))
    edges = [one.start]
    for piece in range(1, wanted):
        ideal = one.start + one.length * piece // wanted
        cut = (ideal + one.term_length // 2) // one.term_length * one.term_length
        if edges[-1] < cut < one.end:
            edges.append(cut)
    edges.append(one.end)
    return [replace(one, start=start, end=end) for start, end in pairwise(edges)]


def resolve(
    wanted: WantedOffsets,
    states: Collection[RecordingState],
    latest: Callable[[RecordingState], int],
    *,
    archives: Collection[str],
    option: str = "startingOffsets",
) -> dict[str, int]:
    """Give a position for every recording of ``states``.

    ``latest`` gives the end of a recording's last complete message; it is asked only where that is wanted. ``archives``
    are the keys of the archives in use. Raises ``OptionError`` where a named recording or position is not there.
    """
    by_key = {state.key: state for state in states}
    named = {}
    for name, value in wanted.named.items():
        key = _key(name, archives, option)
        state = by_key.get(key)
        if state is None:
            raise OptionError(
                f"option '{option}' names recording {name}, and the stream has no such recording",
                remedy=f"Its recordings are: {', '.join(sorted(by_key)) or 'none yet'}",
            )
        if key in named:
            raise OptionError(f"option '{option}' names recording {key} twice", remedy="Give it once")
        if isinstance(value, int) and not state.start <= value <= state.end:
            raise OptionError(
                f"option '{option}': position {value} is outside of recording {key}, "
                f"which has {state.start} to {state.end}",
                remedy="Give a position within it, or 'earliest' or 'latest'",
            )
        named[key] = value
    positions = {}
    for key, state in by_key.items():
        value = named.get(key, wanted.default)
        if isinstance(value, int):
            positions[key] = value
        else:
            positions[key] = state.start if value == "earliest" else latest(state)
    return positions


def _key(name: str, archives: Collection[str], option: str) -> str:
    if "/" in name:
        return name
    if len(archives) != 1:
        raise OptionError(
            f"option '{option}' names recording {name}, and with several archives ids are not unique",
            remedy=f"Name it as archive/id; the archives are: {', '.join(sorted(archives))}",
        )
    return recording_key(next(iter(archives)), int(name))
