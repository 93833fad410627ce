"""The archives of a route, and their recordings, read from files of this machine without a JVM.

``SessionRecordings`` asks any archive through a session, which needs a JVM with an Aeron client. ``FileRecordings``
reads the files of this machine's archive and driver, and cannot answer in some states. ``FilesFirst`` asks the files,
and the session only where they cannot answer.

The catalog has the end of a stopped recording, and a counter of the driver has that of an active one. The archive
changes both at any time, in this order: a new recording gets its entry, then its counter; a recording that stops gets
its stop position, then loses its counter; an extended one gets its counter, then loses its stop position. Therefore
each answer reads the catalog, then the counters, then the catalog again. It is right if the catalog is the same, if no
active recording lacks its counter, and if the archive and its driver are alive. Otherwise it tries again, a few times.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from aeron_spark import node
from aeron_spark.aeron.archive_catalog import CATALOG_FILE, parse_catalog
from aeron_spark.aeron.counters import DRIVER_TIMEOUT_S, read_recorded_positions
from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.errors import ConnectError, DataLossError, SetupError
from aeron_spark.log.api import EMBEDDED, Boundary
from aeron_spark.node import NodeHandle
from aeron_spark.node.state_files import driver_liveness, read_archive_mark
from aeron_spark.options import DirectRoute
from aeron_spark.process import ProcessCache
from aeron_spark.transport.addresses import HostPort, unknown_host
from aeron_spark.transport.channel import ChannelUri, refuse_archive_streams

if TYPE_CHECKING:
    from aeron_spark.aeron.boundary import Walked, WalkRange, WantedBoundary

CONTROL_STREAM_ID: Final = 10  # Aeron's default for an archive's control requests


@dataclass(frozen=True, slots=True)
class ArchiveConnections:
    """The media driver of a process, and the addresses of a stream's archives from this process."""

    aeron_dir: str
    archives: tuple[ArchiveAddress, ...]


def archives_of(way: DirectRoute) -> ArchiveConnections:
    """Return the driver and archives of the route; start this machine's node if necessary, where one belongs.

    The node does not stop before this process ends.
    """
    handle = hold_node(way.aeron_dir, way.connect_timeout)
    archives = tuple(
        embedded(handle, way.connect_timeout) if archive == EMBEDDED else _remote(archive, way, handle.aeron_dir)
        for archive in way.archive
    )
    channel = ChannelUri.parse(way.channel)
    refuse_archive_streams(
        channel,
        way.stream_id,
        [(ChannelUri.parse(one.control_channel), one.control_stream_id) for one in archives],
    )
    return ArchiveConnections(handle.aeron_dir, archives)


def embedded(handle: NodeHandle, timeout: float = 10.0) -> ArchiveAddress:
    """Return the address of the archive of this machine's node."""
    return ArchiveAddress(
        name=EMBEDDED,
        aeron_dir=handle.aeron_dir,
        control_channel=handle.control_channel,
        control_stream_id=handle.control_stream,
        archive_dir=handle.archive_dir,
        archive_id=handle.archive_id,
        timeout=timeout,
    )


def _remote(uri: str, way: DirectRoute, aeron_dir: str) -> ArchiveAddress:
    channel = ChannelUri.parse(uri)
    stream_id = int(channel.get("stream-id") or CONTROL_STREAM_ID)
    if channel.media == "ipc":
        return ArchiveAddress(
            name=channel.get("alias") or f"ipc:{stream_id}",
            aeron_dir=aeron_dir,
            control_channel=str(channel.without("stream-id", "alias")),
            control_stream_id=stream_id,
            credentials_file=way.credentials_file or "",
            timeout=way.connect_timeout,
        )
    endpoint = channel.get("endpoint") or channel.get("control") or ""
    return ArchiveAddress(
        name=channel.get("alias") or str(HostPort.parse(endpoint)),
        aeron_dir=aeron_dir,
        control_channel=str(channel.without("stream-id", "alias")),
        control_stream_id=stream_id,
        response_channel=_local_channel(way.response_channel, endpoint),
        replay_channel=_local_channel(way.replay_channel, endpoint),
        local=False,
        credentials_file=way.credentials_file or "",
        timeout=way.connect_timeout,
    )


def _local_channel(option: str | None, endpoint: str) -> str:
    if option == "response":
        # The archive's driver opens this port for response channels, because requests use the control port.
        control = HostPort.parse(endpoint)
        return f"aeron:udp?control-mode=response|control={HostPort(control.host, control.port + 1)}"
    return option or f"aeron:udp?endpoint={facing_address(endpoint)}:0"


def facing_address(endpoint: str) -> str:
    """Return this machine's address on the route to ``endpoint``, as in a channel, without sending a packet."""
    target = HostPort.parse(endpoint)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            own = str(probe.getsockname()[0])
    except socket.gaierror as error:
        raise SetupError(
            unknown_host(target.host), remedy="Correct the name, or add the host to this machine's name service."
        ) from error
    except OSError as error:
        raise SetupError(
            f"this machine has no route to the archive at {endpoint}: {error}",
            remedy="Correct the address, or set 'responseChannel' and 'replayChannel'.",
        ) from error
    return f"[{own}]" if ":" in own else own


def this_host() -> str:
    """Return an identifier of this running machine or container: its name and boot id."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return f"{socket.gethostname()} {boot.read().strip()}"
    except OSError:
        return socket.gethostname()


HELD_NODES: Final[ProcessCache[str | None, NodeHandle]] = ProcessCache()  # by the requested directory


def hold_node(aeron_dir: str | None, wait_s: float) -> NodeHandle:
    """Return this process's handle on the node of ``aeron_dir``; the handle stays open until the process ends.

    ``wait_s`` is that of ``node.ensure``.
    """
    return HELD_NODES.get(
        aeron_dir,
        lambda: node.ensure(aeron_dir, wait_s=wait_s),
        lambda handle: not handle.closed and is_running(handle.pid),
        NodeHandle.close,
    )


def is_running(pid: int) -> bool:
    """Whether a node process runs. A process that this one has started, and that has ended, does not."""
    with contextlib.suppress(ChildProcessError):
        # A node that this process started remains a zombie, which seems alive, until it is reaped.
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and its parent has not reaped it yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[:1] == [b"Z"]
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """The data that a process needs to open the log of a stream; the driver sends it to executors."""

    channel: str
    stream_id: int
    archives: tuple[ArchiveAddress, ...]
    idle_timeout: float = 30.0
    read_path: str = "auto"
    fail_on_data_loss: bool = True


LOG: Final = logging.getLogger("aeron_spark.direct")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class CataloguedRecording:
    """A recording with its current end."""

    recording: Recording
    end: int

    @property
    def active(self) -> bool:
        """Whether the recording is active."""
        return self.recording.stop_position is None

    @property
    def length(self) -> int:
        """Recorded bytes of the log."""
        return self.end - self.recording.start_position

    @property
    def segments(self) -> int:
        """Number of segment files."""
        origin = self.recording.segment_base(self.recording.start_position)
        return -(-(self.end - origin) // self.recording.segment_length)


class ArchiveRecordings(Protocol):
    """The recordings of one archive."""

    def run(self) -> Hashable:
        """Return a value that differs after a restart of the archive, which forgets the requests to record."""
        ...

    def of_stream(self, stream_id: int) -> list[CataloguedRecording]:
        """Return the recordings of all streams with this id, ordered by recording id."""
        ...

    def find(self, recording_id: int) -> CataloguedRecording | None:
        """Return one recording, or None if the archive does not have it."""
        ...

    def boundary(self, recording: Recording, wanted: WantedBoundary, *, framed: bool) -> Boundary:
        """Return a boundary of the recording; see :class:`aeron_spark.log.api.Boundaries`."""
        ...


class CannotAnswerError(Exception):
    """The files do not have the answer, or it is not certain: ask the archive. The text is the reason."""


class FilesFirst:
    """Asks the files of an archive, and its session where the files cannot answer. ``open_session`` loads Java."""

    def __init__(self, files: ArchiveRecordings, open_session: Callable[[], ArchiveRecordings]) -> None:
        self._files = files
        self._open_session = open_session

    def run(self) -> Hashable:
        """Return a value that differs after a restart of the archive."""
        return self._first(lambda one: one.run())

    def of_stream(self, stream_id: int) -> list[CataloguedRecording]:
        """Return the recordings of all streams with this id, ordered by recording id."""
        return self._first(lambda one: one.of_stream(stream_id))

    def find(self, recording_id: int) -> CataloguedRecording | None:
        """Return one recording, or None if the archive does not have it."""
        return self._first(lambda one: one.find(recording_id))

    def boundary(self, recording: Recording, wanted: WantedBoundary, *, framed: bool) -> Boundary:
        return self._first(lambda one: one.boundary(recording, wanted, framed=framed))

    def _first(self, ask: Callable[[ArchiveRecordings], Answer]) -> Answer:
        try:
            return ask(self._files)
        except CannotAnswerError as reason:
            LOG.debug("asking the archive, because its files do not have the answer: %s", reason)
        return ask(self._open_session())


ATTEMPTS: Final = 20  # 0.1 s in all; after it a session answers, which takes a few milliseconds
PAUSE_S: Final = 0.005  # between two attempts; the archive waits for its driver between an entry and its counter


class FileRecordings:
    """The recordings of the archive at ``address``, if it is that of this machine's node.

    Each method raises CannotAnswerError if the files are not readable, or changed at each attempt, or if the archive
    may have ended.
    """

    def __init__(self, address: ArchiveAddress, sleep: Callable[[float], None] = time.sleep) -> None:
        self._address = address
        self._folder = Path(address.archive_dir)
        self._sleep = sleep
        self._is_walk_too_long = False

    def run(self) -> Hashable:
        """Return the archive's process and start."""
        self._require_folder()
        mark = read_archive_mark(self._folder)
        driver = driver_liveness(Path(self._address.aeron_dir))
        if mark is None or driver is None:
            raise CannotAnswerError("the archive's mark file or the driver's counters cannot be read")
        if not driver.alive or mark.age >= DRIVER_TIMEOUT_S:
            raise CannotAnswerError("the archive or its driver has no heartbeat")
        if not is_running(driver.pid):
            raise CannotAnswerError(f"the driver's process {driver.pid} has ended")
        if mark.pid != driver.pid:
            raise CannotAnswerError(f"the archive is of process {mark.pid}, the driver of process {driver.pid}")
        return mark.pid, mark.started_ms

    def of_stream(self, stream_id: int) -> list[CataloguedRecording]:
        """Return the recordings of all streams with this id, ordered by recording id."""
        return self._listed(lambda _, of_recording: of_recording == stream_id)

    def find(self, recording_id: int) -> CataloguedRecording | None:
        """Return one recording, or None if the archive does not have it."""
        found = self._listed(lambda id_of_recording, _: id_of_recording == recording_id)
        return found[0] if found else None

    def boundary(self, recording: Recording, wanted: WantedBoundary, *, framed: bool) -> Boundary:
        """Return a boundary of the recording, from its segment files.

        After a walk over too many frames it does not try again: then Java is faster, even with the start of a JVM.
        """
        from aeron_spark.aeron.boundary import UnwalkableFilesError, find_end, walk_files  # they load pyarrow

        self._require_folder()
        if self._is_walk_too_long:
            raise CannotAnswerError("an earlier walk was too long")

        def walk(one: WalkRange) -> Walked:
            return walk_files(self._folder, recording, one, framed=framed)

        try:
            position, rows = find_end(walk, recording.term_length, wanted)
        except UnwalkableFilesError as error:
            self._is_walk_too_long = error.is_too_long
            raise CannotAnswerError(str(error)) from error
        return Boundary(position, rows)

    def _require_folder(self) -> None:
        if not self._address.archive_dir:
            raise CannotAnswerError("the folder of the archive's files is unknown")

    def _listed(self, is_wanted: Callable[[int, int], bool]) -> list[CataloguedRecording]:
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(PAUSE_S)
            run = self.run()
            try:
                return self._snapshot(is_wanted, run)
            except _ChangingFilesError as error:
                reason = str(error)
        raise CannotAnswerError(f"{reason}, {ATTEMPTS} times")

    def _snapshot(self, is_wanted: Callable[[int, int], bool], run: Hashable) -> list[CataloguedRecording]:
        path = self._folder / CATALOG_FILE
        data = self._read(path)
        try:
            catalog = parse_catalog(data, str(path), is_wanted)
        except DataLossError as error:
            raise CannotAnswerError(error.what) from error
        if catalog.faults:
            raise _ChangingFilesError(catalog.faults[0])
        found = [entry.recording for _, entry in sorted(catalog.entries.items())]
        positions = self._positions() if any(one.stop_position is None for one in found) else {}
        if self._read(path) != data or self.run() != run:
            raise _ChangingFilesError("the catalog changed")
        return [CataloguedRecording(one, _end(one, positions)) for one in found]

    def _read(self, path: Path) -> bytes:
        # Not mapped: an archive that is started again may truncate the file.
        try:
            return path.read_bytes()
        except OSError as error:
            raise CannotAnswerError(f"{path} cannot be read: {error.strerror}") from error

    def _positions(self) -> dict[int, int]:
        try:
            return read_recorded_positions(self._address.aeron_dir, self._address.archive_id)
        except ConnectError as error:
            raise CannotAnswerError(error.what) from error


class _ChangingFilesError(Exception):
    """The archive changed its files during an attempt."""


def _end(recording: Recording, positions: dict[int, int]) -> int:
    if recording.stop_position is not None:
        return recording.stop_position
    position = positions.get(recording.id)
    if position is None or position < recording.start_position:  # the archive has not set a new counter yet
        raise _ChangingFilesError(f"the driver has no position of recording {recording.id}")
    return position
