"""What is too large for one record, and files: the records, and the sending half, in bounded memory.

    START      i64 stream id, u8 purpose, u16 type id (MESSAGE: of the message; else 0), u64 total bytes,
               then a name in UTF-8 (FILE: the file's; else empty)
    DATA       i64 stream id, u64 offset, then the bytes, at least one
    FINISHED   i64 stream id, SHA-256 of all bytes
    FAILED     i64 stream id, u8 who gave up (0 the sender of the stream, 1 its receiver), then a text in UTF-8

Numbers are big-endian. The content of a MESSAGE is its body (``typed.Encoded``), that of a CALL, RETURN or OBJECT the
record's payload. Each direction of a connection has stream ids of its own.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Protocol

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, RefusedError, SetupError
from aeron_spark.protocol.message_types import Buffer

CHUNK_BYTES: Final = 64 * 1024  # of content in a DATA record: large against its head, small against a term

MAX_NAME_BYTES: Final = 1024

MAX_TEXT_BYTES: Final = 1000

DIGEST_BYTES: Final = hashlib.sha256().digest_size

START: Final = struct.Struct(
    ">"
    "q"  # stream id
    "B"  # purpose
    "H"  # type id
    "Q"  # total bytes
)

DATA: Final = struct.Struct(
    ">"
    "q"  # stream id
    "Q"  # offset
)

FINISHED: Final = struct.Struct(f">q{DIGEST_BYTES}s")

FAILED: Final = struct.Struct(
    ">"
    "q"  # stream id
    "B"  # who gave up
)


class Purpose(IntEnum):
    """What a stream's content is."""

    MESSAGE = 1
    FILE = 2
    CALL = 3
    RETURN = 4
    OBJECT = 5


class TransferRecord(IntEnum):
    """Which of the four records."""

    START = 1
    DATA = 2
    FINISHED = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TransferStart:
    """The announcement of a stream. ``total`` is in bytes, and a claim until it has arrived."""

    transfer_id: int
    purpose: Purpose
    total: int
    type_id: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """The end of a stream that did not arrive. ``by_receiver``: it was ours, and the other side refused it."""

    transfer_id: int
    by_receiver: bool
    text: str


EncodedTransferRecord = tuple[TransferRecord, bytes]

Read = Callable[[int], Buffer]


def encode_start(start: TransferStart) -> bytes:
    """Return a START record. Raises OptionError for a name that is too long or no text."""
    try:
        name = start.name.encode()
    except UnicodeEncodeError:
        raise OptionError(f"the name {start.name!r} is not UTF-8", remedy="Send the file under another name") from None
    if len(name) > MAX_NAME_BYTES:
        raise OptionError(f"a stream's name has {len(name)} bytes", remedy=f"Use at most {MAX_NAME_BYTES}")
    return START.pack(start.transfer_id, start.purpose, start.type_id, start.total) + name


def decode_start(payload: Buffer) -> TransferStart:
    """Read a START record. Raises DataFormatError."""
    if not START.size <= len(payload) <= START.size + MAX_NAME_BYTES:
        raise broken(f"its START has {len(payload)} bytes")
    transfer_id, purpose, type_id, total = START.unpack_from(payload)
    try:
        return TransferStart(
            transfer_id, Purpose(purpose), total, type_id, str(memoryview(payload)[START.size :], "utf-8")
        )
    except UnicodeDecodeError:
        raise broken("its name is not UTF-8") from None
    except ValueError:
        raise broken(f"its purpose is {purpose}") from None


def encode_failed(transfer_id: int, text: str, *, by_receiver: bool = False) -> bytes:
    """Return a FAILED record; a text that is too long is cut."""
    cut = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    return FAILED.pack(transfer_id, by_receiver) + cut


def decode_failed(payload: Buffer) -> TransferFailed:
    """Read a FAILED record. Raises DataFormatError."""
    if not FAILED.size <= len(payload) <= FAILED.size + MAX_TEXT_BYTES or payload[FAILED.size - 1] > 1:
        raise broken(f"its FAILED of {len(payload)} bytes is not one")
    transfer_id, by_receiver = FAILED.unpack_from(payload)
    return TransferFailed(transfer_id, bool(by_receiver), str(memoryview(payload)[FAILED.size :], "utf-8", "replace"))


def broken(why: str) -> DataFormatError:
    """The error for a stream that is not as it should be."""
    return DataFormatError(f"a stream cannot be received: {why}", remedy="Have it sent again, with the same release")


def send_buffer(
    start: TransferStart, content: Buffer, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[EncodedTransferRecord]:
    """Yield the records of a stream whose content is in memory; only one chunk of it is copied at a time.

    ``content`` must stay as it is until the last record was taken. Raises OptionError if its size is not ``total``.
    """
    view = memoryview(content).cast("B")
    if len(view) != start.total:
        raise OptionError(f"{start.total} bytes were announced, and {len(view)} are given", remedy="Announce the size")
    position = 0

    def read(count: int) -> Buffer:
        nonlocal position
        position += count
        return view[position - count : position]

    return send_from(start, read, chunk_bytes=chunk_bytes)


def send_from(start: TransferStart, read: Read, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[EncodedTransferRecord]:
    """Yield the records of a stream whose content comes from ``read(count)``, which gives ``count`` bytes or fewer.

    If it raises, or ends before ``total`` bytes, the last record is FAILED, and the next step raises SetupError; an
    error of this package is raised as it is. What ``read`` holds beyond ``total`` is not sent.
    """
    if chunk_bytes < 1:
        raise OptionError(f"chunks of {chunk_bytes} bytes were asked for", remedy="Give at least 1")
    yield TransferRecord.START, encode_start(start)
    digest = hashlib.sha256()
    offset = 0
    while offset < start.total:
        try:
            chunk = _chunk(start, read, offset, min(chunk_bytes, start.total - offset))
        except Exception as error:
            yield TransferRecord.FAILED, encode_failed(start.transfer_id, "its content could not be read to the end")
            if isinstance(error, AeronSparkError):
                raise
            what = f"the content of {start.name or 'a stream'} could not be read: {error}"
            raise SetupError(what, remedy="Check the file, then send it again") from error
        digest.update(chunk)
        yield TransferRecord.DATA, b"".join((DATA.pack(start.transfer_id, offset), chunk))
        offset += len(chunk)
    yield TransferRecord.FINISHED, FINISHED.pack(start.transfer_id, digest.digest())


def _chunk(start: TransferStart, read: Read, offset: int, count: int) -> Buffer:
    chunk = read(count)
    if 0 < len(chunk) <= count:
        return chunk
    raise SetupError(
        f"the content of {start.name or 'a stream'} gave {len(chunk)} bytes at {offset} of {start.total}",
        remedy="Send it again when nobody changes it meanwhile",
    )


MEMORY_LIMIT: Final = 16 * 1024 * 1024  # bytes of a stream that stays in memory

MAX_TRANSFERS: Final = 64  # streams of one connection that have begun and not ended

MAX_MEMORY_BYTES: Final = 64 * 1024 * 1024  # of all streams in memory of one connection, as announced

MAX_SPILLED_BYTES: Final = 64 * 1024 * 1024 * 1024  # of all streams in sinks of one connection, as announced

_REMEMBERED: Final = 1024  # streams that were refused, whose later records are no news


class Sink(Protocol):
    """Where a stream that is too large for memory is written: a file, as a rule."""

    def write(self, data: Buffer) -> None:
        """Append ``data``. It is only valid during the call. Raises OSError."""

    def close(self) -> Any:
        """Make it whole, and return what the receiver is given instead of the bytes. Raises OSError."""

    def discard(self) -> None:
        """Remove it. Never raises."""


Spill = Callable[[TransferStart], Sink]


@dataclass(frozen=True, slots=True)
class ReceivedTransfer:
    """A stream that arrived whole: its bytes, or what its sink's ``close`` returned."""

    start: TransferStart
    content: Any
    spilled: bool


@dataclass(slots=True)
class _Open:
    start: TransferStart
    sink: Sink | None
    memory: bytearray = field(default_factory=bytearray)
    received: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


class TransferAssembly:
    """The streams of one connection that arrive. Not for several threads at once.

    An error raised for one stream leaves the others as they were; tell the sender with ``encode_failed(...,
    by_receiver=True)``. Keys are the ids of this connection alone.
    """

    def __init__(
        self,
        spill: Spill,
        *,
        memory_limit: int = MEMORY_LIMIT,
        max_transfers: int = MAX_TRANSFERS,
        max_memory_bytes: int = MAX_MEMORY_BYTES,
        max_spilled_bytes: int = MAX_SPILLED_BYTES,
    ) -> None:
        self.memory_limit = memory_limit
        self.max_transfers = max_transfers
        self.max_memory_bytes = max_memory_bytes
        self.max_spilled_bytes = max_spilled_bytes
        self.ignored = 0  # records of streams that had been given up
        self._spill = spill
        self._open: dict[int, _Open] = {}
        self._given_up: dict[int, None] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory now."""
        return sum(len(one.memory) for one in self._open.values())

    def start(self, payload: Buffer) -> TransferStart:
        """Take a START record. Raises DataFormatError, RefusedError beyond a limit, SetupError if the sink fails."""
        start = decode_start(payload)
        if start.transfer_id in self._open:
            self._give_up(start.transfer_id)
            raise broken(f"stream {start.transfer_id} began twice")
        if self._closed:
            self._remember(start.transfer_id)
            raise RefusedError(f"stream {start.transfer_id} comes after the end", remedy="Connect again")
        try:
            opened = _Open(start, self._sink_for(start))
        except AeronSparkError:
            self._remember(start.transfer_id)
            raise
        self._given_up.pop(start.transfer_id, None)
        self._open[start.transfer_id] = opened
        return start

    def data(self, payload: Buffer) -> None:
        """Take a DATA record. Raises DataFormatError, SetupError if the sink fails; the stream is given up then."""
        if len(payload) < DATA.size:
            raise broken(f"its DATA has {len(payload)} bytes")
        transfer_id, offset = DATA.unpack_from(payload)
        one = self._find(transfer_id)
        if one is None:
            return
        chunk = memoryview(payload)[DATA.size :]
        end = one.received + len(chunk)
        if not chunk or offset != one.received or end > one.start.total:
            self._give_up(transfer_id)
            raise broken(
                f"{len(chunk)} bytes at {offset} of stream {transfer_id} do not go on at {one.received} of"
                f" {one.start.total}"
            )
        if one.sink is None:
            one.memory += chunk
        else:
            try:
                one.sink.write(chunk)
            except OSError as error:
                self._give_up(transfer_id)
                raise _unwritable(one.start, error) from error
        one.digest.update(chunk)
        one.received = end

    def finished(self, payload: Buffer) -> ReceivedTransfer | None:
        """Take a FINISHED record; return the stream, or None for one given up before. Raises as ``data`` does."""
        if len(payload) != FINISHED.size:
            raise broken(f"its FINISHED has {len(payload)} bytes")
        transfer_id, digest = FINISHED.unpack_from(payload)
        one = self._find(transfer_id)
        if one is None:
            return None
        if one.received != one.start.total or one.digest.digest() != digest:
            self._give_up(transfer_id)
            why = "its digest is another" if one.received == one.start.total else "it ended early"
            raise broken(f"stream {transfer_id} has {one.received} of {one.start.total} bytes, and {why}")
        if one.sink is None:
            del self._open[transfer_id]
            return ReceivedTransfer(one.start, one.memory, spilled=False)
        try:
            content = one.sink.close()
        except OSError as error:
            self._give_up(transfer_id)
            raise _unwritable(one.start, error) from error
        del self._open[transfer_id]
        return ReceivedTransfer(one.start, content, spilled=True)

    def failed(self, payload: Buffer) -> TransferFailed | None:
        """Take a FAILED record: forget the stream, or learn that ours was refused. None if it was given up before.

        Raises DataFormatError for a stream that never began.
        """
        given_up = decode_failed(payload)
        if given_up.by_receiver:
            return given_up
        if self._find(given_up.transfer_id) is None:
            return None
        self._give_up(given_up.transfer_id)
        return given_up

    def close(self) -> list[TransferStart]:
        """Give up every stream and remove what had arrived of it; return which they were."""
        self._closed = True
        starts = [one.start for one in self._open.values()]
        for start in starts:
            self._give_up(start.transfer_id)
        return starts

    def _find(self, transfer_id: int) -> _Open | None:
        one = self._open.get(transfer_id)
        if one is None:
            if transfer_id not in self._given_up:
                raise broken(f"stream {transfer_id} did not begin")
            self.ignored += 1
        return one

    def _sink_for(self, start: TransferStart) -> Sink | None:
        if len(self._open) >= self.max_transfers:
            raise RefusedError(
                f"{len(self._open)} streams are open on this connection, as many as may be",
                remedy="Send fewer at once, or raise the limit of open streams",
            )
        held = sum(one.start.total for one in self._open.values() if one.sink is None)
        if start.total <= self.memory_limit and held + start.total <= self.max_memory_bytes:
            return None
        spilled = sum(one.start.total for one in self._open.values() if one.sink is not None)
        if spilled + start.total > self.max_spilled_bytes:
            raise RefusedError(
                f"a stream of {start.total} bytes is announced beside {spilled} that arrive, and"
                f" {self.max_spilled_bytes} may be on disk for this connection",
                remedy="Send it in parts, or raise the limit",
            )
        try:
            return self._spill(start)
        except OSError as error:
            raise _unwritable(start, error) from error

    def _give_up(self, transfer_id: int) -> None:
        one = self._open.pop(transfer_id)
        if one.sink is not None:
            one.sink.discard()
        self._remember(transfer_id)

    def _remember(self, transfer_id: int) -> None:
        self._given_up[transfer_id] = None
        if len(self._given_up) > _REMEMBERED:
            del self._given_up[next(iter(self._given_up))]


def _unwritable(start: TransferStart, error: OSError) -> SetupError:
    return SetupError(
        f"stream {start.transfer_id} of {start.total} bytes cannot be written down: {error}",
        remedy="Make room where spill files are, or set another place for them",
    )
