"""How much a socket of this machine may hold."""

from __future__ import annotations

import socket
import sys


def granted_buffer(which: int, wanted: int) -> int:
    """Return how many of ``wanted`` bytes the system gives a UDP socket; ``which`` is SO_RCVBUF or SO_SNDBUF."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, which, wanted)
        found = probe.getsockopt(socket.SOL_SOCKET, which)
    # Linux says twice what it was asked for: the other half is for its own bookkeeping. See socket(7).
    return min(wanted, found // 2 if sys.platform == "linux" else found)
