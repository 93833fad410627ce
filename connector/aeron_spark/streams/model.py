"""The values of a stream that the store, its users and a backup share.

A commit replaces the view as a whole, so a reader sees all of a transaction or nothing. At the end of the module are
the facts of a store, which a server's log and metrics show. A store emits some of them while it holds a stream's lock.

The files of a stream change while they are copied. A cut says which of their bytes belong to the copy: a journal grows
after ``journal_bytes``, and a recording after the ``end`` of its partition. Bytes before these limits never change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from aeron_spark.aeron.recording import Recording
from aeron_spark.errors import AeronSparkError, DataFormatError
from aeron_spark.log.epochs import Epochs
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.journal_records import Count, Position, RecordingOf
from aeron_spark.streams.reader_leases import Lease
from aeron_spark.streams.retention import Layout
from aeron_spark.wire.stream_requests import StreamUsage


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a recording that never change. Lengths are in bytes."""

    recording_id: int
    fingerprint: str
    stream_id: int
    initial_term_id: int
    term_length: int
    mtu: int
    segment_length: int

    @classmethod
    def of(cls, recording: Recording) -> Shape:
        return cls(
            recording_id=recording.id,
            fingerprint=recording.fingerprint,
            stream_id=recording.stream_id,
            initial_term_id=recording.initial_term_id,
            term_length=recording.term_length,
            mtu=recording.mtu,
            segment_length=recording.segment_length,
        )


class PartitionState(NamedTuple):
    """A partition with its committed range, and its recording as the archive and as the journal have it.

    ``start`` is the start of the first transaction that is not purged, ``end`` the position after the last committed
    one. ``session_id`` is the Aeron session id of the open publication, or 0; each extension of the recording has
    another one. ``checked_from`` is the position from which this server has checked the rows that have the mark.
    """

    partition: int
    shape: Shape
    recording: RecordingOf
    start: int
    end: int
    session_id: int
    epochs: Epochs
    checked_from: int


@dataclass(frozen=True, slots=True)
class StreamView:
    """All partitions at one moment; ``content`` and ``schema`` are as in ``Ledger``."""

    states: tuple[PartitionState, ...]
    content: str
    schema: bytes | None

    def is_beyond(self, ends: list[int]) -> bool:
        """Whether the committed end of any partition is after its position in ``ends``."""
        return any(state.end > end for state, end in zip(self.states, ends, strict=True))


@dataclass(frozen=True, slots=True)
class WriteRights:
    """The rights of a client that writes; without a client, all of them.

    All stages of ``owner``, its key, have at most ``stage_bytes`` bytes; 0 is no limit. ``may_evolve`` is whether its
    rows may add columns to a strict schema.
    """

    owner: str = ""
    stage_bytes: int = 0
    may_evolve: bool = True


@dataclass(frozen=True, slots=True)
class StreamRecovery:
    """The recovery of a stream after a start.

    ``torn_bytes`` is the incomplete record at the end of the journal, which was removed. ``truncated`` has by partition
    the end of the recording before, and the committed end at which it was truncated. ``loss`` is why the stream is
    read-only, or None. ``restored_from_ns`` is the time of the backup from which the stream was restored, in ns since
    1970, if nothing was changed since; else 0.
    """

    stream: str
    partitions: int
    torn_bytes: int
    truncated: Mapping[int, tuple[int, int]]
    loss: AeronSparkError | None
    seconds: float
    restored_from_ns: int = 0


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A committed transaction, and the seconds of each phase of its commit.

    ``stage_s``: finding and checking the stages; ``publish_s``: publishing their rows; ``record_s``: waiting until the
    archive had recorded them; ``journal_s``: writing the journal.
    """

    stream: str
    writer: str
    transaction: int
    rows: int
    bytes: int
    stage_s: float
    publish_s: float
    record_s: float
    journal_s: float

    @property
    def seconds(self) -> float:
        """The duration of the commit."""
        return self.stage_s + self.publish_s + self.record_s + self.journal_s


@dataclass(frozen=True, slots=True)
class StreamNotOpened:
    """A stream could not be opened; if ``error`` is not retriable, it is damaged. Repeated for another error."""

    stream: str
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class StreamReadOnly:
    """A commit found that a stream has lost rows, or its journal takes no more records."""

    stream: str
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class RecordingStopped:
    """The archive has stopped recording a partition to which the store publishes. The next commit continues it."""

    stream: str
    partition: int
    recording_id: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction was aborted."""

    stream: str


@dataclass(frozen=True, slots=True)
class WriterFenced:
    """A run of a writer has fenced the run before it."""

    stream: str
    writer: str


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """A transaction has changed the schema of a stream."""

    stream: str
    writer: str


@dataclass(frozen=True, slots=True)
class StreamTrimmed:
    """Retention or a purge has removed the first bytes of a stream."""

    stream: str
    size: int


@dataclass(frozen=True, slots=True)
class DeletePending:
    """Recordings and files of a deleted stream still exist a minute after its deletion."""

    stream: str
    why: str


@dataclass(frozen=True, slots=True)
class LeaseOverridden:
    """Retention has removed rows that these readers had leased for too long."""

    stream: str
    readers: Sequence[str]


def usage_of(
    states: Sequence[PartitionState],
    leases: Collection[Lease],
    stages: int,
    committed_ns: Callable[[int, int], int | None],
    now_ns: int,
) -> StreamUsage:
    """Return the usage of a stream. ``committed_ns`` returns the commit time of a byte of a partition."""
    return StreamUsage(
        bytes=sum(state.end - state.start for state in states),
        disk_bytes=sum(map(_disk_bytes, states)),
        leases=len(leases),
        stages=stages,
        lag_bytes=max((_lag_bytes(states, lease) for lease in leases), default=0),
        lag_seconds=max((_lag_s(states, lease, committed_ns, now_ns) for lease in leases), default=0.0),
    )


def _disk_bytes(state: PartitionState) -> int:
    """Return the bytes of the segments from that of ``start`` to that of ``end``."""
    first, shape = state.recording.start, state.shape
    if first == state.end:
        return 0
    layout = Layout(first, shape.term_length, shape.segment_length)
    return layout.segment_base(state.end - 1) + shape.segment_length - layout.purge_base(state.start, state.end)


def _lag_bytes(states: Sequence[PartitionState], lease: Lease) -> int:
    return sum(max(0, state.end - lease.positions.get(state.partition, state.end)) for state in states)


def _lag_s(
    states: Sequence[PartitionState], lease: Lease, committed_ns: Callable[[int, int], int | None], now_ns: int
) -> float:
    times = [
        time_ns
        for state in states
        if (position := lease.positions.get(state.partition, state.end)) < state.end
        and (time_ns := committed_ns(state.partition, position)) is not None
    ]
    return max(0.0, (now_ns - min(times)) / 1e9) if times else 0.0


_Number = Annotated[int, msgspec.Meta(ge=0)]  # below 2**64, which msgspec cannot express


class PartitionCut(msgspec.Struct, frozen=True, array_like=True):
    """The committed range of a partition, with its recording. Positions and lengths are in bytes."""

    recording_id: Count
    fingerprint: str
    start: Position
    end: Position
    term_length: Count
    segment_length: Count

    @classmethod
    def of(cls, state: PartitionState) -> PartitionCut:
        """Return the cut of a partition in this state."""
        recording, shape = state.recording, state.shape
        return cls(
            recording.recording_id,
            recording.fingerprint,
            state.start,
            state.end,
            shape.term_length,
            shape.segment_length,
        )


class StreamCut(msgspec.Struct, frozen=True):
    """A stream at the moment of the cut. ``journal_inode`` is the inode of the journal's file."""

    definition: Definition
    journal_inode: _Number
    journal_bytes: Count
    epoch: _Number
    transactions: Count
    partitions: tuple[PartitionCut, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for numbers of more than 64 bits, which JSON has and no file or epoch."""
        if max(self.journal_inode, self.epoch) >= 1 << 64:
            raise ValueError(f"the inode {self.journal_inode} or the epoch {self.epoch} has more than 64 bits")

    def to_json(self) -> dict[str, Any]:
        """Return an object of JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_json(cls, value: object) -> StreamCut:
        """Return the cut of an object of :meth:`to_json`. Raises DataFormatError."""
        try:
            return _DECODER.decode(msgspec.json.encode(value))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise DataFormatError(
                f"the server described a stream in an unknown way: {error}",
                remedy="Use the aeron-spark command of the server's release.",
            ) from error


# Built at import, by one thread: decoders of msgspec that threads build concurrently can crash the process.
_DECODER: Final = msgspec.json.Decoder(StreamCut)
