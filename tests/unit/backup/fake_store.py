"""A store and an archive's folder with real files, written without an archive: the journals are the product's own.

``FakeStore`` does what a server and an archive do to the files: it writes frames and segments, extends recordings,
keeps the catalog, and truncates uncommitted bytes at each opening.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive_catalog import Catalog, CatalogEntry, encode_catalog, parse_catalog
from aeron_spark.aeron.recording import Recording
from aeron_spark.backup.copying import BackupSource
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import Definition, read_definition, write_definition
from aeron_spark.streams.journal import JournaledLedger, StoreOpening, create_ledger
from aeron_spark.streams.ledger import Change, Ledger
from aeron_spark.streams.model import PartitionState, Shape, StreamCut, StreamView
from aeron_spark.streams.partition import alias_of
from aeron_spark.wire.chunks import Content, Header, decode, encode_header
from aeron_spark.wire.stream_requests import Transaction

TERM_BYTES: Final = 1 << 16
SEGMENT_BYTES: Final = 2 * TERM_BYTES
MTU: Final = 1408
INITIAL_TERM: Final = 2**31 - 3  # term ids wrap around in the third term
FRAME: Final = struct.Struct("<ibBHiiiiq")
NUMBERS: Final = struct.Struct("<7q6i")
STARTED_MS: Final = 1_700_000_000_000


def chunk_of(value: bytes) -> bytes:
    """Return the value as a chunk, the message of a framed stream."""
    return encode_header(Header(Content.BYTES, total=len(value)), value, zlib.crc32) + value


class FakeStream:
    """One stream: its definition, its open journal, and the recordings' next ids."""

    def __init__(self, store: FakeStore, definition: Definition, content: str, opening: StoreOpening) -> None:
        self.store = store
        self.definition = definition
        self.content = content
        mark = ArchiveMark(str(store.archive_dir), definition)
        self.journal = JournaledLedger(store.streams_dir / definition.name, definition.partitions, opening, mark)

    @property
    def ledger(self) -> Ledger:
        return self.journal.ledger

    def commit(self, rows: Mapping[int, Sequence[bytes]], *, writer: str = "w", transaction: int | None = None) -> int:
        """Record the values of each partition, and commit them; return the transaction's number."""
        number = self.ledger.last_transaction(writer) + 1 if transaction is None else transaction
        ends = {index: self.record(index, values) for index, values in rows.items()}
        change = Change(ends, {index: len(values) for index, values in rows.items()}, self.content)
        self.journal.write(self.ledger.prepare_commit(Transaction(writer, "run", number), change, self.store.now_ns()))
        return number

    def record(self, partition: int, values: Sequence[bytes]) -> int:
        """Append values to a recording after the committed end, without a commit; return their end."""
        position = self.ledger.ends[partition]
        for value in values:
            message = value if self.content == "raw" else chunk_of(value)
            position = self.store.append(self, partition, position, message)
        return position

    def cut(self) -> StreamCut:
        return self.journal.cut(
            self.definition, StreamView(tuple(map(self._state, range(self.definition.partitions))), "", None)
        )

    def _state(self, index: int) -> PartitionState:
        recording = self.ledger.recordings[index]
        shape = Shape(
            recording.recording_id, recording.fingerprint, self.definition.stream_ids[index], INITIAL_TERM, TERM_BYTES,
            MTU, SEGMENT_BYTES,
        )  # fmt: skip
        start, end = self.ledger.starts[index], self.ledger.ends[index]
        return PartitionState(
            index, shape, recording, start, end, 0, self.ledger.epochs(index), self.ledger.checked_from[index]
        )


class FakeStore:
    """The folders of a store and an archive below ``folder``, and their streams by name.

    The clock rises by a second with each reading, so that nothing depends on the machine's time.
    """

    def __init__(self, folder: Path, seconds: int = 1_000) -> None:
        self.folder = folder
        self.streams_dir = folder / "streams"
        self.archive_dir = folder / "archive"
        self.streams: dict[str, FakeStream] = {}
        self.seconds = seconds
        self.random = 0

    def now_ns(self) -> int:
        self.seconds += 1
        return self.seconds * 10**9

    def opening(self) -> StoreOpening:
        self.random += 1
        return StoreOpening(self.now_ns(), self.random)

    def create(self, name: str, partitions: int = 1, content: str = "framed") -> FakeStream:
        """Create a stream with its recordings."""
        self.streams_dir.mkdir(parents=True, exist_ok=True)
        self.archive_dir.mkdir(parents=True, exist_ok=True)
        catalog = self.catalog
        first = catalog.next_recording_id
        ids = tuple(1_100_000_000 + first + index for index in range(partitions))
        definition = Definition(name, partitions, ids, TERM_BYTES, created_ns=self.now_ns())
        entries = dict(catalog.entries)
        shapes = []
        for index in range(partitions):
            entries[first + index] = make_entry(definition, index, first + index)
            shapes.append(Shape.of(entries[first + index].recording))
        self._write_catalog(Catalog(0x30100, first + partitions, 64, entries))
        folder = self.streams_dir / name
        folder.mkdir()
        write_definition(folder, definition)
        create_ledger(folder, shapes)
        self.streams[name] = FakeStream(self, definition, content, self.opening())
        return self.streams[name]

    def open(self, definitions: Mapping[str, str]) -> None:
        """Open the streams, by name with their contents, as a server does after a start."""
        opening = self.opening()
        for name, content in definitions.items():
            definition = read_definition(self.streams_dir / name)
            self.streams[name] = FakeStream(self, definition, content, StoreOpening(opening.time_ns, self.random))
        self._stop_recordings()

    def close(self) -> None:
        """Close the store as a server that ends."""
        self._stop_recordings()
        for stream in self.streams.values():
            stream.journal.close()
        self.streams = {}

    def kill(self) -> None:
        """End without closing anything: the marks keep what they had."""
        for stream in self.streams.values():
            stream.journal._journal.close()
        self.streams = {}

    @property
    def catalog(self) -> Catalog:
        path = self.archive_dir / "archive.catalog"
        if not path.exists():
            return Catalog(0x30100, 0, 64, {})
        return parse_catalog(path.read_bytes(), str(path))

    def append(self, stream: FakeStream, partition: int, position: int, message: bytes) -> int:
        """Write the frames of a message at a position, after padding if the term has no room; return its end."""
        parts = [message[at : at + MTU - 32] for at in range(0, len(message), MTU - 32)] or [b""]
        needed = sum(-(-(len(part) + 32) // 32) * 32 for part in parts)
        room = TERM_BYTES - position % TERM_BYTES
        if room < needed:
            self._write_frame(stream, partition, position, b"", 0, 0xC0, room)
            position += room
        for index, part in enumerate(parts):
            flags = (0x80 if index == 0 else 0) | (0x40 if index == len(parts) - 1 else 0)
            self._write_frame(stream, partition, position, part, 1, flags, len(part) + 32)
            position += -(-(len(part) + 32) // 32) * 32
        return position

    def _write_frame(
        self, stream: FakeStream, partition: int, position: int, body: bytes, kind: int, flags: int, length: int
    ) -> None:
        term = (INITIAL_TERM + position // TERM_BYTES + 2**31) % 2**32 - 2**31
        header = FRAME.pack(
            length, 0, flags, kind, position % TERM_BYTES, 4711, stream.definition.stream_ids[partition], term, 0
        )
        recording = stream.ledger.recordings[partition].recording_id
        base = position - position % SEGMENT_BYTES
        path = self.archive_dir / f"{recording}-{base}.rec"
        if not path.exists():
            path.write_bytes(b"")
            with path.open("r+b") as file:
                file.truncate(SEGMENT_BYTES)
        with path.open("r+b") as file:
            file.seek(position - base)
            file.write(header + body + bytes(-len(body) % 32 if kind else 0))

    def _stop_recordings(self) -> None:
        """Truncate the recordings at the committed ends, and stop them."""
        ranges = {}
        for stream in self.streams.values():
            for index, recording in stream.ledger.recordings.items():
                entry = self.catalog.entries[recording.recording_id]
                ranges[recording.recording_id] = entry.recording.start_position, stream.ledger.ends[index]
                self._truncate(recording.recording_id, stream.ledger.ends[index])
        catalog = self.catalog
        for number, entry in catalog.entries.items():
            ranges.setdefault(number, (entry.recording.start_position, entry.recording.stop_position or 0))
        self._write_ranges(catalog, ranges)

    def _truncate(self, recording: int, end: int) -> None:
        for path in self.archive_dir.glob(f"{recording}-*.rec"):
            base = int(path.stem.partition("-")[2])
            if base >= end:
                path.unlink()
            elif base + SEGMENT_BYTES > end:
                with path.open("r+b") as file:
                    file.truncate(end - base)
                    file.truncate(SEGMENT_BYTES)

    def _write_catalog(self, catalog: Catalog) -> None:
        ranges = {
            number: (entry.recording.start_position, entry.recording.stop_position or 0)
            for number, entry in catalog.entries.items()
        }
        self._write_ranges(catalog, ranges)

    def _write_ranges(self, catalog: Catalog, ranges: Mapping[int, tuple[int, int]]) -> None:
        (self.archive_dir / "archive.catalog").write_bytes(encode_catalog(catalog, ranges, STARTED_MS))

    def source(self) -> BackupSource:
        """Return what a backup copies now."""
        now = self.now_ns()
        return BackupSource(
            self.streams_dir, self.archive_dir, [one.cut() for one in self.streams.values()], now, "1.2.3"
        )


def make_entry(definition: Definition, index: int, number: int) -> CatalogEntry:
    """Return the catalog's entry of a partition's new recording."""
    stream_id = definition.stream_ids[index]
    channel = f"aeron:ipc?alias={alias_of(definition, index)}".encode()
    data = NUMBERS.pack(
        1, 2, number, STARTED_MS + number, STARTED_MS, 0, 0, INITIAL_TERM, SEGMENT_BYTES, TERM_BYTES, MTU, 4711,
        stream_id,
    )  # fmt: skip
    for text in (b"aeron:ipc", channel, b"aeron:ipc"):
        data += struct.pack("<I", len(text)) + text
    head = struct.pack("<iii", len(data), 1, 0).ljust(32, b"\0")
    recording = Recording(
        number, STARTED_MS + number, STARTED_MS, 0, 0, INITIAL_TERM, SEGMENT_BYTES, TERM_BYTES, MTU, 4711, stream_id,
        "aeron:ipc", channel.decode(), "aeron:ipc",
    )  # fmt: skip
    return CatalogEntry(recording, head + data)


def read_values(store: FakeStore, stream: FakeStream, partition: int) -> list[tuple[int, bytes]]:
    """Return the committed values of a framed stream's partition, each after the position at which it ends.

    Reads the files without the product's code for frames.
    """
    found = []
    position, end = stream.ledger.starts[partition], stream.ledger.ends[partition]
    recording = stream.ledger.recordings[partition].recording_id
    data, base, message = b"", -1, b""
    while position < end:
        if position - position % SEGMENT_BYTES != base:
            base = position - position % SEGMENT_BYTES
            data = (store.archive_dir / f"{recording}-{base}.rec").read_bytes()
        at = position - base
        length, _, flags, kind, *_ = FRAME.unpack_from(data, at)
        position += -(-length // 32) * 32
        if kind:
            message = (b"" if flags & 0x80 else message) + data[at + 32 : at + length]
            if flags & 0x40:
                found.append((position, bytes(decode(message).payload)))
    return found
