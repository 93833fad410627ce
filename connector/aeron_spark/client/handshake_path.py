"""The path of one handshake of a client: its subscription, and its publications with their unsent packets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from aeron_spark.errors import AeronSparkError, ConnectError, TransportError
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.client_events import ClientEvent
from aeron_spark.transport.api import (
    SEE_DRIVER,
    ChannelPair,
    ClientTransport,
    ImageUnavailable,
    MessageArrived,
    PublicationRejected,
    SubscriptionFailed,
    TransportEvent,
)


class PathPublication:
    """One publication of a path, with the packets that Aeron has not taken yet."""

    def __init__(self, pair: ChannelPair) -> None:
        self.pair = pair
        self.unsent: deque[bytes] = deque()

    def send(self) -> None:
        """Offer the unsent packets until Aeron does not take one."""
        publication = self.pair.publication
        while self.unsent and publication.connected and publication.offer(self.unsent[0]) is None:
            self.unsent.popleft()

    @property
    def is_about_to_send(self) -> bool:
        """Whether a packet waits for room in a connected publication. No event reports the room."""
        return bool(self.unsent) and self.pair.publication.connected


class HandshakePath:
    """The subscription and the publications of a path to ``server``."""

    def __init__(self, effect: e.OpenPath, transport: ClientTransport, server: str) -> None:
        """Open the path. Raises what ``transport.open_path`` raises."""
        pair = transport.open_path()
        self.number = effect.path
        self.token = pair.token
        self._server = server
        self._transport = transport
        self._pair = pair
        self._first = effect.publication
        self._publications = {effect.publication: PathPublication(pair)}
        self._failed: dict[int, AeronSparkError] = {}  # publications that could not be opened
        self._is_ready = False  # the machine got PathReady

    def change(self, effect: e.OpenPublication | e.ClosePublication | e.Transmit) -> None:
        """Open or close one of the publications, or send a packet on it."""
        match effect:
            case e.OpenPublication(_, publication):
                try:
                    self._publications[publication] = PathPublication(self._transport.reopen_path(self._pair))
                except Exception as error:  # the machine tries again after a pause
                    self._failed[publication] = to_package_error(error)
            case e.ClosePublication(_, publication):
                self._failed.pop(publication, None)
                closed = self._publications.pop(publication, None)
                if closed is not None:
                    closed.pair.publication.close()
            case e.Transmit(_, publication, packet):
                if publication in self._publications:
                    self._publications[publication].unsent.append(packet)
                    self._publications[publication].send()

    def close(self) -> None:
        """Close the publications and the subscription."""
        for one in self._publications.values():
            one.pair.publication.close()
        self._transport.inbox.close_subscription(self.token)

    def event_of(self, event: TransportEvent) -> ClientEvent | None:
        """Return the machine's event for an event of this path's subscription."""
        match event:
            case MessageArrived():
                return e.Packet(self.number, event.payload)
            case PublicationRejected():
                rejected = next((n for n, one in self._publications.items() if _has_id(one, event.session_id)), None)
                return None if rejected is None else e.PublicationRejected(self.number, rejected, event.reason)
            case ImageUnavailable():
                return e.PathLost(self.number)
            case SubscriptionFailed():
                return e.PathFailed(self.number, not_opened(f"a path to {self._server}", event.reason))
            case _:
                return None

    def changes(self) -> Iterator[ClientEvent]:
        """Return changes of the publications, which no event of the transport reports.

        The caller stops the iteration when the machine has closed the path.
        """
        for number, one in self._publications.items():
            if one.pair.publication.failure:
                self._failed[number] = not_opened(f"a path to {self._server}", one.pair.publication.failure)
        for number, error in list(self._failed.items()):
            yield e.PublicationFailed(self.number, number, error)
        first = self._publications.get(self._first)
        if not self._is_ready and first is not None and first.pair.publication.connected:
            self._is_ready = True
            yield e.PathReady(self.number, self._first, expects_retry=not self._transport.is_ipc)

    def send(self) -> bool:
        """Send the unsent packets; return whether a packet waits for room."""
        is_waiting = False
        for one in self._publications.values():
            if one.unsent:
                one.send()
                is_waiting = is_waiting or one.is_about_to_send
        return is_waiting


def _has_id(one: PathPublication, session_id: int) -> bool:
    return one.pair.publication.session_id == session_id


def not_opened(what: str, reason: str) -> ConnectError:
    """Return the error of a path or a link that Aeron could not open."""
    return ConnectError(
        f"{what} could not be opened: {reason}",
        remedy="Check the server's host and port, and the option 'bind'. 'aeron-spark doctor' checks this machine.",
    )


def to_package_error(error: Exception) -> AeronSparkError:
    """Return an error of the transport as one of this package."""
    return error if isinstance(error, AeronSparkError) else TransportError(str(error), remedy=SEE_DRIVER)
