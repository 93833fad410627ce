"""The ids and ports of a server's duologues: all of what one needs, or none of it."""

from __future__ import annotations

from aeron_spark.protocol.ids import Entropy, IdAllocator, PortAllocator, stream_ids
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import LinkIds


class Pools:
    """For the agent alone."""

    def __init__(self, settings: ServerSettings, entropy: Entropy) -> None:
        self._sessions = IdAllocator(*settings.session_ids, entropy, rest=settings.id_rest_seconds)
        self._streams = stream_ids(entropy)
        ports = settings.mdc_ports
        self._ports = None if ports is None else PortAllocator(*ports, entropy)

    def take(self, now: float) -> LinkIds | Refusal:
        """Take the four ids, and a port where duologues have their own."""
        sessions: list[int] = []
        streams: list[int] = []
        for taken, allocator in ((sessions, self._sessions), (streams, self._streams)):
            for _ in range(2):
                number = allocator.take(now)
                if isinstance(number, Refusal):
                    self._give_back(sessions, streams, now)
                    return number
                taken.append(number)
        port = None
        if self._ports is not None:
            ports = self._ports.take(1)
            if isinstance(ports, Refusal):
                self._give_back(sessions, streams, now)
                return ports
            port = ports[0]
        return LinkIds(sessions[0], streams[0], sessions[1], streams[1], port)

    def release(self, ids: LinkIds, now: float) -> None:
        """Give them back."""
        self._give_back((ids.session_in, ids.session_out), (ids.stream_in, ids.stream_out), now)
        if self._ports is not None and ids.mdc_port is not None:
            self._ports.release((ids.mdc_port,))

    @property
    def in_use(self) -> dict[str, int]:
        """How many are in somebody's hand."""
        return {
            "session_ids": self._sessions.in_use,
            "stream_ids": self._streams.in_use,
            "ports": 0 if self._ports is None else self._ports.in_use,
        }

    def _give_back(
        self, sessions: list[int] | tuple[int, ...], streams: list[int] | tuple[int, ...], now: float
    ) -> None:
        for number in sessions:
            self._sessions.release(number, now)
        for number in streams:
            self._streams.release(number, now)
