"""Transfers: sends and receives files, and data that is too large for one record, in bounded memory.

    START      i64 transfer id, u8 purpose, u16 type id (MESSAGE: of the message; else 0), u64 total bytes,
               then a name in UTF-8 (FILE: the file's; else empty)
    DATA       i64 transfer id, u64 offset, then the bytes, at least one
    FINISHED   i64 transfer id, SHA-256 of all bytes
    FAILED     i64 transfer id, u8 failed by (0 the sender of the transfer, 1 its receiver), u8 length of the reason,
               the reason in ASCII (a code of ``errors.REFUSALS``, or empty), then a text in UTF-8

Numbers are big-endian. The content of a MESSAGE is its body (``message_types.Encoded``); the content of a CALL, RETURN
or OBJECT is the record's payload. Each direction of a connection counts its own transfer ids.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Protocol

from aeron_spark.errors import REFUSALS, AeronSparkError, DataFormatError, OptionError, RefusedError, SetupError
from aeron_spark.protocol.message_types import Buffer

CHUNK_BYTES: Final = 64 * 1024  # of content in a DATA record; the record's head is small compared with it

MAX_NAME_BYTES: Final = 1024

MAX_TEXT_BYTES: Final = 1000

MAX_REASON_BYTES: Final = 32

DIGEST_BYTES: Final = hashlib.sha256().digest_size

START: Final = struct.Struct(
    ">"
    "q"  # transfer id
    "B"  # purpose
    "H"  # type id
    "Q"  # total bytes
)

DATA: Final = struct.Struct(
    ">"
    "q"  # transfer id
    "Q"  # offset
)

FINISHED: Final = struct.Struct(f">q{DIGEST_BYTES}s")

FAILED: Final = struct.Struct(
    ">"
    "q"  # transfer id
    "B"  # failed by
    "B"  # length of the reason
)


class Purpose(IntEnum):
    """The kind of a transfer's content."""

    MESSAGE = 1
    FILE = 2
    CALL = 3
    RETURN = 4
    OBJECT = 5


class TransferRecord(IntEnum):
    """The kind of a transfer's record."""

    START = 1
    DATA = 2
    FINISHED = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TransferStart:
    """The announcement of a transfer. ``total`` is in bytes, and unverified until the content has arrived."""

    transfer_id: int
    purpose: Purpose
    total: int
    type_id: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """The failure of a transfer. ``by_receiver``: the receiver refused it; else the sender abandoned it."""

    transfer_id: int
    by_receiver: bool
    text: str
    reason: str = ""

    @property
    def error(self) -> RefusedError:
        """The error for the sender of a refused transfer."""
        advice = REFUSALS.get(self.reason)
        remedy = "Send it in several smaller parts." if advice is None else advice.remedy
        return RefusedError(f"the peer refused the transfer: {self.text}", remedy=remedy, reason=self.reason)


EncodedTransferRecord = tuple[TransferRecord, bytes]

Read = Callable[[int], Buffer]


def encode_start(start: TransferStart) -> bytes:
    """Encode a START record. Raises OptionError if the name is too long or cannot be encoded in UTF-8."""
    try:
        name = start.name.encode()
    except UnicodeEncodeError:
        raise OptionError(
            f"the name {start.name!r} cannot be encoded in UTF-8", remedy="Send the file under another name."
        ) from None
    if len(name) > MAX_NAME_BYTES:
        raise OptionError(
            f"the name of a transfer has {len(name)} bytes, and the limit is {MAX_NAME_BYTES}",
            remedy="Send the file under a shorter name.",
        )
    return START.pack(start.transfer_id, start.purpose, start.type_id, start.total) + name


def decode_start(payload: Buffer) -> TransferStart:
    """Decode a START record. Raises DataFormatError."""
    if not START.size <= len(payload) <= START.size + MAX_NAME_BYTES:
        raise format_error(f"its START has {len(payload)} bytes")
    transfer_id, purpose, type_id, total = START.unpack_from(payload)
    try:
        return TransferStart(
            transfer_id, Purpose(purpose), total, type_id, str(memoryview(payload)[START.size :], "utf-8")
        )
    except UnicodeDecodeError:
        raise format_error("its name is not UTF-8") from None
    except ValueError:
        raise format_error(f"its purpose is {purpose}") from None


def encode_failed(transfer_id: int, text: str, *, by_receiver: bool = False, reason: str = "") -> bytes:
    """Encode a FAILED record. Truncates ``text`` to MAX_TEXT_BYTES, and omits a reason that is not a short code."""
    truncated = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    code = reason.encode() if reason.isascii() and len(reason) <= MAX_REASON_BYTES else b""
    return FAILED.pack(transfer_id, by_receiver, len(code)) + code + truncated


def decode_failed(payload: Buffer) -> TransferFailed:
    """Decode a FAILED record. Raises DataFormatError."""
    if not FAILED.size <= len(payload) <= FAILED.size + MAX_REASON_BYTES + MAX_TEXT_BYTES:
        raise format_error(f"its FAILED record has {len(payload)} bytes")
    transfer_id, by_receiver, reason_bytes = FAILED.unpack_from(payload)
    rest = memoryview(payload)[FAILED.size :]
    if by_receiver > 1 or reason_bytes > min(len(rest), MAX_REASON_BYTES):
        raise format_error(f"its FAILED record of {len(payload)} bytes is invalid")
    reason, text = str(rest[:reason_bytes], "ascii", "replace"), str(rest[reason_bytes:], "utf-8", "replace")
    return TransferFailed(transfer_id, bool(by_receiver), text, reason)


def format_error(reason: str) -> DataFormatError:
    """Return the error for an invalid transfer."""
    return DataFormatError(
        f"a transfer is invalid: {reason}", remedy="Send it again, with the same release of aeron-spark at both ends."
    )


def send_buffer(
    start: TransferStart, content: Buffer, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[EncodedTransferRecord]:
    """Yield the records of a transfer whose content is in memory. Copies one chunk at a time.

    The caller must not change ``content`` before the last record. Raises OptionError if its size is not ``total``.
    """
    view = memoryview(content).cast("B")
    if len(view) != start.total:
        raise OptionError(
            f"the content has {len(view)} bytes, announced are {start.total}", remedy="Announce the exact size."
        )
    position = 0

    def read(count: int) -> Buffer:
        nonlocal position
        position += count
        return view[position - count : position]

    return send_from(start, read, chunk_bytes=chunk_bytes)


def send_from(start: TransferStart, read: Read, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[EncodedTransferRecord]:
    """Yield the records of a transfer whose content comes from ``read(count)``, which returns at most ``count`` bytes.

    If ``read`` raises, or ends before ``total`` bytes, the last record is FAILED, and the next step raises SetupError,
    or the error of this package that ``read`` raised. Bytes beyond ``total`` are not sent.
    """
    if chunk_bytes < 1:
        raise OptionError(f"invalid chunk size {chunk_bytes} bytes", remedy="Use at least 1.")
    yield TransferRecord.START, encode_start(start)
    digest = hashlib.sha256()
    offset = 0
    while offset < start.total:
        try:
            chunk = _read_chunk(start, read, offset, min(chunk_bytes, start.total - offset))
        except Exception as error:
            yield TransferRecord.FAILED, encode_failed(start.transfer_id, "the sender could not read its content")
            if isinstance(error, AeronSparkError):
                raise
            text = f"the content of {start.name or 'a transfer'} could not be read: {error}"
            raise SetupError(text, remedy="Check the file, then send it again.") from error
        digest.update(chunk)
        yield TransferRecord.DATA, b"".join((DATA.pack(start.transfer_id, offset), chunk))
        offset += len(chunk)
    yield TransferRecord.FINISHED, FINISHED.pack(start.transfer_id, digest.digest())


def _read_chunk(start: TransferStart, read: Read, offset: int, count: int) -> Buffer:
    chunk = read(count)
    if 0 < len(chunk) <= count:
        return chunk
    raise SetupError(
        f"the content of {start.name or 'a transfer'} returned {len(chunk)} bytes at offset {offset} of {start.total}",
        remedy="Send it again, and do not change it during the transfer.",
    )


MEMORY_LIMIT: Final = 16 * 1024 * 1024  # largest transfer that is received in memory

MAX_TRANSFERS: Final = 64  # unfinished transfers of one connection

MAX_MEMORY_BYTES: Final = 64 * 1024 * 1024  # announced bytes of all transfers in memory, of one connection

MAX_SPILLED_BYTES: Final = 64 * 1024 * 1024 * 1024  # announced bytes of all transfers in sinks, of one connection

_MAX_REMEMBERED: Final = 1024  # abandoned transfers whose later records are ignored


class Sink(Protocol):
    """Receives the content of a transfer that is too large for memory; usually a file."""

    def write(self, data: Buffer) -> None:
        """Append ``data``, which is valid only during the call. Raises OSError."""

    def close(self) -> Any:
        """Complete the content, and return an object that represents it. Raises OSError."""

    def discard(self) -> None:
        """Remove the content. Never raises."""


Spill = Callable[[TransferStart], Sink]


@dataclass(frozen=True, slots=True)
class ReceivedTransfer:
    """A complete transfer. ``content`` is its bytes, or if ``spilled`` the result of its sink's ``close``."""

    start: TransferStart
    content: Any
    spilled: bool


@dataclass(slots=True)
class _IncomingTransfer:
    start: TransferStart
    sink: Sink | None
    memory: bytearray = field(default_factory=bytearray)
    received: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


class TransferAssembly:
    """Assembles the incoming transfers of one connection. For one thread at a time.

    An error of one transfer does not affect the others. The caller reports it to the sender with ``encode_failed(...,
    by_receiver=True)``.
    """

    def __init__(
        self,
        spill: Spill,
        *,
        memory_limit: int = MEMORY_LIMIT,
        max_transfers: int = MAX_TRANSFERS,
        max_memory_bytes: int = MAX_MEMORY_BYTES,
        max_spilled_bytes: int = MAX_SPILLED_BYTES,
        refusal: Callable[[TransferStart], AeronSparkError | None] = lambda _: None,
    ) -> None:
        """``refusal`` returns why the peer may not send this transfer, or None."""
        self.memory_limit = memory_limit
        self.max_transfers = max_transfers
        self.max_memory_bytes = max_memory_bytes
        self.max_spilled_bytes = max_spilled_bytes
        self.ignored = 0  # number of records of abandoned transfers
        self.memory_bytes = 0
        """Received bytes in memory."""
        self._spill = spill
        self._refusal = refusal
        self._incoming: dict[int, _IncomingTransfer] = {}
        self._abandoned: dict[int, None] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._incoming)

    def announced_bytes(self, *purposes: Purpose) -> int:
        """Return the announced bytes of the unfinished transfers for these purposes."""
        return sum(one.start.total for one in self._incoming.values() if one.start.purpose in purposes)

    def start(self, payload: Buffer) -> TransferStart:
        """Process a START record. Raises DataFormatError, RefusedError beyond a limit, SetupError if the sink fails."""
        start = decode_start(payload)
        if start.transfer_id in self._incoming:
            self._abandon(start.transfer_id)
            raise format_error(f"transfer {start.transfer_id} was started twice")
        if self._closed:
            self._remember_abandoned(start.transfer_id)
            raise RefusedError(
                f"transfer {start.transfer_id} starts after the connection has ended", remedy="Connect again."
            )
        try:
            refusal = self._refusal(start)
            if refusal is not None:
                raise refusal
            transfer = _IncomingTransfer(start, self._sink_for(start))
        except AeronSparkError:
            self._remember_abandoned(start.transfer_id)
            raise
        self._abandoned.pop(start.transfer_id, None)
        self._incoming[start.transfer_id] = transfer
        return start

    def add_data(self, payload: Buffer) -> None:
        """Process a DATA record. Raises DataFormatError, or SetupError if the sink fails, and abandons the transfer."""
        if len(payload) < DATA.size:
            raise format_error(f"its DATA has {len(payload)} bytes")
        transfer_id, offset = DATA.unpack_from(payload)
        transfer = self._find(transfer_id)
        if transfer is None:
            return
        chunk = memoryview(payload)[DATA.size :]
        end = transfer.received + len(chunk)
        if not chunk or offset != transfer.received or end > transfer.start.total:
            self._abandon(transfer_id)
            raise format_error(
                f"{len(chunk)} bytes at offset {offset} of transfer {transfer_id}, expected at most"
                f" {transfer.start.total - transfer.received} bytes at offset {transfer.received}"
            )
        if transfer.sink is None:
            transfer.memory += chunk
            self.memory_bytes += len(chunk)
        else:
            try:
                transfer.sink.write(chunk)
            except OSError as error:
                self._abandon(transfer_id)
                raise _spill_error(transfer.start, error) from error
        transfer.digest.update(chunk)
        transfer.received = end

    def finish(self, payload: Buffer) -> ReceivedTransfer | None:
        """Process a FINISHED record. Returns the transfer, or None if it was abandoned. Raises like ``add_data``."""
        if len(payload) != FINISHED.size:
            raise format_error(f"its FINISHED has {len(payload)} bytes")
        transfer_id, digest = FINISHED.unpack_from(payload)
        transfer = self._find(transfer_id)
        if transfer is None:
            return None
        if transfer.received != transfer.start.total or transfer.digest.digest() != digest:
            self._abandon(transfer_id)
            reason = "its digest differs" if transfer.received == transfer.start.total else "it ended early"
            raise format_error(
                f"transfer {transfer_id} has {transfer.received} of {transfer.start.total} bytes, and {reason}"
            )
        if transfer.sink is None:
            del self._incoming[transfer_id]
            self.memory_bytes -= len(transfer.memory)
            return ReceivedTransfer(transfer.start, transfer.memory, spilled=False)
        try:
            content = transfer.sink.close()
        except OSError as error:
            self._abandon(transfer_id)
            raise _spill_error(transfer.start, error) from error
        del self._incoming[transfer_id]
        return ReceivedTransfer(transfer.start, content, spilled=True)

    def fail(self, payload: Buffer) -> TransferFailed | None:
        """Process a FAILED record of the sender or receiver. Returns None if the transfer was abandoned before.

        Raises DataFormatError for a transfer of the peer that was not started.
        """
        failure = decode_failed(payload)
        if failure.by_receiver:
            return failure
        if self._find(failure.transfer_id) is None:
            return None
        self._abandon(failure.transfer_id)
        return failure

    def close(self) -> list[TransferStart]:
        """Abandon every transfer, and remove its content. Returns the abandoned transfers."""
        self._closed = True
        starts = [transfer.start for transfer in self._incoming.values()]
        for start in starts:
            self._abandon(start.transfer_id)
        return starts

    def _find(self, transfer_id: int) -> _IncomingTransfer | None:
        transfer = self._incoming.get(transfer_id)
        if transfer is None:
            if transfer_id not in self._abandoned:
                raise format_error(f"transfer {transfer_id} was not started")
            self.ignored += 1
        return transfer

    def _sink_for(self, start: TransferStart) -> Sink | None:
        if len(self._incoming) >= self.max_transfers:
            raise RefusedError(
                f"this connection has {len(self._incoming)} unfinished transfers, which is the limit",
                remedy="Send fewer at once, or raise the limit of transfers.",
            )
        memory_bytes = sum(transfer.start.total for transfer in self._incoming.values() if transfer.sink is None)
        if start.total <= self.memory_limit and memory_bytes + start.total <= self.max_memory_bytes:
            return None
        spilled_bytes = sum(transfer.start.total for transfer in self._incoming.values() if transfer.sink is not None)
        if spilled_bytes + start.total > self.max_spilled_bytes:
            raise RefusedError(
                f"a transfer of {start.total} bytes is announced while others have {spilled_bytes} bytes on disk, and"
                f" the limit of this connection is {self.max_spilled_bytes}",
                remedy="Send it in several smaller parts, or raise the limit.",
            )
        try:
            return self._spill(start)
        except OSError as error:
            raise _spill_error(start, error) from error

    def _abandon(self, transfer_id: int) -> None:
        transfer = self._incoming.pop(transfer_id)
        self.memory_bytes -= len(transfer.memory)
        if transfer.sink is not None:
            transfer.sink.discard()
        self._remember_abandoned(transfer_id)

    def _remember_abandoned(self, transfer_id: int) -> None:
        self._abandoned[transfer_id] = None
        if len(self._abandoned) > _MAX_REMEMBERED:
            del self._abandoned[next(iter(self._abandoned))]


def _spill_error(start: TransferStart, error: OSError) -> SetupError:
    return SetupError(
        f"transfer {start.transfer_id} of {start.total} bytes cannot be written to disk: {error}",
        remedy="Free space in the folder of spill files, or configure another folder.",
    )
