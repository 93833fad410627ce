"""Notices when the network does not carry the packets of a bulk link any more.

A way through the network may change while a bulk link lives. Where routers report that packets are too large, Linux
lowers the MTU that it knows, and would cut later packets into fragments. Where they drop them silently, Aeron repeats
the lost packets for ever, and delivers nothing behind them. Both ends of such a link send a small frame each second. So
an end that reads gets no frame only in this case, or if its peer does not run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Final

from aeron_spark.errors import TransportError
from aeron_spark.protocol.liveness import Times
from aeron_spark.transport.api import MTU_BYTES
from aeron_spark.transport.packet_sizes import NetworkPath, network_path

ALIVE_SECONDS: Final = 1.0  # between two frames of an idle bulk link
SILENCE_S: Final = 10.0  # after this time, Aeron itself gives up a peer, too
FIRST_SECONDS: Final = 1.0  # a report about the first packets arrives within a round trip
FIRST_INTERVAL_S: Final = 0.02  # between two looks at the MTU in the first seconds, and afterwards
INTERVAL_S: Final = 1.0  # an MTU changes when a route does, so rarely; a look is a system call
MAX_RECENT: Final = 1_000  # hosts whose MTU is kept
REMEDY: Final = "The next bulk link uses smaller packets. Set 'mtu' at both ends to a size that always passes."


def alive_times(times: Times) -> Times:
    """Return the times of a bulk link that is watched."""
    return replace(times, keep_alive_seconds=min(ALIVE_SECONDS, times.keep_alive_seconds))


class RecentMtus:
    """Finds the MTU to a host, and keeps it for FIRST_INTERVAL_S, because many bulk links have the same host.

    Thread-safe.
    """

    def __init__(self, find: Callable[[str], NetworkPath | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._clock = clock
        self._found: dict[str, tuple[float, int | None]] = {}  # by host: when it was found, and the bytes

    def mtu_bytes(self, host: str) -> int | None:
        """Return the bytes of the largest packet to a host; None if no path is known."""
        now = self._clock()
        found_at, mtu_bytes = self._found.get(host, (-inf, None))
        if now - found_at >= FIRST_INTERVAL_S:
            path = self._find(host)
            mtu_bytes = None if path is None else path.mtu_bytes
            if len(self._found) >= MAX_RECENT:
                self._found.clear()
            self._found[host] = (now, mtu_bytes)
        return mtu_bytes


RECENT: Final = RecentMtus(network_path)


class PacketWatch:
    """Watches one end of a bulk link with packets of ``mtu_bytes``. ``find_mtu`` returns what the network carries now.

    All times are monotonic seconds.
    """

    def __init__(self, mtu_bytes: int, find_mtu: Callable[[], int | None], now: float) -> None:
        self.mtu_bytes: Final = mtu_bytes
        self._find_mtu = find_mtu
        self._first_until = now + FIRST_SECONDS
        self._find_at = now
        self._checked_at = self._heard_at = now
        self._received_bytes = 0

    @classmethod
    def of(cls, host: str, mtu_bytes: int, now: float) -> PacketWatch | None:
        """Return the watch of packets to the address of a host; None if their size passes every network."""

        return cls(mtu_bytes, lambda: RECENT.mtu_bytes(host), now) if mtu_bytes > MTU_BYTES else None

    def check(self, received_bytes: int, now: float, *, is_reading: bool) -> TransportError | None:
        """Return the error of packets that do not pass, or None.

        ``received_bytes`` are those of all frames so far; ``is_reading``: this end would read further ones.
        """
        was_away = now - self._checked_at >= INTERVAL_S  # this program stood still, and has frames to read
        self._checked_at = now
        if received_bytes != self._received_bytes or was_away or not is_reading:
            self._received_bytes, self._heard_at = received_bytes, now
        elif now - self._heard_at >= SILENCE_S:
            return TransportError(
                f"nothing arrived for {SILENCE_S:g} s: the network may not carry packets of {self.mtu_bytes} bytes "
                "any more, or the peer stands still",
                remedy=REMEDY,
            )
        if now < self._find_at:
            return None
        self._find_at = now + (FIRST_INTERVAL_S if now < self._first_until else INTERVAL_S)
        mtu_bytes = self._find_mtu()
        if mtu_bytes is None or mtu_bytes >= self.mtu_bytes:
            return None
        return TransportError(
            f"the network carries packets of {mtu_bytes} bytes now, and no more of {self.mtu_bytes}", remedy=REMEDY
        )
