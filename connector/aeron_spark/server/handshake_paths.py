"""The response publications of a server's handshakes, by the numbers of the server machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.server_events import PathDrained, PathFailed, PathReady, ServerEvent
from aeron_spark.transport.api import Publication

LOOK_SHARE: Final = 8
"""A path that is not connected yet is looked at again after this part of its age. A hundred clients that never connect
theirs would otherwise take a millisecond of each turn of the event loop."""


@dataclass(slots=True)
class _Path:
    """The response publication of a handshake, with the packets that Aeron has not taken yet."""

    reply: Publication
    opened_at: float
    look_at: float
    unsent: deque[bytes] = field(default_factory=deque)
    is_reported: bool = False  # the machine got PathReady or PathFailed
    is_draining: bool = False

    def send(self) -> None:
        """Offer the unsent packets until Aeron does not take one."""
        while self.unsent and self.reply.connected:
            try:
                if self.reply.offer(self.unsent[0]) is not None:
                    return
            except AeronSparkError:  # too long for this publication: the client repeats its packet after a time
                pass
            self.unsent.popleft()


class HandshakePaths:
    """Executes the effects of paths. For the event loop. ``feed`` gives the machine an event at a time."""

    def __init__(self, feed: Callable[[ServerEvent, float], None]) -> None:
        self._feed: Final = feed
        self._paths: Final[dict[int, _Path]] = {}

    def open(self, number: int, respond: Callable[[], Publication], now: float) -> None:
        """Open a path with the publication that ``respond`` makes."""
        try:
            self._paths[number] = _Path(respond(), opened_at=now, look_at=now)
        except AeronSparkError:
            self._feed(PathFailed(number), now)

    def transmit(self, number: int, packet: bytes) -> None:
        """Send a packet now, or when Aeron takes it."""
        self._paths[number].unsent.append(packet)
        self._paths[number].send()

    def drain(self, number: int, now: float) -> None:
        """Feed PathDrained when Aeron has taken all packets."""
        path = self._paths.get(number)
        if path is not None and path.unsent:
            path.is_draining = True
        else:
            self._feed(PathDrained(number), now)

    def close(self, number: int) -> None:
        """Close a path, if it is open."""
        closed = self._paths.pop(number, None)
        if closed is not None:
            closed.reply.close()

    def work(self, now: float) -> bool:
        """Feed the machine with the states of the paths, and send; return whether a packet waits for room."""
        is_waiting = [self._work(number, path, now) for number, path in list(self._paths.items())]
        return any(is_waiting)

    def _work(self, number: int, path: _Path, now: float) -> bool:
        if not path.is_reported and now >= path.look_at:
            path.look_at = now + (now - path.opened_at) / LOOK_SHARE
            if path.reply.closed or path.reply.connected:
                path.is_reported = True
                self._feed(PathFailed(number) if path.reply.closed else PathReady(number), now)
        path.send()
        if path.is_draining and not path.unsent:
            self._feed(PathDrained(number), now)
        return bool(path.unsent) and path.reply.connected
