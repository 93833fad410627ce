"""The path of one handshake of a client: its subscription, and its publications with their unsent packets."""

from __future__ import annotations

from collections import deque

from aeron_spark.errors import AeronSparkError, ConnectError
from aeron_spark.transport.api import ChannelPair


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
    """The subscription and the publications that the transport opened for a path."""

    def __init__(self, number: int, publication: int, pair: ChannelPair) -> None:
        self.number = number
        self.first_publication = publication
        self.pair = pair
        self.token = pair.token
        self.publications = {publication: PathPublication(pair)}
        self.failed: dict[int, AeronSparkError] = {}  # publications that could not be opened
        self.is_ready = False  # the machine got PathReady

    @property
    def is_connected(self) -> bool:
        """Whether the first publication is connected."""
        first = self.publications.get(self.first_publication)
        return first is not None and first.pair.publication.connected

    def number_of(self, session_id: int) -> int | None:
        """Return the number of the publication with this Aeron session id."""
        found = (n for n, one in self.publications.items() if one.pair.publication.session_id == session_id)
        return next(found, None)


def not_opened(what: str, reason: str) -> ConnectError:
    """Return the error of a path or a link that Aeron could not open."""
    return ConnectError(
        f"{what} could not be opened: {reason}",
        remedy="Check the server's host and port, and the option 'bind'. 'aeron-spark doctor' checks this machine.",
    )
