"""The store: opens, creates, renames and deletes streams, and removes what a crash left over.

    <folder>/lock                        lock of the one server that uses the folder, with its process id
    <folder>/admin.sock                  socket on which commands ask that server
    <folder>/<stream>/                   definition, journal, stages
    <folder>/.creating-<random>-<stream> a stream that is being created; the rename of this folder creates it
    <folder>/.deleted-<random>-<stream>  a deleted stream, whose recordings and files are not all deleted yet
    <folder>/.restoring/                 files of a restore that has not finished; the store cannot be opened

The next start removes folders of the kinds ``.creating-`` and ``.deleted-``, with their recordings.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.recording import Recording
from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    DataLossError,
    EndedError,
    InUseError,
    OptionError,
    RefusedError,
    SetupError,
    StillWorking,
)
from aeron_spark.files import sync_folder, write_failed
from aeron_spark.log.epochs import FIRST, RANDOM_BITS
from aeron_spark.node.locks import FileLock, current_owner_text
from aeron_spark.streams.archive_mark import MARKS_FOLDER, OTHER_TIME, ArchiveMark, read_mark
from aeron_spark.streams.definition import (
    Definition,
    check_name,
    default_segment_bytes,
    deleted_stream,
    finish_rename,
    read_definition,
    rename_files,
    renamed_stream,
    unknown_stream,
    write_definition,
)
from aeron_spark.streams.journal import StoreOpening, create_ledger
from aeron_spark.streams.model import DeletePending, Shape, StreamNotOpened
from aeron_spark.streams.partition import (
    alias_of,
    create_recording,
    delete_recording,
    has_alias,
    is_recording_of,
)
from aeron_spark.streams.reader_leases import ReaderLeases
from aeron_spark.streams.recordings import retry_for_slot
from aeron_spark.streams.schema_changes import check_fields, merge
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.stream_requests import CreateStream

CREATING: Final = ".creating-"
DELETED: Final = ".deleted-"
PENDING_S: Final = 60.0  # files of a deleted stream that are not deleted after this time are reported


class Leftovers:
    """The leftovers in the folder of a store. For one thread at a time."""

    def __init__(self, folder: Path, parts: StoreParts) -> None:
        self._folder = folder
        self._parts = parts
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
        now = self._parts.clock()
        if now - self._since.setdefault(folder, now) >= PENDING_S and folder not in self._reported:
            self._reported.add(folder)
            if folder.name.startswith(DELETED):
                _, _, name = folder.name.removeprefix(DELETED).partition("-")
                holder = self._parts.holds.holder
                why = f"its files are in use for a {holder}" if holder else f"{folder} cannot be removed"
                self._parts.facts.emit(DeletePending(name, errors[0].what if errors else why))

    def found(self) -> list[Path]:
        """Return the leftovers."""
        return [path for path in self._folder.iterdir() if path.name.startswith((CREATING, DELETED))]

    def remove(self, folder: Path) -> list[AeronSparkError]:
        """Delete a folder and the recordings of its stream; return an error that prevents it now.

        A hold on deletions delays it.
        """
        if not folder.exists() or self._parts.holds.holder:
            return []
        try:
            definition = read_definition(folder)
        except AeronSparkError:  # without a definition it has no recordings
            shutil.rmtree(folder, ignore_errors=True)
            return []
        try:
            archive = archive_of(self._parts.address)
            aliases = {id_: alias_of(definition, index) for index, id_ in enumerate(definition.stream_ids)}
            for stream_id, alias in aliases.items():
                for found in archive.recordings(stream_id):
                    if has_alias(found, alias):
                        delete_recording(self._parts, found.id)
        except AeronSparkError as error:
            return [error]
        ArchiveMark(self._parts.address.archive_dir, definition).remove()
        shutil.rmtree(folder, ignore_errors=True)
        return []


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
    is_named = any((archive_dir / MARKS_FOLDER).glob("*.json"))
    return is_named or (folder.is_dir() and any(entry.is_dir() for entry in folder.iterdir()))


class StoreFolder:
    """The folder of an open store. ``missing`` are the streams that the archive names and the folder does not have.

    For one thread at a time, except ``problem``.
    """

    def __init__(self, folder: Path, parts: StoreParts) -> None:
        self.missing: dict[str, Path] = {}
        """The marks of the missing streams in the archive's folder, by name of the stream."""
        self._folder: Final = folder
        self._parts: Final = parts
        self._opened: Final = folder.stat()

    def find_missing(self, definitions: Iterable[Definition], names: Iterable[str]) -> dict[str, DataLossError]:
        """Find the missing streams; return their errors by name. See :func:`missing_streams`."""
        found = missing_streams(self._folder, self._parts.address.archive_dir, definitions, names)
        self.missing = {name: mark for name, (mark, _) in found.items()}
        return {name: error for name, (_, error) in found.items()}

    def delete_missing(self, name: str) -> None:
        """Delete the recordings of a missing stream, and its mark. Raises AeronSparkError if the archive fails."""
        mark = self.missing[name]
        for found in archive_of(self._parts.address).recordings():
            if is_recording_of(found, mark.stem):
                delete_recording(self._parts, found.id)
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
    for path in sorted((Path(archive_dir) / MARKS_FOLDER).glob("*.json")):
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


RESTORING: Final = ".restoring"
# Far from ids that programs choose, and from 10, 20 and 100, which Aeron's archives and clusters use.
FIRST_STREAM_ID: Final = 1_100_000_000
REUSE_TIMEOUT_S: Final = 1.0  # longest wait for a commit of a stream whose former name is in use again

# The states of a stream.
OK: Final = "ok"
READ_ONLY: Final = "read-only"  # committed rows can be read
DAMAGED: Final = "damaged"  # its files are damaged: every request fails
ENDED: Final = "ended"  # committed rows can be read, and it takes no more rows
RECOVERING: Final = "recovering"  # opening it failed; the server retries


def ignore_progress(done: int, total: int) -> None:
    """Do nothing: the default for a store whose recovery is not watched."""


def never_closing() -> bool:
    """Return False: the default for a store that no server closes while it recovers."""
    return False


class Condition(NamedTuple):
    """The state of a stream, and the problem behind it, or ""."""

    state: str
    problem: str = ""


class StreamStore:
    """The streams in the subfolders of ``folder``, recorded by the archive of ``parts``. Thread-safe.

    Opening the store truncates uncommitted rows. Each stream begins a new epoch with its first change; see log.epochs.
    ``lock`` is the result of :func:`lock_store`, if the caller has it; the caller releases it. ``random(n)`` returns n
    random bits. ``is_closing`` is called before the recovery of each stream, and returns whether the server is being
    closed. ``progress`` is called with the numbers of recovered streams and of all streams, before the recovery and
    after each stream.

    Raises InUseError if another server uses the folder; SetupError if this machine does not have the archive's files,
    or if a restore into the folder did not finish;
    ConnectError or TransportError if the archive does not respond; EndedError if the server is being closed.
    """

    def __init__(
        self,
        folder: Path,
        parts: StoreParts,
        *,
        lock: FileLock | None = None,
        random: Callable[[int], int] = secrets.randbits,
        is_closing: Callable[[], bool] = never_closing,
        progress: Callable[[int, int], object] = ignore_progress,
    ) -> None:
        if not parts.address.archive_dir:
            raise SetupError(
                f"the archive of the media driver in {parts.address.aeron_dir} belongs to another program, and the "
                "folder of its files is unknown",
                remedy="Let the server use its own node for streams.",
            )
        self.folder = folder
        self.failed: dict[str, AeronSparkError] = {}  # by name of a stream that could not be opened
        self.holds: Final = parts.holds
        self._parts = parts
        self._leftovers = Leftovers(folder, parts)
        self._random = random
        self._opened_ns = parts.wall()
        self._streams: dict[str, Stream] = {}
        self._unlisted_id = 0  # no recording with this id or a higher one has been listed
        self._free_stream_id = FIRST_STREAM_ID  # higher than the ids of all streams and listed recordings
        self._changing = threading.Lock()  # creation, deletion, housekeeping: one at a time
        self._closed = False
        self._own_lock = lock_store(folder) if lock is None else None
        self._store_folder = StoreFolder(folder, parts)
        try:
            self._recover(is_closing, progress)
        except BaseException:
            self.close()
            raise

    def create(self, request: CreateStream, owner: str = "", max_partitions: int = 0) -> Stream:
        """Create a stream, atomically: after a crash it exists completely or not at all.

        Its terms, and with them the segments of its recordings, have at least ``segment_bytes`` of the request; 0 is
        the default for the retention. The retention applies to each partition; 0 is no limit. ``owner`` is the client's
        key, whose streams have at most ``max_partitions`` partitions; 0 is no limit. With a schema, which the stream
        has from the beginning, its rows are Arrow rows. Raises OptionError for the name of an existing stream or an
        invalid value, DataFormatError for an invalid schema, RefusedError above a limit of partitions or columns,
        TransportError if the archive or the disk fails.
        """
        name, schema = check_name(request.stream), request.schema or None
        check_fields(None, schema, self._parts.settings.options().max_columns)
        fixed = None if schema is None else merge(None, schema)
        with self._changing:
            self._refuse_closed()
            self._check_new_name(name)
            definition = Definition(
                name=name,
                partitions=request.partitions,
                stream_ids=self._free_stream_ids(request.partitions),
                term_bytes=request.segment_bytes or default_segment_bytes(request.retention_bytes),
                retention_bytes=request.retention_bytes,
                retention_seconds=request.retention_seconds,
                created_ns=self._parts.wall(),
                created_by=owner,
                schema_policy=request.schema_policy,
            )
            self._check_partitions(request.partitions, owner, max_partitions)
            draft = self.folder / f"{CREATING}{secrets.token_hex(4)}-{name}"
            try:
                self._create_files(draft, definition, fixed)
            except BaseException:
                self._leftovers.remove(draft)
                raise
            created = self._open_stream(name)
            self._mark_reused(name)
            return created

    def alter(
        self, name: str, change: Callable[[Definition], Definition], seconds: float | None = None
    ) -> tuple[Definition, Definition]:
        """Change the definition of a stream, atomically; return the definitions before and after.

        The stream uses it from now on; its retention from the next ``tick``. ``seconds`` is the longest wait for a
        commit. Raises OptionError for an unknown name or an invalid value, StillWorking after ``seconds``,
        TransportError if the disk fails.
        """
        with self._changing:
            stream = self.get(name)
            before = stream.definition
            return before, stream.redefine(change, seconds)

    def rename(self, name: str, new_name: str, seconds: float | None = None) -> Stream:
        """Rename a stream; return it. Running requests under the former name fail, its rows and writers stay.

        After a crash it has either name. The former name is answered with the new one until another stream gets it.
        ``seconds`` is the longest wait for a commit. Raises OptionError for an unknown name, or one that another stream
        has, StillWorking after ``seconds`` or while a backup copies files, TransportError if the disk fails.
        """
        check_name(new_name)
        with self._changing:
            self._refuse_closed()
            stream = self.get(name)
            self._check_new_name(new_name)
            if self.holds.holder:
                raise StillWorking(
                    f"stream {name!r} cannot be renamed now: its files are in use for a {self.holds.holder}",
                    remedy="Rename it again later.",
                )
            definition = stream.definition.renamed(new_name)
            stream.close(renamed_stream(name, new_name), seconds)
            try:
                rename_files(self.folder / name, definition)
                # With the list of recordings, also those are deleted that the stream has left before.
                renamed = self._open_stream(new_name, self._recordings(), stream.space.leases)
            except BaseException:
                self._reopen_after(stream, new_name)
                raise
            finally:  # until here, requests get the error with the new name
                self._streams = {key: one for key, one in self._streams.items() if one is not stream}
            self._mark_reused(new_name)
            return renamed

    def renamed_to(self, name: str) -> str | None:
        """Return the present name of the stream that had the name ``name``, and that no other stream has; or None."""
        if name in self:
            return None
        return next(
            (one.definition.name for one in self._streams.values() if one.definition.is_former_name(name)), None
        )

    def get(self, name: str) -> Stream:
        """Return a stream. Raises OptionError for an unknown name, or the error that prevents opening the stream."""
        self._refuse_closed()
        stream = self._streams.get(name)
        if stream is None:
            error = self.failed.get(name)
            if error is not None:
                raise error
            new_name = self.renamed_to(name)
            raise unknown_stream(name, self.names) if new_name is None else renamed_stream(name, new_name)
        return stream

    def __contains__(self, name: str) -> bool:
        return name in self._streams or name in self.failed

    @property
    def names(self) -> list[str]:
        """The names of all streams, also of damaged ones, in order."""
        self._refuse_closed()
        return sorted({*self._streams, *self.failed})

    def all(self) -> list[Stream]:
        """Return the open streams, in the order of their names."""
        self._refuse_closed()
        return [self._streams[name] for name in sorted(self._streams)]

    def condition(self, name: str) -> Condition:
        """Return the state and the problem of a stream. Raises OptionError for an unknown name."""
        self._refuse_closed()
        error = self.failed.get(name)
        if error is not None:
            return Condition(RECOVERING if error.retriable else DAMAGED, str(error))
        stream = self.get(name)
        problem = stream.problem
        if problem is not None:
            return Condition(READ_ONLY, str(problem))
        return Condition(ENDED if stream.definition.is_ended else OK)

    @property
    def unrecovered(self) -> dict[str, AeronSparkError]:
        """The streams that could not be opened yet, by name; ``tick`` tries again. Not the damaged ones."""
        return {name: error for name, error in list(self.failed.items()) if error.retriable}

    def check_one_time(self) -> None:
        """Raise DataLossError if the store and the archive are copies of different times: no stream fits its archive.

        If some streams fit, the others are damaged, and the store serves those that fit.
        """
        others = [(name, error) for name, error in self.failed.items() if error.reason == OTHER_TIME]
        if others and all(stream.cut().epoch == FIRST for stream in self.all()):
            name, error = others[0]
            raise DataLossError(
                f"the store {self.folder} and the archive {self._parts.address.archive_dir} are of different times; "
                f"of {len(others)} streams the first is {name!r}: {error.what}",
                remedy=error.remedy,
                reason=OTHER_TIME,
            )

    @property
    def problem(self) -> str:
        """Why the store cannot take streams and rows, or which streams it lacks; "" if it can and lacks none."""
        return self._store_folder.problem

    @property
    def staged_bytes(self) -> int:
        """The bytes that the stages of all streams reserve."""
        return self._parts.stage_space.reserved

    def definition(self, name: str) -> Definition | None:
        """Return the definition of a stream, also of a damaged one; None if its file is damaged."""
        stream = self._streams.get(name)
        if stream is not None:
            return stream.definition
        try:
            return read_definition(self.folder / check_name(name))
        except AeronSparkError:
            return None

    def delete(self, name: str) -> None:
        """Delete a stream with all its rows. Calls fail at once; then its recordings and files are deleted.

        A later :meth:`tick` or start deletes the rest if that fails now, or is held back. Raises OptionError for an
        unknown name.
        """
        with self._changing:
            self._refuse_closed()
            if name in self._store_folder.missing:
                self._store_folder.delete_missing(name)
                del self.failed[name]
                return
            if name not in self.failed:
                stream = self.get(name)
                stream.refuse_calls(deleted_stream(name))  # also while a commit goes on
                stream.close()
            deleted = self.folder / f"{DELETED}{secrets.token_hex(4)}-{name}"
            try:
                (self.folder / name).rename(deleted)
                sync_folder(self.folder)
            except OSError as error:
                raise write_failed(self.folder / name, error) from error
            self._streams = {key: stream for key, stream in self._streams.items() if key != name}
            self.failed.pop(name, None)
            self._leftovers.remove(deleted)

    @contextmanager
    def without_changes(self, seconds: float) -> Iterator[None]:
        """Let no stream be created, altered, renamed or deleted during the block.

        ``seconds`` is the longest wait for the end of such a change. Raises StillWorking after it.
        """
        if not self._changing.acquire(timeout=seconds):
            raise StillWorking(
                f"waited {seconds:g} s for the change of a stream to end, such as its rename or its deletion",
                remedy="Try again.",
            )
        try:
            yield
        finally:
            self._changing.release()

    def tick(self) -> list[AeronSparkError]:
        """Do the housekeeping of all streams; return the errors. The server calls it about every second."""
        self._refuse_closed()
        errors: list[AeronSparkError] = []
        if ahead_s := self._parts.ages.ahead_s:
            errors.append(
                SetupError(
                    f"the clock of this machine went {ahead_s / 60:.0f} minutes ahead in one step; retention by age "
                    "does not count them",
                    remedy="Correct the clock. If it is right now, restart the server.",
                )
            )
        for stream in self.all():
            errors += stream.tick(self._parts.settings.options().lease_delay)
        with self._changing:
            errors += self._leftovers.remove_all()
            unrecovered = self.unrecovered
            with suppress(AeronSparkError):
                recordings = self._recordings() if unrecovered else {}
                for name in unrecovered:
                    with suppress(AeronSparkError):
                        self._open_stream(name, recordings)
        return errors

    def close(self) -> None:
        """Close every stream, and unlock the folder. All rows stay."""
        with self._changing:
            if self._closed:
                return
            self._closed = True
            for stream in self._streams.values():
                stream.close()
            self._release()

    def __enter__(self) -> StreamStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_partitions(self, partitions: int, creator: str, of_creator: int) -> None:
        """Raise RefusedError if a stream of so many partitions exceeds a limit. The caller holds ``_changing``."""
        definitions = [found for name in self.names if (found := self.definition(name)) is not None]
        in_all = sum(one.partitions for one in definitions)
        by_creator = sum(one.partitions for one in definitions if one.created_by == creator)
        for used, limit, whose, option in (
            (in_all, self._parts.settings.options().max_partitions, "the server's streams", "maxPartitions"),
            (by_creator, of_creator, "the streams of your key", "maxPartitionsPerKey, or partitions= in its line"),
        ):
            if limit and used + partitions > limit:
                raise RefusedError(
                    f"{whose} have {used} partitions, and {partitions} more exceed the limit {limit} ({option})",
                    remedy="Delete streams, create one with fewer partitions, or ask the server's operator.",
                    reason="limit",
                )

    def _check_new_name(self, name: str) -> None:
        if name in self:
            raise OptionError(
                f"stream {name!r} exists already",
                remedy="Choose another name, or delete that stream first.",
                reason="exists",
            )

    def _reopen_after(self, stream: Stream, new_name: str) -> None:
        """Open a stream again after a rename that failed, under the name that it has."""
        folder = self.folder / stream.definition.name
        left = folder if folder.exists() else self.folder / new_name
        with suppress(AeronSparkError):
            self._open_stream(_present_folder(left).name, leases=stream.space.leases)

    def _mark_reused(self, name: str) -> None:
        """Note that the former name of another stream is in use again. The caller holds ``_changing``."""
        for stream in self._streams.values():
            if stream.definition.is_former_name(name):
                # If it fails, requests for the name get the new name again after the other stream was deleted.
                with suppress(AeronSparkError):
                    stream.redefine(lambda before: before.with_reused_name(name), REUSE_TIMEOUT_S)

    def _recover(self, is_closing: Callable[[], bool], progress: Callable[[int, int], object]) -> None:
        if (self.folder / RESTORING).exists():
            raise SetupError(
                f"a restore into {self.folder} did not finish",
                remedy="Empty this folder and the archive's folder, and restore again.",
            )
        recordings = self._recordings()
        for leftover in self._leftovers.found():
            _check_not_closing(is_closing)
            self._leftovers.remove(leftover)
        folders = sorted(one for one in self.folder.iterdir() if not one.name.startswith(".") and one.is_dir())
        names = sorted(_present_folder(folder).name for folder in folders)
        progress(0, len(names))
        for number, name in enumerate(names, 1):
            _check_not_closing(is_closing)
            with suppress(AeronSparkError):
                self._open_stream(name, recordings)
            progress(number, len(names))
        definitions = [found for name in names if (found := self.definition(name)) is not None]
        for name, error in self._store_folder.find_missing(definitions, names).items():
            self._note_failed(name, error)

    def _recordings(self, from_id: int = 0) -> dict[int, Recording]:
        """Return the archive's recordings with this id or a higher one, by id."""
        found = {one.id: one for one in archive_of(self._parts.address).recordings(from_id=from_id)}
        self._unlisted_id = max([self._unlisted_id, *(recording_id + 1 for recording_id in found)])
        self._take_stream_ids(one.stream_id for one in found.values())
        return found

    def _take_stream_ids(self, used: Iterable[int]) -> None:
        self._free_stream_id = max([self._free_stream_id, *(stream_id + 1 for stream_id in used)])

    def _open_stream(
        self, name: str, recordings: dict[int, Recording] | None = None, leases: ReaderLeases | None = None
    ) -> Stream:
        """Open the stream in the folder ``name``. An error is reported, remembered in ``failed``, and raised."""
        try:
            stream = self._load(self.folder / name, recordings, leases)
        except AeronSparkError as error:
            self._note_failed(name, error)
            raise
        self.failed.pop(name, None)
        self._take_stream_ids(stream.definition.stream_ids)
        self._streams = {**self._streams, name: stream}
        return stream

    def _note_failed(self, name: str, error: AeronSparkError) -> None:
        before = self.failed.get(name)
        if before is None or str(before) != str(error):  # the same error of each retry is logged once
            self._parts.facts.emit(StreamNotOpened(name, error))
        self.failed[name] = error

    def _load(self, folder: Path, recordings: dict[int, Recording] | None, leases: ReaderLeases | None) -> Stream:
        definition = read_definition(folder)
        if definition.name != folder.name:
            raise DataLossError(
                f"the folder {folder} has the stream {definition.name!r}",
                remedy="Rename the folder to its stream's name.",
            )
        opening = StoreOpening(self._opened_ns, self._random(RANDOM_BITS))
        stream = Stream(folder, definition, self._parts, opening, self._free_slots, leases)
        try:
            stream.recover(recordings)
        except BaseException:
            stream.close()
            raise
        return stream

    def _free_slots(self) -> bool:
        """Free the recording slots of streams that do not commit now, until one had some; return whether one had."""
        return any(stream.release_slots() for stream in self._streams.values())

    def _create_files(self, draft: Path, definition: Definition, schema: bytes | None) -> None:
        """Create a stream's files in the folder ``draft``, and its recordings; then rename the folder to the name."""
        shapes: list[Shape] = []
        try:
            draft.mkdir(mode=0o700)
            write_definition(draft, definition)
            sync_folder(self.folder)
            for index, stream_id in enumerate(definition.stream_ids):
                alias = alias_of(definition, index)
                begin = partial(create_recording, self._parts, alias, stream_id, definition.term_bytes)
                shapes.append(retry_for_slot(begin, self._free_slots))
            create_ledger(draft, shapes, schema)
            draft.rename(self.folder / definition.name)
            sync_folder(self.folder)
        except OSError as error:
            raise write_failed(draft, error) from error

    def _free_stream_ids(self, count: int) -> tuple[int, ...]:
        """Return ids that are higher than those of all streams and recordings. An archive may have very many."""
        self._recordings(self._unlisted_id)
        return tuple(range(self._free_stream_id, self._free_stream_id + count))

    def _release(self) -> None:
        if self._own_lock is not None:
            self._own_lock.release()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EndedError(f"the store {self.folder} is closed", remedy="Open it again.")


def _present_folder(folder: Path) -> Path:
    """Finish a rename that a crash prevented, if the disk allows it; return the folder of the stream."""
    try:
        return finish_rename(folder)
    except AeronSparkError:  # opening the stream reports that its folder has another name
        return folder


def _check_not_closing(is_closing: Callable[[], bool]) -> None:
    if is_closing():
        raise EndedError("the server was closed while it recovered its streams", remedy="Start it again.")
