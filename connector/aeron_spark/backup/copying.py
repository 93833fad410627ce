"""Copies a store and the recordings of its streams into a backup folder, while the server uses both.

The folder is made beside its place, as ``<name>.partial-<random>``, and renamed when it is complete. The bytes that
belong to the copy do not change (``streams.model``), so the copy needs no lock of the server. The server only keeps
files that it would delete or rewrite.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import msgspec

from aeron_spark.aeron import archive_catalog
from aeron_spark.aeron.recording import Recording
from aeron_spark.backup import manifest
from aeron_spark.backup.manifest import FileEntry, Manifest, PartitionEntry, StreamEntry
from aeron_spark.errors import AeronSparkError, DataLossError, OptionError, TransportError
from aeron_spark.files import NO_SPACE_ERRNOS, read_regular, replace_file, sync_folder, write_at
from aeron_spark.log.epochs import FIRST, epoch_text
from aeron_spark.node.locks import FileLock, is_locked
from aeron_spark.streams import definition, journal
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.journal_records import Count, decode_record
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.model import PartitionCut, StreamCut
from aeron_spark.streams.retention import Layout

BLOCK_BYTES: Final = 1 << 20
ZEROS: Final = bytes(BLOCK_BYTES)
SYNC_BYTES: Final = 32 << 20  # written between two calls of fdatasync, so that none takes long
NO_LIMIT: Final = 2**63 - 1


def ignore_progress(size: int) -> None:
    """Do nothing: the default for copies that are not watched."""


def copy_file(
    source: Path | int,
    target: Path,
    size: int = NO_LIMIT,
    *,
    length: int = 0,
    progress: Callable[[int], object] = ignore_progress,
) -> tuple[int, str]:
    """Copy the first ``size`` bytes of a file, or all, and call fsync; return the number of bytes and their SHA-256.

    Blocks of zeros become holes. ``length`` is the length of the target if it is greater; the rest is a hole.
    ``source`` may be an open file, which stays open. ``progress`` is called with the size of each copied block. Raises
    DataLossError if the source has fewer bytes than ``size``, OSError.
    """
    descriptor = source if isinstance(source, int) else os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        written = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            copied, digest = _copy_blocks(descriptor, written, size, progress)
            if size != NO_LIMIT and copied < size:
                raise DataLossError(
                    f"{source} is damaged: it ends at byte {copied}, expected at least {size} bytes",
                    remedy="Run 'aeron-spark server verify', which names the rows that are lost.",
                )
            os.ftruncate(written, max(copied, length))
            os.fsync(written)
            _drop_pages(written)
        finally:
            os.close(written)
    finally:
        if not isinstance(source, int):
            os.close(descriptor)
    return copied, digest


def _copy_blocks(source: int, target: int, size: int, progress: Callable[[int], object]) -> tuple[int, str]:
    buffer = bytearray(min(BLOCK_BYTES, max(size, 1)))
    view = memoryview(buffer)
    digest = hashlib.sha256()
    copied = unsynced = 0
    while copied < size:
        count = os.preadv(source, [view[: min(len(view), size - copied)]], copied)
        if not count:
            break
        block = view[:count]
        digest.update(block)
        if block != ZEROS[:count]:
            write_at(target, block, copied)
        copied += count
        unsynced += count
        if unsynced >= SYNC_BYTES:
            os.fdatasync(target)
            _drop_pages(target)
            unsynced = 0
        progress(count)
    return copied, digest.hexdigest()


def _drop_pages(descriptor: int) -> None:
    """Free the file's pages in memory, which the server needs more."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def hash_file(source: Path | int, progress: Callable[[int], object] = ignore_progress) -> tuple[int, str]:
    """Return the size of a file, or of an open one, and its SHA-256. Raises OSError."""
    digest = hashlib.sha256()
    size = 0
    with open(source, "rb", buffering=0, closefd=not isinstance(source, int)) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            progress(len(block))
    return size, digest.hexdigest()


def sync_tree(folder: Path) -> None:
    """Make the names in a folder and in its subfolders durable (fsync). Raises OSError."""
    for path, _, _ in os.walk(folder):
        sync_folder(Path(path))


LAST_BACKUP_FILE: Final = "backup.json"


class LastBackup(msgspec.Struct, frozen=True):
    """The last backup. ``time`` is that of its cut, in seconds since 1970; ``seconds`` is its duration."""

    time: float
    directory: str
    bytes: Count
    seconds: float


_DECODER: Final = msgspec.json.Decoder(LastBackup)


def read_last_backup(store: Path) -> LastBackup | None:
    """Return the last backup of the store; None if there was none, or if the file is damaged."""
    try:
        return _DECODER.decode((store / LAST_BACKUP_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def write_last_backup(store: Path, last: LastBackup) -> None:
    """Replace the file. Raises OSError."""
    replace_file(store / LAST_BACKUP_FILE, msgspec.json.encode(last))


LOCK: Final = ".lock"  # in the partial folder: the process that writes it is alive
LEFTOVER: Final = re.compile(r".+\.partial-[0-9a-f]{8}")
NS: Final = 1_000_000_000
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class BackupSource:
    """The folders and the cuts of a server's streams. ``configuration`` are further files, with their names there."""

    streams_dir: Path
    archive_dir: Path
    cuts: Sequence[StreamCut]
    time_ns: int
    release: str
    damaged: Mapping[str, str] = field(default_factory=dict)
    store_files: Sequence[Path] = ()
    configuration: Mapping[str, Path] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The size of the journals and of the recordings' committed bytes: about that of a whole backup."""
        return sum(cut.journal_bytes + sum(one.end - one.start for one in cut.partitions) for cut in self.cuts)


@dataclass(frozen=True, slots=True)
class Base:
    """An earlier backup, whose unchanged segments a new one links."""

    folder: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class BackupOutcome:
    """A finished backup. ``linked_bytes`` are those of files that the earlier backup has, too."""

    manifest: Manifest
    linked_bytes: int


def check_target(folder: Path) -> None:
    """Raise OptionError unless ``folder`` is missing or an empty folder in a folder that exists."""
    try:
        is_taken = any(folder.iterdir())
    except FileNotFoundError:
        is_taken = False
    except OSError as error:
        raise OptionError(f"{folder} cannot be used: {error.strerror}", remedy="Name a new folder.") from error
    if is_taken:
        raise OptionError(f"the folder {folder} is not empty", remedy="Name a new folder for each backup.")
    if not folder.parent.is_dir():
        raise OptionError(f"{folder.parent} is not a folder", remedy="Create it, or name another one.")


def find_base(folder: Path) -> Base | None:
    """Return the newest backup of this user beside ``folder``, or None. Damaged ones are ignored."""
    paths = (path for path in folder.parent.iterdir() if path != folder and _is_own_folder(path))
    found = [base for path in paths if (base := _read_base(path)) is not None]
    return max(found, key=lambda base: base.manifest.time_ns, default=None)


def _is_own_folder(path: Path) -> bool:
    """Whether a path is a folder of this user, not a link: another user may have made any other one."""
    with suppress(OSError):
        found = os.lstat(path)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False


def _read_base(folder: Path) -> Base | None:
    with suppress(OSError, AeronSparkError):
        return Base(folder, read_manifest(folder))
    return None


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a backup. Raises DataLossError, DataFormatError; OptionError if the folder has none."""
    path = folder / manifest.MANIFEST_FILE
    try:
        data = read_regular(path, manifest.MAX_BYTES)
    except OSError as error:
        raise OptionError(
            f"{folder} is not a backup: {path} cannot be read: {error.strerror}",
            remedy="Name a folder that 'aeron-spark server backup' has made.",
        ) from error
    return manifest.decode_manifest(data, str(path))


def write_backup(
    source: BackupSource, folder: Path, base: Base | None = None, progress: Progress = ignore_progress
) -> BackupOutcome:
    """Copy ``source`` to ``folder``, completely or not at all. ``progress`` is called with each number of copied bytes.

    Raises OptionError if the folder is not empty, TransportError if it cannot be written, DataLossError if a file of
    the source is damaged, and the exceptions of ``progress``.
    """
    check_target(folder)
    remove_leftovers(folder.parent)
    with _draft(folder) as draft:
        copy = _Copy(source, draft, base, progress)
        copy.copy_streams()
        copy.copy_catalog()
        copy.copy_segments()
        copy.copy_configuration()
        made = copy.manifest()
        replace_file(draft / manifest.MANIFEST_FILE, manifest.encode_manifest(made))
        sync_tree(draft)
    return BackupOutcome(made, copy.linked_bytes)


def remove_leftovers(parent: Path) -> None:
    """Remove the partial folders of earlier backups in ``parent`` that were killed."""
    for path in parent.iterdir():
        is_partial = LEFTOVER.fullmatch(path.name) is not None and _is_own_folder(path) and (path / LOCK).exists()
        if is_partial and not is_locked(path / LOCK):
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """Yield the partial folder. It becomes ``folder`` at the end of the block, or is removed by an exception."""
    draft = folder.with_name(f"{folder.name}.partial-{secrets.token_hex(4)}")
    lock = FileLock(draft / LOCK)
    try:
        draft.mkdir(mode=0o700)
        lock.try_own()
        yield draft
        (draft / LOCK).unlink()
        draft.rename(folder)
        sync_folder(folder.parent)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError):
            raise _write_error(folder, error) from error
        raise
    finally:
        lock.release()


def _write_error(folder: Path, error: OSError) -> TransportError:
    remedy = "Check the folder's owner and mode, or name another folder"
    if error.errno in NO_SPACE_ERRNOS:
        remedy = "Free space on its disk, remove an earlier backup, or name a folder on another disk"
    where = f" ({error.filename})" if error.filename else ""
    return TransportError(
        f"the backup {folder} cannot be written: {error.strerror or error}{where}",
        remedy=f"{remedy}. Nothing was kept.",
    )


class _Copy:
    """One backup in the partial folder ``draft``."""

    def __init__(self, source: BackupSource, draft: Path, base: Base | None, progress: Progress) -> None:
        self._source = source
        self._draft = draft
        self._progress = progress
        self._base = base
        self._earlier = {} if base is None else {one.path: one for one in base.manifest.files}
        self._ledgers: list[Ledger] = []
        self._bases: dict[int, int] = {}  # by recording: where its first segment with readable rows begins
        self._files: list[FileEntry] = []
        self.linked_bytes = 0

    def copy_streams(self) -> None:
        """Write definition, journal and mark of each stream, and replay its journal."""
        source, draft = self._source, self._draft
        (draft / manifest.ARCHIVE).mkdir(mode=0o700)
        (draft / manifest.STREAMS).mkdir(mode=0o700)
        for cut in source.cuts:
            name = cut.definition.name
            folder = draft / manifest.STREAMS / name
            folder.mkdir(mode=0o700)
            definition.write_definition(folder, cut.definition)
            target = folder / journal.JOURNAL_FILE
            with _open_journal(source.streams_dir, cut) as descriptor:
                copy_file(descriptor, target, cut.journal_bytes, progress=self._progress)
            payloads, _ = journal.read_entries(target.read_bytes(), target)
            ledger = Ledger.replay(len(cut.partitions), map(decode_record, payloads))
            if (ledger.ends, ledger.transactions) != ([one.end for one in cut.partitions], cut.transactions):
                raise DataLossError(
                    f"the journal of stream {name!r} is damaged: it does not have the state that the server has",
                    remedy="Stop the server, and run 'aeron-spark server verify'.",
                )
            self._ledgers.append(ledger)
            if ledger.epoch != FIRST:
                mark = ArchiveMark(str(draft / manifest.ARCHIVE), cut.definition)
                mark.confirm(ledger.epoch, ledger.transactions)
                self._add_written(mark.path)
            self._add_written(folder / definition.DEFINITION_FILE)
            self._add_written(target)
        for path in source.store_files:
            with suppress(FileNotFoundError):
                copy_file(path, draft / manifest.STREAMS / path.name, progress=self._progress)
                self._add_written(draft / manifest.STREAMS / path.name)

    def copy_catalog(self) -> None:
        """Write a catalog that has the recordings of the streams, stopped at the ends of the cut."""
        path = self._source.archive_dir / archive_catalog.CATALOG_FILE
        found = archive_catalog.parse_catalog(path.read_bytes(), str(path))
        ranges = {}
        for cut in self._source.cuts:
            for index, one in enumerate(cut.partitions):
                entry = found.entries.get(one.recording_id)
                if entry is None:
                    raise DataLossError(
                        f"partition {index} of stream {cut.definition.name!r} is damaged: recording "
                        f"{one.recording_id} is missing in the archive's catalog",
                        remedy="Run 'aeron-spark server verify', which names the rows that are lost.",
                    )
                base = _segment_base(one, entry.recording, one.start)
                self._bases[one.recording_id] = base
                ranges[one.recording_id] = max(entry.recording.start_position, base), one.end
        data = archive_catalog.encode_catalog(found, ranges, self._source.time_ns // 1_000_000)
        target = self._draft / manifest.ARCHIVE / archive_catalog.CATALOG_FILE
        replace_file(target, data)
        self._add_written(target)

    def copy_segments(self) -> None:
        """Copy the segments of each partition up to its end, or link those that the earlier backup has."""
        for cut, ledger in zip(self._source.cuts, self._ledgers, strict=True):
            for index, one in enumerate(cut.partitions):
                linked_end = self._unchanged_end(cut, index, ledger)
                first = self._bases[one.recording_id] if one.start < one.end else one.end
                for begin in range(first, one.end, one.segment_length):
                    end = min(one.end, begin + one.segment_length)
                    self._copy_segment(f"{one.recording_id}-{begin}.rec", end - begin, one, end <= linked_end)

    def copy_configuration(self) -> None:
        """Copy the clients file, the configuration and the like."""
        if not self._source.configuration:
            return
        folder = self._draft / manifest.CONFIGURATION
        folder.mkdir(mode=0o700)
        for name, path in self._source.configuration.items():
            copy_file(path, folder / name, progress=self._progress)
            self._add_written(folder / name)

    def manifest(self) -> Manifest:
        """Return the manifest of the copied files."""
        source = self._source
        time = datetime.fromtimestamp(source.time_ns // NS, timezone.utc)
        streams = tuple(_stream_entry(*one) for one in zip(source.cuts, self._ledgers, strict=True))
        created, files = f"{time:%Y-%m-%dT%H:%M:%SZ}", tuple(self._files)
        return Manifest(manifest.VERSION, source.release, created, source.time_ns, streams, files, dict(source.damaged))

    def _unchanged_end(self, cut: StreamCut, index: int, ledger: Ledger) -> int:
        """Return the position up to which the earlier backup has the same bytes of a partition."""
        streams = () if self._base is None else self._base.manifest.streams
        for stream in streams:
            if stream.created_ns == cut.definition.created_ns and index < len(stream.partitions):
                earlier, now = stream.partitions[index], cut.partitions[index]
                same = (earlier.recording_id, earlier.fingerprint) == (now.recording_id, now.fingerprint)
                epochs = ledger.epochs(index)
                if same and epochs.has(int(earlier.epoch, 16), earlier.end, now.end):
                    return earlier.end
        return 0

    def _copy_segment(self, name: str, size: int, partition: PartitionCut, is_unchanged: bool) -> None:
        path = f"{manifest.ARCHIVE}/{name}"
        earlier = self._earlier.get(path)
        if is_unchanged and earlier is not None and earlier.bytes == size and self._link(earlier):
            self._files.append(earlier)
            self.linked_bytes += size
            self._progress(size)
            return
        source = self._source.archive_dir / name
        try:
            copied, digest = copy_file(source, self._draft / path, size, progress=self._progress)
        except FileNotFoundError as error:
            raise DataLossError(
                f"the segment {source} is missing",
                remedy="Run 'aeron-spark server verify', which names the rows that are lost.",
            ) from error
        self._files.append(FileEntry(path, copied, digest, partition.segment_length))

    def _link(self, earlier: FileEntry) -> bool:
        """Link a file of the earlier backup; return whether its file system allows that and it has its size."""
        assert self._base is not None
        source = self._base.folder / earlier.path
        try:
            if source.stat().st_size != earlier.bytes:
                return False
            os.link(source, self._draft / earlier.path)
        except OSError:
            return False
        return True

    def _add_written(self, path: Path) -> None:
        size, digest = hash_file(path)
        self._files.append(FileEntry(str(path.relative_to(self._draft)), size, digest))


def _segment_base(partition: PartitionCut, recording: Recording, position: int) -> int:
    """Return the position at which the segment with ``position`` begins."""
    return Layout(recording.start_position, partition.term_length, partition.segment_length).segment_base(position)


@contextmanager
def _open_journal(streams_dir: Path, cut: StreamCut) -> Iterator[int]:
    """Open the journal of the cut. Its folder may have been renamed since, such as for a deleted stream."""
    by_name = streams_dir / cut.definition.name
    others = (path for path in streams_dir.iterdir() if path.is_dir() and path != by_name)
    for folder in (by_name, *others):
        try:
            descriptor = os.open(folder / journal.JOURNAL_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            if os.fstat(descriptor).st_ino == cut.journal_inode:
                yield descriptor
                return
        finally:
            os.close(descriptor)
    raise DataLossError(
        f"the journal of stream {cut.definition.name!r} is missing in {streams_dir}",
        remedy="Check the disk; back up again.",
    )


def _stream_entry(cut: StreamCut, ledger: Ledger) -> StreamEntry:
    ends = [epoch_text(ledger.epochs(index).at(one.end)) for index, one in enumerate(cut.partitions)]
    partitions = tuple(
        PartitionEntry(one.recording_id, one.fingerprint, one.start, one.end, epoch)
        for one, epoch in zip(cut.partitions, ends, strict=True)
    )
    definition, epoch = cut.definition, epoch_text(ledger.epoch)
    return StreamEntry(definition.name, definition.created_ns, epoch, ledger.transactions, partitions)
