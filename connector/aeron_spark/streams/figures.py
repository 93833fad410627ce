"""The sizes of a stream, and the lag of its readers, for metrics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from aeron_spark.streams.model import PartitionState
from aeron_spark.streams.reader_leases import ReaderLease
from aeron_spark.streams.retention import Layout


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """Sizes in bytes. ``disk_bytes`` are those of the segment files with committed bytes.

    The lags are the largest of the readers with a lease: bytes after the reader's positions, and the time since the
    first of them was committed, in seconds.
    """

    partitions: int
    bytes: int
    disk_bytes: int
    leases: int
    stages: int
    lag_bytes: int
    lag_s: float


def figures_of(
    states: Sequence[PartitionState], leases: Collection[ReaderLease], stages: int,
    committed_ns: Callable[[int, int], int | None], now_ns: int,
) -> StreamFigures:  # fmt: skip
    """Return the figures of a stream. ``committed_ns`` returns the commit time of a byte of a partition."""
    return StreamFigures(
        partitions=len(states),
        bytes=sum(state.end - state.start for state in states),
        disk_bytes=sum(map(_disk_bytes, states)),
        leases=len(leases),
        stages=stages,
        lag_bytes=max((_lag_bytes(states, lease) for lease in leases), default=0),
        lag_s=max((_lag_s(states, lease, committed_ns, now_ns) for lease in leases), default=0.0),
    )


def _disk_bytes(state: PartitionState) -> int:
    """Return the bytes of the segments from that of ``start`` to that of ``end``."""
    if state.start_position == state.end:
        return 0
    layout = Layout(state.start_position, state.term_length, state.segment_length)
    return layout.segment_base(state.end - 1) + state.segment_length - layout.purge_base(state.start, state.end)


def _lag_bytes(states: Sequence[PartitionState], lease: ReaderLease) -> int:
    return sum(max(0, state.end - lease.positions.get(state.partition, state.end)) for state in states)


def _lag_s(
    states: Sequence[PartitionState], lease: ReaderLease, committed_ns: Callable[[int, int], int | None], now_ns: int
) -> float:
    times = [
        time_ns
        for state in states
        if (position := lease.positions.get(state.partition, state.end)) < state.end
        and (time_ns := committed_ns(state.partition, position)) is not None
    ]
    return max(0.0, (now_ns - min(times)) / 1e9) if times else 0.0
