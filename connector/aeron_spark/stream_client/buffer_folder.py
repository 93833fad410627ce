"""A client's folder of transactions that the server has not acknowledged. Each is a file, complete or absent.

    lock                    locked by the one writer that uses the folder; has the id of its process
    buffer.json             stream, writer, author (the producer id), and ``base``: the writer's transaction
                            <base + n> has the number n in the folder; ``absent``: numbers whose files were removed
                            before they were sent; ``lost``: ranges of numbers that were acknowledged, and given up
                            after the server's store was restored; ``schema``: Arrow schema of the rows, as base64;
                            ``late_until``: until this wall time a request of a closed writer may reach the server
    <n>.draft               a transaction that is being written; after a crash it counts as never committed
    <n>.unsent              committed to the folder; the server cannot have committed it
    <n>.sending             its commit request was sent: the server may have committed it
    <n>.sent                the last transaction that the server acknowledged: a JSON object with the writer's
                            transaction of that response, its stamp, and the token; empty in folders of earlier releases
    <n>.kept                sent, and kept for some time in case the server's store is restored from an older copy

A file consists of batches, a token if the transaction has one, and a trailer. Numbers are little-endian; the body of a
batch is an Arrow IPC stream.

    batch    ``ASP1``, payload (1 byte), zeros (3), partition or -1 (4), zeros (4), length (8), body, zeros to 8 bytes
    token    ``ASPT``, zeros (4), -1 (4), zeros (4), length (8), UTF-8, zeros to 8 bytes
    trailer  ``ASPE``, CRC-32 of all bytes before (4), number of bytes before (8)
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import struct
import time
import uuid
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, TransportError, UsageError
from aeron_spark.files import replace_file, sync_folder
from aeron_spark.node.locks import FileLock, current_owner_pid
from aeron_spark.stream_client.row_input import BYTES, WriteBatch
from aeron_spark.wire.arrow import decode_batches, encode_batch
from aeron_spark.wire.foreign_arrow import read_schema

HEAD: Final = struct.Struct(
    "<"
    "4s"  # mark
    "B"  # payload
    "3x"
    "i"  # partition
    "4x"
    "Q"  # length
)
TRAILER: Final = struct.Struct("<4sIQ")
BATCH_MARK: Final = b"ASP1"
TOKEN_MARK: Final = b"ASPT"
END_MARK: Final = b"ASPE"
PAYLOADS: Final = ("arrow", "raw", "framed", BYTES)  # by number
ALIGNMENT: Final = 8
VERSION: Final = 1
SETTINGS: Final = "buffer.json"
LATE_SECONDS: Final = 300.0  # more than a session is kept for, and a request is repeated
NO_NUMBER: Final = -1  # the result of a commit without rows, and the last number before the first transaction
TransactionOutcome = Literal["acknowledged", "buffered", "absent", "diverged"]
_FILE: Final = re.compile(r"(\d{20})\.(draft|unsent|sending|sent|kept)", re.ASCII)


@dataclass(frozen=True, slots=True)
class BufferedTransaction:
    """A transaction to send: its number in the folder, its size, and whether the server may have committed it."""

    number: int
    bytes: int
    is_sending: bool


class BufferedRows:
    """The content of a transaction's file: an iterable of its batches, and its token."""

    def __init__(self, path: Path) -> None:
        """Read and check the file. Raises DataFormatError if it is damaged."""
        self.token = ""
        self._batches: list[tuple[str, int | None, memoryview]] = []  # payload, partition and body
        with pa.memory_map(str(path)) as file:
            data = memoryview(file.read_buffer())
        length = len(data) - TRAILER.size
        mark, crc, stored_length = TRAILER.unpack_from(data, length) if length >= 0 else (b"", 0, 0)
        if mark != END_MARK or stored_length != length or zlib.crc32(data[:length]) != crc:
            raise DataFormatError(
                f"{path} is not the transaction that was written to it: length or checksum differ",
                remedy="Check the disk. Move the file away to send the transactions after it.",
            )
        at = 0
        while at < length:
            mark, payload, partition, size = HEAD.unpack_from(data, at)
            at += HEAD.size
            body = data[at : at + size]
            if mark == TOKEN_MARK:
                self.token = bytes(body).decode()
            else:
                self._batches.append((PAYLOADS[payload], None if partition < 0 else partition, body))
            at += size + -size % ALIGNMENT

    def __iter__(self) -> Iterator[WriteBatch]:
        for payload, partition, body in self._batches:
            for batch in decode_batches(body, is_checked=True):  # the program's own rows, in its own folder
                yield WriteBatch(payload, batch, partition)


@dataclass(frozen=True, slots=True)
class DraftMark:
    """The length of a draft at one moment, and its CRC-32."""

    written: int
    crc: int


class BufferFolder:
    """A buffer folder, opened for one stream and one writer; without a ``writer`` it keeps its own, or makes an id.

    Files of acknowledged transactions stay for ``keep_seconds``. Raises
    UsageError if another writer uses the folder, OptionError if it belongs to another stream or writer. One thread
    writes and one thread sends; the caller ensures that only one of them changes files at a time.
    """

    def __init__(
        self,
        path: Path,
        stream: str,
        writer: str,
        *,
        keep_seconds: float = 0.0,
        former_names: Sequence[str] = (),
    ) -> None:
        self.path = path
        self._keep_seconds = keep_seconds
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = FileLock(path / "lock")
            if not self._lock.try_acquire():
                raise _in_use(path, self._lock.path)
        except OSError as error:
            raise _write_error(path, error) from error
        self._closed = False
        self._draft: io.FileIO | None = None
        self._crc = 0
        self._written = 0
        self._draft_error: AeronSparkError | None = None  # rows of the draft are lost: it can only be dropped
        self.absent: set[int] = set()
        self.lost: list[tuple[int, int]] = []  # ranges, both ends included
        self.schema: pa.Schema | None = None  # of the stream's rows, None while it is not known
        self._late_until = 0.0  # wall time until which a request of a closed writer may reach the server
        self._kept: set[int] = set()
        self._last_token: str | None = None  # None: not read yet
        self.producer = f"buffer-{uuid.uuid4()}"  # of a new folder; each process that sends uses the same
        try:
            with suppress(OSError):  # of a full disk: the error of another writer then names no process
                self._lock.write_owner()
            self._stream = stream
            self.writer, self.base, is_stored = self._read_settings(writer, former_names)
            if not is_stored:
                self._write_settings()
            self._pending, self._next, self.acknowledged = self._scan()
            self.confirmed, self._confirmed_token = self._read_confirmed()
            self._note_absent()
        except BaseException:
            self._lock.release()
            raise

    @property
    def size_bytes(self) -> int:
        """The size of the transactions to send, and of the draft."""
        return sum(transaction.bytes for transaction in self._pending) + self._written

    @property
    def draft_bytes(self) -> int:
        """The size of the transaction that is being written."""
        return self._written

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def last(self) -> int:
        """The number of the last transaction that was committed to the folder, -1 before the first one."""
        return self._next - 1

    @property
    def last_token(self) -> str:
        """The token of the transaction ``last``, "" for none. Raises DataFormatError if its file is damaged."""
        if self._last_token is None:
            if self._pending and self._pending[-1].number == self.last:
                self._last_token = self.read(self._pending[-1]).token
            else:
                self._last_token = self._confirmed_token if self.acknowledged == self.last else ""
        return self._last_token

    def outcome(self, number: int) -> TransactionOutcome:
        if number in self.absent or not 0 <= number <= self.last:
            return "absent"
        if any(first <= number <= last for first, last in self.lost):
            return "diverged"
        return "acknowledged" if number <= self.acknowledged else "buffered"

    def first(self) -> BufferedTransaction | None:
        """Return the next transaction to send, None if there is none."""
        return self._pending[0] if self._pending else None

    def set_base(self, base: int) -> None:
        """Store which of the writer's transactions has the number 0 in the folder; once, before the first is sent.

        Raises TransportError, and leaves the base unset, if the file cannot be written.
        """
        self._write_settings(base)
        self.base = base

    def keep_schema(self, schema: pa.Schema | None) -> None:
        """Store the schema of the rows, for programs that start offline. Raises TransportError if the disk fails."""
        if schema != self.schema:
            before, self.schema = self.schema, schema
            try:
                self._write_settings()
            except BaseException:
                self.schema = before
                raise

    def add(self, batch: WriteBatch) -> None:
        """Write a batch to the draft. Raises TransportError if the disk is full or fails; the draft is unchanged."""
        self._refuse_lost_draft()
        mark = self.mark()
        body = encode_batch(batch.rows)
        partition = -1 if batch.partition is None else batch.partition
        head = HEAD.pack(BATCH_MARK, PAYLOADS.index(batch.payload), partition, body.size)
        try:
            self._write_item(head, memoryview(body).cast("B"))
        except BaseException as error:  # also after an interrupt, half a batch may be in the file
            self.truncate_draft(mark)
            if isinstance(error, OSError):
                raise _write_error(self.path, error) from error
            raise

    def mark(self) -> DraftMark:
        """Return the length of the draft, for :meth:`truncate_draft`."""
        return DraftMark(self._written, self._crc)

    def truncate_draft(self, mark: DraftMark) -> None:
        """Remove the batches that were added to the draft after ``mark``; if the disk fails, the draft is lost."""
        if self._draft_error is not None or self._draft is None:
            return
        try:
            os.ftruncate(self._draft.fileno(), mark.written)
            self._draft.seek(mark.written)
        except OSError as error:
            self._lose_draft(error)
        else:
            self._written, self._crc = mark.written, mark.crc

    def commit(self, token: str = "") -> int:
        """Make the draft a transaction to send, synced to the disk; return its number, -1 without rows and token.

        Raises TransportError if the disk is full or fails; then it is not committed. A further call commits the same
        rows or raises again, until :meth:`drop`.
        """
        self._refuse_lost_draft()
        if not self._written and not token:
            return NO_NUMBER
        mark, number = self.mark(), self._next
        try:
            if token:
                data = token.encode()
                self._write_item(HEAD.pack(TOKEN_MARK, 0, -1, len(data)), memoryview(data))
            self._write(TRAILER.pack(END_MARK, self._crc, self._written))
        except BaseException as error:
            self.truncate_draft(mark)
            if isinstance(error, OSError):
                raise _write_error(self.path, error) from error
            raise
        try:
            assert self._draft is not None
            os.fsync(self._draft.fileno())
            self._rename(number, "draft", "unsent")
        except BaseException as error:  # it is unknown how much of it is on the disk
            self._lose_draft(error)
            if isinstance(error, OSError):
                raise _write_error(self.path, error) from error
            raise
        self._pending.append(BufferedTransaction(number, self._written, is_sending=False))
        self._next += 1
        self._last_token = token
        self._close_draft()
        return number

    def drop(self) -> None:
        """Remove the draft. Raises TransportError if a commit failed and its file cannot be removed."""
        self._close_draft()
        try:
            for state in ("draft", "unsent"):
                self._file(self._next, state).unlink(missing_ok=True)
        except OSError as error:
            # The next process that opens the folder may find the file, and its commit was reported as failed.
            self._draft_error = self._draft_error and _write_error(self.path, error)
            self._refuse_lost_draft()
        else:
            self._draft_error = None

    def _lose_draft(self, error: BaseException) -> None:
        self._close_draft()
        cause = error.strerror if isinstance(error, OSError) else None
        self._draft_error = TransportError(
            f"the rows of transaction {self._next} of the buffer {self.path} are lost: {cause or repr(error)}",
            remedy="Call abort(), check the disk, and write the rows again.",
        )
        with suppress(OSError):
            for state in ("unsent", "draft"):
                self._file(self._next, state).unlink(missing_ok=True)

    def _refuse_lost_draft(self) -> None:
        if self._draft_error is not None:
            raise copy.copy(self._draft_error)

    def _close_draft(self) -> None:
        draft, self._draft, self._crc, self._written = self._draft, None, 0, 0
        if draft is not None:
            draft.close()

    def mark_sending(self, transaction: BufferedTransaction) -> BufferedTransaction:
        """Store that the server may commit the first transaction from now on; return it with that state."""
        if not transaction.is_sending:
            self._rename(transaction.number, "unsent", "sending")
            transaction = BufferedTransaction(transaction.number, transaction.bytes, is_sending=True)
            self._pending[0] = transaction
        return transaction

    def mark_sent(self, transaction: BufferedTransaction, stamp: str, token: str) -> None:
        """Store that the server acknowledged the first transaction, with this stamp, and free its space.

        ``token`` is that of the transaction.
        """
        # After a crash or power cut between these steps it is sent again, and the server says that it has it. The file
        # is not truncated, because batches that were read from it are views of it.
        assert self.base is not None
        self._confirm(transaction.number, self.base + transaction.number, stamp, token)
        sending, kept = self._file(transaction.number, "sending"), self._file(transaction.number, "kept")
        if self._keep_seconds:
            os.utime(sending, (time.time(), time.time()))
            sending.rename(kept)
            self._kept.add(transaction.number)
        else:
            sending.unlink()
        self._remove_expired()
        self._pending.pop(0)

    @property
    def last_sending(self) -> int:
        """The number of the last transaction that was sent, perhaps without a response. Needs a pending transaction."""
        numbers = [one.number for one in self._pending if one.is_sending]
        return numbers[-1] if numbers else self._pending[0].number - 1

    def missing_from(self, first: int) -> list[int]:
        """Return the acknowledged numbers from ``first`` on whose files the folder does not have any more."""
        present = self._kept | {transaction.number for transaction in self._pending}
        return [number for number in range(first, self.acknowledged + 1) if number not in present]

    def send_again_from(self, first: int, last: int, stamp: str) -> int:
        """Store that the server lost the acknowledged transactions from ``first`` on; return how many to send again.

        Kept transactions are sent again; the others are lost. ``last`` is the writer's last transaction that the server
        has, and ``stamp`` came with it.
        """
        missing = self.missing_from(first)
        again = sorted(number for number in self._kept if number >= first)
        # The state from which the client requests the loss again is replaced last: after a crash all is repeated.
        for number in again:
            self._rename(number, "kept", "sending")
            self._kept.discard(number)
        returned = [
            BufferedTransaction(number, self._file(number, "sending").stat().st_size, is_sending=True)
            for number in again
        ]
        self._pending = sorted([*returned, *self._pending], key=lambda transaction: transaction.number)
        if missing:
            self.lost = [*self.lost, *_ranges(missing)]
            self._write_settings()
        repeated = [one.number for one in self._pending if one.number <= self.acknowledged]
        if repeated:  # the last transaction of the folder is among those to send, and its file has its token
            self._confirm(min(repeated) - 1, last, stamp, "")
        else:
            self._confirm(self.acknowledged, last, stamp, self._confirmed_token)
        return len(repeated)

    def read(self, transaction: BufferedTransaction) -> BufferedRows:
        """Return the content of a transaction. Raises DataFormatError if its file is damaged."""
        return BufferedRows(self._file(transaction.number, "sending" if transaction.is_sending else "unsent"))

    @property
    def may_be_fenced(self) -> bool:
        """Whether a late request of the folder's former writer may take the writer id from this one."""
        return time.time() < self._late_until

    def note_late_request(self) -> None:
        """Note that the writer, which is about to close the folder, has a request under way."""
        self._late_until = time.time() + LATE_SECONDS
        with suppress(TransportError):
            self._write_settings()

    def close(self) -> None:
        """Release the folder for another writer. A second call does nothing, as another writer may own the files."""
        if self._closed:
            return
        self._closed = True
        with suppress(TransportError):
            self.drop()
        self._lock.release()

    def _read_settings(self, writer: str, former_names: Sequence[str]) -> tuple[str, int | None, bool]:
        """Return the writer, ``base``, and whether the file has this stream: not in a new folder or after a rename."""
        path = self.path / SETTINGS
        try:
            settings: dict[str, Any] = json.loads(path.read_bytes())
            found = settings["version"], settings["stream"], settings["writer"], settings["base"]
            self.producer = settings.get("author", f"buffer of {found[2]}")  # earlier releases stored no producer
            self.absent = set(map(int, settings.get("absent", ())))
            self._late_until = float(settings.get("late_until", 0.0))
            self.lost = [(int(first), int(last)) for first, last in settings.get("lost", ())]
            schema = b64decode(settings.get("schema", ""))
            self.schema = read_schema(schema) if schema else None
        except FileNotFoundError:
            return writer or f"buffer-{uuid.uuid4()}", None, False
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DataFormatError(
                f"{path} is not a buffer's settings file: {error!r}", remedy="Name another folder."
            ) from error
        if found[0] != VERSION:
            raise DataFormatError(f"{path} has version {found[0]!r}, not {VERSION}", remedy="Use a newer release.")
        for name, stored, wanted in (("stream", found[1], self._stream), ("writer", found[2], writer)):
            if stored != wanted and wanted and (name == "writer" or stored not in former_names):
                raise OptionError(
                    f"the buffer {self.path} has transactions of {name} {stored!r}, not {wanted!r}",
                    remedy="Give each stream and writer its own folder. If the stream was renamed, open its folder "
                    "while the client is connected.",
                )
        return found[2], found[3], found[1] == self._stream

    def _write_settings(self, base: int | None = None) -> None:
        path = self.path / SETTINGS
        settings = {
            "version": VERSION,
            "stream": self._stream,
            "writer": self.writer,
            "author": self.producer,
            "base": self.base if base is None else base,
            "absent": sorted(self.absent),
            "lost": self.lost,
            "late_until": self._late_until,
        }
        if self.schema is not None:
            settings["schema"] = b64encode(self.schema.serialize()).decode()
        try:
            replace_file(path, json.dumps(settings).encode())
        except OSError as error:
            raise _write_error(self.path, error) from error

    def _scan(self) -> tuple[list[BufferedTransaction], int, int]:
        """Read the file names; return the transactions to send, the next number, and the last acknowledged number."""
        pending, following, sent = [], 0, NO_NUMBER
        for path in sorted(self.path.iterdir()):
            match = _FILE.fullmatch(path.name)
            if match is None:
                continue
            if match[2] == "draft":
                path.unlink()
                continue
            number = int(match[1])
            following = max(following, number + 1)
            if match[2] == "sent":
                sent = max(sent, number)
            elif match[2] == "kept":
                self._kept.add(number)
            else:
                pending.append(BufferedTransaction(number, path.stat().st_size, match[2] == "sending"))
        return pending, following, sent

    def _read_confirmed(self) -> tuple[tuple[int, str] | None, str]:
        """Return the writer's last acknowledged transaction and its stamp, None before the first one; and its token."""
        if self.acknowledged == NO_NUMBER or self.base is None:
            return None, ""
        text = self._file(self.acknowledged, "sent").read_bytes()
        try:
            found = json.loads(text)
            return (int(found["last"]), str(found["stamp"])), str(found.get("token", ""))
        except (ValueError, KeyError, TypeError):  # of an earlier release, or the program was killed while it wrote
            return (self.base + self.acknowledged, ""), ""

    def _confirm(self, number: int, last: int, stamp: str, token: str) -> None:
        """Store that the server has all transactions up to ``number``, and its last response; remove older ones.

        ``token`` is that of the transaction ``number``.
        """
        path = self._file(number, "sent")
        if number != NO_NUMBER:
            content = {"last": last, "stamp": stamp} | ({"token": token} if token else {})
            # A token must be on the disk before the transaction's file, which has it, is removed.
            replace_file(path, json.dumps(content).encode(), sync=bool(token))
        for old in self.path.glob("*.sent"):
            if old != path:
                old.unlink(missing_ok=True)
        self.acknowledged, self.confirmed, self._confirmed_token = number, (last, stamp), token

    def _remove_expired(self) -> None:
        """Remove the kept files that are older than ``keep_seconds``."""
        for number in sorted(self._kept):
            path = self._file(number, "kept")
            if path.stat().st_mtime > time.time() - self._keep_seconds:
                return
            path.unlink()
            self._kept.discard(number)

    def _note_absent(self) -> None:
        """Store, before later ones are sent, the numbers whose files were removed from the folder."""
        missing = set(range(self.acknowledged + 1, self._next)) - {one.number for one in self._pending}
        if not missing <= self.absent:
            self.absent |= missing
            self._write_settings()

    def _write_item(self, head: bytes, body: memoryview) -> None:
        """Write a batch or the token to the draft."""
        if self._draft is None:
            self._draft = io.FileIO(self._file(self._next, "draft"), "w")
        for data in (head, body, bytes(-body.nbytes % ALIGNMENT)):
            self._write(data)

    def _write(self, data: bytes | memoryview) -> None:
        draft = self._draft
        assert draft is not None
        view = memoryview(data)
        while view.nbytes:
            count = draft.write(view)
            self._crc = zlib.crc32(view[:count], self._crc)
            self._written += count
            view = view[count:]

    def _file(self, number: int, state: str) -> Path:
        return self.path / f"{number:020d}.{state}"

    def _rename(self, number: int, before: str, after: str) -> None:
        self._file(number, before).rename(self._file(number, after))
        sync_folder(self.path)


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Join rising numbers into ranges, both ends included."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _in_use(path: Path, lock: Path) -> UsageError:
    owner = current_owner_pid(lock)
    if owner == os.getpid():
        return UsageError(
            f"this process has another writer that uses the buffer {path}",
            remedy="Share that writer, or close it first. Give each writer its own folder.",
        )
    process = "another process" if owner is None else f"process {owner}"
    return UsageError(f"{process} writes through the buffer {path}", remedy="Give each process its own folder.")


def _write_error(path: Path, error: OSError) -> TransportError:
    return TransportError(
        f"the buffer {path} cannot be written: {error.strerror or error}", remedy="Check its disk, then try again."
    )
