"""What never changes of a partition's recording."""

from __future__ import annotations

from dataclasses import dataclass

from aeron_spark.aeron.archive import Recording
from aeron_spark.log.api import fingerprint


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
