"""The committed state of a stream at one moment, from which a backup copies the stream's files. Pure.

The files change while they are copied. The cut says which of their bytes belong to the copy: a journal grows after
``journal_bytes``, and a recording after the ``end`` of its partition. Bytes before these limits never change.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from aeron_spark.errors import DataFormatError
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.journal_records import Count, Position

_Number = Annotated[int, msgspec.Meta(ge=0)]  # below 2**64, which msgspec cannot express


class PartitionCut(msgspec.Struct, frozen=True, array_like=True):
    """The committed range of a partition, with its recording. Positions and lengths are in bytes."""

    recording_id: Count
    fingerprint: str
    start: Position
    end: Position
    term_length: Count
    segment_length: Count


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
