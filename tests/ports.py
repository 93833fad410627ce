"""Ports for the servers of tests.

They are below the ports that the system gives to sockets without one. So a killed server finds its port free when it
starts again, whatever other tests do meanwhile. The numbers do not depend on the seed of a random order, which is the
same in all workers.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from typing import Final

PORTS: Final = range(22_000, 32_000)  # a cluster's members use lower ones


def free_ports(host: str = "127.0.0.1", count: int = 2) -> tuple[int, ...]:
    """Return consecutive UDP ports that no program uses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        first = PORTS.start + secrets.randbelow(len(PORTS) - count)
        found = tuple(range(first, first + count))
        with ExitStack() as stack:
            try:
                for port in found:
                    stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)).bind((host, port))
            except OSError:
                continue
        return found


def free_address(host: str = "127.0.0.1") -> str:
    """Return the address of a server: the host, and a data port and a control port that no program uses."""
    data, control = free_ports(host)
    return f"{host}:{data}:{control}"


def free_port() -> int:
    """Return a UDP port that no program uses, and whose successor is not used either."""
    return free_ports()[0]
