"""A folder of transactions that wait to be sent: each a file, whole or not there, in the order they were committed.

    lock                    held by the one process that uses the folder
    buffer.json             stream, writer, author, and ``base``: transaction <base + n> of the writer is number n here;
                            ``absent``: numbers whose files were taken away before they were sent
    <n>.draft               being written; what a crash leaves of it was never committed
    <n>.unsent              committed here; the server cannot have committed it
    <n>.sending             its commit was sent: the server may have it
    <n>.sent                empty; the last one the server has, so that numbers go on after it

A file: pieces one after another, then the trailer. Numbers are little-endian; bodies are Arrow IPC streams.

    piece    ``ASP1``, payload (1 byte), zeros (3), partition or -1 (4), zeros (4), length (8), body, zeros to 8 bytes
    trailer  ``ASPE``, CRC-32 of everything before (4), length of everything before (8)
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import struct
import uuid
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, TransportError, UsageError
from aeron_spark.node.locks import FileLock
from aeron_spark.remote.pieces import BYTES, Piece
from aeron_spark.wire.batches import decode_batches, encode_batch

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
PIECE_MARK: Final = b"ASP1"
END_MARK: Final = b"ASPE"
PAYLOADS: Final = ("arrow", "raw", "framed", BYTES)  # by number
ALIGNMENT: Final = 8
VERSION: Final = 1
SETTINGS: Final = "buffer.json"
NO_NUMBER: Final = -1  # of a commit without rows, and before the first transaction
Outcome = Literal["acknowledged", "buffered", "absent"]
_FILE: Final = re.compile(r"(\d{20})\.(draft|unsent|sending|sent)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A transaction that waits: its number in the folder, its size, and whether the server may have it."""

    number: int
    bytes: int
    begun: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a draft was written."""

    written: int
    crc: int


class Unsent:
    """The folder; without a ``writer`` the one it has, or a new one.

    Raises UsageError where another process uses it, OptionError where it is another stream's or writer's. One thread
    writes and another one sends; whoever calls sees to it that both do not change files at once.
    """

    def __init__(self, folder: Path, stream: str, writer: str) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = FileLock(folder / "lock")
            taken = self._lock.try_acquire()
        except OSError as error:
            raise _unwritable(folder, error) from error
        if not taken:
            raise UsageError(
                f"another process writes through the buffer {folder}", remedy="Give each process a folder of its own."
            )
        self._draft: io.FileIO | None = None
        self._crc = 0
        self._written = 0
        self._lost: AeronSparkError | None = None  # why rows of the draft are gone: it can only be dropped
        self.absent: set[int] = set()
        # of a new folder: who its transactions are, whichever process sends them
        self.author = f"buffer-{uuid.uuid4()}"
        try:
            self.writer, self.base = self._settings(stream, writer)
            self._stream = stream
            self._waiting, self._next, self.acknowledged = self._look()
            self._note_absent()
        except BaseException:
            self._lock.release()
            raise

    @property
    def size(self) -> int:
        """What waits, and what is being written."""
        return sum(one.bytes for one in self._waiting) + self._written

    @property
    def drafted(self) -> int:
        """Bytes of the transaction that is being written."""
        return self._written

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def last(self) -> int:
        """The number of the last transaction that was committed here, -1 before the first one."""
        return self._next - 1

    def outcome(self, number: int) -> Outcome:
        """Return what became of a transaction."""
        if number in self.absent or not 0 <= number <= self.last:
            return "absent"
        return "acknowledged" if number <= self.acknowledged else "buffered"

    def first(self) -> Waiting | None:
        """Return the next transaction to send."""
        return self._waiting[0] if self._waiting else None

    def begin_at(self, base: int) -> None:
        """Say which number of the writer's transactions the folder's number 0 is. Once, before anything is sent."""
        self.base = base
        self._write_settings()

    def add(self, piece: Piece) -> None:
        """Write a piece to the draft. Raises TransportError, the draft as it was, where the disk is full or fails."""
        self._refuse_lost()
        mark = self.mark()
        body = encode_batch(piece.rows)
        at = -1 if piece.partition is None else piece.partition
        head = HEAD.pack(PIECE_MARK, PAYLOADS.index(piece.payload), at, body.size)
        try:
            if self._draft is None:
                self._draft = io.FileIO(self._path(self._next, "draft"), "w")
            for data in (head, memoryview(body).cast("B"), bytes(-body.size % ALIGNMENT)):
                self._put(data)
        except BaseException as error:  # an interrupt, too, may leave half a piece behind
            self.back_to(mark)
            if isinstance(error, OSError):
                raise _unwritable(self.folder, error) from error
            raise

    def mark(self) -> Mark:
        """Return how far the draft is written, for :meth:`back_to`."""
        return Mark(self._written, self._crc)

    def back_to(self, mark: Mark) -> None:
        """Forget what was added to the draft after ``mark``; where the disk fails the draft is lost."""
        if self._lost is not None or self._draft is None:
            return
        try:
            os.ftruncate(self._draft.fileno(), mark.written)
            self._draft.seek(mark.written)
        except OSError as error:
            self._lose(error)
        else:
            self._written, self._crc = mark.written, mark.crc

    def commit(self) -> int:
        """Make the draft a transaction that waits, and return its number; -1 without rows. It is on the disk then.

        Raises TransportError where the disk is full or fails. Then it is not committed. Called again it either commits
        the same rows or raises again, until :meth:`drop`.
        """
        self._refuse_lost()
        draft = self._draft
        if draft is None or not self._written:
            return NO_NUMBER
        mark, number = self.mark(), self._next
        try:
            self._put(TRAILER.pack(END_MARK, self._crc, self._written))
        except BaseException as error:
            self.back_to(mark)
            if isinstance(error, OSError):
                raise _unwritable(self.folder, error) from error
            raise
        try:
            os.fsync(draft.fileno())
            self._rename(number, "draft", "unsent")
        except BaseException as error:  # what of it is on the disk is not known
            self._lose(error)
            if isinstance(error, OSError):
                raise _unwritable(self.folder, error) from error
            raise
        self._waiting.append(Waiting(number, self._written, begun=False))
        self._next += 1
        self._end_draft()
        return number

    def drop(self) -> None:
        """Forget the draft. Raises TransportError where a commit failed and its file cannot be removed."""
        self._end_draft()
        try:
            for state in ("draft", "unsent"):
                self._path(self._next, state).unlink(missing_ok=True)
        except OSError as error:
            # what is lost may be found by the next process that opens the folder, and was said not to be committed
            self._lost = self._lost and _unwritable(self.folder, error)
            self._refuse_lost()
        else:
            self._lost = None

    def _lose(self, error: BaseException) -> None:
        self._end_draft()
        why = error.strerror if isinstance(error, OSError) else None
        self._lost = TransportError(
            f"the rows of transaction {self._next} of the buffer {self.folder} are lost: {why or repr(error)}",
            remedy="Call abort(), see to the disk, and write the rows again.",
        )
        with suppress(OSError):
            for state in ("unsent", "draft"):
                self._path(self._next, state).unlink(missing_ok=True)

    def _refuse_lost(self) -> None:
        if self._lost is not None:
            raise copy.copy(self._lost)

    def _end_draft(self) -> None:
        draft, self._draft, self._crc, self._written = self._draft, None, 0, 0
        if draft is not None:
            draft.close()

    def begin(self, one: Waiting) -> Waiting:
        """Note, so that it survives a crash, that the server may have the first transaction from now on."""
        if not one.begun:
            self._rename(one.number, "unsent", "sending")
            self._waiting[0] = one = Waiting(one.number, one.bytes, begun=True)
        return one

    def sent(self, one: Waiting) -> None:
        """The server has the first transaction: its room is free."""
        # A crash between these, or a power cut, has it sent again, and the server says that it has it. It is not
        # truncated: what was read of it is a view of the file.
        path = self._path(one.number, "sent")
        path.touch()
        self._path(one.number, "sending").unlink()
        for old in self.folder.glob("*.sent"):
            if old != path:
                old.unlink(missing_ok=True)
        self._waiting.pop(0)
        self.acknowledged = one.number

    def read(self, one: Waiting) -> Iterator[Piece]:
        """Yield the pieces of a transaction. Raises DataFormatError, before any, where the disk lost some of it."""
        path = self._path(one.number, "sending" if one.begun else "unsent")
        with pa.memory_map(str(path)) as file:
            data = memoryview(file.read_buffer())
            length = len(data) - TRAILER.size
            mark, crc, said = TRAILER.unpack_from(data, length) if length >= 0 else (b"", 0, 0)
            if mark != END_MARK or said != length or zlib.crc32(data[:length]) != crc:
                raise DataFormatError(
                    f"{path} is not the transaction that was written to it",
                    remedy="The disk has lost it; move the file away to send those behind it.",
                )
            at = 0
            while at < length:
                _, payload, partition, size = HEAD.unpack_from(data, at)
                at += HEAD.size
                for batch in decode_batches(data[at : at + size]):
                    yield Piece(PAYLOADS[payload], batch, None if partition < 0 else partition)
                at += size + -size % ALIGNMENT

    def close(self) -> None:
        """Let another process have the folder."""
        with suppress(TransportError):
            self.drop()
        self._lock.release()

    def _settings(self, stream: str, writer: str) -> tuple[str, int | None]:
        path = self.folder / SETTINGS
        try:
            known: dict[str, Any] = json.loads(path.read_bytes())
            found = known["version"], known["stream"], known["writer"], known["base"]
            self.author = known.get("author", f"buffer of {found[2]}")  # folders were once without
            self.absent = set(map(int, known.get("absent", ())))
        except FileNotFoundError:
            self.writer, self.base, self._stream = writer or f"buffer-{uuid.uuid4()}", None, stream
            self._write_settings()
            return self.writer, None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataFormatError(f"{path} is not a buffer's: {error!r}", remedy="Name another folder.") from error
        if found[0] != VERSION:
            raise DataFormatError(f"{path} has version {found[0]!r}, not {VERSION}", remedy="Use a newer release.")
        for what, there, asked in (("stream", found[1], stream), ("writer", found[2], writer)):
            if there != asked and asked:
                raise OptionError(
                    f"the buffer {self.folder} holds transactions of {what} {there!r}, not {asked!r}",
                    remedy="Give each stream and writer a folder of its own.",
                )
        return found[2], found[3]

    def _write_settings(self) -> None:
        path, draft = self.folder / SETTINGS, self.folder / f"{SETTINGS}.new"
        said = {
            "version": VERSION,
            "stream": self._stream,
            "writer": self.writer,
            "author": self.author,
            "base": self.base,
            "absent": sorted(self.absent),
        }
        try:
            with draft.open("w") as file:
                json.dump(said, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            self._sync()
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def _look(self) -> tuple[list[Waiting], int, int]:
        """Find what waits, the next number, and the last one that was sent."""
        waiting, following, sent = [], 0, NO_NUMBER
        for path in sorted(self.folder.iterdir()):
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
            else:
                waiting.append(Waiting(number, path.stat().st_size, match[2] == "sending"))
        return waiting, following, sent

    def _note_absent(self) -> None:
        """Note, before later ones are sent, which numbers are missing: somebody took their files away."""
        missing = set(range(self.acknowledged + 1, self._next)) - {one.number for one in self._waiting}
        if not missing <= self.absent:
            self.absent |= missing
            self._write_settings()

    def _put(self, data: bytes | memoryview) -> None:
        draft = self._draft
        assert draft is not None
        view = memoryview(data)
        while view.nbytes:
            count = draft.write(view)
            self._crc = zlib.crc32(view[:count], self._crc)
            self._written += count
            view = view[count:]

    def _path(self, number: int, state: str) -> Path:
        return self.folder / f"{number:020d}.{state}"

    def _rename(self, number: int, before: str, after: str) -> None:
        self._path(number, before).rename(self._path(number, after))
        self._sync()

    def _sync(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritable(folder: Path, error: OSError) -> TransportError:
    return TransportError(
        f"the buffer {folder} cannot be written: {error.strerror or error}", remedy="See to its disk, then try again."
    )
