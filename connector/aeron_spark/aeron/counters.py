"""Reads a media driver's counters, distinct errors, losses and backlog from its files, without a JVM.

The files are mapped read-only, without a JVM and without an Aeron client; the driver may have ended. Offsets are those
of io.aeron.CncFileDescriptor (version 0.2.0), of Agrona's RingBufferDescriptor, CountersReader and DistinctErrorLog, of
Aeron's StreamCounter and of its loss report; tests compare each with the Java classes.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from aeron_spark.errors import AeronSparkError, ConnectError

CNC_FILE: Final = "cnc.dat"
CNC_HEADER: Final = struct.Struct(
    "<i"  # version, written last: 0 means not ready
    "i"  # length of the to-driver buffer
    "i"  # length of the to-clients buffer
    "i"  # length of the counters' metadata
    "i"  # length of the counters' values
    "i"  # length of the error log
    "q"  # client liveness timeout, ns
    "q"  # start, ms
    "q"  # pid
)
CNC_META_LENGTH: Final = 128
CNC_MAJOR_VERSION: Final = 0
RING_TRAILER_LENGTH: Final = 768
RING_HEARTBEAT_OFFSET: Final = 640


@dataclass(frozen=True, slots=True)
class Cnc:
    """The mapped parts of a CnC file; the views are valid until the block of :func:`open_cnc` ends."""

    version: tuple[int, int, int]
    started_ms: int
    pid: int
    heartbeat_ms: int  # 0 or negative after the driver has closed
    counters_meta: memoryview
    counters: memoryview
    errors: memoryview


@contextmanager
def open_cnc(aeron_dir: str) -> Iterator[Cnc]:
    """Map the CnC file in ``aeron_dir``, read-only.

    Raises ConnectError if the file cannot be read, is incomplete, or has another major version.
    """
    path = Path(aeron_dir) / CNC_FILE
    with open_mapped(path) as file:
        if len(file) < CNC_META_LENGTH or (header := CNC_HEADER.unpack_from(file))[0] == 0:
            raise ConnectError(f"the media driver in {aeron_dir} is still starting", remedy="Try again in a moment.")
        version = header[0] >> 16 & 0xFF, header[0] >> 8 & 0xFF, header[0] & 0xFF
        if version[0] != CNC_MAJOR_VERSION:
            raise ConnectError(
                f"the media driver in {aeron_dir} has a CnC file of version {'.'.join(map(str, version))}, expected "
                f"{CNC_MAJOR_VERSION}.x",
                remedy="Install the release of aeron-spark for that version of Aeron.",
            )
        parts = []
        at = CNC_META_LENGTH
        for length in header[1:6]:
            parts.append(file[at : at + length])
            at += length
        if at > len(file):
            raise ConnectError(
                f"{path} has {len(file)} bytes, expected {at} from its header", remedy="Restart the media driver."
            )
        to_driver, _, meta, values, errors = parts
        (heartbeat,) = struct.unpack_from("<q", to_driver, len(to_driver) - RING_TRAILER_LENGTH + RING_HEARTBEAT_OFFSET)
        yield Cnc(version, header[7], header[8], heartbeat, meta, values, errors)


@contextmanager
def open_mapped(path: Path) -> Iterator[memoryview]:
    """Map a file of a driver's directory, read-only. Raises ConnectError if it cannot be read."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        reason = error.strerror if isinstance(error, OSError) else "the file is empty"
        raise ConnectError(
            f"no media driver in {path.parent} can be read ({reason})",
            remedy="Start one with 'aeron-spark node start', or name its directory with --aeron-dir.",
        ) from error
    # A view is released with its last reference, and the map with its last view.
    yield memoryview(mapped)


def ascii_text(part: memoryview, at: int) -> str:
    """Return the text at ``at``, which begins with its length as a 32-bit number."""
    (length,) = struct.unpack_from("<i", part, at)
    return bytes(part[at + 4 : at + 4 + max(0, length)]).decode("ascii", "replace")


LOSS_FILE: Final = "loss-report.dat"
UNUSED: Final = 0  # states of a counter: CountersReader.RECORD_UNUSED
ALLOCATED: Final = 1  # CountersReader.RECORD_ALLOCATED
DRIVER_TIMEOUT_S: Final = 10.0  # seconds without a heartbeat after which Aeron calls a driver dead

META_LENGTH: Final = 512  # bytes of a counter's metadata: state, type, key, label
TYPE_ID_OFFSET: Final = 4
KEY_OFFSET: Final = 16
LABEL_OFFSET: Final = 128
COUNTER_LENGTH: Final = 128  # bytes of a counter's value with padding
COPIED_COUNTERS: Final = 512  # of which the states are copied at a time
# In native byte order, so that Python copies a number that the driver writes at the same time in one step.
STATE: Final = struct.Struct("i")
VALUE: Final = struct.Struct("qqq")  # value, registration, owner (the Aeron client)
STREAM_KEY: Final = struct.Struct("<qii")  # registration, session, stream; the channel follows
RECORDING_KEY: Final = struct.Struct("qii")  # recording, session, length of the source; it and the archive's id follow
ARCHIVE_ID: Final = struct.Struct("q")
CLUSTER_KEY: Final = struct.Struct("<i")  # the cluster's id
ERROR: Final = struct.Struct("<iiqq")  # length, observations, last, first (ms); the text follows
ERROR_ALIGNMENT: Final = 8
LOSS: Final = struct.Struct("<qqqqii")  # observations, bytes, first, last (ms), session, stream; channel, source follow
LOSS_ALIGNMENT: Final = 64

COMMIT_POSITION: Final = 203  # of a cluster's member: AeronCounters.CLUSTER_COMMIT_POSITION_TYPE_ID
CLUSTER_BACKUP_STATE: Final = 208  # AeronCounters.CLUSTER_BACKUP_STATE_TYPE_ID

PUBLISHER_LIMIT: Final = 1
SENDER_POSITION: Final = 2
RECEIVER_HWM: Final = 3
SUBSCRIBER_POSITION: Final = 4
RECEIVER_POSITION: Final = 5
PUBLISHER_POSITION: Final = 12
RECORDING_POSITION: Final = 100  # io.aeron.archive.status.RecordingPos
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
    owner_id: int  # client id of the Aeron client that allocated the counter


@dataclass(frozen=True, slots=True)
class DriverLiveness:
    """Process id, start and last heartbeat of a media driver, from its CnC file."""

    pid: int
    started: float  # seconds since the epoch
    heartbeat_age: float  # seconds; infinite after the driver has closed

    @property
    def alive(self) -> bool:
        """Whether the driver is alive by Aeron's rule."""
        return self.heartbeat_age < DRIVER_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class DriverInfo(DriverLiveness):
    """A media driver, and the version of its files."""

    aeron_dir: str
    cnc_version: str


@dataclass(frozen=True, slots=True)
class DistinctError:
    """One error of the driver's log, with the number of its occurrences."""

    observations: int
    first: float  # seconds since the epoch
    last: float
    text: str


@dataclass(frozen=True, slots=True)
class ImageLoss:
    """Data of one image that were lost in transit, before retransmission."""

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
    """One subscriber's position, and the bytes that it has not consumed yet."""

    registration_id: int
    position: int
    behind: int  # bytes


@dataclass(frozen=True, slots=True)
class StreamBacklog:
    """Positions of one Aeron session of a stream on this driver; None for an end that is not on this driver."""

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
        """Bytes that the slowest subscriber has not consumed yet."""
        return max((subscriber.behind for subscriber in self.subscribers), default=0)


def read_driver(aeron_dir: str) -> DriverInfo:
    """Return a description of the running or ended driver in ``aeron_dir``. Raises ConnectError without its files."""
    with open_cnc(aeron_dir) as cnc:
        found, version = _liveness(cnc, time.time()), ".".join(map(str, cnc.version))
        return DriverInfo(found.pid, found.started, found.heartbeat_age, aeron_dir, version)


def read_liveness(aeron_dir: str, now: float | None = None) -> DriverLiveness:
    """Return the liveness of the driver in ``aeron_dir``. Raises ConnectError without its files."""
    with open_cnc(aeron_dir) as cnc:
        return _liveness(cnc, time.time() if now is None else now)


def _liveness(cnc: Cnc, now: float) -> DriverLiveness:
    age = now - cnc.heartbeat_ms / 1000 if cnc.heartbeat_ms > 0 else float("inf")
    return DriverLiveness(cnc.pid, cnc.started_ms / 1000, age)


def read_counters(aeron_dir: str, type_ids: Collection[int] | None = None) -> tuple[Counter, ...]:
    """Return the allocated counters in the order of their ids: those of ``type_ids``, or all."""
    with open_cnc(aeron_dir) as cnc:
        return tuple(
            _counter(cnc, number, type_id)
            for number, type_id in _allocated(cnc)
            if type_ids is None or type_id in type_ids
        )


def read_recorded_positions(aeron_dir: str, archive_id: int) -> dict[int, int]:
    """Return the recorded position of each recording that the archive is writing, by recording id.

    Omits a recording whose counter is allocated or freed at the same time, and a recording with two counters: the
    archive has just started it again, and the driver has not freed the old counter yet.
    """
    found: dict[int, list[int | None]] = defaultdict(list)
    with open_cnc(aeron_dir) as cnc:
        for number, type_id in _allocated(cnc):
            if type_id == RECORDING_POSITION:
                before = _recording_counter(cnc, number)
                value = _value(cnc, number)
                is_stable = before.state == ALLOCATED and before == _recording_counter(cnc, number)
                if before.archive_id == archive_id:
                    found[before.recording_id].append(value if is_stable else None)
    return {key: values[0] for key, values in found.items() if len(values) == 1 and values[0] is not None}


class _RecordingCounter(NamedTuple):
    """The identity of a counter of a recorded position; another use of the counter has another registration id."""

    recording_id: int
    archive_id: int
    state: int
    registration_id: int


def _recording_counter(cnc: Cnc, number: int) -> _RecordingCounter:
    meta = number * META_LENGTH
    key = meta + KEY_OFFSET
    recording_id, _, source_length = RECORDING_KEY.unpack_from(cnc.counters_meta, key)
    source_length = max(0, min(source_length, LABEL_OFFSET - KEY_OFFSET - RECORDING_KEY.size - ARCHIVE_ID.size))
    (archive_id,) = ARCHIVE_ID.unpack_from(cnc.counters_meta, key + RECORDING_KEY.size + source_length)
    (state,) = STATE.unpack_from(cnc.counters_meta, meta)
    registration_id = VALUE.unpack_from(cnc.counters, number * COUNTER_LENGTH)[1]
    return _RecordingCounter(recording_id, archive_id, state, registration_id)


def commit_positions(aeron_dir: str) -> dict[int, int]:
    """Return the commit position of each cluster that has a member on this driver, in bytes of its log, by cluster id.

    Before a member that starts has found its position again, the value is lower, and may be negative.
    """
    with open_cnc(aeron_dir) as cnc:
        return {
            int(CLUSTER_KEY.unpack_from(cnc.counters_meta, number * META_LENGTH + KEY_OFFSET)[0]): _value(cnc, number)
            for number, type_id in _allocated(cnc)
            if type_id == COMMIT_POSITION
        }


def has_cluster_backup(aeron_dir: str) -> bool:
    """Whether a ClusterBackup uses this driver."""
    return bool(read_counters(aeron_dir, {CLUSTER_BACKUP_STATE}))


def read_errors(aeron_dir: str) -> tuple[DistinctError, ...]:
    """Return the driver's distinct errors, most recent first."""
    found: list[DistinctError] = []
    with open_cnc(aeron_dir) as cnc:
        log, at = cnc.errors, 0
        while at + ERROR.size <= len(log):
            length, observations, last_ms, first_ms = ERROR.unpack_from(log, at)
            length = min(length, len(log) - at)
            if length <= 0:
                break
            text = bytes(log[at + ERROR.size : at + length]).decode("utf-8", "replace")
            found.append(DistinctError(observations, first_ms / 1000, last_ms / 1000, text))
            at += _aligned(length, ERROR_ALIGNMENT)
    return tuple(sorted(found, key=lambda error: error.last, reverse=True))


def recent_archive_error(aeron_dir: str) -> str:
    """Return the last error of an archive in the driver's process within two minutes, or an empty text."""
    try:
        errors = read_errors(aeron_dir)
    except AeronSparkError:  # the caller has an error to report already
        return ""
    for error in errors:
        if "io.aeron.archive" in error.text and time.time() - error.last < 120.0:
            lines = [line.strip() for line in error.text.splitlines() if line and not line.startswith("\t")]
            return lines[-1].removeprefix("Caused by: ").rpartition("Exception: ")[2].removeprefix("ERROR - ")
    return ""


def read_losses(aeron_dir: str) -> tuple[ImageLoss, ...]:
    """Return the driver's loss report, largest loss first. Raises ConnectError without a driver."""
    path = Path(aeron_dir) / LOSS_FILE
    read_driver(aeron_dir)  # raises without a driver; a missing loss report means no losses
    if not path.exists() or not path.stat().st_size:
        return ()
    with open_mapped(path) as report:
        return tuple(sorted(_losses(report), key=lambda loss: loss.bytes, reverse=True))


def _losses(report: memoryview) -> Iterator[ImageLoss]:
    at = 0
    while at + LOSS.size <= len(report):
        observations, size, first_ms, last_ms, session, stream = LOSS.unpack_from(report, at)
        if observations <= 0:
            return
        channel = ascii_text(report, at + LOSS.size)
        source_at = at + LOSS.size + _aligned(4 + len(channel), 4)
        source = ascii_text(report, source_at)
        yield ImageLoss(observations, size, first_ms / 1000, last_ms / 1000, session, stream, channel, source)
        at += _aligned(source_at + 4 + len(source) - at, LOSS_ALIGNMENT)


def read_backlog(aeron_dir: str) -> tuple[StreamBacklog, ...]:
    """Return the positions of each Aeron session of each stream, largest backlog first."""
    positions: dict[tuple[str, int, int], dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    with open_cnc(aeron_dir) as cnc:
        for number, type_id in _allocated(cnc):
            if type_id in STREAM_TYPES:
                key = number * META_LENGTH + KEY_OFFSET
                registration, session_id, stream_id = STREAM_KEY.unpack_from(cnc.counters_meta, key)
                stream = ascii_text(cnc.counters_meta, key + STREAM_KEY.size), stream_id, session_id
                positions[stream][type_id].append((registration, _value(cnc, number)))
    backlogs = [_backlog(stream, by_type) for stream, by_type in positions.items()]
    return tuple(sorted(backlogs, key=lambda backlog: (-backlog.behind, backlog.channel, backlog.stream_id)))


def _backlog(stream: tuple[str, int, int], by_type: dict[int, list[tuple[int, int]]]) -> StreamBacklog:
    def value(type_id: int) -> int | None:
        return max((position for _, position in by_type.get(type_id, ())), default=None)

    published, received = value(PUBLISHER_POSITION), value(RECEIVER_HWM)
    available = max((position for position in (published, received) if position is not None), default=0)
    return StreamBacklog(
        *stream,
        publisher_position=published,
        publisher_limit=value(PUBLISHER_LIMIT),
        sender_position=value(SENDER_POSITION),
        receiver_position=value(RECEIVER_POSITION),
        receiver_high_water_mark=received,
        subscribers=tuple(
            SubscriberBacklog(registration, position, max(0, available - position))
            for registration, position in by_type.get(SUBSCRIBER_POSITION, ())
        ),
    )


def _allocated(cnc: Cnc) -> Iterator[tuple[int, int]]:
    """Yield the ids and types of the allocated counters.

    Their columns are copied piece by piece: there may be thousands, and a driver has room for many more.
    """
    stride = META_LENGTH // STATE.size
    room = len(cnc.counters) // COUNTER_LENGTH
    for first in range(0, room, COPIED_COUNTERS):
        end = min(first + COPIED_COUNTERS, room)
        numbers = cnc.counters_meta[first * META_LENGTH : end * META_LENGTH].cast("i")
        states: list[int] = numbers[::stride].tolist()
        types: list[int] = numbers[TYPE_ID_OFFSET // STATE.size :: stride].tolist()
        for number, (state, type_id) in enumerate(zip(states, types, strict=True), first):
            if state == UNUSED:  # this and all following counters were never allocated
                return
            if state == ALLOCATED:
                yield number, type_id


def _counter(cnc: Cnc, number: int, type_id: int) -> Counter:
    value, registration_id, owner_id = VALUE.unpack_from(cnc.counters, number * COUNTER_LENGTH)
    label = ascii_text(cnc.counters_meta, number * META_LENGTH + LABEL_OFFSET)
    return Counter(number, type_id, label, value, registration_id, owner_id)


def _value(cnc: Cnc, number: int) -> int:
    found: int = VALUE.unpack_from(cnc.counters, number * COUNTER_LENGTH)[0]
    return found


def _aligned(length: int, alignment: int) -> int:
    return -(-length // alignment) * alignment
