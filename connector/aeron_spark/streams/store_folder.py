"""The folder of a store: its lock, whether it is in place, and the streams that it should have and does not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.errors import AeronSparkError, DataFormatError, DataLossError, InUseError, SetupError
from aeron_spark.node.locks import FileLock, current_owner_text
from aeron_spark.streams.archive_mark import FOLDER, ArchiveMark, read_mark
from aeron_spark.streams.definition import Definition, read_definition
from aeron_spark.streams.leftovers import DELETED
from aeron_spark.streams.partition import RECORDING_TIMEOUT_S, delete_recording, is_recording_of

LOCK: Final = "lock"


def lock_store(folder: Path) -> FileLock:
    """Lock the store in ``folder`` for this process; create the folder if it is missing.

    Raises InUseError, with the process id of the server that uses the store. Raises SetupError if mkdir fails.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the folder {folder} of the streams cannot be created: {error.strerror}",
            remedy="Give --streams-dir a folder that this user can write.",
        ) from error
    lock = FileLock(folder / LOCK)
    if not lock.try_own():
        raise InUseError(
            f"the store {folder} is in use by server process {current_owner_text(lock.path)}",
            remedy="Stop that server, or give --streams-dir another folder.",
        )
    return lock


def has_streams(folder: Path, archive_dir: Path) -> bool:
    """Whether the store has, or should have, streams that a start of the server has to recover."""
    is_named = any((archive_dir / FOLDER).glob("*.json"))
    return is_named or (folder.is_dir() and any(entry.is_dir() for entry in folder.iterdir()))


class StoreFolder:
    """The folder of an open store. ``missing`` are the streams that the archive names and the folder does not have.

    For one thread at a time, except ``problem``.
    """

    def __init__(self, folder: Path, address: ArchiveAddress) -> None:
        self.missing: dict[str, Path] = {}
        """The marks of the missing streams in the archive's folder, by name of the stream."""
        self._folder: Final = folder
        self._address: Final = address
        self._opened: Final = folder.stat()

    def find_missing(self, definitions: Iterable[Definition], names: Iterable[str]) -> dict[str, DataLossError]:
        """Find the missing streams; return their errors by name. See :func:`missing_streams`."""
        found = missing_streams(self._folder, self._address.archive_dir, definitions, names)
        self.missing = {name: mark for name, (mark, _) in found.items()}
        return {name: error for name, (_, error) in found.items()}

    def delete_missing(self, name: str) -> None:
        """Delete the recordings of a missing stream, and its mark. Raises AeronSparkError if the archive fails."""
        mark = self.missing[name]
        archive = archive_of(self._address)
        for found in archive.recordings():
            if is_recording_of(found, mark.stem):
                delete_recording(archive, found.id, RECORDING_TIMEOUT_S)
        mark.unlink(missing_ok=True)
        del self.missing[name]

    @property
    def problem(self) -> str:
        """Why the folder cannot take streams and rows, or which stream it lacks; "" if it can and lacks none."""
        try:
            is_same = os.path.samestat(self._opened, self._folder.stat())
        except OSError:
            is_same = False
        if not is_same:
            return (
                f"the folder {self._folder} of the streams was removed or replaced, or a file system is mounted over it"
            )
        if not os.access(self._folder, os.W_OK):
            return f"the folder {self._folder} of the streams cannot be written"
        if self.missing:
            first, *others = self.missing
            return f"the folder of stream {first!r} is gone" + (f", and those of {len(others)} more" if others else "")
        return ""


def missing_streams(
    folder: Path, archive_dir: str, definitions: Iterable[Definition], names: Iterable[str]
) -> dict[str, tuple[Path, DataLossError]]:
    """Return the mark and the error of each stream of the store in ``folder`` whose folder is gone, by its name.

    ``definitions`` are those of the streams that are there; ``names`` also has those without a definition. If another
    stream has the name of a missing one, the name of its mark is used. Marks that cannot be read, marks of other
    stores, and those of earlier releases do not count.
    """
    known = {ArchiveMark(archive_dir, one).path for one in (*definitions, *_deleted(folder))}
    taken = set(names)
    found: dict[str, tuple[Path, DataLossError]] = {}
    for path in sorted((Path(archive_dir) / FOLDER).glob("*.json")):
        missing = None if path in known else _stream_folder(path)
        if missing is not None and missing.parent == Path(os.path.abspath(folder)):
            error = DataLossError(
                f"the stream is damaged: its folder {missing} is gone, but {path} in the archive's folder names it",
                remedy="Mount or restore the folder of the streams, then restart the server. To give up the rows, "
                "delete the stream.",
            )
            found[path.stem if missing.name in taken else missing.name] = path, error
    return found


def _deleted(store: Path) -> list[Definition]:
    found = []
    for folder in store.glob(f"{DELETED}*"):
        with suppress(AeronSparkError):  # without a definition, the folder alone is deleted
            found.append(read_definition(folder))
    return found


def _stream_folder(path: Path) -> Path | None:
    """Return the folder of a stream from its mark; None if the mark has none or cannot be read."""
    try:
        mark = read_mark(path)
    except DataFormatError:
        return None
    return Path(mark.folder) if mark is not None and mark.folder else None
