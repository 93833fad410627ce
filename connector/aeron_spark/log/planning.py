"""Plans the end of a micro-batch: distributes the limits fairly over the recordings and never exceeds them. Pure.

``plan_end`` requests the ends of messages from a ``Boundaries``, a few times per recording. Rules:

* A batch never exceeds the limits, except that a message larger than a limit is a batch by itself.
* If any recording has a complete message, the batch has at least one: a query always makes progress.
* No recording starves. Shares are max-min fair, but a share may be smaller than a recording's next message, in each
  batch. Therefore one recording is served first, with at least one message. If another recording got none, the offset
  stores the first one as ``turn``, and the next batch begins with the recording after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from aeron_spark.errors import OptionError
from aeron_spark.log.api import Boundaries, Range, RecordingState, recording_key, split_key
from aeron_spark.log.losses import Diverged, Finding, Replaced, Rewritten, StartPurged, Truncated, deleted, refuse
from aeron_spark.log.offsets import Offset
from aeron_spark.options import WantedOffsets

_UNLIMITED: Final = 2**63 - 1

_NONE: Final[Mapping[str, Rewritten]] = {}

_ROUNDS: Final = 4  # of distributing rows that other recordings did not use; each costs a boundary walk per recording


@dataclass(frozen=True, slots=True)
class Plan:
    """The end of a batch in each planned recording."""

    positions: Mapping[str, int]
    finished: frozenset[str]  # stopped recordings without further complete messages
    turn: str | None  # the recording that was served first, if another one got nothing


def backlogs(offset: Offset, positions: Mapping[str, int], states: Collection[RecordingState]) -> dict[str, int]:
    """Return the unread bytes of each recording with any; ``positions`` are those of ``check_recordings``.

    The incomplete tail of a finished recording is not a backlog until the recording is extended.
    """
    found: dict[str, int] = {}
    for state in states:
        position = positions[state.key]
        done = offset.done.get(state.key)
        is_done = done is not None and (done.position, done.seen, done.fingerprint) == (
            position,
            state.end,
            state.fingerprint,
        )
        if state.end > position and not is_done:
            found[state.key] = state.end - position
    return found


def cap(states: Collection[RecordingState], targets: Mapping[str, int]) -> list[RecordingState]:
    """Return the states for ``Trigger.AvailableNow``, with ends at most the ``targets``: the ends at its start.

    Omits recordings that started later. The result is only for planning; losses are detected in the original states.
    """
    capped = []
    for state in states:
        target = targets.get(state.key)
        if target is None:
            continue
        # Active, so that the planner does not regard the recording as finished at the target.
        capped.append(state if state.end <= target else replace(state, end=max(state.start, target), active=True))
    return capped


def readable(states: Collection[RecordingState]) -> list[RecordingState]:
    """Return the states with ends up to which a query may read: what a cluster has not committed, it may take back.

    The result is only for planning; losses are detected in the original states.
    """
    found = []
    for state in states:
        is_bound = state.committed is not None and state.committed < state.end
        # Active, so that the planner does not regard a recording as finished whose end is not committed yet.
        end = max(state.start, state.committed or 0)
        found.append(replace(state, end=end, active=True) if is_bound else state)
    return found


def due(backlog: int, *, min_bytes: int | None, max_delay_ns: int, since_ns: int, now_ns: int) -> bool:
    """Return whether a batch is due; ``since_ns`` is the time of the last batch, or of the query's start."""
    return min_bytes is None or backlog >= min_bytes or (backlog > 0 and now_ns - since_ns >= max_delay_ns)


def share(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """Distribute a limit over the ``wanted`` amounts, max-min fairly.

    A key gets more than another one only if the other one gets its whole amount. Each key with an amount gets at least
    1 if the limit allows; otherwise the first keys do, in the order of ``wanted``, which the caller may rotate.
    """
    shares = dict.fromkeys(wanted, 0)
    keys = [key for key, amount in wanted.items() if amount > 0]
    if limit < len(keys):
        shares.update(dict.fromkeys(keys[: max(0, limit)], 1))
        return shares
    remaining = limit
    # Smallest amount first. Of equal amounts the last key first, because later keys here get the division's remainder.
    ordered = sorted(enumerate(keys), key=lambda item: (wanted[item[1]], -item[0]))
    for index, (_, key) in enumerate(ordered):
        shares[key] = min(wanted[key], remaining // (len(keys) - index))
        remaining -= shares[key]
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
    """Return the end of the next batch in the recordings ``wanted`` (those with a backlog), from checked ``positions``.

    ``turn`` is the start offset's. A limit below 1 counts as 1. See this module's docstring for the guarantees.
    """
    by_key = {state.key: state for state in states if state.key in wanted}
    plans = [_RecordingPlan(key, positions[key], by_key[key].end) for key in _rotated(by_key, turn)]
    budget = _Budget(
        _UNLIMITED if max_bytes is None else max(1, max_bytes),
        None if max_rows is None else max(1, max_rows),
        boundaries,
    )
    first = _serve_first(plans, budget)
    if first is not None:
        rounds = 1 if max_rows is None else _ROUNDS
        for number in range(rounds):
            _serve_shares([plan for plan in plans if number or plan is not first], budget)
        for plan in plans:
            budget.offer(plan, budget.remaining_bytes, budget.remaining_rows)
    is_starved = any(plan.at == positions[plan.key] and not plan.is_complete for plan in plans)
    return Plan(
        {plan.key: plan.at for plan in plans},
        frozenset(plan.key for plan in plans if plan.is_complete and not by_key[plan.key].active),
        first.key if first is not None and is_starved else None,
    )


def _rotated(keys: Collection[str], turn: str | None) -> list[str]:
    ordered = sorted(keys)
    if turn is None:
        return ordered
    return [key for key in ordered if key > turn] + [key for key in ordered if key <= turn]


class _RecordingPlan:
    """The plan of one recording in a batch."""

    __slots__ = ("at", "end", "is_complete", "key", "needs", "unused")

    def __init__(self, key: str, at: int, end: int) -> None:
        self.key = key
        self.at = at
        self.end = end
        self.is_complete = at >= end  # no further complete message
        self.needs: tuple[int, int] | None = None  # bytes and rows of the next message, if known
        # Bytes and rows that the last share did not use: the next message needs more of one of them.
        self.unused = (-1, -1)


class _Budget:
    """The remaining limits of a batch, and the source of boundaries."""

    def __init__(self, max_bytes: int, max_rows: int | None, boundaries: Boundaries) -> None:
        self.remaining_bytes = max_bytes
        self.remaining_rows = max_rows
        self._boundaries = boundaries

    def offer(self, plan: _RecordingPlan, share_bytes: int, share_rows: int | None) -> None:
        """Add as many messages of the recording to the batch as its share allows."""
        if (
            plan.is_complete
            or share_bytes <= 0
            or (share_rows is not None and share_rows <= 0)
            or _is_too_small(plan, share_bytes, share_rows)
        ):
            return
        limit = min(plan.end, plan.at + share_bytes)
        found = self._boundaries.boundary(plan.key, plan.at, limit, plan.end, share_rows)
        size, rows = found.position - plan.at, 0 if share_rows is None else found.rows
        if size == 0:
            plan.is_complete = True
        elif size > share_bytes or (share_rows is not None and rows > share_rows):
            plan.needs = (size, rows)
        else:
            self.add(plan, size, rows)
            plan.unused = (share_bytes - size, 0 if share_rows is None else share_rows - rows)
            # With a limit of rows, the next message may be complete but have too many rows.
            plan.is_complete = plan.at == plan.end or (limit == plan.end and share_rows is None)

    def add(self, plan: _RecordingPlan, size: int, rows: int) -> None:
        """Add ``size`` bytes and ``rows`` of the recording to the batch."""
        plan.at += size
        plan.needs = None
        self.remaining_bytes -= size
        if self.remaining_rows is not None:
            self.remaining_rows -= rows


def _is_too_small(plan: _RecordingPlan, share_bytes: int, share_rows: int | None) -> bool:
    """Whether the share is known to be too small for the recording's next message."""
    if plan.needs is not None:
        size, rows = plan.needs
        return size > share_bytes or (share_rows is not None and rows > share_rows)
    unused_bytes, unused_rows = plan.unused
    return share_bytes <= unused_bytes and (share_rows is None or share_rows <= unused_rows)


def _serve_first(plans: Sequence[_RecordingPlan], budget: _Budget) -> _RecordingPlan | None:
    """Add the share, or at least one message, of the first recording with a complete message. Return its plan or None.

    A message that is larger than a limit makes the budget negative, so it is a batch by itself.
    """
    for index, plan in enumerate(plans):
        start = plan.at
        budget.offer(plan, *_shares(plans[index:], budget)[0])
        if plan.needs is not None:
            budget.add(plan, *plan.needs)
            plan.is_complete = plan.at == plan.end
        if plan.at > start:
            return plan
    return None


def _serve_shares(plans: Sequence[_RecordingPlan], budget: _Budget) -> None:
    incomplete = [plan for plan in plans if not plan.is_complete]
    for plan, (share_bytes, share_rows) in zip(incomplete, _shares(incomplete, budget), strict=True):
        budget.offer(plan, share_bytes, share_rows)


def _shares(plans: Sequence[_RecordingPlan], budget: _Budget) -> list[tuple[int, int | None]]:
    byte_shares = share({plan.key: plan.end - plan.at for plan in plans}, budget.remaining_bytes)
    if budget.remaining_rows is None:
        return [(byte_shares[plan.key], None) for plan in plans]
    # The number of rows in a recording is unknown, so each recording requests all rows.
    row_shares = share({plan.key: budget.remaining_rows for plan in plans}, budget.remaining_rows)
    return [(byte_shares[plan.key], row_shares[plan.key]) for plan in plans]


PACK_BYTES: Final = 32 << 20  # of the log in one Spark partition of small ranges: some tens of milliseconds of reading

MAX_FIXED_PARTITIONS: Final = 256  # Spark partitions of a batch with one for each partition of the stream


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The ranges of a batch, and the accepted losses, of which the query warns."""

    ranges: tuple[Range, ...]
    findings: tuple[Finding, ...]


def ranges_between(
    begun: Offset,
    end: Offset,
    states: Collection[RecordingState],
    *,
    fail_on_data_loss: bool,
    rewritten: Mapping[str, Rewritten] = _NONE,
) -> PlannedBatch:
    """Return the ranges between two offsets, by recording; for a streaming batch, ``begun`` is ``begin(start, end)``.

    A batch may be planned again long after its end was chosen, and data may be lost since. Then raises DataLossError
    with all losses, or omits the lost data unless ``fail_on_data_loss``. ``rewritten`` has the recordings whose bytes
    before the end differ from those of which it was chosen.
    """
    by_key = {state.key: state for state in states}
    ranges: list[Range] = []
    findings: list[Finding] = []
    for key, stop in sorted(end.positions().items(), key=lambda item: split_key(item[0])):
        state, start = by_key.get(key), begun.position(key)
        if start is None:
            continue  # it joined without rows
        at_start = None if state is None else _diverged(begun, state, start)
        if at_start is not None:
            findings.append(at_start)
            start = at_start.at
        if start >= stop:
            continue
        finding = deleted(key, start, end, states) if state is None else _lost(end, start, stop, state)
        finding = rewritten.get(key, finding) if finding is None else finding
        if finding is not None and at_start is None:
            findings.append(finding)
        if state is None or isinstance(finding, (Replaced, Rewritten)):
            continue
        limit = finding.at if isinstance(finding, Diverged) else state.end
        start, stop = max(start, state.start), min(stop, limit)
        if start < stop:
            ranges.append(Range(key, state.fingerprint, start, stop, stop, state.term_length, state.epoch_at(stop)))
    refuse(findings, fail_on_data_loss=fail_on_data_loss)
    return PlannedBatch(tuple(ranges), tuple(findings))


def _diverged(offset: Offset, state: RecordingState, position: int) -> Diverged | None:
    saved, known = offset.epochs.get(state.key), offset.fingerprint(state.key)
    if saved is None or known != state.fingerprint or position < state.start:
        return None
    found = state.divergence(saved, position)
    return None if found is None else Diverged(state.key, state.channel, position, found, state.start)


def _lost(end: Offset, start: int, stop: int, state: RecordingState) -> Finding | None:
    key = state.key
    known = end.fingerprint(key)
    if known is not None and known != state.fingerprint:
        return Replaced(key, start, known, state.fingerprint)
    if state.start > start:
        return StartPurged(key, start, state.start)
    if (found := state.divergence(end.epochs.get(key), stop)) is not None:
        return Diverged(key, state.channel, stop, found, state.start)
    if state.end < stop:
        return Truncated(key, stop, state.end)
    return None


def partition_by_size(
    ranges: Iterable[Range], min_partitions: int | None = None, pack_bytes: int = PACK_BYTES
) -> list[tuple[Range, ...]]:
    """Distribute ranges to Spark partitions: many small ranges in one partition, a large range in a separate one.

    With ``min_partitions``, large ranges are split at term boundaries, which are message boundaries, until there are at
    least so many partitions or no further terms. The result covers exactly the given ranges. Ranges of one recording
    keep their order, and ``overrun`` remains the batch's end in the recording.
    """
    non_empty = [one for one in ranges if one.length > 0]
    target = max(1, pack_bytes)
    if min_partitions is None:
        return _packed(non_empty, target)
    # Split no more than necessary, because each partition costs a task.
    part_bytes = max(1, -(-sum(one.length for one in non_empty) // max(1, min_partitions)))
    while True:
        # Parts have complete terms, so they may be larger, and fewer, than intended.
        parts = [part for one in non_empty for part in _split(one, part_bytes)]
        partitions = _packed(parts, min(target, part_bytes))
        if len(partitions) >= min_partitions or part_bytes == 1:
            return partitions
        part_bytes = max(1, part_bytes // 2)


def partition_by_key(
    ranges: Iterable[Range], keys: Sequence[str], max_partitions: int = MAX_FIXED_PARTITIONS
) -> list[tuple[Range, ...]]:
    """Distribute ranges so that those of one key are in the same Spark partition in each batch.

    Key number i of ``keys`` has partition i modulo ``max_partitions``; partitions may be empty. So a writer by
    partition keeps the order of each key from batch to batch.
    """
    indices = {key: index % max_partitions for index, key in enumerate(keys)}
    partitions: list[list[Range]] = []
    for one in ranges:
        index = indices.get(one.key, 0)
        partitions.extend([] for _ in range(index + 1 - len(partitions)))
        partitions[index].append(one)
    return [tuple(partition) for partition in partitions]


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
    """Split a range into equal parts of about ``target`` bytes, at the nearest term boundaries."""
    if one.term_length <= 0:
        return (one,)
    # More than two parts per term would not find more boundaries.
    count = min(-(-one.length // target), 2 * (one.length // one.term_length + 1))
    edges = [one.start]
    for number in range(1, count):
        ideal = one.start + one.length * number // count
        edge = (ideal + one.term_length // 2) // one.term_length * one.term_length
        if edges[-1] < edge < one.end:
            edges.append(edge)
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
    """Return the position of option ``option`` in each recording of ``states``.

    ``latest`` returns the end of a recording's last complete message; it is called only if needed. ``archives`` are the
    names of the used archives. Raises OptionError for a recording or a position that does not exist.
    """
    by_key = {state.key: state for state in states}
    named = {}
    for name, value in wanted.named.items():
        key = _key(name, archives, by_key, option)
        state = by_key.get(key)
        if state is None:
            raise OptionError(
                f"option '{option}' has recording {name}, which the stream does not have",
                remedy=f"Choose from its recordings: {', '.join(sorted(by_key)) or 'none yet'}",
            )
        if key in named:
            raise OptionError(f"option '{option}' names recording {key} twice", remedy="Give it once")
        if isinstance(value, int) and not state.start <= value <= state.end:
            raise OptionError(
                f"option '{option}': position {value} is outside of recording {key}, "
                f"expected {state.start} to {state.end}",
                remedy="Give a position of the recording, or 'earliest' or 'latest'",
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


def _key(name: str, archives: Collection[str], keys: Collection[str], option: str) -> str:
    if "/" in name:
        # of several streams, stream/id stands for archive/stream/id
        found = [key for key in keys if key.endswith(f"/{name}")] if name not in keys else []
        return found[0] if len(found) == 1 else name
    if len(archives) != 1:
        raise OptionError(
            f"option '{option}' has recording {name}, but ids are not unique with several archives",
            remedy=f"Write archive/id, with one of the archives {', '.join(sorted(archives))}",
        )
    return recording_key(next(iter(archives)), int(name))
