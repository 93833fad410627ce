"""The records of a stream's journal, as MessagePack. Pure.

Tags and keys are the format on the disk; ``name=`` gives the key where the attribute has another name. An unknown
record or field is an error: a release that skipped it would continue with another state than the one that was written.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from aeron_spark.errors import DataFormatError
from aeron_spark.wire.field_bounds import MAX_PARTITIONS

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Partition = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Time = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # ns since 1970, UTC
# Chosen numbers as keys make a dict quadratic, so their number is checked before they are decoded.
_MAX_PARTITIONS: Final = msgspec.Meta(max_length=MAX_PARTITIONS)
PartitionPositions = Annotated[dict[Partition, Position], _MAX_PARTITIONS]
PartitionCounts = Annotated[dict[Partition, Count], _MAX_PARTITIONS]
EpochNumber = Annotated[int, msgspec.Meta(ge=0)]  # below 2**64, see log.epochs


class Recorded(msgspec.Struct, frozen=True, tag="recorded", forbid_unknown_fields=True):
    """A recording is assigned to a partition that has no rows; its first position is ``start``.

    A later record of the same partition replaces it: the new recording continues at the position at which the partition
    ended.
    """

    partition: Partition
    recording_id: int
    fingerprint: str
    start: Position = 0


class RunStarted(msgspec.Struct, frozen=True, tag="entered", forbid_unknown_fields=True):
    """A new run of a writer became its current run, and fences the run before it."""

    writer: str
    run: str
    time_ns: Time
    single_use: bool = msgspec.field(default=False, name="once")


class CommitRecord(msgspec.Struct, frozen=True, tag="committed", forbid_unknown_fields=True, omit_defaults=True):
    """A transaction is committed: the new end of each partition that it changed, and its number of rows there.

    ``content`` and ``schema`` (Arrow IPC) are the stream's from now on; "" and None leave them unchanged. ``producer``
    is the producer id, the same for all runs; "" if the client gave none. ``token`` is the producer's own text.
    """

    writer: str
    run: str
    transaction: Number
    time_ns: Time
    ends: PartitionPositions = {}
    rows: PartitionCounts = {}
    content: str = ""
    schema: bytes | None = None
    single_use: bool = msgspec.field(default=False, name="once")
    producer: str = msgspec.field(default="", name="author")
    token: str = ""


class ContentFixed(msgspec.Struct, frozen=True, tag="content", forbid_unknown_fields=True):
    """The stream has this content and schema (Arrow IPC) before its first transaction."""

    content: str
    schema: bytes


class Purged(msgspec.Struct, frozen=True, tag="retained", forbid_unknown_fields=True, omit_defaults=True):
    """The named partitions begin at these positions. The segments before them are deleted after this record.

    ``pending`` are positions to which a purge is to raise the starts when leases allow it.
    """

    starts: PartitionPositions
    pending: PartitionPositions = {}


class Epoch(msgspec.Struct, frozen=True, tag="epoch", forbid_unknown_fields=True, omit_defaults=True):
    """An epoch begins: the records after this one, up to the next epoch, belong to one opening of the store.

    ``ends`` are the committed ends of all partitions at this moment, ``transactions`` the number of committed ones.
    ``copied_ns``: the epoch is that of a restore, and this is the time of the backup; 0 for an opening.
    """

    epoch: EpochNumber
    ends: tuple[Position, ...]
    transactions: Count
    copied_ns: Time = 0


class WriterOwned(msgspec.Struct, frozen=True, tag="owned", forbid_unknown_fields=True):
    """A writer id belongs to a key. ``owner`` is the key's fingerprint."""

    writer: str
    owner: str
    time_ns: Time


class WriterReleased(msgspec.Struct, frozen=True, tag="released", forbid_unknown_fields=True):
    """A writer id belongs to no key any more: the next key that uses it owns it."""

    writer: str


class WriterState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of one writer: its last transaction (-1: none), its current run, and its earlier runs, newest last.

    ``producers`` are the producer ids that committed under the writer id, newest last, each with its last transaction.
    ``committed_by`` is the run of the last transaction. ``tokens`` has the token of each producer's last transaction,
    unless it is empty. Journals of earlier releases do not have these three.
    """

    run: str
    last: int = -1
    earlier: tuple[str, ...] = ()
    time_ns: Time = 0  # of its last record
    single_use: bool = msgspec.field(default=False, name="once")
    producers: tuple[tuple[str, int], ...] | None = msgspec.field(default=None, name="authors")
    committed_by: str = ""
    tokens: dict[str, str] = {}


class CommittedIn(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A writer's last transaction in an epoch; ``count`` is the number of the stream's transactions up to it."""

    epoch: EpochNumber
    transaction: Number
    count: Count


class RecordingOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The recording of a partition; its first position is ``start``.

    ``first_fingerprint`` is that of the partition's first recording, "" if this is the first one.
    """

    recording_id: int
    fingerprint: str
    start: Position = 0
    first_fingerprint: str = ""

    @property
    def identity(self) -> str:
        """The fingerprint that names the partition in offsets; another recording does not change it."""
        return self.first_fingerprint or self.fingerprint


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot", forbid_unknown_fields=True, omit_defaults=True):
    """The whole state of a ledger; ``times`` and ``begins`` are its time index, int64 little-endian.

    ``epochs`` are the remembered epochs, oldest first. ``committed_in`` has, by writer, the epochs in which the writer
    committed. ``owned`` has the owners of writer ids. ``joined`` marks the entries of the time index that are several
    transactions. ``pending`` is as in Purged. ``checked_from`` is as in Ledger, and empty if it is 0 in all partitions.
    Snapshots of earlier releases do not have these six.
    """

    time_ns: Time
    transactions: Count
    content: str
    schema: bytes | None
    recordings: Annotated[dict[Partition, RecordingOf], _MAX_PARTITIONS]
    starts: list[Position]
    ends: list[Position]
    rows: list[Count]
    times: list[bytes]
    begins: list[bytes]
    writers: dict[str, WriterState]
    epochs: tuple[Epoch, ...] = ()
    committed_in: dict[str, tuple[CommittedIn, ...]] = {}
    owned: tuple[WriterOwned, ...] = ()
    joined: list[bytes] = []
    pending: PartitionPositions = {}
    checked_from: list[Position] = []


Record = Recorded | ContentFixed | RunStarted | WriterOwned | WriterReleased | CommitRecord | Purged | Epoch | Snapshot

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode a record as the payload of a journal entry."""
    return _ENCODER.encode(record)


def decode_record(payload: bytes) -> Record:
    """Decode the payload of a journal entry. Raises DataFormatError for a record that this release does not know."""
    try:
        found: Record = _DECODER.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"a record of a stream's journal is not known to this release: {error}",
            remedy="Start the release of aeron-spark that wrote it, or a newer one.",
        ) from error
    return found
