"""Finds a driver's Aeron clients whose process has ended without closing them.

A driver learns of such an end only when the client's heartbeat is as old as its client liveness timeout, 10 s, by the
wall clock: later if the clock was set back. Until then it keeps the client's subscriptions, and the peers of a killed
server would send to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from aeron_spark.aeron.cnc import CNC_FILE
from aeron_spark.aeron.counters import Counter
from aeron_spark.processes import has_ended, has_mapped

_NAME: Final = "aeron-spark {}"  # of the client in the label of its heartbeat
_NAMED: Final = re.compile(" name=" + _NAME.format(r"(?P<pid>\d+)") + " ")


def client_name() -> str:
    """Return the name for an Aeron client of this process."""
    return _NAME.format(os.getpid())


class EndedClient(NamedTuple):
    """An Aeron client whose process has ended."""

    client_id: int
    pid: int


class ClientProcesses:
    """The processes of a driver's Aeron clients, as far as they are known: those of this package in this namespace."""

    def __init__(
        self, aeron_dir: str, *, has_mapped: Callable[[int, Path], bool] = has_mapped,
        has_ended: Callable[[int], bool] = has_ended,
    ) -> None:  # fmt: skip
        self._cnc: Final = Path(aeron_dir) / CNC_FILE
        self._has_mapped: Final = has_mapped
        self._has_ended: Final = has_ended
        self._known: dict[int, int | None] = {}  # process ids by client id; None: of another program or namespace

    def ended(self, heartbeats: Iterable[Counter]) -> list[EndedClient]:
        """Return the clients whose process has ended. ``heartbeats`` are the counters of all clients of the driver.

        A client is known from the first call at which its process ran, and named itself.
        """
        found = {one.registration_id: one.label for one in heartbeats}
        self._known = {client: pid for client, pid in self._known.items() if client in found}
        for client, label in found.items():
            named = _NAMED.search(label)
            if client not in self._known and named is not None:  # a client names itself with its first heartbeat
                pid = int(named["pid"])
                self._known[client] = pid if self._has_mapped(pid, self._cnc) else None
        return [
            EndedClient(client, pid) for client, pid in self._known.items() if pid is not None and self._has_ended(pid)
        ]
