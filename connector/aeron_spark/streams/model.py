"""What readers see of a stream: one value, replaced as a whole by each commit, so that nobody sees half of one."""

from __future__ import annotations

from dataclasses import dataclass

from aeron_spark.aeron.archive import Recording
from aeron_spark.log.api import fingerprint
from aeron_spark.log.epochs import Epochs


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition and how far it is committed. Positions and lengths are bytes."""

    partition: int
    recording_id: int
    fingerprint: str
    start: int  # the first position there is
    end: int  # behind the last committed transaction
    term_length: int
    initial_term_id: int
    mtu: int
    stream_id: int
    session_id: int  # of the publication that is open, 0 where none is; it changes with every extension
    segment_length: int
    start_position: int  # where the recording began: its segments are counted from there
    epochs: Epochs


@dataclass(frozen=True, slots=True)
class StreamView:
    """All partitions at one moment, and what they hold: see ``Ledger.content`` and ``Ledger.schema``."""

    states: tuple[PartitionState, ...]
    content: str
    schema: bytes | None

    def beyond(self, ends: list[int]) -> bool:
        """Whether any partition is committed further than ``ends`` says."""
        return any(state.end > end for state, end in zip(self.states, ends, strict=True))


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What became of a commit: whether it had been done before, and where each partition is committed to now."""

    already: bool
    ends: list[int]
    stamp: str  # of the writer's last transaction, see Ledger.stamp


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How streams are kept. Times are seconds, sizes bytes."""

    # Frames of 8 KiB are recorded three times as fast as those of a network's MTU, which nobody sends these over.
    mtu: int = 8192
    patience: float = 30.0  # for Aeron to show a sign of life
    turn: float = 600.0  # for another commit of the same stream to end
    rest_after: float = 30.0  # without a commit a partition's publication is closed, which takes 48 MiB of memory
    stage_limit: int = 64 << 30  # for all stages of all streams together; 0 is none
    stage_expiry: float = 3600.0
    sync_stages: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What a partition's recording is, from its first byte to its deletion. Lengths are bytes."""

    recording_id: int
    fingerprint: str
    stream_id: int
    initial_term_id: int
    term_length: int
    mtu: int
    segment_length: int

    @classmethod
    def of(cls, recording: Recording) -> Shape:
        """Return the shape of a recording."""
        return cls(
            recording_id=recording.id,
            fingerprint=fingerprint(
                initial_term_id=recording.initial_term_id,
                stream_id=recording.stream_id,
                term_length=recording.term_length,
                mtu=recording.mtu,
                start_timestamp=recording.start_timestamp,
            ),
            stream_id=recording.stream_id,
            initial_term_id=recording.initial_term_id,
            term_length=recording.term_length,
            mtu=recording.mtu,
            segment_length=recording.segment_length,
        )
