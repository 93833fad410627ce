"""The files by which the processes of a node tell its state: description, use, errors, liveness, handles.

Offsets are those of the archive's SBE schema for its mark file; a test compares each with the Java classes.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from aeron_spark.aeron.counters import DriverLiveness, read_liveness
from aeron_spark.errors import AeronSparkError, ConnectError, SetupError, decode_error, encode_error
from aeron_spark.files import replace_file
from aeron_spark.node.locks import FileLock
from aeron_spark.node.settings import NodeSettings, settings_from_json

MARK_FILE: Final = "archive-mark.dat"
MARK_HEADER: Final = struct.Struct(
    "<8x"  # SBE message header
    "i4x"  # version
    "q"  # activity, ms
    "q"  # start, ms
    "q"  # pid
)


def driver_liveness(aeron_dir: Path, now: float | None = None) -> DriverLiveness | None:
    """Return the liveness of the driver in ``aeron_dir``, or None without a complete, readable CnC file.

    Raises OSError if this process or the system has no free descriptor.
    """
    try:
        return read_liveness(str(aeron_dir), now)
    except ConnectError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE):
            raise error.__cause__ from None
        return None


@dataclass(frozen=True, slots=True)
class ArchiveMarkFile:
    """The archive's mark file: its last activity (epoch milliseconds; 0 or less after its close), start, process id."""

    activity_ms: int
    started_ms: int
    pid: int

    @property
    def age(self) -> float:
        """Seconds since the last activity; infinite after the close."""
        return time.time() - self.activity_ms / 1000 if self.activity_ms > 0 else float("inf")


def archive_mark_pid(archive_dir: Path) -> int | None:
    """Return the process id in the archive's mark file, or None without the file."""
    found = read_archive_mark(archive_dir)
    return None if found is None else found.pid


def archive_mark_age(archive_dir: Path) -> float | None:
    """Return the seconds since the archive's last activity; infinite after its close, None without a mark file."""
    found = read_archive_mark(archive_dir)
    return None if found is None else found.age


def read_archive_mark(archive_dir: Path) -> ArchiveMarkFile | None:
    """Return the archive's mark file, or None without a complete, readable one."""
    try:
        with (archive_dir / MARK_FILE).open("rb") as file:
            head = file.read(MARK_HEADER.size)
    except OSError:
        return None
    if len(head) < MARK_HEADER.size:
        return None
    _, activity, started, pid = MARK_HEADER.unpack(head)
    return ArchiveMarkFile(activity, started, pid)


VERSION: Final = 1
MAX_NAMES: Final = 5  # of recordings in the state file


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The description of a node that has started; only its lock shows whether it still runs."""

    pid: int
    host: str
    started: float
    aeron_dir: str
    archive_dir: str
    archive_id: int
    aeron_version: str
    package_version: str
    settings: NodeSettings
    warning: str = ""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The last state of a node; ``checked`` is the monotonic time, which all processes of the machine share."""

    checked: float
    clients: int
    recordings: int
    recorded: tuple[str, ...] = ()  # names of the recordings, at most ``MAX_NAMES``


def write_record(path: Path, record: NodeRecord) -> None:
    """Write ``record`` atomically."""
    values = {name: getattr(record, name) for name in NodeRecord.__slots__}
    write_json(path, {"version": VERSION, **values, "settings": record.settings.to_json()})


def read_record(path: Path) -> NodeRecord | None:
    """Return the record, or None without the file. Raises SetupError for a record of another version."""
    values = read_json(path)
    if values is None:
        return None
    if values.pop("version", None) != VERSION:
        raise SetupError(
            f"the node described in {path} was started by another version of aeron-spark",
            remedy="Stop it with that version ('aeron-spark node stop'), then try again.",
        )
    return NodeRecord(**{**values, "settings": settings_from_json(values["settings"])})


def write_state(path: Path, state: NodeState) -> None:
    """Write the node's state atomically."""
    write_json(path, {name: getattr(state, name) for name in NodeState.__slots__})


def read_state(path: Path) -> NodeState | None:
    """Return the node's last state, or None before its first one."""
    values = read_json(path)
    return None if values is None else NodeState(**{**values, "recorded": tuple(values.get("recorded", ()))})


def write_failure(path: Path, error: AeronSparkError) -> None:
    """Write ``error`` for the process that started the node process."""
    _replace(path, encode_error(error))


def read_failure(path: Path) -> AeronSparkError | None:
    """Return the error of a failed start in its class, or None without the file."""
    try:
        return decode_error(path.read_bytes())
    except FileNotFoundError:
        return None


def this_host() -> str:
    """Return this machine's name, because several machines may share a home directory on the network."""
    return socket.gethostname()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Replace ``path`` by ``values`` atomically."""
    _replace(path, (json.dumps(values, sort_keys=True) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in ``path``, or None without the file."""
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return values


def _replace(path: Path, data: bytes) -> None:
    # Without sync, because a crash of the machine ends the node, too.
    replace_file(path, data, draft_suffix=f".{os.getpid()}", sync=False)


CONTROL_CHANNEL: Final = "aeron:ipc?term-length=64k"  # the archive's default for clients of its driver
CONTROL_STREAM: Final = 10


@dataclass(frozen=True, slots=True)
class NodeHandle:
    """A use of a media driver, usually with an archive; the node does not stop while the handle is open.

    ``foreign``: another program started the driver. Then this package does not know its settings nor its archive
    (``archive_dir`` is empty, ``settings`` None). A handle does not survive a fork: it is closed in the child, which
    must call ``ensure`` itself.
    """

    aeron_dir: str
    pid: int
    started: float  # seconds since the epoch
    foreign: bool
    archive_dir: str
    archive_id: int
    settings: NodeSettings | None
    warning: str
    _users: FileLock = field(repr=False, compare=False)

    control_channel: str = CONTROL_CHANNEL
    control_stream: int = CONTROL_STREAM
    is_started_here: bool = False
    """Whether the call that returned this handle has started the node."""

    @property
    def closed(self) -> bool:
        """Whether the handle is closed."""
        return not self._users.is_acquired

    def close(self) -> None:
        """End the use. The node stops some time after its last user has closed its handle."""
        self._users.release(touch=True)

    def __enter__(self) -> NodeHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
