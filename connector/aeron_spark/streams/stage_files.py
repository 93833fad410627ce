"""A stage's file: a head that says whose it is, and then the items of wire/staged_items.py as they came.

offset width name      meaning
0      4     magic     b"AsFS"
4      4     version   1
8      4     length    bytes of the description
12     4     crc       CRC-32 of the description
16           description   MessagePack of ``Description``, then zeros to 8
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from aeron_spark.errors import DataFormatError, RefusedError, TransportError, UsageError
from aeron_spark.wire.staged_items import ALIGNMENT, Item, StagedValues, items_so_far, read_items

HEAD: Final = struct.Struct(
    "<"
    "4s"  # magic
    "I"  # version
    "I"  # length
    "I"  # crc
)

MAGIC: Final = b"AsFS"

VERSION: Final = 1

CHECK_BYTES: Final = 4 << 20  # read at a time to check a file


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose rows a stage holds, and what they are; ``schema`` is Arrow IPC, of content arrow."""

    id: str
    writer: str
    run: str
    transaction: int
    partition: int
    task: int
    content: str
    schema: bytes | None = None
    single_use: bool = False


# Built while this module is imported, by one thread; see endpoint.payloads.
_DESCRIPTIONS: Final = msgspec.msgpack.Decoder(Description)


@dataclass(frozen=True, slots=True)
class StageRef:
    """A stage as a commit names it: its id, and the rows, bytes and CRC-32 of the items its writer sent."""

    id: str
    rows: int
    bytes: int
    crc: int


class StageItems:
    """The items of a stage's file in their order. Views of them live as long as anybody needs them."""

    def __init__(self, path: Path, begin: int, size: int | None = None) -> None:
        """Map ``path``, or the first ``size`` bytes of its items; TransportError where it cannot be."""
        self._begin = begin
        self._map: mmap.mmap | None = None
        try:
            with path.open("rb") as file:
                end = os.fstat(file.fileno()).st_size if size is None else begin + size
                if end > begin:
                    self._map = mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ)
        except OSError as error:
            raise TransportError(
                f"the stage {path} cannot be read: {error.strerror or error}", remedy="Stage the rows anew"
            ) from error

    def __iter__(self) -> Iterator[Item]:
        """Yield the items. Raises DataFormatError at one that is not right."""
        return self.behind(0)

    def behind(self, begin: int) -> Iterator[Item]:
        """Yield those from the byte ``begin`` of the items on; see :meth:`__iter__`."""
        if self._map is not None:
            yield from read_items(self._items(self._map), begin)

    def so_far(self, begin: int) -> Iterator[tuple[int, Item]]:
        """Yield those that are all there, from the byte ``begin`` of the items on, each with the byte where it ends."""
        if self._map is not None:
            yield from items_so_far(self._items(self._map), begin)

    def _items(self, mapped: mmap.mmap) -> pa.Buffer:
        return pa.py_buffer(memoryview(mapped)).slice(self._begin)

    def forget(self) -> None:
        """Let the kernel take the pages back that were read; they come again when they are touched.

        Without it a process that publishes a large stage seems to need all of it as memory.
        """
        if self._map is not None:
            with suppress(OSError):  # it is a hint
                self._map.madvise(mmap.MADV_DONTNEED)

    def __enter__(self) -> StageItems:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the map; it goes when the last view of it does."""
        self._map = None


def encode_head(described: Description) -> bytes:
    """Return the bytes before the items."""
    data = msgspec.msgpack.encode(described)
    head = HEAD.pack(MAGIC, VERSION, len(data), zlib.crc32(data)) + data
    return head + bytes(-len(head) % ALIGNMENT)


def read_head(path: Path) -> tuple[Description, int] | None:
    """Return the description, and where the items begin; None where the file is no stage. Raises OSError."""
    with path.open("rb") as file:
        fixed = file.read(HEAD.size)
        if len(fixed) < HEAD.size:
            return None
        magic, version, length, crc = HEAD.unpack(fixed)
        data = file.read(length) if length <= path.stat().st_size else b""
    if magic != MAGIC or version != VERSION or len(data) < length or zlib.crc32(data) != crc:
        return None
    try:
        described = _DESCRIPTIONS.decode(data)
    except (msgspec.MsgspecError, ValueError):
        return None
    return described, HEAD.size + length + -(HEAD.size + length) % ALIGNMENT


def check_items(path: Path, begin: int, most_value_bytes: int | None) -> int:
    """Return the rows of a stage's items. Raises DataFormatError where one is not right.

    ``most_value_bytes`` is what a message can hold.
    """
    rows = 0
    with StageItems(path, begin) as items:
        for item in items:
            if most_value_bytes is not None and isinstance(item, StagedValues) and item.longest > most_value_bytes:
                raise DataFormatError(
                    f"a value has {item.longest} bytes, and a message of this stream at most {most_value_bytes}",
                    remedy="Write with payload=bytes or payload=arrow, which are cut into chunks, or enlarge the terms",
                )
            rows += item.rows
    return rows


def crc_of(path: Path, begin: int) -> int:
    """Return the CRC-32 of a stage's items, read from the file. Raises TransportError where that fails."""
    crc = 0
    try:
        with path.open("rb") as file:
            file.seek(begin)
            while data := file.read(CHECK_BYTES):
                crc = zlib.crc32(data, crc)
    except OSError as error:
        raise TransportError(
            f"the stage {path} cannot be read: {error.strerror or error}", remedy="Stage the rows anew"
        ) from error
    return crc


class StageSpace:
    """A number of bytes to share; 0 is without limit. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Bytes that are not given back yet."""
        return self._taken

    def take(self, count: int, *, force: bool = False) -> None:
        """Take ``count`` bytes; ``force`` counts what is there already. RefusedError, and none taken, if it is full."""
        with self._lock:
            if self.limit and not force and self._taken + count > self.limit:
                raise RefusedError(
                    f"the server's room for rows that are not committed is full: {self._taken} of {self.limit} bytes"
                    f" are taken, and {count} more were asked for",
                    remedy="Commit smaller transactions, or fewer at once, or raise the server's stage limit; abandoned"
                    " ones make room when they expire",
                )
            self._taken += count

    def give(self, count: int) -> None:
        """Give ``count`` bytes back."""
        with self._lock:
            if count > self._taken:
                raise UsageError(f"{count} bytes are given back, but only {self._taken} are taken")
            self._taken -= count


LEAST_BYTES: Final = 4 << 20  # of a file that is worth it

MOST_BYTES: Final = 1 << 30  # of all of them

SECONDS: Final = 30.0  # unused; the next micro-batch comes sooner, or need not hurry

FREE: Final = 4  # times as much as they take must be free on the disk

SUFFIX: Final = ".spare"


class ReusableStageFiles:
    """The spare files of a folder of stages. ``clock`` is in seconds and monotonic. Thread-safe."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._files: list[tuple[Path, int, float]] = []  # with its bytes, and since when; the newest last

    def open(self, path: Path) -> int:
        """Open a new file at ``path``, of a spare one where there is one; return its descriptor. Raises OSError."""
        with self._lock:
            if self._files:
                spare, _, _ = self._files.pop()
                with suppress(OSError):
                    spare.rename(path)
                    return os.open(path, os.O_RDWR | os.O_CLOEXEC)
                path.unlink(missing_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def keep(self, path: Path) -> None:
        """Keep a file, or remove it: it is small, there are enough, or the disk is filling up. Raises OSError."""
        with self._lock:
            size = path.stat().st_size
            kept = size + sum(size for _, size, _ in self._files)
            if size < LEAST_BYTES or kept > MOST_BYTES or shutil.disk_usage(self._folder).free < FREE * kept:
                path.unlink()
                return
            spare = path.with_suffix(SUFFIX)
            path.rename(spare)
            self._files.append((spare, size, self._clock()))

    def expire(self, now: float) -> None:
        """Remove those that nobody has used for a while."""
        self._remove(lambda since: since <= now - SECONDS)

    def clear(self) -> None:
        """Remove all."""
        self._remove(lambda since: True)

    def _remove(self, chosen: Callable[[float], bool]) -> None:
        with self._lock:
            for path, _, since in self._files:
                if chosen(since):
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
            self._files = [one for one in self._files if not chosen(one[2])]
