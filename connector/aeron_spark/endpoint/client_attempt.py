"""One attempt of a client to connect, the session that it is for, and the pauses between attempts."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from aeron_spark.endpoint.client_states import ClientEvent
from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.endpoint.links import ClientPath, Link, to_package_error
from aeron_spark.errors import ConnectError, WaitTimeout
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.client_handshake import ClientHandshake, HandshakeAccepted, State
from aeron_spark.transport.api import (
    ClientTransport,
    ImageUnavailable,
    LinkIds,
    MessageArrived,
    PublicationRejected,
    SubscriptionFailed,
    TransportEvent,
)

# The longest pause: the clients of a server that restarts spread their handshakes over this time. A restart takes
# longer, and the next attempt waits for the server: a client connects as soon as the server is ready.
RESTART_PAUSE_S: Final = 1.0

Change = tuple[ClientEvent, tuple[object, ...]]
"""An event for the endpoint, with its data."""


class RetrySchedule:
    """The start time of the next attempt: ``next_attempt``."""

    def __init__(self, first_pause: float, longest_pause: float) -> None:
        self.next_attempt = 0.0
        self._first = self._pause = first_pause
        self._longest = longest_pause
        self._started_at = 0.0  # the last attempt

    def note_start(self, now: float) -> None:
        """Note that an attempt starts."""
        self._started_at = now

    def note_failure(self, now: float) -> None:
        """Schedule the next attempt, and double the pause between the starts of two attempts.

        An attempt that has waited longer than that for an absent server is followed by the next one almost at once,
        so that a server that starts again is found at once.
        """
        self.next_attempt = max(now + self._first, self._started_at + self._pause)
        self._pause = min(2 * self._pause, self._longest)

    def note_loss(self, now: float) -> None:
        """Schedule the next attempt for now, because the link or session that the last attempt had opened is lost.

        The starts of two attempts are at least the first pause apart. This limits the rate if the server accepts each
        attempt and then ends it.
        """
        self.next_attempt = max(now, self._started_at + self._first)

    def note_restart(self, now: float, share: float) -> None:
        """Schedule the next attempt within ``RESTART_PAUSE_S``, because the server asks its clients to connect again.

        ``share``, from 0 to 1, is random, so that the clients of a server do not come at the same moment.
        """
        self.next_attempt = now + self._first + share * RESTART_PAUSE_S

    def reset(self) -> None:
        """Return to the first pause."""
        self._pause = self._first


@dataclass(slots=True, eq=False)
class ClientSession:
    """A session as the client knows it, over all its links."""

    connection: ConnectionCore
    is_confirmed: bool = False  # a link has carried it
    is_reported_connected: bool = False  # the last notification was "connect" or "resume"
    detached_at: float | None = None  # when its link was lost, until the program is notified of that


@dataclass(frozen=True, slots=True)
class PendingConnect:
    """A connect of the program without an outcome. ``stops_at_deadline``: make no attempt after the deadline."""

    outcome: Future[Connection]
    deadline: float | None
    started_at: float
    stops_at_deadline: bool

    def timeout(self, server: ServerName, cause: str, remedy: str = "") -> WaitTimeout:
        """Return the error of a connect that was not established in time because of ``cause``."""
        seconds = 0.0 if self.deadline is None else max(0.0, self.deadline - self.started_at)  # it may begin late
        return WaitTimeout(f"could not connect to {server} within {seconds:.3g} s: {cause}", remedy=remedy)


class Attempt:
    """One handshake with its path, and the link that it opens for the session ``owner``.

    The path stays open until the link is verified; its events mean nothing once the link is being opened.
    """

    def __init__(
        self, handshake: ClientHandshake, path: ClientPath, server: ServerName, setup_seconds: float, now: float
    ) -> None:
        self.handshake: Final = handshake
        self.path: Final = path
        self.owner: ClientSession | None = None
        self.link: Link | None = None
        self._server: Final = server
        self._setup_seconds: Final = setup_seconds  # for the path, and later for the link
        self._setup_deadline = now + setup_seconds

    @property
    def is_exchanging(self) -> bool:
        """Whether the handshake awaits a packet of the server."""
        return self.handshake.state in (State.AWAIT_HELLO_ACK, State.AWAIT_DONE_ACK)

    @property
    def deadline(self) -> float | None:
        """The deadline of the present step."""
        return self.handshake.deadline if self.is_exchanging else self._setup_deadline

    def event_of(self, event: TransportEvent) -> Change | None:
        """Return what an event of the path's subscription means for the endpoint."""
        if self.link is not None:
            return None
        match event:
            case MessageArrived():
                return ClientEvent.PACKET, (event.payload,)
            case PublicationRejected() if self.path.is_rejected(event.session_id):
                return ClientEvent.REJECTED, (event.reason,)
            case ImageUnavailable():
                return ClientEvent.PATH_LOST, ()
            case SubscriptionFailed():
                return ClientEvent.PATH_FAILED, (self._not_opened("a path to", event.reason),)
            case _:
                return None

    def change(self) -> Change | None:
        """Return a change of the path or of the link that no event of the transport reports."""
        if self.link is not None:
            failure = self.link.pair.publication.failure
            return (ClientEvent.LINK_FAILED, (self._not_opened("a link with", failure),)) if failure else None
        publication = self.path.publication
        if publication.failure:
            return ClientEvent.PATH_FAILED, (self._not_opened("a path to", publication.failure),)
        if self.path.is_ready or not publication.connected:
            return None
        self.path.is_ready = True
        return ClientEvent.PATH_READY, ()

    def work(self, now: float) -> bool:
        """Send waiting packets, and OPEN on a link that is connected; return whether one waits for room."""
        is_busy = self.path.flush()
        if self.link is None or self.owner is None:
            return is_busy
        return self.link.work_opening(self.owner.connection.session.received, now) or is_busy

    def open_link(
        self,
        transport: ClientTransport,
        options: ClientOptions,
        accepted: HandshakeAccepted,
        owner: ClientSession,
        now: float,
    ) -> Link:
        """Open the link with the ids that the server has assigned. Raises AeronSparkError."""
        ack, channel_settings = accepted.ack, options.channel
        ids = LinkIds(
            ack.session_in,
            ack.stream_in,
            ack.session_out,
            ack.stream_out,
            ack.control_port if ack.reply_channel == "mdc" else None,
        )
        try:
            pair = transport.open_link(ids, channel_settings.for_link(ack.max_message))
        except Exception as error:
            raise to_package_error(error) from error
        max_message = min(channel_settings.max_message, ack.max_message)
        self.link = Link(pair, accepted.encryptor, accepted.decryptor, options.times, max_message, now)
        self.owner, self._setup_deadline = owner, now + self._setup_seconds
        return self.link

    @property
    def awaited(self) -> str:
        """The event that the attempt waits for, as part of an error text."""
        if self.link is not None:
            return f"the link with {self._server} to open"
        if self.handshake.state is State.NEW:
            return f"{self._server} to respond"
        return f"a response from {self._server}: {self.handshake.state.value}"

    @property
    def setup_timeout(self) -> WaitTimeout:
        """The error of a path or a link that was not connected in time."""
        return WaitTimeout(
            f"waited {self._setup_seconds:g} s for {self.awaited}",
            remedy="Check that the server runs, and that its data port is open for UDP."
            if self.link is None
            else "Check that the server's ports are open for UDP.",
        )

    def _not_opened(self, what: str, reason: str) -> ConnectError:
        return ConnectError(
            f"{what} {self._server} could not be opened: {reason}",
            remedy="Check the server's host and port, and the option 'bind'. 'aeron-spark doctor' checks this machine.",
        )
