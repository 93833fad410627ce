"""The files of stages: their format, their total size, and their reuse.

A file has a head with the description of the stage, then the items of ``wire.staged_items`` as the client sent them.

offset width name      meaning
0      4     magic     b"AsFS"
4      4     version   1
8      4     length    bytes of the description
12     4     crc       CRC-32 of the description
16           description   MessagePack of ``StageHead``, then zeros to 8
…            items
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from aeron_spark.errors import TOO_LONG, DataFormatError, RefusedError, TransportError, UsageError
from aeron_spark.files import open_regular
from aeron_spark.wire.staged_items import ALIGNMENT, Item, StagedValues, complete_items, read_items
from aeron_spark.wire.stream_requests import InlinePart, OpenStage, Transaction

HEAD: Final = struct.Struct(
    "<"
    "4s"  # magic
    "I"  # version
    "I"  # length
    "I"  # crc
)

MAGIC: Final = b"AsFS"

VERSION: Final = 1

CHECK_BYTES: Final = 4 << 20  # read at a time for the checksum


class StageHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The writer, transaction, partition and task of a stage; ``schema`` is Arrow IPC, for content "arrow" only.

    ``evolves`` is whether the commit may add the stage's columns to a strict schema.
    """

    id: str
    writer: str
    run: str
    transaction: int
    partition: int
    task: int
    content: str
    schema: bytes | None = None
    single_use: bool = msgspec.field(default=False, name="once")  # the name is the key in the file
    evolves: bool = False

    @classmethod
    def of(
        cls, stage_id: str, transaction: Transaction, part: OpenStage | InlinePart, partition: int, *, evolves: bool
    ) -> StageHead:
        """Return the head of the stage of a transaction's part, in the partition that the stream has chosen for it."""
        return cls(
            stage_id,
            transaction.writer,
            transaction.run,
            transaction.number,
            partition,
            part.task,
            part.content,
            part.schema or None,
            transaction.single_use,
            evolves,
        )


# Built at import, by one thread: decoders of msgspec that threads build concurrently can crash the process.
_HEADS: Final = msgspec.msgpack.Decoder(StageHead)


class StageItems:
    """The items of a stage's file, in order, mapped into memory. Views of items stay valid after ``close``."""

    def __init__(self, path: Path, begin: int, size: int | None = None) -> None:
        """Map ``path``, or the first ``size`` bytes of its items. Raises TransportError if that fails."""
        self._begin = begin
        self._map: mmap.mmap | None = None
        try:
            with open(open_regular(path), "rb") as file:
                end = os.fstat(file.fileno()).st_size if size is None else begin + size
                if end > begin:
                    self._map = mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ)
        except OSError as error:
            raise TransportError(
                f"the stage {path} cannot be read: {error.strerror or error}", remedy="Stage the rows again."
            ) from error

    def __iter__(self) -> Iterator[Item]:
        """Yield the items. Raises DataFormatError for an invalid one."""
        return self.from_byte(0)

    def from_byte(self, begin: int) -> Iterator[Item]:
        """Yield the items from their byte ``begin`` on; see :meth:`__iter__`."""
        if self._map is not None:
            yield from read_items(self._items(self._map), begin)

    def complete(self, begin: int) -> Iterator[tuple[int, Item]]:
        """Yield the complete items from their byte ``begin`` on, each with the offset of its end."""
        if self._map is not None:
            yield from complete_items(self._items(self._map), begin)

    def _items(self, mapped: mmap.mmap) -> pa.Buffer:
        return pa.py_buffer(memoryview(mapped)).slice(self._begin)

    def release_memory(self) -> None:
        """Release the memory of the pages that were read; the kernel reads them again if they are used again.

        Without this, the whole of a large stage counts as memory of the process while it is published.
        """
        if self._map is not None:
            with suppress(OSError):  # only an optimisation
                self._map.madvise(mmap.MADV_DONTNEED)

    def __enter__(self) -> StageItems:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the map; it ends with the last view of its items."""
        self._map = None


def encode_head(description: StageHead) -> bytes:
    """Return the bytes before the items."""
    data = msgspec.msgpack.encode(description)
    head = HEAD.pack(MAGIC, VERSION, len(data), zlib.crc32(data)) + data
    return head + bytes(-len(head) % ALIGNMENT)


def read_head(path: Path) -> tuple[StageHead, int] | None:
    """Return the description and the offset of the items, or None if the file is not a stage. Raises OSError."""
    with open(open_regular(path), "rb") as file:
        fixed = file.read(HEAD.size)
        if len(fixed) < HEAD.size:
            return None
        magic, version, length, crc = HEAD.unpack(fixed)
        data = file.read(length) if length <= os.fstat(file.fileno()).st_size else b""
    if magic != MAGIC or version != VERSION or len(data) < length or zlib.crc32(data) != crc:
        return None
    try:
        description = _HEADS.decode(data)
    except (msgspec.MsgspecError, ValueError):
        return None
    return description, HEAD.size + length + -(HEAD.size + length) % ALIGNMENT


def check_items(path: Path, begin: int, max_value_bytes: int | None) -> int:
    """Check the items of a stage; return their number of rows. Raises as :func:`count_rows`."""
    with StageItems(path, begin) as items:
        return count_rows(items, max_value_bytes)


def count_rows(items: Iterable[Item], max_value_bytes: int | None) -> int:
    """Check items; return their number of rows.

    Raises DataFormatError for an invalid item, or a value of more than ``max_value_bytes``.
    """
    rows = 0
    for item in items:
        if max_value_bytes is not None and isinstance(item, StagedValues) and item.longest > max_value_bytes:
            raise DataFormatError(
                f"a value of {item.longest} bytes is too long for a message of this stream, limit "
                f"{max_value_bytes} bytes",
                remedy="Write it with payload=framed or payload=arrow, which divide values into chunks, or create "
                "the stream with longer terms.",
                reason=TOO_LONG,
            )
        rows += item.rows
    return rows


def crc_of(path: Path, begin: int) -> int:
    """Return the CRC-32 of a stage's items, read from the file. Raises TransportError."""
    crc = 0
    try:
        with path.open("rb") as file:
            file.seek(begin)
            while data := file.read(CHECK_BYTES):
                crc = zlib.crc32(data, crc)
    except OSError as error:
        raise TransportError(
            f"the stage {path} cannot be read: {error.strerror or error}", remedy="Stage the rows again."
        ) from error
    return crc


MAX_STAGES: Final = 1 << 16  # of an owner: a stage has about 1 KiB of memory
MAX_GROWING: Final = 1 << 10  # of an owner: a stage that grows has a file descriptor


class StageSpace:
    """The space of the stages of all streams. Thread-safe.

    Their bytes have the ``limit``, which may change; 0 is no limit. Each owner has at most MAX_STAGES stages, of which
    MAX_GROWING grow.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self.limit: Callable[[], int] = limit
        self._reserved = 0
        self._by_owner: Counter[str] = Counter()
        self._stages: Counter[str] = Counter()  # by owner, of those that grow and of those that are finished
        self._growing: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def reserved(self) -> int:
        """The number of reserved bytes."""
        return self._reserved

    def share(self, owner: str = "", limit: int = 0) -> StageShare:
        """Return the share of one owner, of which all stages together have at most ``limit`` bytes; 0 is no limit."""
        return StageShare(self, owner, limit)

    def reserve(self, count: int, owner: str = "", limit: int = 0, *, force: bool = False) -> None:
        """Reserve ``count`` bytes for an owner. Raises RefusedError, and reserves none, above a limit without force."""
        with self._lock:
            if not force:
                self._check(count, owner, limit)
            self._reserved += count
            if owner:
                self._by_owner[owner] += count

    def add_stage(self, owner: str) -> None:
        """Count a stage of an owner, which grows. Raises RefusedError, and counts none, above a limit."""
        with self._lock:
            for counts, most, kind in (
                (self._growing, MAX_GROWING, "stages that are not finished"),
                (self._stages, MAX_STAGES, "stages"),
            ):
                if owner and counts[owner] >= most:
                    raise RefusedError(
                        f"your key has {most} {kind}, which is the limit",
                        remedy="Commit or abort some transactions, or begin fewer at once.",
                        reason="stage-full",
                    )
            self._growing[owner] += 1
            self._stages[owner] += 1

    def end_growth(self, owner: str) -> None:
        """Count a stage as one that does not grow."""
        with self._lock:
            _decrease(self._growing, owner)

    def remove_stage(self, owner: str) -> None:
        """Do not count a stage any more."""
        with self._lock:
            _decrease(self._stages, owner)

    def release(self, count: int, owner: str = "") -> None:
        """Release ``count`` bytes that were reserved for this owner."""
        with self._lock:
            if count > self._reserved:
                raise UsageError(
                    f"{count} bytes are released, but only {self._reserved} are reserved",
                    remedy="Report this as a bug of the server.",
                )
            self._reserved -= count
            if owner:
                _decrease(self._by_owner, owner, count)

    def _check(self, count: int, owner: str, limit: int) -> None:
        used = self._by_owner.get(owner, 0)
        if limit and used + count > limit:
            raise RefusedError(
                f"your key's space for rows that are not committed is full: {used} of {limit} bytes are in use, "
                f"{count} more are needed (stageBytesPerKey, or stage-bytes= in the line of your key)",
                remedy="Commit smaller transactions, or fewer at once. Abandoned transactions release their space when "
                "they expire.",
                reason="stage-full",
            )
        in_all = self.limit()
        if in_all and self._reserved + count > in_all:
            raise RefusedError(
                f"the server's space for rows that are not committed is full: {self._reserved} of {in_all} bytes "
                f"are in use, {count} more are needed (stageBytes)",
                remedy="Commit smaller transactions, or fewer at once, or raise the server's stage limit. Abandoned "
                "transactions release their space when they expire.",
                reason="stage-full",
            )


def _decrease(counts: Counter[str], owner: str, by: int = 1) -> None:
    counts[owner] -= by
    if not counts[owner]:
        del counts[owner]


@dataclass(frozen=True, slots=True)
class StageShare:
    """The part of a stage space that one owner's stages reserve. ``owner`` "" is the server's own program."""

    space: StageSpace
    owner: str
    limit: int

    def reserve(self, count: int, *, force: bool = False) -> None:
        """Reserve bytes. Raises as :meth:`StageSpace.reserve`."""
        self.space.reserve(count, self.owner, self.limit, force=force)

    def release(self, count: int) -> None:
        """Release reserved bytes."""
        self.space.release(count, self.owner)

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """Reserve bytes during the block. Raises as :meth:`StageSpace.reserve`."""
        self.reserve(count)
        try:
            yield
        finally:
            self.release(count)


MIN_FILE_BYTES: Final = 4 << 20  # overwriting a smaller file saves nothing

MAX_TOTAL_BYTES: Final = 1 << 30  # of all reusable files of a folder

EXPIRY_S: Final = 30.0  # longer than the usual time between two micro-batches

MIN_FREE_FACTOR: Final = 4  # the disk must have this multiple of the reusable bytes free

SUFFIX: Final = ".spare"


class ReusableStageFiles:
    """The reusable stage files of a folder: overwriting a large file is faster than writing a new one. Thread-safe.

    ``clock`` is in seconds, monotonic.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._files: list[tuple[Path, int, float]] = []  # path, bytes, since when; newest last

    def open(self, path: Path) -> int:
        """Open a file at ``path``, by renaming a reusable one if possible; return its descriptor. Raises OSError."""
        with self._lock:
            if self._files:
                reusable, _, _ = self._files.pop()
                with suppress(OSError):
                    reusable.rename(path)
                    return os.open(path, os.O_RDWR | os.O_CLOEXEC)
                path.unlink(missing_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def keep(self, path: Path) -> None:
        """Make a file reusable, or remove it: if it is small, the total is too large, or the disk is nearly full.

        Raises OSError.
        """
        with self._lock:
            size = path.stat().st_size
            total = size + sum(size for _, size, _ in self._files)
            if (
                size < MIN_FILE_BYTES
                or total > MAX_TOTAL_BYTES
                or shutil.disk_usage(self._folder).free < MIN_FREE_FACTOR * total
            ):
                path.unlink()
                return
            reusable = path.with_suffix(SUFFIX)
            path.rename(reusable)
            self._files.append((reusable, size, self._clock()))

    def expire(self, now: float) -> None:
        """Remove the files that were not reused within ``EXPIRY_S``."""
        self._remove(lambda since: since <= now - EXPIRY_S)

    def clear(self) -> None:
        """Remove all files."""
        self._remove(lambda since: True)

    def _remove(self, chosen: Callable[[float], bool]) -> None:
        with self._lock:
            for path, _, since in self._files:
                if chosen(since):
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
            self._files = [one for one in self._files if not chosen(one[2])]
