"""Settings of a node: parsing, comparison with those of a running node, and conversion to Aeron's contexts."""

from __future__ import annotations

import difflib
import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from aeron_spark.errors import OptionError

KIB: Final = 1024

MIB: Final = 1024 * KIB

SMALL_MACHINE_CORES: Final = 4  # with fewer cores, dedicated threads compete for them and UDP throughput collapses

# Idle strategy of the only thread, in ns: it sleeps shortly for 6 ms after data, because the next packet of an exchange
# often follows soon, and otherwise longer each time. Aeron's default of 10 spins, 20 yields and sleeps from 1 us polls
# every stream after each event many times, on cores that other threads need. After a second without data, the first
# packet may wait longer: an idle node then wakes up a quarter as often.
SHARED_IDLE: Final = (
    6_000_000,  # short sleeps after data
    50_000,  # a short sleep
    1_000_000,  # the longest sleep
    1_000_000_000,  # until it is longer
    4_000_000,  # the longest sleep from then on
)

# The driver keeps and polls closed publications and subscriptions for up to two intervals. Aeron's default is 1 s.
TIMER_INTERVAL_NS: Final = 100_000_000

# On a busy machine a receiver waits some milliseconds for a core. Aeron's default window of 128 KiB is used up in one
# millisecond: the sender then stood still for a third of the time.
RECEIVE_WINDOW: Final = MIB

# Several senders share the buffer of a socket. In a small packet's place, Linux counts up to three times its length.
WINDOWS_PER_BUFFER: Final = 3

RECEIVE_BUFFER: Final = WINDOWS_PER_BUFFER * RECEIVE_WINDOW

# A receiver sends a NAK after this time, and repeats it after 100 times as long: 20 ms. After a retransmission, a
# sender ignores NAKs for 10 ms. Aeron's default of 1 us sends up to 100 NAKs for each one that has an effect: when a
# machine with 400 images lost packets once, 100,000 NAKs a second filled the socket buffers, and no image recovered.
NAK_DELAY_NS: Final = 200_000

NAK_PROPERTIES: Final = ("aeron.nak.unicast.delay", "aeron.nak.unicast.retry.delay.ratio")
RECEIVE_PROPERTIES: Final = ("aeron.socket.so_rcvbuf", "aeron.rcv.initial.window.length")

TERM_RANGE: Final = (64 * KIB, 1024 * MIB)

MTU_RANGE: Final = (1408, 65504)  # Aeron allows less, but a recording can never change its MTU

THREADING_MODES: Final = ("shared", "shared_network", "dedicated")

SYNC_LEVELS: Final = (0, 1, 2)

# Aeron's property -> setting. ``properties`` must not have these: the two values could contradict each other.
SETTING_OF_PROPERTY: Final[Mapping[str, str]] = {
    "aeron.dir": "aeron_dir",
    "aeron.archive.dir": "archive_dir",
    "aeron.threading.mode": "threading",
    "aeron.archive.threading.mode": "threading",
    "aeron.term.buffer.length": "term_length",
    "aeron.ipc.term.buffer.length": "ipc_term_length",
    "aeron.term.buffer.sparse.file": "sparse",
    "aeron.mtu.length": "mtu",
    "aeron.ipc.mtu.length": "ipc_mtu",
    "aeron.archive.max.concurrent.recordings": "max_recordings",
    "aeron.archive.max.concurrent.replays": "max_replays",
    "aeron.archive.segment.file.length": "segment_length",
    "aeron.archive.file.sync.level": "sync_level",
    "aeron.archive.catalog.file.sync.level": "sync_level",
    "aeron.archive.control.channel": "control",
}


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The effective settings of a node. Sizes are bytes, times are seconds."""

    archive: bool = True
    threading: str = "shared"
    term_length: int = 16 * MIB
    ipc_term_length: int = 16 * MIB
    sparse: bool = True
    mtu: int = 1408
    ipc_mtu: int = 1408
    linger: float = 30.0
    max_recordings: int = 100
    max_replays: int = 100
    segment_length: int = 128 * MIB
    sync_level: int = 0
    control: str = ""
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def longest_segment(self) -> int:
        """The bytes of the longest segment file of a recording with the default terms: a segment has complete terms."""
        return max(self.segment_length, self.term_length, self.ipc_term_length)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object from which :func:`settings_from_json` builds the same value."""
        return asdict(self) | {"properties": dict(self.properties)}


SETTING_NAMES: Final = tuple(field.name for field in fields(NodeSettings))


def settings_from_json(values: Mapping[str, Any]) -> NodeSettings:
    """Return the settings from the object of :meth:`NodeSettings.to_json`."""
    return NodeSettings(**{**values, "properties": _properties(values["properties"])})


def parse_settings(requested: Mapping[str, object], cores: int) -> NodeSettings:
    """Return the defaults for a machine with ``cores``, with the ``requested`` changes. Raises OptionError."""
    default = NodeSettings(threading="shared" if cores < SMALL_MACHINE_CORES else "dedicated")
    return replace(default, **parse_requested(requested))


def parse_requested(requested: Mapping[str, object]) -> dict[str, Any]:
    """Return the ``requested`` settings without None values, each parsed and checked separately. Raises OptionError."""
    parsed: dict[str, Any] = {}
    for name, value in requested.items():
        if name not in SETTING_NAMES:
            near = difflib.get_close_matches(name, SETTING_NAMES, n=1)
            raise OptionError(
                f"a node has no setting {name!r}",
                remedy=f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(SETTING_NAMES)}.",
            )
        if value is not None:
            parsed[name] = _PARSERS[name](name, value)
    return parsed


def differences(requested: Mapping[str, object], running: NodeSettings) -> list[str]:
    """Return one text for each setting whose ``running`` value is not the ``requested`` one."""
    return [
        f"{name} is {_show(name, running)}, not {value!r}"
        for name, value in parse_requested(requested).items()
        if getattr(running, name) != value and (name != "properties" or not set(value) <= set(running.properties))
    ]


def parse_size(name: str, value: object) -> int:
    """Return the bytes of a size: a number, or one with a unit as in ``64KiB``, ``16MiB``, ``1GiB`` or ``64k``."""
    match = re.fullmatch(r"(\d+)([kmg]?)(?:(?<=[kmg])i?b)?", str(value).strip().lower())
    if isinstance(value, bool) or match is None:
        raise OptionError(
            f"{name} {value!r} is not a size", remedy="Write bytes, or a number with KiB, MiB or GiB: 16MiB."
        )
    return int(match.group(1)) * {"": 1, "k": KIB, "m": MIB, "g": 1024 * MIB}[match.group(2)]


def receive_window(receive_buffer: int) -> int:
    """Return how many bytes a sender may be ahead, for the receive buffer that the system grants a socket."""
    return min(RECEIVE_WINDOW, receive_buffer // WINDOWS_PER_BUFFER)


def driver_context(settings: NodeSettings, aeron_dir: str, receive_buffer: int) -> dict[str, object]:
    """Return the methods of io.aeron.driver.MediaDriver.Context to call, with their arguments.

    ``receive_buffer``: bytes that the system grants a socket, up to ``RECEIVE_BUFFER``. If a property sets the receive
    buffer or the window, Aeron's own rule applies to both.
    """
    named = dict(settings.properties)
    chosen: dict[str, object] = {}
    if not any(name in named for name in RECEIVE_PROPERTIES):
        chosen["socketRcvbufLength"] = receive_buffer
        chosen["initialWindowLength"] = receive_window(receive_buffer)
    if "aeron.timer.interval" not in named:
        chosen["timerIntervalNs"] = TIMER_INTERVAL_NS
    if not any(name in named for name in NAK_PROPERTIES):
        chosen["nakUnicastDelayNs"] = NAK_DELAY_NS
    if settings.threading == "shared" and "aeron.shared.idle.strategy" not in named:
        chosen["sharedIdleStrategy"] = SHARED_IDLE
    return {
        "aeronDirectoryName": aeron_dir,
        "threadingMode": settings.threading.upper(),
        "publicationTermBufferLength": settings.term_length,
        "ipcTermBufferLength": settings.ipc_term_length,
        "termBufferSparseFile": settings.sparse,
        "mtuLength": settings.mtu,
        "ipcMtuLength": settings.ipc_mtu,
        "warnIfDirectoryExists": False,
        "dirDeleteOnShutdown": True,
        **chosen,
    }


def archive_context(settings: NodeSettings, archive_dir: str, archive_id: int) -> dict[str, object] | None:
    """Return the methods of io.aeron.archive.Archive.Context to call, with arguments; None without an archive."""
    if not settings.archive:
        return None
    context: dict[str, object] = {
        "archiveDirectoryName": archive_dir,
        "archiveId": archive_id,
        "threadingMode": "DEDICATED" if settings.threading == "dedicated" else "SHARED",
        "maxConcurrentRecordings": settings.max_recordings,
        "maxConcurrentReplays": settings.max_replays,
        "segmentFileLength": settings.segment_length,
        "lowStorageSpaceThreshold": settings.longest_segment,
        "fileSyncLevel": settings.sync_level,
        "catalogFileSyncLevel": settings.sync_level,
        "controlChannelEnabled": bool(settings.control),
        "recordingEventsEnabled": False,
        "replicationChannel": "aeron:udp?endpoint=localhost:0",
    }
    if settings.control:
        context["controlChannel"] = f"aeron:udp?endpoint={settings.control}"
    return context


def _show(name: str, settings: NodeSettings) -> object:
    value = getattr(settings, name)
    return repr(dict(value)) if name == "properties" else repr(value)


def _flag(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} {value!r} is neither true nor false", remedy="Write true or false.")
    return text == "true"


def _word(name: str, value: object) -> str:
    text = str(value).lower()
    if text not in THREADING_MODES:
        raise OptionError(
            f"{name} {value!r} is not a threading mode", remedy=f"Choose one of {', '.join(THREADING_MODES)}."
        )
    return text


def _power_of_two(name: str, value: object) -> int:
    size = parse_size(name, value)
    low, high = TERM_RANGE
    if not low <= size <= high or size & (size - 1):
        raise OptionError(
            f"{name} {value!r} is not a power of two from 64KiB to 1GiB",
            remedy="Write a power of two such as 1MiB or 16MiB.",
        )
    return size


def _mtu(name: str, value: object) -> int:
    size = parse_size(name, value)
    low, high = MTU_RANGE
    if not low <= size <= high or size % 32:
        raise OptionError(f"{name} {value!r} is not a multiple of 32 from {low} to {high}", remedy="Try 1408 or 8192.")
    return size


def _seconds(name: str, value: object) -> float:
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise OptionError(f"{name} {value!r} is not a number of seconds", remedy="Write 30, or 0.5.")
    return seconds


def _count(name: str, value: object) -> int:
    text = str(value)
    if not text.isdigit() or int(text) < 1:
        raise OptionError(f"{name} {value!r} is not a whole number above 0", remedy="Write a number such as 100.")
    return int(text)


def _level(name: str, value: object) -> int:
    if str(value) not in {str(level) for level in SYNC_LEVELS}:
        raise OptionError(f"{name} {value!r} is not 0, 1 or 2", remedy="0 none, 1 data, 2 data and metadata.")
    return int(str(value))


def _endpoint(name: str, value: object) -> str:
    text = str(value)
    if text and not re.fullmatch(r"(\[[0-9A-Fa-f:]+\]|[^:\s|=]+):\d{1,5}", text):
        raise OptionError(f"{name} {value!r} is not host:port", remedy="Write localhost:8010, or [::1]:8010.")
    return text


def _properties(value: object) -> tuple[tuple[str, str], ...]:
    pairs = value.items() if isinstance(value, Mapping) else value
    checked: dict[str, str] = {}
    for name, text in pairs:  # type: ignore[attr-defined]
        if not re.fullmatch(r"(aeron|agrona)(\.[A-Za-z0-9_-]+)+", str(name)):
            raise OptionError(f"{name!r} is not a property of Aeron", remedy="Write --set aeron.x=y.")
        if name in SETTING_OF_PROPERTY:
            raise OptionError(
                f"the property {name} is a setting of the node", remedy=f"Use {SETTING_OF_PROPERTY[name]} instead."
            )
        checked[str(name)] = str(text)
    return tuple(sorted(checked.items()))


_PARSERS: Final[Mapping[str, Any]] = {
    "archive": _flag,
    "threading": _word,
    "term_length": _power_of_two,
    "ipc_term_length": _power_of_two,
    "sparse": _flag,
    "mtu": _mtu,
    "ipc_mtu": _mtu,
    "linger": _seconds,
    "max_recordings": _count,
    "max_replays": _count,
    "segment_length": _power_of_two,
    "sync_level": _level,
    "control": _endpoint,
    "properties": lambda name, value: _properties(value),
}


def machine_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def granted_buffer(option: int, requested_bytes: int) -> int:
    """Return the bytes, up to ``requested_bytes``, that the system grants a UDP socket for SO_RCVBUF or SO_SNDBUF."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, option, requested_bytes)
        granted = probe.getsockopt(socket.SOL_SOCKET, option)
    # Linux returns twice the granted size; the other half is for its bookkeeping. See socket(7).
    return min(requested_bytes, granted // 2 if sys.platform == "linux" else granted)
