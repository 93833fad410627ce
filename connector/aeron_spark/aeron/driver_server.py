"""Ensures that one server at most listens in a media driver's shared memory: its clients name only the driver.

The server allocates a counter of the driver while it listens. After a kill the driver frees the counter only 10 s
later. Therefore the counter's label has the path of a file that the server keeps locked: if that file is not locked,
the server has ended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from aeron_spark.aeron import jvm
from aeron_spark.aeron.client import Client
from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.exceptions import java_errors
from aeron_spark.errors import InUseError

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
        self, client: Client, ports: Iterable[int] = (), lock: Path | None = None, is_locked: IsLocked | None = None
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
