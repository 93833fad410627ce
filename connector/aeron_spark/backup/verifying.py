"""Checks a store with its archive, both not in use: definitions, journals, marks, stages, catalog, segments, frames.

Changes nothing. Reads the files of the archive directly, without a JVM.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.aeron import archive_catalog
from aeron_spark.aeron.archive_catalog import Catalog, CatalogEntry
from aeron_spark.aeron.recording import Recording
from aeron_spark.backup.copying import ignore_progress
from aeron_spark.backup.frames import Fault, RecordingLayout, check_term
from aeron_spark.backup.manifest import DAMAGE, RESTORE, WARNING, StoreFinding, stream_damage
from aeron_spark.errors import AeronSparkError, DataLossError
from aeron_spark.files import open_regular, read_regular
from aeron_spark.streams import archive_mark, journal, stage_files, stages
from aeron_spark.streams.archive_mark import OTHER_TIME, ArchiveMark, MarkContent
from aeron_spark.streams.definition import Definition, is_half_renamed, read_definition
from aeron_spark.streams.journal_records import decode_record
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.partition import alias_of
from aeron_spark.streams.store import DELETED, RESTORING
from aeron_spark.streams.stream import STAGES
from aeron_spark.transport.channel import FRAME_ALIGNMENT, ChannelUri

Progress = Callable[[int], object]
MAX_CATALOG_BYTES: Final = 1 << 30
REMOVE_STAGE: Final = "Remove the file; the writer stages the rows again"
READ_BYTES: Final = 8 << 20  # at a time
_SEGMENT_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})\.rec", re.ASCII)


@dataclass(slots=True)
class Checked:
    """How much was checked."""

    streams: int = 0
    partitions: int = 0
    bytes: int = 0


def verify_store(
    streams_dir: Path,
    archive_dir: Path,
    checked: Checked,
    *,
    is_quick: bool = False,
    progress: Progress = ignore_progress,
) -> Iterator[StoreFinding]:
    """Yield the findings, and count in ``checked``. With ``is_quick``, the frames of the segments are not read."""
    found: Catalog | None = None
    path = archive_dir / archive_catalog.CATALOG_FILE
    names = sorted(one.name for one in streams_dir.iterdir() if one.is_dir() and not one.name.startswith("."))
    if (streams_dir / RESTORING).exists():
        what = f"a restore into {streams_dir} did not finish"
        remedy = "Empty this folder and the archive's folder, and restore again"
        yield StoreFinding(DAMAGE, "", what, "Readers lose all rows", remedy)
    try:
        found = archive_catalog.parse_catalog(read_regular(path, MAX_CATALOG_BYTES), str(path))
    except OSError as error:
        if names:
            yield StoreFinding(DAMAGE, "", f"{path} cannot be read: {error.strerror}", "Readers lose all rows", RESTORE)
    except DataLossError as error:
        yield StoreFinding(DAMAGE, "", error.what, "Readers lose all rows", error.remedy)
    for fault in () if found is None else found.faults:
        yield StoreFinding(DAMAGE, "", f"the archive's catalog is damaged: {fault}", "", RESTORE)
    known: set[Path] = set()
    segments = _Segments(archive_dir, is_quick, progress)
    for name in names:
        check = _StateCheck(streams_dir / name, archive_dir)
        checked.streams += 1
        yield from check.check()
        if check.definition is None:
            continue
        known.add(ArchiveMark(str(archive_dir), check.definition).path)
        if check.ledger is not None and found is not None:
            yield from _RecordingsCheck(check.definition, check.ledger, found, segments, checked).check()
    for folder in streams_dir.glob(f"{DELETED}*"):
        with suppress(AeronSparkError):  # without a definition, the start of a server deletes the folder alone
            known.add(ArchiveMark(str(archive_dir), read_definition(folder)).path)
    yield from _missing_streams(archive_dir, known, set(names))


def _missing_streams(archive_dir: Path, known: set[Path], names: set[str]) -> Iterator[StoreFinding]:
    """Yield a finding for each mark in the archive's folder whose stream is not in the store."""
    for path in sorted((archive_dir / archive_mark.MARKS_FOLDER).glob("*.json")):
        name = path.stem.rpartition("-")[0]
        if path not in known and name not in names:
            yield stream_damage(name, f"{path} is the mark of a stream that the store does not have")


class _StateCheck:
    """The check of a stream's definition, journal, mark and stages. It finds ``definition`` and ``ledger``."""

    def __init__(self, folder: Path, archive_dir: Path) -> None:
        self.definition: Definition | None = None
        self.ledger: Ledger | None = None
        self._folder = folder
        self._name = folder.name
        self._archive_dir = archive_dir

    def check(self) -> Iterator[StoreFinding]:
        try:
            definition = read_definition(self._folder)
        except AeronSparkError as error:
            yield stream_damage(self._name, error.what)
            return
        if is_half_renamed(self._folder, definition):
            what = f"its rename to {definition.name!r} is not finished"
            yield StoreFinding(WARNING, self._name, what, "", "Start the server, which finishes it")
        elif definition.name != self._name:
            yield stream_damage(
                self._name, f"its folder has the stream {definition.name!r}", "Rename the folder to its stream's name"
            )
            return
        self.definition = definition
        yield from self._check_journal(definition, ArchiveMark(str(self._archive_dir), definition))
        yield from self._check_stages(definition)

    def _check_journal(self, definition: Definition, mark: ArchiveMark) -> Iterator[StoreFinding]:
        path = self._folder / journal.JOURNAL_FILE
        try:
            data = read_regular(path, journal.MAX_FILE_BYTES)
            payloads, end = journal.read_entries(data, path)
            ledger = Ledger.replay(definition.partitions, map(decode_record, payloads))
            mark.check(ledger.epoch, ledger.transactions)
        except OSError as error:
            yield stream_damage(self._name, f"{path} cannot be read: {error.strerror}")
            return
        except AeronSparkError as error:
            yield stream_damage(self._name, error.what, error.remedy if error.reason == OTHER_TIME else "")
            return
        missing = [index for index in range(definition.partitions) if index not in ledger.recordings]
        if missing:
            yield stream_damage(self._name, f"the journal names no recording of the partitions {missing}")
            return
        self.ledger = ledger
        yield from self._check_mark(mark, ledger, data)
        if end < len(data):
            what = f"the last record of {path} is incomplete ({len(data) - end} bytes)"
            remedy = "Start the server, which removes it: the server was killed before the record was acknowledged"
            yield StoreFinding(WARNING, self._name, what, "", remedy)

    def _check_mark(self, mark: ArchiveMark, ledger: Ledger, data: bytes) -> Iterator[StoreFinding]:
        """Compare the journal with the mark that was written when the store was closed."""
        try:
            found = archive_mark.read_mark(mark.path)
        except AeronSparkError as error:
            yield StoreFinding(DAMAGE, self._name, error.what, "", error.remedy)
            return
        if found is None and ledger.epoch:
            remedy = (
                "Check that this is the archive of the store. The server writes the mark at the stream's next change"
            )
            yield StoreFinding(DAMAGE, self._name, f"the mark {mark.path} is missing", "", remedy)
        if found is not None and found.journal_bytes and not _fits(found, ledger, data):
            what = "the journal is not the one that the server closed: its size or its checksum is wrong"
            yield StoreFinding(DAMAGE, self._name, what, "Rows that were committed last may be lost", RESTORE)

    def _check_stages(self, definition: Definition) -> Iterator[StoreFinding]:
        folder = self._folder / STAGES
        for path in sorted(folder.glob(f"*{stages.FINISHED}")) if folder.is_dir() else ():
            try:
                head = stage_files.read_head(path)
                if head is not None:
                    stage_files.check_items(path, head[1], definition.max_message_bytes)
                    continue
                what = "it is not a stage"
            except (AeronSparkError, OSError) as error:
                what = error.what if isinstance(error, AeronSparkError) else str(error.strerror)
            yield StoreFinding(
                WARNING, self._name, f"the stage {path} is damaged: {what}", "No committed row is lost", REMOVE_STAGE
            )


class _Segments:
    """Checks the segment files of an archive, frame by frame; with ``is_quick`` only their sizes.

    The work depends on the files that exist, not on the positions in journal and catalog, which another person may have
    written. ``progress`` is called with the number of bytes of each read.
    """

    def __init__(self, archive_dir: Path, is_quick: bool, progress: Progress) -> None:
        self.is_quick = is_quick
        self._archive_dir = archive_dir
        self._progress = progress
        self._positions: dict[int, list[int]] = {}  # the first positions of the files, ascending, by recording id
        for name in os.listdir(archive_dir):
            match = _SEGMENT_NAME.fullmatch(name)
            if match is not None:
                self._positions.setdefault(int(match[1]), []).append(int(match[2]))
        for positions in self._positions.values():
            positions.sort()

    def check(self, recording: Recording, start: int, end: int, content: str) -> Iterator[Fault]:
        """Yield the faults from ``start`` to ``end``; their rows are lost."""
        layout = RecordingLayout(
            recording.initial_term_id, recording.term_length, recording.mtu, recording.stream_id, content
        )
        buffer = bytearray()
        positions = self._positions.get(recording.id, ())
        expected = range(recording.segment_base(start), end, recording.segment_length)
        missing = expected.start
        for base in (*(one for one in positions if one in expected), end):
            if missing < base:
                what = f"the segment {self._archive_dir / f'{recording.id}-{missing}.rec'} is missing"
                more = len(range(missing, base, recording.segment_length)) - 1
                yield Fault(max(start, missing), min(end, base), f"{what}, and {more} after it" if more else what)
            if base == end:
                return
            missing = base + recording.segment_length
            first, last = max(start, base), min(end, missing)
            path = self._archive_dir / f"{recording.id}-{base}.rec"
            try:
                descriptor = open_regular(path)
            except OSError as error:
                yield Fault(first, last, f"the segment {path} cannot be read: {error.strerror}")
                continue
            try:
                size = os.fstat(descriptor).st_size
                if size < last - base:
                    yield Fault(max(first, base + size), last, f"the segment {path} has only {size} bytes")
                    last = max(first, base + size - size % 32)
                if self.is_quick:
                    continue
                if not buffer:
                    buffer = bytearray(min(recording.term_length, end - start))
                yield from self._check_terms(descriptor, path, base, first, last, layout, memoryview(buffer))
            finally:
                os.close(descriptor)

    def _check_terms(
        self, descriptor: int, path: Path, base: int, first: int, last: int, layout: RecordingLayout, buffer: memoryview
    ) -> Iterator[Fault]:
        at = first
        while at < last:
            term_end = at - at % layout.term_length + layout.term_length
            data = buffer[: min(term_end, last) - at]
            try:
                self._read_fully(descriptor, data, at - base)
            except OSError as error:
                yield Fault(at, at + len(data), f"the segment {path} cannot be read: {error.strerror or error}")
            else:
                fault = check_term(data, at, layout)
                if fault is not None:
                    yield Fault(fault.position, fault.end, f"{fault.what} (in {path.name})")
            at += len(data)

    def _read_fully(self, descriptor: int, data: memoryview, offset: int) -> None:
        done = 0
        while done < len(data):
            count = os.preadv(descriptor, [data[done : done + READ_BYTES]], offset + done)
            if not count:
                raise OSError("it ended while it was read")
            done += count
            self._progress(count)


class _RecordingsCheck:
    """The check of a stream's recordings and their segments."""

    def __init__(
        self, definition: Definition, ledger: Ledger, found: Catalog, segments: _Segments, checked: Checked
    ) -> None:
        self._definition = definition
        self._ledger = ledger
        self._catalog = found
        self._segments = segments
        self._checked = checked

    def check(self) -> Iterator[StoreFinding]:
        for index in range(self._definition.partitions):
            self._checked.partitions += 1
            entry = self._catalog.entries.get(self._ledger.recordings[index].recording_id)
            fault = self._find_fault(index, entry)
            if entry is None or fault:
                start, end = self._ledger.starts[index], self._ledger.ends[index]
                yield self._damage(index, start, end, fault, "Readers lose all rows of the partition")
                continue
            yield from self._check_ends(index, entry.recording)
            yield from self._check_range(index, entry.recording)

    def _check_ends(self, index: int, recording: Recording) -> Iterator[StoreFinding]:
        """Compare the recording's first and last position with the committed range."""
        start, end = self._ledger.starts[index], self._ledger.ends[index]
        name, first, stop = f"recording {recording.id}", recording.start_position, recording.stop_position
        if first > start:
            what = f"{name} begins at position {first}"
            yield self._damage(index, start, min(first, end), what, "Readers lose these rows")
        if stop is not None and stop < end:
            yield self._damage(index, stop, end, f"{name} ends at position {stop}", "Readers lose these rows")
        if stop is not None and stop > end:
            what = f"{name} has {stop - end} bytes after the committed rows"
            remedy = (
                "Start the server, which removes them: their commit was not acknowledged, unless the journal is an "
                "older copy"
            )
            yield StoreFinding(WARNING, self._definition.name, what, "", remedy, index, end, stop)

    def _check_range(self, index: int, recording: Recording) -> Iterator[StoreFinding]:
        start, end = max(self._ledger.starts[index], recording.start_position), self._ledger.ends[index]
        if recording.stop_position is not None:
            end = min(end, recording.stop_position)
        if start >= end:
            return
        if start % FRAME_ALIGNMENT or end % FRAME_ALIGNMENT:
            yield self._damage(
                index, start, end, "its rows do not begin and end with frames", "Readers lose these rows"
            )
            return
        self._checked.bytes += 0 if self._segments.is_quick else end - start
        for fault in self._segments.check(recording, start, end, self._ledger.content):
            yield self._damage(index, fault.position, fault.end, fault.what, "Readers lose these rows")

    def _damage(self, index: int, start: int, end: int, what: str, lost: str) -> StoreFinding:
        return StoreFinding(DAMAGE, self._definition.name, what, lost, RESTORE, index, start, end)

    def _find_fault(self, index: int, entry: CatalogEntry | None) -> str:
        """Return why a catalog's entry is not the partition's recording, or ""."""
        expected = self._ledger.recordings[index]
        number = expected.recording_id
        if entry is None:
            return f"recording {number} is missing in the archive's catalog"
        recording = entry.recording
        if recording.fingerprint != expected.fingerprint:
            return f"recording {number} is not the one that was created for the partition"
        lengths = recording.term_length, recording.segment_length
        if recording.term_length != self._definition.term_bytes or lengths[1] < lengths[0] or lengths[1] % lengths[0]:
            return f"recording {number} has terms of {lengths[0]} bytes and segments of {lengths[1]} bytes"
        if recording.stream_id != self._definition.stream_ids[index] or not self._has_alias(recording, index):
            return f"recording {number} is of another channel: {recording.original_channel}"
        return "" if entry.is_checksum_right else f"the entry of recording {number} in the archive's catalog is damaged"

    def _has_alias(self, recording: Recording, index: int) -> bool:
        try:
            alias = ChannelUri.parse(recording.original_channel, foreign=True).get("alias")
        except AeronSparkError:
            return False
        return alias == alias_of(self._definition, index)


def _fits(mark: MarkContent, ledger: Ledger, data: bytes) -> bool:
    """Whether a journal is the one of a mark that was written when the store was closed."""
    expected = (mark.epoch, mark.transactions, mark.journal_bytes, mark.journal_crc)
    return expected == (ledger.epoch, ledger.transactions, len(data), zlib.crc32(data))
