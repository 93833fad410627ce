"""The folders of deleted streams, and of streams whose creation did not finish, until all their files are deleted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.errors import AeronSparkError
from aeron_spark.facts import Bus
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import read_definition
from aeron_spark.streams.deletion_holds import DeletionHolds
from aeron_spark.streams.model import DeletePending
from aeron_spark.streams.partition import RECORDING_TIMEOUT_S, alias_of, delete_recording, has_alias

CREATING: Final = ".creating-"
DELETED: Final = ".deleted-"
PENDING_S: Final = 60.0  # files of a deleted stream that are not deleted after this time are reported


class Leftovers:
    """The leftovers in the folder of a store. For one thread at a time. ``clock`` returns seconds, monotonic."""

    def __init__(
        self, folder: Path, address: ArchiveAddress, holds: DeletionHolds, facts: Bus,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._folder = folder
        self._address = address
        self._holds = holds
        self._facts = facts
        self._clock = clock
        self._since: dict[Path, float] = {}  # folders that are not removed yet
        self._reported: set[Path] = set()

    def remove_all(self) -> list[AeronSparkError]:
        """Remove all leftovers; return the errors. Reports a deleted stream that is pending for ``PENDING_S``."""
        found = self.found()
        errors = []
        for folder in found:
            of_folder = self.remove(folder)
            errors += of_folder
            if folder.exists():
                self._note_pending(folder, of_folder)
        self._since = {folder: since for folder, since in self._since.items() if folder in found and folder.exists()}
        return errors

    def _note_pending(self, folder: Path, errors: list[AeronSparkError]) -> None:
        now = self._clock()
        if now - self._since.setdefault(folder, now) >= PENDING_S and folder not in self._reported:
            self._reported.add(folder)
            if folder.name.startswith(DELETED):
                _, _, name = folder.name.removeprefix(DELETED).partition("-")
                holder = self._holds.holder
                why = f"its files are in use for a {holder}" if holder else f"{folder} cannot be removed"
                self._facts.emit(DeletePending(name, errors[0].what if errors else why))

    def found(self) -> list[Path]:
        """Return the leftovers."""
        return [path for path in self._folder.iterdir() if path.name.startswith((CREATING, DELETED))]

    def remove(self, folder: Path) -> list[AeronSparkError]:
        """Delete a folder and the recordings of its stream; return an error that prevents it now.

        A hold on deletions delays it.
        """
        if not folder.exists() or self._holds.holder:
            return []
        try:
            definition = read_definition(folder)
        except AeronSparkError:  # without a definition it has no recordings
            shutil.rmtree(folder, ignore_errors=True)
            return []
        try:
            archive = archive_of(self._address)
            aliases = {id_: alias_of(definition, index) for index, id_ in enumerate(definition.stream_ids)}
            for stream_id, alias in aliases.items():
                for found in archive.recordings(stream_id):
                    if has_alias(found, alias):
                        delete_recording(archive, found.id, RECORDING_TIMEOUT_S)
        except AeronSparkError as error:
            return [error]
        ArchiveMark(self._address.archive_dir, definition).remove()
        shutil.rmtree(folder, ignore_errors=True)
        return []
