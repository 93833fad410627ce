"""A folder of transactions that wait to be sent: each a file, whole or not there, in the order they were committed.

    lock                    held by the one process that uses the folder
    buffer.json             stream, writer, author, and ``base``: transaction <base + n> of the writer is number n here
    <n>.draft               being written; what a crash leaves of it was never committed
    <n>.unsent              committed here; the server cannot have committed it
    <n>.sending             its commit was sent: the server may have it
    <n>.sent                empty; the last one the server has, so that numbers go on after it

A file: pieces one after another, then the trailer. Numbers are little-endian; bodies are Arrow IPC streams.

    piece    ``ASP1``, payload (1 byte), zeros (3), partition or -1 (4), zeros (4), length (8), body, zeros to 8 bytes
    trailer  ``ASPE``, CRC-32 of everything before (4), length of everything before (8)
"""

from __future__ import annotations

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
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError, OptionError, TransportError, UsageError
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
_FILE: Final = re.compile(r"(\d{20})\.(draft|unsent|sending|sent)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A transaction that waits: its number in the folder, its size, and whether the server may have it."""

    number: int
    bytes: int
    begun: bool


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
        # of a new folder: who its transactions are, whichever process sends them
        self.author = f"buffer-{uuid.uuid4()}"
        try:
            self.writer, self.base = self._settings(stream, writer)
            self._stream = stream
            self._waiting, self._next = self._look()
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

    def first(self) -> Waiting | None:
        """Return the next transaction to send."""
        return self._waiting[0] if self._waiting else None

    def begin_at(self, base: int) -> None:
        """Say which number of the writer's transactions the folder's number 0 is. Once, before anything is sent."""
        self.base = base
        self._write_settings()

    def add(self, piece: Piece) -> None:
        """Write a piece to the draft. Raises TransportError, with the draft gone, where the disk is full or fails."""
        body = encode_batch(piece.rows)
        at = -1 if piece.partition is None else piece.partition
        head = HEAD.pack(PIECE_MARK, PAYLOADS.index(piece.payload), at, body.size)
        try:
            if self._draft is None:
                self._draft = io.FileIO(self._path(self._next, "draft"), "w")
            for data in (head, memoryview(body).cast("B"), bytes(-body.size % ALIGNMENT)):
                self._put(data)
        except BaseException as error:  # an interrupt, too, may leave half a piece behind
            self.drop()
            if isinstance(error, OSError):
                raise _unwritable(self.folder, error) from error
            raise

    def commit(self) -> None:
        """Make the draft a transaction that waits; it is on the disk then. Raises TransportError, the draft gone."""
        draft = self._draft
        if draft is None:
            return
        size = self._written + TRAILER.size
        try:
            self._put(TRAILER.pack(END_MARK, self._crc, self._written))
            os.fsync(draft.fileno())
            draft.close()
            self._rename(self._next, "draft", "unsent")
        except OSError as error:
            self.drop()
            raise _unwritable(self.folder, error) from error
        self._waiting.append(Waiting(self._next, size, begun=False))
        self._next += 1
        self._draft, self._crc, self._written = None, 0, 0

    def drop(self) -> None:
        """Forget the draft."""
        draft, self._draft, self._crc, self._written = self._draft, None, 0, 0
        if draft is not None:
            draft.close()
            with suppress(OSError):
                self._path(self._next, "draft").unlink(missing_ok=True)

    def begin(self, one: Waiting) -> None:
        """Note, so that it survives a crash, that the server may have the first transaction from now on."""
        if not one.begun:
            self._rename(one.number, "unsent", "sending")
            self._waiting[0] = Waiting(one.number, one.bytes, begun=True)

    def take_back(self) -> None:
        """Note that the server has refused the first transaction: it does not have it."""
        one = self._waiting[0]
        if one.begun:
            self._rename(one.number, "sending", "unsent")
            self._waiting[0] = Waiting(one.number, one.bytes, begun=False)

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
        self.drop()
        self._lock.release()

    def _settings(self, stream: str, writer: str) -> tuple[str, int | None]:
        path = self.folder / SETTINGS
        try:
            known: dict[str, Any] = json.loads(path.read_bytes())
            found = known["version"], known["stream"], known["writer"], known["base"]
            self.author = known.get("author", f"buffer of {found[2]}")  # folders were once without
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

    def _look(self) -> tuple[list[Waiting], int]:
        waiting, following = [], 0
        for path in sorted(self.folder.iterdir()):
            match = _FILE.fullmatch(path.name)
            if match is None:
                continue
            if match[2] == "draft":
                path.unlink()
                continue
            number = int(match[1])
            following = max(following, number + 1)
            if match[2] != "sent":
                waiting.append(Waiting(number, path.stat().st_size, match[2] == "sending"))
        return waiting, following

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
