"""A folder of transactions that wait to be sent: each a file, whole or not there, in the order they were committed.

    lock                    held by the one process that uses the folder
    buffer.json             stream, writer, author, and ``base``: transaction <base + n> of the writer is number n here;
                            ``absent``: numbers whose files were taken away before they were sent; ``lost``: ranges
                            of numbers that were acknowledged, and given up after the server's store was restored
    <n>.draft               being written; what a crash leaves of it was never committed
    <n>.unsent              committed here; the server cannot have committed it
    <n>.sending             its commit was sent: the server may have it
    <n>.sent                the last one the server has, so that numbers go on after it: a JSON object with the
                            transaction of the writer that the server acknowledged last, and its stamp; empty in folders
                            of earlier releases
    <n>.kept                sent, and kept for some time in case the server's store is restored from an older copy

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
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, TransportError, UsageError
from aeron_spark.node.locks import FileLock
from aeron_spark.stream_client.write_batches import BYTES, WriteBatch
from aeron_spark.wire.arrow import decode_batches, encode_batch

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
TransactionOutcome = Literal["acknowledged", "buffered", "absent", "diverged"]
_FILE: Final = re.compile(r"(\d{20})\.(draft|unsent|sending|sent|kept)", re.ASCII)


@dataclass(frozen=True, slots=True)
class BufferedTransaction:
    """A transaction that waits: its number in the folder, its size, and whether the server may have it."""

    number: int
    bytes: int
    begun: bool


@dataclass(frozen=True, slots=True)
class BufferMark:
    """How far a draft was written."""

    written: int
    crc: int


class BufferFolder:
    """The folder; without a ``writer`` the one it has, or a new one.

    Transactions that the server has are kept for ``keep_seconds`` more, by ``wall``, the time in seconds since 1970.
    Raises UsageError where another process uses it, OptionError where it is another stream's or writer's. One thread
    writes and another one sends; the caller makes sure that only one of them changes files at a time.
    """

    def __init__(
        self, folder: Path, stream: str, writer: str, *, keep_seconds: float = 0.0,
        wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._keep_seconds = keep_seconds
        self._wall = wall
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
        self._closed = False
        self._draft: io.FileIO | None = None
        self._crc = 0
        self._written = 0
        self._lost: AeronSparkError | None = None  # why rows of the draft are gone: it can only be dropped
        self.absent: set[int] = set()
        self.lost: list[tuple[int, int]] = []  # ranges, both ends included
        self._kept: set[int] = set()
        # of a new folder: who its transactions are, whichever process sends them
        self.author = f"buffer-{uuid.uuid4()}"
        try:
            self.writer, self.base = self._settings(stream, writer)
            self._stream = stream
            self._waiting, self._next, self.acknowledged = self._look()
            self.confirmed = self._confirmed()
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

    def outcome(self, number: int) -> TransactionOutcome:
        """Return what became of a transaction."""
        if number in self.absent or not 0 <= number <= self.last:
            return "absent"
        if any(first <= number <= last for first, last in self.lost):
            return "diverged"
        return "acknowledged" if number <= self.acknowledged else "buffered"

    def first(self) -> BufferedTransaction | None:
        """Return the next transaction to send."""
        return self._waiting[0] if self._waiting else None

    def begin_at(self, base: int) -> None:
        """Say which number of the writer's transactions the folder's number 0 is. Once, before anything is sent.

        Raises TransportError where it cannot be written: then it is not said.
        """
        self._write_settings(base)
        self.base = base

    def add(self, piece: WriteBatch) -> None:
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

    def mark(self) -> BufferMark:
        """Return how far the draft is written, for :meth:`back_to`."""
        return BufferMark(self._written, self._crc)

    def back_to(self, mark: BufferMark) -> None:
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
        self._waiting.append(BufferedTransaction(number, self._written, begun=False))
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

    def begin(self, one: BufferedTransaction) -> BufferedTransaction:
        """Note, so that it survives a crash, that the server may have the first transaction from now on."""
        if not one.begun:
            self._rename(one.number, "unsent", "sending")
            self._waiting[0] = one = BufferedTransaction(one.number, one.bytes, begun=True)
        return one

    def sent(self, one: BufferedTransaction, stamp: str) -> None:
        """The server has the first transaction, with this stamp: its room is free."""
        # A crash between these, or a power cut, has it sent again, and the server says that it has it. It is not
        # truncated: what was read of it is a view of the file.
        assert self.base is not None
        self._confirm(one.number, self.base + one.number, stamp)
        sending, kept = self._path(one.number, "sending"), self._path(one.number, "kept")
        if self._keep_seconds:
            os.utime(sending, (self._wall(), self._wall()))
            sending.rename(kept)
            self._kept.add(one.number)
        else:
            sending.unlink()
        self._forget_kept()
        self._waiting.pop(0)

    def not_kept(self, first: int) -> list[int]:
        """Return the acknowledged numbers from ``first`` on that are no longer here, so that they cannot be sent."""
        here = self._kept | {one.number for one in self._waiting}
        return [number for number in range(first, self.acknowledged + 1) if number not in here]

    def go_back(self, first: int, last: int, stamp: str) -> int:
        """Note that the server no longer has what it acknowledged from number ``first`` on: what is kept waits again.

        ``last`` is the writer's last transaction that the server has, and ``stamp`` the one that came with it. Numbers
        that are not kept are lost. Returns how many wait again.
        """
        gone = self.not_kept(first)
        again = sorted(number for number in self._kept if number >= first)
        # The state that asks the server again is given up last: a crash before has all of this done again.
        for number in again:
            self._rename(number, "kept", "sending")
            self._kept.discard(number)
        waiting = [
            BufferedTransaction(number, self._path(number, "sending").stat().st_size, begun=True) for number in again
        ]
        self._waiting = sorted([*waiting, *self._waiting], key=lambda one: one.number)
        if gone:
            self.lost = [*self.lost, *_ranges(gone)]
            self._write_settings()
        back = [one.number for one in self._waiting if one.number <= self.acknowledged]
        self._confirm(min(back) - 1 if back else self.acknowledged, last, stamp)
        return len(back)

    def read(self, one: BufferedTransaction) -> Iterator[WriteBatch]:
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
                    yield WriteBatch(PAYLOADS[payload], batch, None if partition < 0 else partition)
                at += size + -size % ALIGNMENT

    def close(self) -> None:
        """Let another process have the folder. Again, it does nothing: the files are another process's then."""
        if self._closed:
            return
        self._closed = True
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
            self.lost = [(int(first), int(last)) for first, last in known.get("lost", ())]
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

    def _write_settings(self, base: int | None = None) -> None:
        path, draft = self.folder / SETTINGS, self.folder / f"{SETTINGS}.new"
        said = {
            "version": VERSION,
            "stream": self._stream,
            "writer": self.writer,
            "author": self.author,
            "base": self.base if base is None else base,
            "absent": sorted(self.absent),
            "lost": self.lost,
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

    def _look(self) -> tuple[list[BufferedTransaction], int, int]:
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
            elif match[2] == "kept":
                self._kept.add(number)
            else:
                waiting.append(BufferedTransaction(number, path.stat().st_size, match[2] == "sending"))
        return waiting, following, sent

    def _confirmed(self) -> tuple[int, str] | None:
        """The writer's transaction that the server acknowledged last, and its stamp; None for none."""
        if self.acknowledged == NO_NUMBER or self.base is None:
            return None
        text = self._path(self.acknowledged, "sent").read_bytes()
        try:
            found = json.loads(text)
            return int(found["last"]), str(found["stamp"])
        except (ValueError, KeyError, TypeError):  # of an earlier release, or the program was killed while it wrote
            return self.base + self.acknowledged, ""

    def _confirm(self, number: int, last: int, stamp: str) -> None:
        """Write down that the server has everything up to a number, and what it acknowledged last; forget the rest."""
        path = self._path(number, "sent")
        if number != NO_NUMBER:
            path.write_text(json.dumps({"last": last, "stamp": stamp}))
        for old in self.folder.glob("*.sent"):
            if old != path:
                old.unlink(missing_ok=True)
        self.acknowledged, self.confirmed = number, (last, stamp)

    def _forget_kept(self) -> None:
        """Remove what was kept for long enough."""
        for number in sorted(self._kept):
            path = self._path(number, "kept")
            if path.stat().st_mtime > self._wall() - self._keep_seconds:
                return
            path.unlink()
            self._kept.discard(number)

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


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Join numbers that rise into ranges, both ends included."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _unwritable(folder: Path, error: OSError) -> TransportError:
    return TransportError(
        f"the buffer {folder} cannot be written: {error.strerror or error}", remedy="See to its disk, then try again."
    )
