"""Whether the media driver's file system has room for the logs of another link.

A full file system ends the media driver's process, because the driver's logs are sparse files that it maps. So each
link counts with all pages of its logs, before any of them is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from aeron_spark.errors import REFUSALS, RefusedError
from aeron_spark.node.paths import TERMS_PER_LOG, Space, reserve_of
from aeron_spark.node.settings import MIB
from aeron_spark.transport.api import ChannelSettings

MEASURE_INTERVAL_S: Final = 1.0  # a measurement asks for the size of each log: some milliseconds for 1,000 connections
KEY_SHARE: Final = 7  # a key may have so many times the bytes that remain free: seven eighths of them all
FEW_LINKS: Final = 4  # a key with fewer may take what remains; one with more leaves room for so many links of others
REMEDY: Final = "Close unused connections and readers, or ask the server's operator to enlarge its /dev/shm."


def link_bytes(settings: ChannelSettings) -> int:
    """Return the bytes of the two logs of a link: the server chooses the terms of one, and its client of the other."""
    return TERMS_PER_LOG * (settings.term_bytes + settings.longest_peer_term)


class LogSpace:
    """Measures the space of a media driver's file system, and subtracts the links since then. For the event loop."""

    def __init__(self, measure: Callable[[], Space], clock: Callable[[], float] = time.monotonic) -> None:
        """``measure`` returns the space without the bytes that present logs may still take (``driver_space``)."""
        self._measure: Final = measure
        self._clock: Final = clock
        self._measured_at = float("-inf")
        self._room = 0  # bytes for further links

    def take(self, needed: int, *, opening: int, own: int) -> RefusedError | None:
        """Count a link whose logs have ``needed`` bytes, or return why it may not be opened.

        ``opening`` links have no log of their client yet; ``own`` is the number of links that the client's key has.
        """
        now = self._clock()
        if now >= self._measured_at + MEASURE_INTERVAL_S:
            try:
                space = self._measure()
            except OSError as error:  # such as a process without a free descriptor
                what = f"the server cannot find out how much shared memory is free: {error.strerror}"
                return RefusedError(what, remedy=REFUSALS["server-error"].remedy, reason="server-error")
            self._measured_at = now
            self._room = space.free - reserve_of(space) - opening * needed
        remaining = self._room - needed
        if remaining < 0:
            return RefusedError(
                f"the server's shared memory has no room for the logs of another link ({needed / MIB:.0f} MiB)",
                remedy=REMEDY,
                reason="full",
            )
        if own >= FEW_LINKS and KEY_SHARE * remaining < max(own + 1, KEY_SHARE * FEW_LINKS) * needed:
            return RefusedError(
                f"your key has {own} links, and the server keeps the rest of its shared memory for other keys",
                remedy=REFUSALS["key-limit"].remedy,
                reason="key-limit",
            )
        self._room = remaining
        return None
