"""The ranges of a planned batch, and how they are laid out in input partitions. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from aeron_spark.log.api import Range, RecordingState, split_key
from aeron_spark.log.losses import Diverged, Finding, Purged, Replaced, Truncated, deleted, refuse
from aeron_spark.log.offsets import Offset

PACK_BYTES: Final = 32 << 20  # of the log in one partition of small ranges: some tens of milliseconds of reading

MOST_PLACES: Final = 256  # tasks of a batch in which each partition of a stream has one of its own


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch reads, and what of it was found to be lost (to be warned of)."""

    ranges: tuple[Range, ...]
    findings: tuple[Finding, ...]


def ranges_between(begun: Offset, end: Offset, states: Collection[RecordingState], *, fail_on_data_loss: bool) -> Batch:
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
    return Batch(tuple(ranges), tuple(findings))


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


def partition(
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


def in_place(ranges: Iterable[Range], keys: Sequence[str], most: int = MOST_PLACES) -> list[tuple[Range, ...]]:
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
