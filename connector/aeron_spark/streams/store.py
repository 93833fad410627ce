"""All named streams of a server: one folder each, made and deleted at once, whatever happens in between.

    <folder>/lock                        held by the one server that uses the folder, with its process id
    <folder>/<stream>/                   definition, journal, stages
    <folder>/.creating-<random>-<stream> a stream that is being made: until its folder is renamed there is none
    <folder>/.deleted-<random>-<stream>  a stream that is gone, whose recordings and files are still going

What a crash leaves of the last two is swept by the next start.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from aeron_spark.aeron.archive import ArchiveAddress, Recording, archive_of
from aeron_spark.disk import sync_folder, write_failed
from aeron_spark.errors import AeronSparkError, DataLossError, EndedError, InUseError, OptionError, SetupError
from aeron_spark.log.epochs import RANDOM_BITS
from aeron_spark.node.locks import FileLock, holder_name
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import Definition, check_name, read_definition, unknown_stream, write_definition
from aeron_spark.streams.journal import Opened, begin_ledger
from aeron_spark.streams.model import Shape, StreamSettings
from aeron_spark.streams.partition import RECORDING_TIMEOUT_S, alias_of, create, delete_recording
from aeron_spark.streams.recordings import with_room
from aeron_spark.streams.stage_files import StageSpace
from aeron_spark.streams.stream import Stream
from aeron_spark.transport.channel import ChannelUri

LOCK: Final = "lock"
CREATING: Final = ".creating-"
DELETED: Final = ".deleted-"
# Far from what people choose, and from the 10, 20 and 100 that Aeron's own archives and clusters use.
FIRST_STREAM_ID: Final = 1_100_000_000
TERM_BYTES: Final = 16 << 20  # a message has at most an eighth of a term: 2 MiB


# The states of a stream.
OK: Final = "ok"
READ_ONLY: Final = "read-only"  # what is committed can be read, nothing can be written
DAMAGED: Final = "damaged"  # its files are not right: nothing can be done with it before they are
RECOVERING: Final = "recovering"  # it could not be opened yet, and is tried again

LOG: Final = logging.getLogger("aeron_spark.streams")


class Condition(NamedTuple):
    """The state of a stream, and what is wrong with it, "" where nothing is."""

    state: str
    problem: str = ""


def lock_store(folder: Path) -> FileLock:
    """Take the store in ``folder`` for this process, and make the folder where it is missing.

    Raises InUseError with the process id of the server that uses it, SetupError where the folder cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the folder {folder} of the streams cannot be made: {error.strerror}",
            remedy="Give --streams-dir a folder that this user can write.",
        ) from error
    lock = FileLock(folder / LOCK)
    if not lock.try_own():
        raise InUseError(
            f"the store {folder} is in use by server process {holder_name(lock.path)}",
            remedy="Stop it, or give --streams-dir another folder",
        )
    return lock


def holds_streams(folder: Path) -> bool:
    """Whether there is anything in the store that a start has to recover."""
    return folder.is_dir() and any(entry.name != LOCK for entry in folder.iterdir())


class Streams:
    """The named streams below ``folder``, recorded by the archive at ``address``. Safe for use by many threads.

    ``clock`` is monotonic and in seconds, ``wall`` gives ns since 1970, ``random`` so many random bits. ``lock`` is
    what :func:`lock_store` gave, where the caller holds the folder already; it stays the caller's. Each opening is an
    epoch of what it commits, another one for each stream, see log.epochs. Opening undoes what was not committed.
    ``ending`` is asked before each stream is recovered whether the server is being closed. Raises InUseError where
    another server uses the folder, SetupError where the archive's files are not here to be read, ConnectError or
    TransportError where it does not answer, UsageError where the server is being closed.
    """

    def __init__(
        self,
        folder: Path,
        address: ArchiveAddress,
        settings: StreamSettings | None = None,
        *,
        lock: FileLock | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
        random: Callable[[int], int] = secrets.randbits,
        ending: Callable[[], bool] = bool,
    ) -> None:
        if not address.archive_dir:
            raise SetupError(
                f"the archive of the driver in {address.aeron_dir} belongs to another program, and where its files are "
                "is not known",
                remedy="Let the server use a node of its own for named streams.",
            )
        self.folder = folder
        self.failed: dict[str, AeronSparkError] = {}  # streams whose files are not right: what is wrong with each
        self._address = address
        self._settings = settings or StreamSettings()
        self._space = StageSpace(self._settings.stage_limit)
        self._clock = clock
        self._wall = wall
        self._random = random
        self._opened_ns = wall()
        self._streams: dict[str, Stream] = {}
        self._changing = threading.Lock()  # one stream is made or deleted at a time
        self._closed = False
        self._own_lock = lock_store(folder) if lock is None else None
        try:
            self._recover(ending)
        except BaseException:
            self.close()
            raise

    def create(
        self,
        name: str,
        partitions: int,
        *,
        term_bytes: int = TERM_BYTES,
        retention_bytes: int = 0,
        retention_seconds: float = 0.0,
    ) -> Stream:
        """Make a stream; a crash leaves all of it or nothing.

        Retention is of each partition, 0 keeps everything. Raises OptionError for a name that is taken or a value that
        cannot be, TransportError where the archive or the disk fails.
        """
        check_name(name)
        with self._changing:
            self._refuse_closed()
            if name in self._streams or name in self.failed:
                raise OptionError(
                    f"there is a stream {name!r} already", remedy="Choose another name, or delete that one first."
                )
            definition = Definition(
                name=name,
                partitions=partitions,
                stream_ids=self._free_stream_ids(partitions),
                term_bytes=term_bytes,
                retention_bytes=retention_bytes,
                retention_seconds=retention_seconds,
                created_ns=self._wall(),
            )
            draft = self.folder / f"{CREATING}{secrets.token_hex(4)}-{name}"
            try:
                self._build(draft, definition)
            except BaseException:
                self._sweep(draft)
                raise
            return self._admit(name)

    def get(self, name: str) -> Stream:
        """Return a stream. Raises OptionError with the nearest name where there is none, or what is wrong with it."""
        self._refuse_closed()
        stream = self._streams.get(name)
        if stream is None:
            wrong = self.failed.get(name)
            if wrong is not None:
                raise wrong
            raise unknown_stream(name, [*self._streams, *self.failed])
        return stream

    def all(self) -> list[Stream]:
        """Return the streams that can be read, by name."""
        self._refuse_closed()
        return [self._streams[name] for name in sorted(self._streams)]

    def condition(self, name: str) -> Condition:
        """Return the state of a stream, and what is wrong. Raises OptionError where there is none."""
        self._refuse_closed()
        wrong = self.failed.get(name)
        if wrong is not None:
            return Condition(RECOVERING if wrong.retriable else DAMAGED, str(wrong))
        problem = self.get(name).problem
        return Condition(OK) if problem is None else Condition(READ_ONLY, str(problem))

    def definition(self, name: str) -> Definition | None:
        """Return what a stream was created as, also of one that is damaged; None where its file is not right."""
        stream = self._streams.get(name)
        if stream is not None:
            return stream.definition
        try:
            return read_definition(self.folder / check_name(name))
        except AeronSparkError:
            return None

    def delete(self, name: str) -> None:
        """Delete a stream with everything in it: at once for whoever asks, its recordings and files then.

        What cannot be deleted now goes with a later :meth:`tick` or start. Raises OptionError where there is none.
        """
        with self._changing:
            self._refuse_closed()
            if name not in self.failed:
                self.get(name).close(deleted=True)
            gone = self.folder / f"{DELETED}{secrets.token_hex(4)}-{name}"
            try:
                (self.folder / name).rename(gone)
                sync_folder(self.folder)
            except OSError as error:
                raise write_failed(self.folder / name, error) from error
            self._streams = {key: stream for key, stream in self._streams.items() if key != name}
            self.failed.pop(name, None)
            self._sweep(gone)

    def tick(self) -> list[AeronSparkError]:
        """Do what time brings: rest, retention, expiry. To be called every second or so; returns what went wrong."""
        self._refuse_closed()
        wrong: list[AeronSparkError] = []
        for stream in self.all():
            wrong += stream.tick()
        with self._changing:
            for left in self._leftovers():
                wrong += self._sweep(left)
            for name in [name for name, error in self.failed.items() if error.retriable]:
                with suppress(AeronSparkError):
                    self._admit(name)
        return wrong

    def close(self) -> None:
        """Close every stream and let the folder go. What is recorded stays."""
        with self._changing:
            if self._closed:
                return
            self._closed = True
            for stream in self._streams.values():
                stream.close()
            self._release()

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recover(self, ending: Callable[[], bool]) -> None:
        recordings = {recording.id: recording for recording in archive_of(self._address).recordings()}
        for left in self._leftovers():
            _refuse_ending(ending)
            self._sweep(left)
        for folder in sorted(self.folder.iterdir()):
            if folder.name.startswith(".") or not folder.is_dir():
                continue
            _refuse_ending(ending)
            with suppress(AeronSparkError):
                self._admit(folder.name, recordings)

    def _admit(self, name: str, recordings: dict[int, Recording] | None = None) -> Stream:
        """Open the stream in the folder of its name; what is wrong with it is kept, and raised."""
        try:
            stream = self._load(self.folder / name, recordings)
        except AeronSparkError as error:
            before = self.failed.get(name)
            if before is None or str(before) != str(error):  # it is tried again each second
                LOG.error("stream %r is %s: %s", name, RECOVERING if error.retriable else DAMAGED, error)
            self.failed[name] = error
            raise
        self.failed.pop(name, None)
        self._streams = {**self._streams, name: stream}
        return stream

    def _load(self, folder: Path, recordings: dict[int, Recording] | None = None) -> Stream:
        definition = read_definition(folder)
        if definition.name != folder.name:
            raise DataLossError(
                f"{folder} holds the stream {definition.name!r}", remedy="Give the folder its stream's name."
            )
        opened = Opened(self._opened_ns, self._random(RANDOM_BITS))
        stream = Stream(
            folder, definition, self._address, self._settings, self._space, opened,
            clock=self._clock, wall=self._wall, make_room=self._make_room,
        )  # fmt: skip
        try:
            stream.recover(recordings)
        except BaseException:
            stream.close()
            raise
        return stream

    def _make_room(self) -> bool:
        """Free the places of a stream that does not commit now; whether one had any."""
        return any(stream.give_room() for stream in self._streams.values())

    def _build(self, draft: Path, definition: Definition) -> None:
        """Make a stream's folder and recordings under a name that is none, then give it its own."""
        shapes: list[Shape] = []
        try:
            draft.mkdir(mode=0o700)
            write_definition(draft, definition)
            sync_folder(self.folder)
            for index, stream_id in enumerate(definition.stream_ids):
                begin = partial(
                    create, self._address, alias_of(definition, index), stream_id, definition.term_bytes,
                    self._settings.mtu,
                )  # fmt: skip
                shapes.append(with_room(begin, self._make_room))
            begin_ledger(draft, shapes)
            draft.rename(self.folder / definition.name)
            sync_folder(self.folder)
        except OSError as error:
            raise write_failed(draft, error) from error

    def _free_stream_ids(self, count: int) -> tuple[int, ...]:
        taken = {recording.stream_id for recording in archive_of(self._address).recordings()}
        for stream in self._streams.values():
            taken.update(stream.definition.stream_ids)
        first = max([FIRST_STREAM_ID, *(used + 1 for used in taken if used >= FIRST_STREAM_ID)])
        return tuple(range(first, first + count))

    def _leftovers(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if path.name.startswith((CREATING, DELETED))]

    def _sweep(self, folder: Path) -> list[AeronSparkError]:
        """Delete a folder and the recordings it speaks of; what is in the way is returned, for another time."""
        if not folder.exists():
            return []
        try:
            definition = read_definition(folder)
        except AeronSparkError:  # written before anything is recorded, and after nothing is
            shutil.rmtree(folder, ignore_errors=True)
            return []
        try:
            archive = archive_of(self._address)
            aliases = {id_: alias_of(definition, index) for index, id_ in enumerate(definition.stream_ids)}
            for stream_id, alias in aliases.items():
                for found in archive.recordings(stream_id):
                    if ChannelUri.parse(found.original_channel, foreign=True).get("alias") == alias:
                        delete_recording(archive, found.id, RECORDING_TIMEOUT_S)
        except AeronSparkError as error:
            return [error]
        ArchiveMark(self._address.archive_dir, definition).remove()
        shutil.rmtree(folder, ignore_errors=True)
        return []

    def _release(self) -> None:
        if self._own_lock is not None:
            self._own_lock.release()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EndedError("the store of streams is closed", remedy="Open it again.")


def _refuse_ending(ending: Callable[[], bool]) -> None:
    if ending():
        raise EndedError("the server was closed while it recovered its streams", remedy="Start it again.")
