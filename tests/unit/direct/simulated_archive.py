"""An archive and a driver that write their files step by step, in the order in which Aeron 1.51 writes them."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive_catalog import (
    CATALOG_FILE,
    CATALOG_HEADER,
    ENTRY_HEADER_LENGTH,
    NUMBERS,
    START_POSITION_OFFSET,
    STOP_POSITION_OFFSET,
    STOP_TIMESTAMP_OFFSET,
)
from aeron_spark.aeron.counters import (
    CNC_HEADER,
    CNC_META_LENGTH,
    COUNTER_LENGTH,
    KEY_OFFSET,
    META_LENGTH,
    RECORDING_POSITION,
    RING_HEARTBEAT_OFFSET,
    RING_TRAILER_LENGTH,
)
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.node.state_files import MARK_HEADER

ARCHIVE_ID: Final = 4711
COUNTERS: Final = 6
RING: Final = 1024 + RING_TRAILER_LENGTH
ALIGNMENT: Final = 64
CAPACITY: Final = 8192  # bytes of a new catalog
CORRELATION_OFFSET: Final = 8
SOURCE: Final = b"127.0.0.1:40123"

Truth = dict[int, tuple[int, int, bool]]  # start, end and whether it is active, by recording id


class SimulatedArchive:
    """The files, and what the archive itself would answer (``truth``).

    Each operation is an iterator: each step of it is one write, after which a reader may run.
    """

    def __init__(self, folder: Path) -> None:
        self.address = ArchiveAddress(
            "embedded", str(folder / "driver"), "aeron:ipc", archive_dir=str(folder), archive_id=ARCHIVE_ID
        )
        self.truth: Truth = {}
        self._catalog = folder / CATALOG_FILE
        self._cnc = folder / "driver" / "cnc.dat"
        self._mark = folder / "archive-mark.dat"
        self._offsets: dict[int, int] = {}  # of the entries
        self._slots: dict[int, int] = {}  # counters by recording id
        self._free = list(range(COUNTERS))
        self._end = 32
        self._registrations = 0
        self._cnc.parent.mkdir()
        self._catalog.write_bytes(bytes(CAPACITY))
        self._put_header()
        self.beat()

    def beat(self, driver_age: float = 0.0, archive_age: float = 0.0, archive_pid: int = 0) -> None:
        """Write both files of liveness, as if the last heartbeats were some seconds old."""
        now = time.time()
        if not self._cnc.exists():
            lengths = CNC_META_LENGTH + RING + COUNTERS * (META_LENGTH + COUNTER_LENGTH)
            self._cnc.write_bytes(bytes(lengths))
        header = CNC_HEADER.pack(
            512, RING, 0, COUNTERS * META_LENGTH, COUNTERS * COUNTER_LENGTH, 0, 10**10, 1, os.getpid()
        )
        self._put(self._cnc, 0, header)
        heartbeat = struct.pack("<q", int((now - driver_age) * 1000))
        self._put(self._cnc, CNC_META_LENGTH + 1024 + RING_HEARTBEAT_OFFSET, heartbeat)
        activity = int((now - archive_age) * 1000)
        self._mark.write_bytes(MARK_HEADER.pack(1, activity, 7, archive_pid or os.getpid()) + bytes(100))

    def start(self, stream_id: int, position: int, *, is_complete: bool = True) -> Iterator[None]:
        """Start a recording: its entry, the header, then its counter, which gets its value last."""
        recording_id = len(self._offsets)
        descriptor = NUMBERS.pack(
            1, 0, recording_id, 1_000, -1, position, -1, 5, 65_536, 65_536, 1_408, 9, stream_id
        ) + b"".join(struct.pack("<I", len(text)) + text for text in (b"aeron:ipc", b"aeron:ipc?alias=x", SOURCE))
        at = self._offsets[recording_id] = self._end
        size = -(-(ENTRY_HEADER_LENGTH + len(descriptor)) // ALIGNMENT) * ALIGNMENT
        if at + size > self._catalog.stat().st_size:
            yield from self.grow()
        self._put(self._catalog, at + ENTRY_HEADER_LENGTH, descriptor)
        yield
        self._put(self._catalog, at, struct.pack("<ii", len(descriptor), 1))
        self._end += size
        yield
        self._put_header()
        yield
        allocation = self._allocate(recording_id, position)
        next(allocation)
        self.truth = {**self.truth, recording_id: (position, position, True)}  # the counter exists
        yield
        yield from allocation

    def record(self, recording_id: int, length: int) -> Iterator[None]:
        """Record ``length`` bytes, if the recording is active."""
        start, end, active = self.truth[recording_id]
        if active:
            self._put_value(recording_id, end + length)
            self.truth = {**self.truth, recording_id: (start, end + length, True)}
            yield

    def stop(self, recording_id: int) -> Iterator[None]:
        """Stop an active recording: the catalog, then the counter."""
        start, end, active = self.truth[recording_id]
        if not active:
            return
        self._put_number(recording_id, STOP_TIMESTAMP_OFFSET, 2_000)
        yield
        self._put_number(recording_id, STOP_POSITION_OFFSET, end)
        self.truth = {**self.truth, recording_id: (start, end, False)}
        yield
        yield from self._release(recording_id)

    def extend(self, recording_id: int) -> Iterator[None]:
        """Extend a stopped recording: its counter, then the catalog."""
        start, end, active = self.truth[recording_id]
        if active or not self._free:
            return
        yield from self._allocate(recording_id, end)
        self._registrations += 1
        self._put_number(recording_id, CORRELATION_OFFSET, self._registrations)
        yield
        self._put_number(recording_id, STOP_POSITION_OFFSET, -1)
        self.truth = {**self.truth, recording_id: (start, end, True)}
        yield

    def purge(self, recording_id: int) -> Iterator[None]:
        """Delete the first half of a recording."""
        start, end, active = self.truth[recording_id]
        middle = (start + end) // 2
        self._put_number(recording_id, START_POSITION_OFFSET, middle)
        self.truth = {**self.truth, recording_id: (middle, end, active)}
        yield

    def delete(self, recording_id: int) -> Iterator[None]:
        """Delete a stopped recording."""
        if not self.truth[recording_id][2]:
            self._put(self._catalog, self._offsets[recording_id] + 4, struct.pack("<i", -1))
            self.truth = {key: value for key, value in self.truth.items() if key != recording_id}
            yield

    def grow(self) -> Iterator[None]:
        """Double the catalog, which is full."""
        os.truncate(self._catalog, 2 * self._catalog.stat().st_size)
        yield

    def shift(self, recording_id: int) -> Iterator[None]:
        """Give a recording a longer channel: the entries after it move, from the last to the first."""
        at = self._offsets[recording_id]
        (length,) = struct.unpack_from("<i", self._catalog.read_bytes(), at)
        size = -(-(ENTRY_HEADER_LENGTH + length) // ALIGNMENT) * ALIGNMENT
        if self._end + ALIGNMENT > self._catalog.stat().st_size:
            yield from self.grow()
        moved = self._catalog.read_bytes()[at + size : self._end]
        for piece in reversed(range(0, len(moved), ALIGNMENT)):
            self._put(self._catalog, at + size + ALIGNMENT + piece, moved[piece : piece + ALIGNMENT])
            yield
        self._put(self._catalog, at + size, bytes(ALIGNMENT))
        yield
        self._put(self._catalog, at, struct.pack("<i", length + ALIGNMENT))
        self._end += ALIGNMENT
        self._offsets = {key: one + ALIGNMENT if one > at else one for key, one in self._offsets.items()}
        yield

    def _allocate(self, recording_id: int, position: int) -> Iterator[None]:
        slot = self._free.pop(0)
        self._registrations += 1
        key = struct.pack("<qii", recording_id, 9, len(SOURCE)) + SOURCE + struct.pack("<q", ARCHIVE_ID)
        self._put(self._cnc, self._value_at(slot), struct.pack("<qqq", 0, self._registrations, 1))
        self._put(self._cnc, self._meta_at(slot) + 4, struct.pack("<i", RECORDING_POSITION))
        self._put(self._cnc, self._meta_at(slot) + KEY_OFFSET, key)
        self._put(self._cnc, self._meta_at(slot), struct.pack("<i", 1))
        yield
        self._slots[recording_id] = slot
        self._put_value(recording_id, position)
        yield

    def _release(self, recording_id: int) -> Iterator[None]:
        slot = self._slots.pop(recording_id)
        self._put(self._cnc, self._meta_at(slot), struct.pack("<i", -1))
        self._free.append(slot)
        yield

    def _put_header(self) -> None:
        self._put(self._catalog, 0, CATALOG_HEADER.pack(0x30100, 32, len(self._offsets), ALIGNMENT))

    def _put_value(self, recording_id: int, value: int) -> None:
        self._put(self._cnc, self._value_at(self._slots[recording_id]), struct.pack("<q", value))

    def _put_number(self, recording_id: int, offset: int, value: int) -> None:
        at = self._offsets[recording_id] + ENTRY_HEADER_LENGTH + offset
        self._put(self._catalog, at, struct.pack("<q", value))

    def _meta_at(self, slot: int) -> int:
        return CNC_META_LENGTH + RING + slot * META_LENGTH

    def _value_at(self, slot: int) -> int:
        return CNC_META_LENGTH + RING + COUNTERS * META_LENGTH + slot * COUNTER_LENGTH

    def _put(self, path: Path, at: int, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, data, at)
        finally:
            os.close(descriptor)
