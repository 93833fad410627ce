"""Restores a backup into empty folders of a store and of an archive. Nothing is visible before all files are right.

The files are copied into a folder ``.restoring`` in each of the two, and compared with the manifest. Then each stream
begins an epoch that is marked as restored, in its journal and in its mark in the archive's folder. So the restored
stream differs from the one that was copied, also if that one had no further opening: state of clients that is beyond
the copy has diverged, and neither folder fits the other one's original. Last, the files move to their places, those of
the archive first. A server does not start while a folder ``.restoring`` exists.

Another person may have made the backup. Only the files that its manifest lists are read, and a manifest can list only
those of a backup. Each is a regular file of the right size, and no folder on the way to it is a link.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice, permutations
from pathlib import Path, PurePosixPath
from typing import Final

from aeron_spark.aeron import archive_catalog
from aeron_spark.backup import manifest
from aeron_spark.backup.copying import copy_file, hash_file, ignore_progress, read_manifest, sync_tree
from aeron_spark.backup.manifest import FileEntry, Manifest
from aeron_spark.errors import DataLossError, InUseError, OptionError, TransportError
from aeron_spark.files import NO_SPACE_ERRNOS, NotRegularError, open_regular, sync_folder
from aeron_spark.log.epochs import RANDOM_BITS
from aeron_spark.node.locks import FileLock, current_owner_text
from aeron_spark.node.paths import ARCHIVE_LOCK
from aeron_spark.streams import journal
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import read_definition
from aeron_spark.streams.journal_records import decode_record, encode_record
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.store import LOCK, RESTORING, lock_store

MAX_UNLISTED: Final = 20  # files that a restore names, of those that it ignores
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Restored:
    """A finished restore. ``configuration`` are the files of the backup that the restore leaves there.

    ``unlisted`` are the first files there that the manifest does not list; they are ignored.
    """

    manifest: Manifest
    configuration: tuple[Path, ...]
    unlisted: tuple[Path, ...]


def restore_backup(
    folder: Path,
    streams_dir: Path,
    archive_dir: Path,
    *,
    now_ns: int,
    random: Callable[[int], int] = secrets.randbits,
    progress: Progress = ignore_progress,
) -> Restored:
    """Restore the backup in ``folder`` into two empty or missing folders; ``now_ns`` is since 1970.

    Raises OptionError if a folder is not empty or ``folder`` is not a backup, InUseError if a server or a node uses
    one, DataLossError if a file of the backup is damaged, TransportError if the disk fails. After an exception the two
    folders have no files of the restore.
    """
    found = read_manifest(folder)
    _check_folders(folder, streams_dir, archive_dir)
    restore = _Restore(folder, found, streams_dir, archive_dir)
    try:
        with _reserved(streams_dir, archive_dir):
            restore.copy_files(progress)
            restore.begin_epochs(now_ns, random)
            restore.move_to_places()
    except OSError as error:
        raise _write_error(error) from error
    files = tuple(folder / one.path for one in found.files if one.path.startswith(manifest.CONFIGURATION))
    return Restored(found, files, tuple(islice(_unlisted_files(folder, found), MAX_UNLISTED)))


class _Restore:
    """One restore. ``drafts`` are the folders of files that are not at their places yet, by folder of the backup."""

    def __init__(self, folder: Path, found: Manifest, streams_dir: Path, archive_dir: Path) -> None:
        self._folder = folder
        self._manifest = found
        self.drafts = {manifest.STREAMS: streams_dir / RESTORING, manifest.ARCHIVE: archive_dir / RESTORING}

    def copy_files(self, progress: Progress) -> None:
        """Copy the files of streams and archive, and check these and the others. Raises DataLossError."""
        for file in self._manifest.files:
            os.close(self._open(file))  # a wrong size is found before the first copy
        for draft in self.drafts.values():
            draft.mkdir(mode=0o700)
        for file in self._manifest.files:
            source = self._folder / file.path
            top, *rest = PurePosixPath(file.path).parts
            descriptor = self._open(file)
            try:
                if top in self.drafts:
                    target = self.drafts[top].joinpath(*rest)
                    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    _, digest = copy_file(descriptor, target, file.bytes, length=file.length, progress=progress)
                else:
                    _, digest = hash_file(descriptor, progress)
            finally:
                os.close(descriptor)
            if digest != file.sha256:
                raise _damage_error(source, "its SHA-256 is wrong")

    def _open(self, file: FileEntry) -> int:
        """Open a file of the backup, and return its descriptor. Raises DataLossError unless it has its size."""
        path = self._folder / file.path
        try:
            descriptor = open_regular(path, below=self._folder)
        except FileNotFoundError as error:
            raise _damage_error(path, "it is missing") from error
        except NotRegularError as error:
            raise _damage_error(path, str(error.strerror)) from error
        size = os.fstat(descriptor).st_size
        if size != file.bytes:
            os.close(descriptor)
            raise _damage_error(path, f"it has {size} bytes, expected {file.bytes}")
        return descriptor

    def begin_epochs(self, now_ns: int, random: Callable[[int], int]) -> None:
        """Begin the epoch of the restore in each journal and each mark."""
        drafts = self.drafts
        for stream in self._manifest.streams:
            stream_folder = drafts[manifest.STREAMS] / stream.name
            definition = read_definition(stream_folder)
            if (definition.name, definition.partitions) != (stream.name, len(stream.partitions)):
                raise _damage_error(stream_folder, "its definition is not that of the stream in the manifest")
            opened, payloads = journal.Journal.open(stream_folder / journal.JOURNAL_FILE)
            try:
                ledger = Ledger.replay(definition.partitions, map(decode_record, payloads))
                epoch = ledger.prepare_epoch(now_ns, random(RANDOM_BITS), self._manifest.time_ns)
                ledger.apply(epoch)
                opened.append(encode_record(epoch))
            finally:
                opened.close()
            restored = drafts[manifest.STREAMS].parent / stream.name
            mark = ArchiveMark(str(drafts[manifest.ARCHIVE]), definition, restored)
            mark.confirm(epoch.epoch, ledger.transactions)

    def move_to_places(self) -> None:
        """Move the files: first those of the archive, last its catalog; then the streams."""
        for draft in self.drafts.values():
            sync_tree(draft)
        for draft in (self.drafts[manifest.ARCHIVE], self.drafts[manifest.STREAMS]):
            for path in sorted(draft.iterdir(), key=lambda path: path.name == archive_catalog.CATALOG_FILE):
                path.rename(draft.parent / path.name)
            sync_folder(draft.parent)
        for draft in (self.drafts[manifest.ARCHIVE], self.drafts[manifest.STREAMS]):
            draft.rmdir()
            sync_folder(draft.parent)


def _unlisted_files(folder: Path, found: Manifest) -> Iterator[Path]:
    """Yield the files and links in a backup that its manifest does not list."""
    listed = {manifest.MANIFEST_FILE, *(file.path for file in found.files)}
    for parent, folders, files in os.walk(folder):  # which follows no link
        for name in [*files, *(one for one in folders if os.path.islink(os.path.join(parent, one)))]:
            path = Path(parent, name)
            if str(path.relative_to(folder)) not in listed:
                yield path


def _damage_error(source: Path, why: str) -> DataLossError:
    return DataLossError(f"the backup is damaged: {source}: {why}", remedy="Use another backup.")


def _check_folders(folder: Path, streams_dir: Path, archive_dir: Path) -> None:
    resolved = [one.resolve() for one in (folder, streams_dir, archive_dir)]
    if any(one.is_relative_to(other) for one, other in permutations(resolved, 2)):
        raise OptionError(
            "the backup, --streams-dir and --archive-dir are not three separate folders",
            remedy="Name folders of which none is within another one.",
        )
    for option, place in (("--streams-dir", streams_dir), ("--archive-dir", archive_dir)):
        try:
            found = [path.name for path in place.iterdir()]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise OptionError(
                f"{option} {place} cannot be used: {error.strerror}", remedy="Name an empty folder."
            ) from error
        if found and set(found) - {LOCK, ARCHIVE_LOCK}:
            raise OptionError(
                f"{option} {place} is not empty: it has {sorted(found)[0]}",
                remedy="Name a new folder, or move its files away first.",
            )


@contextmanager
def _reserved(streams_dir: Path, archive_dir: Path) -> Iterator[None]:
    """Create both folders, and lock them against a server and a node.

    An exception of the block leaves no files of the restore in them.
    """
    created = [folder for folder in (streams_dir, archive_dir) if not folder.exists()]
    with ExitStack() as stack:
        stack.enter_context(lock_store(streams_dir))
        archive_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        archive_lock = stack.enter_context(FileLock(archive_dir / ARCHIVE_LOCK))
        if not archive_lock.try_own():
            raise InUseError(
                f"the archive in {archive_dir} is used by the node of process {current_owner_text(archive_lock.path)}",
                remedy="Stop that node, or name another folder.",
            )
        try:
            yield
        except BaseException:
            for folder in (streams_dir, archive_dir):
                _empty(folder)
            for folder in created:
                shutil.rmtree(folder)
            raise


def _empty(folder: Path) -> None:
    """Remove the files of the restore from a folder that was empty."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (LOCK, ARCHIVE_LOCK):
            path.unlink()


def _write_error(error: OSError) -> TransportError:
    remedy = "Free space on its disk, and restore again"
    if error.errno not in NO_SPACE_ERRNOS:
        remedy = "Check the folder's owner, its mode and the disk, and restore again"
    where = f" {error.filename}" if error.filename else ""
    return TransportError(f"the backup cannot be restored:{where} {error.strerror or error}", remedy=f"{remedy}.")
