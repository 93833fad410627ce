"""One server in the shared memory of a media driver: its clients name nothing but the driver, so there can be no two.

The server holds a counter of the driver while it listens. The driver frees it when the server closes it or dies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Final

from aeron_spark.aeron import jvm
from aeron_spark.aeron.client import Client
from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.exceptions import java_errors
from aeron_spark.errors import TransportError

SERVER_TYPE: Final = 16725
_LABEL: Final = re.compile(r"aeron-spark server over shared memory, process \d+, data ports ([\d,]*)")


class SoleServer:
    """The place of the one server. Raises TransportError where another one has it."""

    def __init__(self, client: Client, ports: Iterable[int] = ()) -> None:
        """``ports`` are the data ports at which the same server is found over UDP."""
        found = ",".join(map(str, ports))
        label = f"aeron-spark server over shared memory, process {os.getpid()}, data ports {found}".encode()
        buffer = jvm.jclass("org.agrona.concurrent.UnsafeBuffer")
        with java_errors("looking for other servers over shared memory"):
            self._counter: Any = client.aeron.addCounter(SERVER_TYPE, buffer(b""), 0, 0, buffer(label), 0, len(label))
        mine = int(self._counter.registrationId())
        servers = [counter for counter in read_counters(client.aeron_dir) if counter.type_id == SERVER_TYPE]
        # two that come at once see each other, and the driver gave one of them the smaller number
        first = min(servers, key=lambda counter: counter.registration_id)
        if first.registration_id != mine:
            self.close()
            raise TransportError(
                f"Only one server may listen over the shared memory of the media driver in {client.aeron_dir}, and "
                f"there is one ({first.label})",
                remedy="Give this one another aeronDir, or ipc=false; a killed server is forgotten within 10 s",
            )

    def close(self) -> None:
        """Leave the place to others."""
        with java_errors("leaving the place of the server over shared memory"):
            self._counter.close()


def ports_of_server(aeron_dir: str) -> frozenset[int] | None:
    """Return the data ports of the server that listens over this driver's shared memory, or None where none does."""
    for counter in read_counters(aeron_dir):
        match = _LABEL.fullmatch(counter.label) if counter.type_id == SERVER_TYPE else None
        if match is not None:
            return frozenset(int(port) for port in match[1].split(",") if port)
    return None
