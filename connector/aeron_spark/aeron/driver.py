"""Starts Aeron's media driver and archive in this process, and ensures that one server at most listens in a driver.

The server allocates a counter of the driver while it listens. After a kill the driver frees the counter only 10 s
later. Therefore the counter's label has the path of a file that the server keeps locked: if that file is not locked,
the server has ended.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jpype

from aeron_spark.aeron import guard, jvm
from aeron_spark.aeron.client import AeronClient, ClientProcesses, EndedClient
from aeron_spark.aeron.counters import Counter, read_counters
from aeron_spark.aeron.java_calls import describe, java_errors
from aeron_spark.errors import InUseError, OptionError, SetupError
from aeron_spark.transport.channel import without_start

CHECKSUM: Final = "org.agrona.checksum.Crc32c"
EXECUTOR_IDLE_PROPERTY: Final = "aeron.driver.async.executor.idle.strategy"
LOCAL_CHANNEL: Final = "aeron:udp?endpoint=localhost:0"
DRIVER_JVM_ARGUMENTS: Final = (
    jvm.OWN_SIGNALS,  # the node process handles SIGTERM
    # As jvm.HEAP, but larger: for the archive, and for more objects of short life.
    "-Xmn80m",
    "-Xms96m",
    "-Xmx256m",
    # Any host can send packets to a driver, and Aeron 1.51 does not check the offsets in them. Without bounds checks a
    # packet can crash the process or corrupt its memory.
    "-Dagrona.disable.bounds.checks=false",
)
HEARTBEAT_TYPE: Final = 11
RECEIVE_CHANNEL_TYPE: Final = 7
RECORDING_POSITION_TYPE: Final = 100
USAGE_TYPES: Final = frozenset((HEARTBEAT_TYPE, RECEIVE_CHANNEL_TYPE, RECORDING_POSITION_TYPE))
_RECORDING_LABEL: Final = re.compile(r"rec-pos: (?P<id>\d+) -?\d+ (?P<stream>-?\d+) (?P<channel>\S+)")
MAPPED_FILES: Final = ("archive-mark.dat", "archive.catalog")

# The classes in which Aeron declares the names of its properties, as constants that end in PROP_NAME.
CONFIGURATIONS: Final = (
    "io.aeron.CommonContext",
    "io.aeron.Aeron$Configuration",
    "io.aeron.driver.Configuration",
    "io.aeron.driver.ext.DebugChannelEndpointConfiguration",
    "io.aeron.archive.Archive$Configuration",
    "io.aeron.archive.client.AeronArchive$Configuration",
)


def start_driver_jvm(properties: Mapping[str, str]) -> None:
    """Start this process's JVM for a driver. ``properties`` are set before Aeron's classes are loaded.

    Raises OptionError for an unknown property.
    """
    jvm.start(*DRIVER_JVM_ARGUMENTS, *(f"-D{name}={value}" for name, value in properties.items()))
    known = known_properties()
    for name in properties:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise OptionError(
                f"Aeron {aeron_version()} has no property {name}",
                remedy=f"Did you mean {near[0]}?" if near else "See Aeron's documentation of its configuration.",
            )


def known_properties() -> frozenset[str]:
    """Return the names of all properties that Aeron's driver, archive and clients read."""
    names = set()
    for configuration in CONFIGURATIONS:
        holder = jvm.jclass(configuration)
        for field in holder.class_.getFields():
            if str(field.getName()).endswith("PROP_NAME"):
                names.add(str(field.get(None)))
    return frozenset(names)


def aeron_version() -> str:
    """Return the version of Aeron's media driver in the jar."""
    return str(jvm.jclass("io.aeron.driver.MediaDriverVersion").VERSION)


@dataclass(frozen=True, slots=True)
class DriverUsage:
    """The use of a driver: its clients and its recordings.

    ``clients``: Aeron clients that the driver knows, without the archive's own. It knows one only after its first
    request. ``recordings``: active recordings and network channels that are recorded without a publisher; without a
    publisher over IPC a recording subscription has no counter. ``recorded`` has the names of both.
    """

    clients: int
    recordings: int
    recorded: tuple[str, ...]


class EmbeddedDriver:
    """A media driver, with or without an archive, on threads of this process.

    Aeron's default error handlers stay: they write each distinct error to the error log and to standard error, and do
    not end the process as a client's default handler would.
    """

    def __init__(self, driver: Mapping[str, object], archive: Mapping[str, object] | None) -> None:
        context = _configure(jvm.jclass("io.aeron.driver.MediaDriver$Context")(), {**driver, **guard.suppliers()})
        if jvm.jclass("java.lang.System").getProperty(EXECUTOR_IDLE_PROPERTY) is None:
            jvm.jclass("io.aeron.driver.PromptExecutor").configure(context)
        self._archive: Any = None
        with java_errors(f"starting the media driver in {driver['aeronDirectoryName']}"):
            if archive is None:
                self._running = self._driver = jvm.jclass("io.aeron.driver.MediaDriver").launch(context)
            else:
                archive_context = _configure(jvm.jclass("io.aeron.archive.Archive$Context")(), archive)
                checksum = jvm.jclass("io.aeron.archive.checksum.Checksums").newInstance(CHECKSUM)
                archive_context.recordChecksum(checksum).replayChecksum(checksum)
                if not archive["controlChannelEnabled"]:  # then the archive cannot derive its address for replication
                    client = jvm.jclass("io.aeron.archive.client.AeronArchive$Context")()
                    archive_context.archiveClientContext(client.controlResponseChannel(LOCAL_CHANNEL))
                self._running = jvm.jclass("io.aeron.archive.ArchivingMediaDriver").launch(context, archive_context)
                self._driver = self._running.mediaDriver()
                self._archive = self._running.archive()
                _allocate(Path(str(self._archive.context().archiveDir())))
        self._aeron_dir = str(driver["aeronDirectoryName"])
        self._own_client = None if self._archive is None else int(self._archive.context().aeron().clientId())
        self._own_channels = frozenset(one.id for one in self._counters() if one.type_id == RECEIVE_CHANNEL_TYPE)
        self._archive_threads = _threads("archive-")
        self._client_processes = ClientProcesses(self._aeron_dir)

    def usage(self) -> DriverUsage:
        """Return the use of the driver now."""
        counters = self._counters()
        active = [_name_of_recording(one.label) for one in counters if one.type_id == RECORDING_POSITION_TYPE]
        channels = [
            _name_of_channel(one.label)
            for one in counters
            if one.type_id == RECEIVE_CHANNEL_TYPE and one.id not in self._own_channels
        ]
        idle = [name for name in channels if not any(one.endswith(f" of {name}") for one in active)]
        return DriverUsage(
            sum(one.type_id == HEARTBEAT_TYPE and one.registration_id != self._own_client for one in counters),
            max(len(active), len(channels)),
            (*active, *(f"the recording subscription to {name}" for name in idle)),
        )

    def close_ended_clients(self) -> list[EndedClient]:
        """Close the Aeron clients of ended processes, which the driver would keep for 10 s; return them.

        The driver executes it within its timer interval. Call it some times a second.
        """
        ended = self._client_processes.ended(read_counters(self._aeron_dir, {HEARTBEAT_TYPE}))
        for client in ended:
            with java_errors(f"closing the Aeron client of process {client.pid}"):
                jvm.jclass("io.aeronspark.client.DriverProxies").closeClient(self._aeron_dir, client.client_id)
        return ended

    def _counters(self) -> tuple[Counter, ...]:
        return read_counters(self._aeron_dir, USAGE_TYPES)

    def failure(self) -> str:
        """Return the reason for which the archive has failed, or an empty text."""
        if self._archive is not None and self._archive.context().aeron().isClosed():
            return "the archive lost its media driver"
        for thread in self._archive_threads:
            if not thread.isAlive():
                return f"the archive's thread {thread.getName()} ended; see the lines before this one"
        return ""

    def close(self) -> None:
        """Stop the archive, then the driver, and remove the driver's directory."""
        with java_errors("stopping the media driver"):
            self._running.close()


def _name_of_recording(label: str) -> str:
    """Name a recording: ``rec-pos: 3 19667 1001 aeron:ipc - archiveId=7`` -> ``recording 3 of stream 1001 of ...``."""
    found = _RECORDING_LABEL.match(label)
    if found is None:
        return label
    return f"recording {found['id']} of stream {found['stream']} of {_channel(found['channel'])}"


def _name_of_channel(label: str) -> str:
    """Name a channel: ``rcv-channel: aeron:udp?endpoint=h:40123 10.0.0.1:40123`` -> ``aeron:udp?endpoint=h:40123``."""
    return _channel(label.removeprefix("rcv-channel: ").partition(" ")[0])


def _channel(text: str) -> str:
    try:
        return without_start(text)
    except OptionError:  # a long label is truncated
        return text


def crc32c(content: bytes) -> int:
    """Return the checksum that the archive stores with each frame, as Java's signed int."""
    sum_ = jvm.jclass("java.util.zip.CRC32C")()
    sum_.update(jpype.JArray(jpype.JByte)(content))
    return int.from_bytes(int(sum_.getValue()).to_bytes(4, "little"), "little", signed=True)


def _allocate(archive_dir: Path) -> None:
    """Allocate all blocks of the archive's mapped files: on a full disk a write into a hole would end its thread."""
    for name in MAPPED_FILES:
        path = archive_dir / name
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            raise SetupError(
                f"{path} has no room on its disk ({error.strerror})", remedy="Free some space, or name another folder."
            ) from error


def _threads(prefix: str) -> list[Any]:
    """Return the Java threads whose names begin with ``prefix``."""
    return [
        one
        for one in jvm.jclass("java.lang.Thread").getAllStackTraces().keySet()
        if str(one.getName()).startswith(prefix)
    ]


def _configure(context: Any, values: Mapping[str, object]) -> Any:
    """Call each method of ``context`` with its value. Raises OptionError, with Aeron's text, for a wrong value."""
    package = "io.aeron.archive.Archive" if "archiveId" in values else "io.aeron.driver."
    for method, value in values.items():
        argument = value
        if method == "threadingMode":
            argument = jvm.jclass(f"{package}ThreadingMode").valueOf(value)
        elif isinstance(value, tuple):  # ns, see ``node.settings.SHARED_IDLE``
            data = jvm.jclass("io.aeronspark.driver.PassedData")(context)
            argument = jvm.jclass("io.aeronspark.idle.RecentWorkIdleStrategy")(data, *value)
        try:
            getattr(context, method)(argument)
        except jpype.JException as error:
            raise OptionError(
                f"Aeron refuses {method}={value}: {describe(error)}",
                remedy="Give the setting a value that Aeron accepts.",
            ) from error
    return context


SERVER_TYPE: Final = 16725
_LABEL: Final = re.compile(
    r"aeron-spark server over shared memory, process (?P<pid>\d+), data ports (?P<ports>[\d,]*), lock (?P<lock>.*)",
    re.DOTALL,
)
MAX_LABEL_BYTES: Final = 380  # Aeron's limit; a truncated path names a file that does not exist

IsLocked = Callable[[Path], bool]


class DriverServer:
    """The registration of the only server of a media driver."""

    def __init__(
        self,
        client: AeronClient,
        ports: Iterable[int] = (),
        lock: Path | None = None,
        is_locked: IsLocked | None = None,
    ) -> None:
        """Register the server. Raises InUseError if the driver has another one.

        ``ports``: its data ports over UDP. ``lock``: a file that this process keeps locked. ``is_locked``: whether a
        process has locked a file.
        """
        port_list = ",".join(map(str, ports))
        label = (
            f"aeron-spark server over shared memory, process {os.getpid()}, data ports {port_list}, lock {lock or ''}"
        ).encode()[:MAX_LABEL_BYTES]
        buffer = jvm.jclass("org.agrona.concurrent.UnsafeBuffer")
        with java_errors("looking for other servers over shared memory"):
            self._counter: Any = client.aeron.addCounter(SERVER_TYPE, buffer(b""), 0, 0, buffer(label), 0, len(label))
        own_id = int(self._counter.registrationId())
        servers = [
            counter
            for counter in read_counters(client.aeron_dir)
            if counter.type_id == SERVER_TYPE
            and (counter.registration_id == own_id or not _has_ended(counter.label, lock, is_locked))
        ]
        # Two servers that register at the same time see each other. The smaller registration id wins.
        first = min(servers, key=lambda counter: counter.registration_id)
        if first.registration_id != own_id:
            self.close()
            raise ipc_in_use(client.aeron_dir, process_of(first.label))

    def close(self) -> None:
        """Remove the registration, so that another server can listen."""
        with java_errors("closing the registration of the server over shared memory"):
            self._counter.close()


def ports_of_server(aeron_dir: str) -> frozenset[int] | None:
    """Return the data ports of the server that listens over this driver's shared memory, or None without a server."""
    servers = [counter for counter in read_counters(aeron_dir) if counter.type_id == SERVER_TYPE]
    for counter in sorted(
        servers, key=lambda counter: -counter.registration_id
    ):  # newest first: older ones were killed
        match = _LABEL.fullmatch(counter.label)
        if match is not None:
            return frozenset(int(port) for port in match["ports"].split(",") if port)
    return None


def ipc_in_use(aeron_dir: str, pid: str) -> InUseError:
    """Return the error to raise if server process ``pid`` listens in the driver's shared memory already."""
    return InUseError(
        f"the shared memory of the media driver in {aeron_dir} is served by server process {pid}",
        remedy="Stop it, or give this server ipc=never or another aeronDir",
    )


def process_of(label: str) -> str:
    """Return the process id in a counter's label."""
    match = _LABEL.fullmatch(label)
    return match["pid"] if match is not None else "of unknown id"


def _has_ended(label: str, own_lock: Path | None, is_locked: IsLocked | None) -> bool:
    """Whether the server with this label has certainly ended: its file is unlocked, or locked by this process."""
    match = _LABEL.fullmatch(label)
    if match is None or not match["lock"] or is_locked is None:
        return False
    lock = Path(match["lock"])
    try:
        return lock == own_lock or (lock.exists() and not is_locked(lock))
    except PermissionError:  # of another user's server
        return False
