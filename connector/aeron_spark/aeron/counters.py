"""Reading what a media driver says about itself: counters, distinct errors, losses, backlog. Read-only, no client.

The files are mapped for reading, so a live driver is not disturbed and a dead one can still be asked.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jpype

from aeron_spark.aeron import jvm
from aeron_spark.aeron.exceptions import java_errors
from aeron_spark.errors import AeronSparkError, ConnectError

CNC_FILE: Final = "cnc.dat"
LOSS_FILE: Final = "loss-report.dat"
ALLOCATED: Final = 1  # CountersReader.RECORD_ALLOCATED
DRIVER_TIMEOUT: Final = 10.0  # seconds: Aeron's own default

PUBLISHER_LIMIT: Final = 1
SENDER_POSITION: Final = 2
RECEIVER_HWM: Final = 3
SUBSCRIBER_POSITION: Final = 4
RECEIVER_POSITION: Final = 5
PUBLISHER_POSITION: Final = 12
STREAM_TYPES: Final = frozenset(
    (PUBLISHER_LIMIT, SENDER_POSITION, RECEIVER_HWM, SUBSCRIBER_POSITION, RECEIVER_POSITION, PUBLISHER_POSITION)
)


@dataclass(frozen=True, slots=True)
class Counter:
    """One allocated counter."""

    id: int
    type_id: int
    label: str
    value: int
    registration_id: int
    owner_id: int  # the Aeron client it belongs to


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """A media driver: ``started`` in seconds since the epoch, ages and time-outs in seconds."""

    aeron_dir: str
    pid: int
    started: float
    heartbeat_age: float  # infinite once it has closed
    client_liveness_timeout: float
    cnc_version: str

    @property
    def alive(self) -> bool:
        """Whether Aeron would call it alive."""
        return self.heartbeat_age < DRIVER_TIMEOUT


@dataclass(frozen=True, slots=True)
class DistinctError:
    """One error of the driver's log, however often it happened."""

    observations: int
    first: float  # seconds since the epoch
    last: float
    text: str


@dataclass(frozen=True, slots=True)
class Loss:
    """Data of one image that did not arrive at first."""

    observations: int
    bytes: int
    first: float  # seconds since the epoch
    last: float
    session_id: int
    stream_id: int
    channel: str
    source: str


@dataclass(frozen=True, slots=True)
class SubscriberBacklog:
    """How far one subscriber of a stream is behind what is there for it."""

    registration_id: int
    position: int
    behind: int  # bytes


@dataclass(frozen=True, slots=True)
class StreamBacklog:
    """Positions of one session of a stream on this driver; None where this driver has no such end of it."""

    channel: str
    stream_id: int
    session_id: int
    publisher_position: int | None
    publisher_limit: int | None
    sender_position: int | None
    receiver_position: int | None
    receiver_high_water_mark: int | None
    subscribers: tuple[SubscriberBacklog, ...]

    @property
    def behind(self) -> int:
        """Return the bytes by which the slowest subscriber is behind."""
        return max((subscriber.behind for subscriber in self.subscribers), default=0)


def read_driver(aeron_dir: str) -> DriverInfo:
    """Return who the driver in ``aeron_dir`` is, live or dead; raise ConnectError where none was ever there."""
    with _cnc(aeron_dir) as (descriptor, file, meta):
        ring = jvm.jclass("org.agrona.concurrent.ringbuffer.ManyToOneRingBuffer")(
            descriptor.createToDriverBuffer(file, meta)
        )
        beat_ms = int(ring.consumerHeartbeatTime())
        version = int(meta.getInt(descriptor.cncVersionOffset(0)))
        return DriverInfo(
            aeron_dir=aeron_dir,
            pid=int(descriptor.pid(meta)),
            started=int(descriptor.startTimestampMs(meta)) / 1000,
            heartbeat_age=time.time() - beat_ms / 1000 if beat_ms > 0 else float("inf"),
            client_liveness_timeout=int(descriptor.clientLivenessTimeoutNs(meta)) / 1e9,
            cnc_version=str(jvm.jclass("org.agrona.SemanticVersion").toString(version)),
        )


def read_counters(aeron_dir: str) -> tuple[Counter, ...]:
    """Return every allocated counter, in the order of their ids."""
    with _counters(aeron_dir) as reader:
        return tuple(
            Counter(
                id=counter,
                type_id=int(reader.getCounterTypeId(counter)),
                label=str(reader.getCounterLabel(counter)),
                value=int(reader.getCounterValue(counter)),
                registration_id=int(reader.getCounterRegistrationId(counter)),
                owner_id=int(reader.getCounterOwnerId(counter)),
            )
            for counter in _allocated(reader)
        )


def read_errors(aeron_dir: str) -> tuple[DistinctError, ...]:
    """Return the driver's distinct errors, the most recent first."""
    found: list[DistinctError] = []

    def accept(observations: Any, first_ms: Any, last_ms: Any, text: Any) -> None:
        found.append(DistinctError(int(observations), int(first_ms) / 1000, int(last_ms) / 1000, str(text)))

    with _cnc(aeron_dir) as (descriptor, file, meta):
        log = descriptor.createErrorLogBuffer(file, meta)
        consumer = jpype.JProxy("org.agrona.concurrent.errors.ErrorConsumer", dict={"accept": accept})
        jvm.jclass("org.agrona.concurrent.errors.ErrorLogReader").read(log, consumer)
    return tuple(sorted(found, key=lambda error: error.last, reverse=True))


def recent_archive_error(aeron_dir: str, seconds: float = 120.0) -> str:
    """Return what an archive in the driver's own process complained of last, or an empty text."""
    try:
        errors = read_errors(aeron_dir)
    except AeronSparkError:  # whoever asks has an error of its own to tell
        return ""
    for error in errors:
        if "io.aeron.archive" in error.text and time.time() - error.last < seconds:
            lines = [line.strip() for line in error.text.splitlines() if line and not line.startswith("\t")]
            return lines[-1].removeprefix("Caused by: ").rpartition("Exception: ")[2].removeprefix("ERROR - ")
    return ""


def read_losses(aeron_dir: str) -> tuple[Loss, ...]:
    """Return the driver's loss report, the largest loss first; empty where nothing was ever lost."""
    path = Path(aeron_dir) / LOSS_FILE
    found: list[Loss] = []

    def accept(*entry: Any) -> None:
        observations, size, first_ms, last_ms, session, stream, channel, source = entry
        times = int(first_ms) / 1000, int(last_ms) / 1000
        found.append(Loss(int(observations), int(size), *times, int(session), int(stream), str(channel), str(source)))

    read_driver(aeron_dir)  # no driver is an error, no losses are not
    if path.exists() and path.stat().st_size:
        with _mapped(path) as file:
            report = jvm.jclass("org.agrona.concurrent.UnsafeBuffer")(file)
            consumer = jpype.JProxy("io.aeron.driver.reports.LossReportReader$EntryConsumer", dict={"accept": accept})
            jvm.jclass("io.aeron.driver.reports.LossReportReader").read(report, consumer)
    return tuple(sorted(found, key=lambda loss: loss.bytes, reverse=True))


def read_backlog(aeron_dir: str) -> tuple[StreamBacklog, ...]:
    """Return the positions of every stream's sessions, the one furthest behind first."""
    positions: dict[tuple[str, int, int], dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    layout = jvm.jclass("io.aeron.driver.status.StreamCounter")
    with _counters(aeron_dir) as reader:
        meta = reader.metaDataBuffer()
        for counter in _allocated(reader):
            type_id = int(reader.getCounterTypeId(counter))
            if type_id in STREAM_TYPES:
                key = int(reader.metaDataOffset(counter)) + int(reader.KEY_OFFSET)
                stream = (
                    str(meta.getStringAscii(key + layout.CHANNEL_OFFSET)),
                    int(meta.getInt(key + layout.STREAM_ID_OFFSET)),
                    int(meta.getInt(key + layout.SESSION_ID_OFFSET)),
                )
                registration = int(meta.getLong(key + layout.REGISTRATION_ID_OFFSET))
                positions[stream][type_id].append((registration, int(reader.getCounterValue(counter))))
    backlogs = [_backlog(stream, by_type) for stream, by_type in positions.items()]
    return tuple(sorted(backlogs, key=lambda backlog: (-backlog.behind, backlog.channel, backlog.stream_id)))


def _backlog(stream: tuple[str, int, int], by_type: dict[int, list[tuple[int, int]]]) -> StreamBacklog:
    def value(type_id: int) -> int | None:
        return max((position for _, position in by_type.get(type_id, ())), default=None)

    published, received = value(PUBLISHER_POSITION), value(RECEIVER_HWM)
    there = max((position for position in (published, received) if position is not None), default=0)
    return StreamBacklog(
        *stream,
        publisher_position=published,
        publisher_limit=value(PUBLISHER_LIMIT),
        sender_position=value(SENDER_POSITION),
        receiver_position=value(RECEIVER_POSITION),
        receiver_high_water_mark=received,
        subscribers=tuple(
            SubscriberBacklog(registration, position, max(0, there - position))
            for registration, position in by_type.get(SUBSCRIBER_POSITION, ())
        ),
    )


def _allocated(reader: Any) -> Iterator[int]:
    for counter in range(int(reader.maxCounterId()) + 1):
        state = int(reader.getCounterState(counter))
        if state == 0:  # RECORD_UNUSED: nothing was ever allocated from here on
            return
        if state == ALLOCATED:
            yield counter


@contextmanager
def _counters(aeron_dir: str) -> Iterator[Any]:
    with _cnc(aeron_dir) as (descriptor, file, meta):
        yield jvm.jclass("org.agrona.concurrent.status.CountersReader")(
            descriptor.createCountersMetaDataBuffer(file, meta), descriptor.createCountersValuesBuffer(file, meta)
        )


@contextmanager
def _cnc(aeron_dir: str) -> Iterator[tuple[Any, Any, Any]]:
    path = Path(aeron_dir) / CNC_FILE
    with _mapped(path) as file:
        descriptor = jvm.jclass("io.aeron.CncFileDescriptor")
        meta = descriptor.createMetaDataBuffer(file)
        version = int(meta.getIntVolatile(descriptor.cncVersionOffset(0)))
        if version == 0:
            raise ConnectError(f"the media driver in {aeron_dir} is still starting", remedy="Try again in a moment.")
        with java_errors(f"reading {path}"):
            descriptor.checkVersion(version)
        yield descriptor, file, meta


@contextmanager
def _mapped(path: Path) -> Iterator[Any]:
    """Map a file for reading; raise ConnectError where it cannot be."""
    try:
        length = path.stat().st_size
        path.open("rb").close()
    except OSError as error:
        raise ConnectError(
            f"no media driver in {path.parent} can be read ({error.strerror})",
            remedy="Start one with 'aeron-spark node start', or name its directory with --aeron-dir.",
        ) from error
    modes = jvm.jclass("java.nio.channels.FileChannel$MapMode")
    with java_errors(f"mapping {path}"):
        access = jvm.jclass("java.io.RandomAccessFile")(str(path), "r")
        try:
            file = access.getChannel().map(modes.READ_ONLY, 0, length)
        finally:
            access.close()
    try:
        yield file
    finally:
        jvm.jclass("org.agrona.BufferUtil").free(file)
