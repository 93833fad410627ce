"""The pools of Aeron ids and ports for a server's links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aeron_spark.protocol.ids import (
    FIRST_SESSION_ID,
    LAST_SESSION_ID,
    REUSE_DELAY_S,
    Entropy,
    IdAllocator,
    PortAllocator,
    stream_ids,
)
from aeron_spark.protocol.refusals import Refusal


@dataclass(frozen=True, slots=True)
class PooledIds:
    """The ids of one link: Aeron session ids and stream ids of both directions, and its port, if it has one."""

    session_in: int
    stream_in: int
    session_out: int
    stream_out: int
    mdc_port: int | None = None


class Pools:
    """The pools of one server. For one thread.

    ``mdc_ports`` is the first port and the last one; None: links have no ports.

    An id that was given back is not taken again for ``reuse_delay_s`` seconds.
    """

    def __init__(
        self,
        entropy: Entropy,
        session_ids: tuple[int, int] = (FIRST_SESSION_ID, LAST_SESSION_ID),
        mdc_ports: tuple[int, int] | None = None,
        reuse_delay_s: float = REUSE_DELAY_S,
    ) -> None:
        self._sessions = IdAllocator(*session_ids, entropy, reuse_delay_s=reuse_delay_s)
        self._streams = stream_ids(entropy)
        self._ports = None
        if mdc_ports is not None:
            first, last = mdc_ports
            self._ports = PortAllocator(first, last - first + 1, entropy)

    def take(self, now: float) -> PooledIds | Refusal:
        """Take four ids, and a port if links have ports. Takes nothing if it returns a refusal."""
        sessions: list[int] = []
        streams: list[int] = []
        for taken, allocator in ((sessions, self._sessions), (streams, self._streams)):
            for _ in range(2):
                number = allocator.take(now)
                if isinstance(number, Refusal):
                    self._release(sessions, streams, now)
                    return number
                taken.append(number)
        port = None
        if self._ports is not None:
            ports = self._ports.take(1)
            if isinstance(ports, Refusal):
                self._release(sessions, streams, now)
                return ports
            port = ports[0]
        return PooledIds(sessions[0], streams[0], sessions[1], streams[1], port)

    def release(self, ids: PooledIds, now: float) -> None:
        """Release the ids and the port. Raises UsageError for ids that are not taken."""
        self._release((ids.session_in, ids.session_out), (ids.stream_in, ids.stream_out), now)
        if self._ports is not None and ids.mdc_port is not None:
            self._ports.release((ids.mdc_port,))

    @property
    def in_use(self) -> dict[str, int]:
        """The numbers of taken ids and ports. Thread-safe."""
        return {
            "session_ids": self._sessions.in_use,
            "stream_ids": self._streams.in_use,
            "ports": 0 if self._ports is None else self._ports.in_use,
        }

    def taken(self) -> dict[str, tuple[int, ...]]:
        """Return the taken ids and ports in order. For tests of leaks."""
        return {
            "session_ids": self._sessions.allocated(),
            "stream_ids": self._streams.allocated(),
            "ports": () if self._ports is None else self._ports.allocated(),
        }

    def _release(self, sessions: Sequence[int], streams: Sequence[int], now: float) -> None:
        for number in sessions:
            self._sessions.release(number, now)
        for number in streams:
            self._streams.release(number, now)
