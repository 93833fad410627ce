"""Files that the node process writes for other processes: its description, its use, and the error of a failed start."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aeron_spark.disk import replace_file
from aeron_spark.errors import AeronSparkError, SetupError, decode_error, encode_error
from aeron_spark.node.settings import NodeSettings, settings_from_json

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
