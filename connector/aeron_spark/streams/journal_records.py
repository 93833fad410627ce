"""The records of a stream's journal, as MessagePack. Pure.

A field or record this release does not know is an error and not skipped: to go on without it would be to go on with
another state than the one that was written.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from aeron_spark.errors import DataFormatError

Transaction = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Partition = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Time = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # ns since 1970, UTC
EpochNumber = Annotated[int, msgspec.Meta(ge=0)]  # below 2**64, see log.epochs


class Recorded(msgspec.Struct, frozen=True, tag="recorded", forbid_unknown_fields=True):
    """The recording that holds a partition, for good; ``start`` is where it begins."""

    partition: Partition
    recording_id: int
    fingerprint: str
    start: Position = 0


class Entered(msgspec.Struct, frozen=True, tag="entered", forbid_unknown_fields=True):
    """A run of a writer that was never seen became its current one and fences the one before."""

    writer: str
    run: str
    time_ns: Time
    once: bool = False


class Committed(msgspec.Struct, frozen=True, tag="committed", forbid_unknown_fields=True, omit_defaults=True):
    """A transaction is in: of each partition it touched the new end, and the rows it added there.

    ``content`` and ``schema`` (Arrow IPC) are what the stream has from now on; empty and None where unchanged.
    ``author`` is who wrote it under the writer's id, whatever its run; empty where it did not say. ``token`` is the
    author's own text that comes with the transaction.
    """

    writer: str
    run: str
    transaction: Transaction
    time_ns: Time
    ends: dict[Partition, Position] = {}
    rows: dict[Partition, Count] = {}
    content: str = ""
    schema: bytes | None = None
    once: bool = False
    author: str = ""
    token: str = ""


class Retained(msgspec.Struct, frozen=True, tag="retained", forbid_unknown_fields=True):
    """What is before these positions, one for each partition named, is gone, or is about to go."""

    starts: dict[Partition, Position]


class Epoch(msgspec.Struct, frozen=True, tag="epoch", forbid_unknown_fields=True):
    """An opening of the store changes the stream for the first time: what is committed from here on is its own.

    ``ends`` are the committed ends of all partitions, and ``transactions`` the number of committed ones, at that time.
    """

    epoch: EpochNumber
    ends: tuple[Position, ...]
    transactions: Count


class Writer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a writer: its last transaction (-1 none), its run, the runs before it (the newest last).

    ``authors`` are those who committed under its id, the newest last, and the last transaction of each;
    ``committed_by`` is the run of the last transaction; ``tokens`` are the tokens of the authors' last transactions,
    without empty ones. Journals of earlier releases do not have the three.
    """

    run: str
    last: int = -1
    earlier: tuple[str, ...] = ()
    time_ns: Time = 0  # of its last record
    once: bool = False
    authors: tuple[tuple[str, int], ...] | None = None
    committed_by: str = ""
    tokens: dict[str, str] = {}


class CommittedIn(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A writer's last transaction in an epoch; ``count`` is how many the stream had then, of all writers."""

    epoch: EpochNumber
    transaction: Transaction
    count: Count


class RecordingOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which recording holds a partition."""

    recording_id: int
    fingerprint: str


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot", forbid_unknown_fields=True, omit_defaults=True):
    """All of a ledger at one moment; ``times`` and ``begins`` are its time index, int64 little-endian.

    ``epochs`` are the epochs that are kept, the oldest first. ``committed_in`` says for each writer in which epochs it
    committed. Snapshots of earlier releases do not have the two.
    """

    time_ns: Time
    transactions: Count
    content: str
    schema: bytes | None
    recordings: dict[Partition, RecordingOf]
    starts: list[Position]
    ends: list[Position]
    rows: list[Count]
    times: list[bytes]
    begins: list[bytes]
    writers: dict[str, Writer]
    epochs: tuple[Epoch, ...] = ()
    committed_in: dict[str, tuple[CommittedIn, ...]] = {}


Record = Recorded | Entered | Committed | Retained | Epoch | Snapshot

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode a record as the payload of a journal's entry."""
    return _ENCODER.encode(record)


def decode_record(payload: bytes) -> Record:
    """Decode a journal's entry. Raises DataFormatError if this release cannot know what it means."""
    try:
        found: Record = _DECODER.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"a record of a stream's journal is not one that this release knows: {error}",
            remedy="Start the release of aeron-spark that wrote it, or a newer one",
        ) from error
    return found
