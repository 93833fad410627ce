"""Launching Aeron's media driver and archive inside this process, watching them, and repairing a torn archive."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jpype

from aeron_spark.aeron import guard, jvm
from aeron_spark.aeron.exceptions import describe, java_errors
from aeron_spark.errors import OptionError, SetupError
from aeron_spark.transport.recording_start import without_start

CHECKSUM: Final = "org.agrona.checksum.Crc32c"
LOCAL_CHANNEL: Final = "aeron:udp?endpoint=localhost:0"
KEEPER_ARGUMENTS: Final = (
    jvm.OWN_SIGNALS,  # SIGTERM belongs to the keeper
    "-Xmx256m",
    # A driver takes packets from anybody, and Aeron 1.51 trusts the offsets in them: unchecked, one of them ends the
    # process, or writes where it should not.
    "-Dagrona.disable.bounds.checks=false",
)
HEARTBEAT_TYPE: Final = 11
RECEIVE_CHANNEL_TYPE: Final = 7
RECORDING_POSITION_TYPE: Final = 100
_RECORDING_LABEL: Final = re.compile(r"rec-pos: (?P<id>\d+) -?\d+ (?P<stream>-?\d+) (?P<channel>\S+)")
MAPPED_FILES: Final = ("archive-mark.dat", "archive.catalog")

# Where Aeron declares the names of its properties, as constants that end in PROP_NAME.
CONFIGURATIONS: Final = (
    "io.aeron.CommonContext",
    "io.aeron.Aeron$Configuration",
    "io.aeron.driver.Configuration",
    "io.aeron.driver.ext.DebugChannelEndpointConfiguration",
    "io.aeron.archive.Archive$Configuration",
    "io.aeron.archive.client.AeronArchive$Configuration",
)


def start_keeper_jvm(properties: Mapping[str, str]) -> None:
    """Start this process's JVM for a driver; the properties must be there before Aeron's classes are loaded."""
    jvm.start(*KEEPER_ARGUMENTS, *(f"-D{name}={value}" for name, value in properties.items()))
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


class EmbeddedDriver:
    """A media driver, with or without an archive, on threads of this process.

    Aeron's own handlers are kept on purpose: both write every distinct error to its log and to standard error, and
    neither ends the process as a plain client's would.
    """

    def __init__(self, driver: Mapping[str, object], archive: Mapping[str, object] | None) -> None:
        context = _configure(jvm.jclass("io.aeron.driver.MediaDriver$Context")(), {**driver, **guard.suppliers()})
        self._archive: Any = None
        with java_errors(f"starting the media driver in {driver['aeronDirectoryName']}"):
            if archive is None:
                self._running = self._driver = jvm.jclass("io.aeron.driver.MediaDriver").launch(context)
            else:
                keeping = _configure(jvm.jclass("io.aeron.archive.Archive$Context")(), archive)
                checksum = jvm.jclass("io.aeron.archive.checksum.Checksums").newInstance(CHECKSUM)
                keeping.recordChecksum(checksum).replayChecksum(checksum)
                if not archive["controlChannelEnabled"]:  # the archive then cannot tell its own address to replicate to
                    client = jvm.jclass("io.aeron.archive.client.AeronArchive$Context")()
                    keeping.archiveClientContext(client.controlResponseChannel(LOCAL_CHANNEL))
                self._running = jvm.jclass("io.aeron.archive.ArchivingMediaDriver").launch(context, keeping)
                self._driver = self._running.mediaDriver()
                self._archive = self._running.archive()
                _allocate(Path(str(self._archive.context().archiveDir())))
        concluded = self._driver.context()
        self._counters = jvm.jclass("org.agrona.concurrent.status.CountersReader")(
            concluded.countersMetaDataBuffer(), concluded.countersValuesBuffer()
        )
        self._own_client = None if self._archive is None else int(self._archive.context().aeron().clientId())
        self._own_channels = frozenset(self._allocated(RECEIVE_CHANNEL_TYPE))
        self._archive_threads = _threads("archive-")

    def clients(self) -> int:
        """Return how many Aeron clients the driver knows, the archive's own not counted.

        A client that has connected and asked for nothing yet is not known to any driver.
        """
        return sum(1 for counter in self._allocated(HEARTBEAT_TYPE) if self._registration(counter) != self._own_client)

    def recordings(self) -> int:
        """Return how many recordings grow, or wait on a network channel for a publisher.

        A request that waits for a publisher over IPC has no counter, and so does not count.
        """
        return max(self._count(RECORDING_POSITION_TYPE), len(self._waiting()))

    def recorded(self) -> list[str]:
        """Name what :meth:`recordings` counts: recordings that grow, else the channels that wait for a publisher."""
        labels = [str(self._counters.getCounterLabel(one)) for one in self._allocated(RECORDING_POSITION_TYPE)]
        growing = [_name_of_recording(label) for label in labels]
        waiting = [_name_of_channel(str(self._counters.getCounterLabel(one))) for one in self._waiting()]
        heard = [name for name in waiting if not any(one.endswith(f" of {name}") for one in growing)]
        return growing + [f"the standing subscription to {name}" for name in heard]

    def _waiting(self) -> list[int]:
        return [one for one in self._allocated(RECEIVE_CHANNEL_TYPE) if one not in self._own_channels]

    def failure(self) -> str:
        """Say why the archive no longer works, or return an empty text."""
        if self._archive is not None and self._archive.context().aeron().isClosed():
            return "the archive lost its media driver"
        for thread in self._archive_threads:
            if not thread.isAlive():
                return f"the archive's thread {thread.getName()} died; see the lines before this one"
        return ""

    def close(self) -> None:
        """Stop the archive, then the driver, and remove the driver's directory."""
        with java_errors("stopping the media driver"):
            self._running.close()

    def _registration(self, counter: int) -> int:
        return int(self._counters.getCounterRegistrationId(counter))

    def _count(self, type_id: int) -> int:
        return len(self._allocated(type_id))

    def _allocated(self, type_id: int) -> list[int]:
        reader = self._counters
        found = []
        for counter in range(int(reader.maxCounterId()) + 1):
            state = reader.getCounterState(counter)
            if state == 0:  # RECORD_UNUSED: nothing was ever allocated from here on
                break
            if state == 1 and reader.getCounterTypeId(counter) == type_id:
                found.append(counter)
        return found


def _name_of_recording(label: str) -> str:
    """``rec-pos: 3 196675459 1001 aeron:ipc - archiveId=7`` -> ``recording 3 of stream 1001 of aeron:ipc``."""
    found = _RECORDING_LABEL.match(label)
    if found is None:
        return label
    return f"recording {found['id']} of stream {found['stream']} of {_channel(found['channel'])}"


def _name_of_channel(label: str) -> str:
    """``rcv-channel: aeron:udp?endpoint=localhost:40123 127.0.0.1:40123`` -> ``aeron:udp?endpoint=localhost:40123``."""
    return _channel(label.removeprefix("rcv-channel: ").partition(" ")[0])


def _channel(text: str) -> str:
    try:
        return without_start(text)
    except OptionError:  # a label is cut where it is too long
        return text


def crc32c(content: bytes) -> int:
    """Return the checksum the archive keeps with every frame, as Java's int."""
    sum_ = jvm.jclass("java.util.zip.CRC32C")()
    sum_.update(jpype.JArray(jpype.JByte)(content))
    return int.from_bytes(int(sum_.getValue()).to_bytes(4, "little"), "little", signed=True)


def _allocate(archive_dir: Path) -> None:
    """Give the archive's mapped files all their blocks: on a full disk a write into a hole of them kills its thread."""
    for name in MAPPED_FILES:
        path = archive_dir / name
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            raise SetupError(
                f"{path} has no room on its disk ({error.strerror})", remedy="Free some space, or name another place."
            ) from error


def _threads(prefix: str) -> list[Any]:
    """Return the Java threads whose names begin so."""
    return [
        one
        for one in jvm.jclass("java.lang.Thread").getAllStackTraces().keySet()
        if str(one.getName()).startswith(prefix)
    ]


def _configure(context: Any, values: Mapping[str, object]) -> Any:
    """Call each method of ``context`` with its value; a wrong value is an OptionError in Aeron's words."""
    package = "io.aeron.archive.Archive" if "archiveId" in values else "io.aeron.driver."
    for method, value in values.items():
        argument = value
        if method == "threadingMode":
            argument = jvm.jclass(f"{package}ThreadingMode").valueOf(value)
        elif isinstance(value, tuple):  # spins, yields, shortest and longest sleep
            argument = jvm.jclass("org.agrona.concurrent.BackoffIdleStrategy")(*value)
        try:
            getattr(context, method)(argument)
        except jpype.JException as error:
            raise OptionError(f"Aeron refuses {method}={value}: {describe(error)}") from error
    return context
