"""What a node can be told: one frozen value, parsed once, compared with what runs, handed to Aeron's contexts."""

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

SMALL_MACHINE_CORES: Final = 4  # below this, dedicated threads fight for the cores and UDP collapses

# How one thread for everything waits: spins, yields, shortest and longest sleep in ns. Aeron's own 10 spins, 20 yields,
# and sleeps from 1 us on, are as many looks at every stream there is after each event, on cores that others need.
SHARED_IDLE: Final = (1, 1, 50_000, 1_000_000)

# What is closed stays with the driver for up to two of these, and is looked at all the while; Aeron's own is 1 s.
TIMER_INTERVAL_NS: Final = 100_000_000

# A sender may be so far ahead of its receiver. On a busy machine a receiver waits some milliseconds for a core, and
# Aeron's own 128 KiB are through in one: the sender then stood still for a third of the time.
RECEIVE_WINDOW: Final = MIB

RECEIVE_BUFFER: Final = 2 * RECEIVE_WINDOW  # of a socket, which many senders share

RECEIVE_PROPERTIES: Final = ("aeron.socket.so_rcvbuf", "aeron.rcv.initial.window.length")

TERM_RANGE: Final = (64 * KIB, 1024 * MIB)

MTU_RANGE: Final = (1408, 65504)  # Aeron allows less, but a recording keeps its MTU for life

THREADING_MODES: Final = ("shared", "shared_network", "dedicated")

SYNC_LEVELS: Final = (0, 1, 2)

# A property that has a setting of its own is refused in ``properties``: two words for one thing would contradict.
NAMED: Final[Mapping[str, str]] = {
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

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object from which :func:`settings_from_json` builds the same value."""
        return asdict(self) | {"properties": dict(self.properties)}


SETTING_NAMES: Final = tuple(field.name for field in fields(NodeSettings))


def settings_from_json(values: Mapping[str, Any]) -> NodeSettings:
    """Return what :meth:`NodeSettings.to_json` wrote."""
    return NodeSettings(**{**values, "properties": _properties(values["properties"])})


def parse_settings(asked: Mapping[str, object], cores: int) -> NodeSettings:
    """Return the defaults for a machine of ``cores`` with what was ``asked``; raise OptionError on anything wrong."""
    default = NodeSettings(threading="shared" if cores < SMALL_MACHINE_CORES else "dedicated")
    settings = replace(default, **parse_asked(asked))
    longest = max(settings.term_length, settings.ipc_term_length)
    if settings.segment_length < longest:
        raise OptionError(
            f"segment_length {settings.segment_length} is smaller than a term of {longest} bytes",
            remedy="A segment holds whole terms: make it at least as long as the longest term buffer.",
        )
    return settings


def parse_asked(asked: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings in ``asked``, each parsed and checked alone; None values count as not asked."""
    parsed: dict[str, Any] = {}
    for name, value in asked.items():
        if name not in SETTING_NAMES:
            near = difflib.get_close_matches(name, SETTING_NAMES, n=1)
            raise OptionError(
                f"a node has no setting {name!r}",
                remedy=f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(SETTING_NAMES)}.",
            )
        if value is not None:
            parsed[name] = _PARSERS[name](name, value)
    return parsed


def differences(asked: Mapping[str, object], running: NodeSettings) -> list[str]:
    """Return one text a setting that runs with another value than ``asked``."""
    return [
        f"{name} is {_show(name, running)}, not {value!r}"
        for name, value in parse_asked(asked).items()
        if getattr(running, name) != value and (name != "properties" or not set(value) <= set(running.properties))
    ]


def parse_size(name: str, value: object) -> int:
    """Return the bytes of ``64KiB``, ``16MiB``, ``1GiB``, of ``64k``, ``16m``, ``1g``, or a plain number."""
    match = re.fullmatch(r"(\d+)([kmg]?)(?:(?<=[kmg])i?b)?", str(value).strip().lower())
    if isinstance(value, bool) or match is None:
        raise OptionError(
            f"{name} {value!r} is not a size", remedy="Write bytes, or a number with KiB, MiB or GiB: 16MiB."
        )
    return int(match.group(1)) * {"": 1, "k": KIB, "m": MIB, "g": 1024 * MIB}[match.group(2)]


def driver_context(settings: NodeSettings, aeron_dir: str, receive_buffer: int) -> dict[str, object]:
    """Return what to call on io.aeron.driver.MediaDriver.Context: method to argument.

    ``receive_buffer``: bytes of it that the system gives a socket, of ``RECEIVE_BUFFER``. Who names it or the window
    has both as Aeron sets them.
    """
    named = dict(settings.properties)
    chosen: dict[str, object] = {}
    if not any(name in named for name in RECEIVE_PROPERTIES):
        chosen["socketRcvbufLength"] = receive_buffer
        chosen["initialWindowLength"] = min(RECEIVE_WINDOW, receive_buffer)  # Aeron starts with no larger one
    if "aeron.timer.interval" not in named:
        chosen["timerIntervalNs"] = TIMER_INTERVAL_NS
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
    """Return what to call on io.aeron.archive.Archive.Context; None for a node without an archive."""
    if not settings.archive:
        return None
    context: dict[str, object] = {
        "archiveDirectoryName": archive_dir,
        "archiveId": archive_id,
        "threadingMode": "DEDICATED" if settings.threading == "dedicated" else "SHARED",
        "maxConcurrentRecordings": settings.max_recordings,
        "maxConcurrentReplays": settings.max_replays,
        "segmentFileLength": settings.segment_length,
        "lowStorageSpaceThreshold": settings.segment_length,
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
        raise OptionError(f"{name} {value!r} is not a threading mode", remedy=f"One of {', '.join(THREADING_MODES)}.")
    return text


def _power_of_two(name: str, value: object) -> int:
    size = parse_size(name, value)
    low, high = TERM_RANGE
    if not low <= size <= high or size & (size - 1):
        raise OptionError(
            f"{name} {value!r} is not a power of two from 64KiB to 1GiB",
            remedy="Aeron needs one, such as 1MiB or 16MiB.",
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
        if name in NAMED:
            raise OptionError(f"the property {name} has a setting of its own", remedy=f"Use {NAMED[name]} instead.")
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
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def granted_buffer(which: int, wanted: int) -> int:
    """Return how many of ``wanted`` bytes the system gives a UDP socket; ``which`` is SO_RCVBUF or SO_SNDBUF."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, which, wanted)
        found = probe.getsockopt(socket.SOL_SOCKET, which)
    # Linux says twice what it was asked for: the other half is for its own bookkeeping. See socket(7).
    return min(wanted, found // 2 if sys.platform == "linux" else found)
