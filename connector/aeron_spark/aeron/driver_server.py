"""One server in the shared memory of a media driver: its clients name nothing but the driver, so there can be no two.

The server holds a counter of the driver while it listens. The driver frees the counter when the server closes it, but
some 10 s after the server was killed. So the counter's label names a lock file that the server holds: where that lock
is free, the server is dead, whatever the driver still says.
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
LONGEST_LABEL: Final = 380  # bytes, Aeron's limit; a path that was cut is a file that is not there

IsLocked = Callable[[Path], bool]


class DriverServer:
    """The place of the one server. Raises InUseError where another one has it."""

    def __init__(
        self, client: Client, ports: Iterable[int] = (), lock: Path | None = None, is_held: IsLocked | None = None
    ) -> None:
        """``ports`` are the data ports at which the same server is found over UDP.

        ``lock`` is a file that this server holds locked while it lives; ``is_held`` tells whether a file is locked.
        """
        found = ",".join(map(str, ports))
        label = (
            f"aeron-spark server over shared memory, process {os.getpid()}, data ports {found}, lock {lock or ''}"
        ).encode()[:LONGEST_LABEL]
        buffer = jvm.jclass("org.agrona.concurrent.UnsafeBuffer")
        with java_errors("looking for other servers over shared memory"):
            self._counter: Any = client.aeron.addCounter(SERVER_TYPE, buffer(b""), 0, 0, buffer(label), 0, len(label))
        mine = int(self._counter.registrationId())
        servers = [
            counter
            for counter in read_counters(client.aeron_dir)
            if counter.type_id == SERVER_TYPE
            and (counter.registration_id == mine or not _is_dead(counter.label, lock, is_held))
        ]
        # two that come at once see each other, and the driver gave one of them the smaller number
        first = min(servers, key=lambda counter: counter.registration_id)
        if first.registration_id != mine:
            self.close()
            raise ipc_in_use(client.aeron_dir, process_of(first.label))

    def close(self) -> None:
        """Leave the place to others."""
        with java_errors("leaving the place of the server over shared memory"):
            self._counter.close()


def ports_of_server(aeron_dir: str) -> frozenset[int] | None:
    """Return the data ports of the server that listens over this driver's shared memory, or None where none does."""
    servers = [counter for counter in read_counters(aeron_dir) if counter.type_id == SERVER_TYPE]
    for counter in sorted(servers, key=lambda counter: -counter.registration_id):  # an older one was killed
        match = _LABEL.fullmatch(counter.label)
        if match is not None:
            return frozenset(int(port) for port in match["ports"].split(",") if port)
    return None


def ipc_in_use(aeron_dir: str, pid: str) -> InUseError:
    """Return the error of a server that finds another one, process ``pid``, in the driver's shared memory."""
    return InUseError(
        f"the shared memory of the media driver in {aeron_dir} is served by server process {pid}",
        remedy="Stop it, or give this server ipc=false or another aeronDir",
    )


def process_of(label: str) -> str:
    """Return the process id in a counter's label."""
    match = _LABEL.fullmatch(label)
    return match["pid"] if match is not None else "of unknown id"


def _is_dead(label: str, own: Path | None, is_held: IsLocked | None) -> bool:
    """Whether the server with this label is known to be dead: it held a lock that is free, or that is ours now."""
    match = _LABEL.fullmatch(label)
    if match is None or not match["lock"] or is_held is None:
        return False
    lock = Path(match["lock"])
    return lock == own or (lock.exists() and not is_held(lock))
