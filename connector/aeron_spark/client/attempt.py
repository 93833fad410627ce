"""One attempt of a client to connect: carries out what the machine wants, step by step, and never waits."""

from __future__ import annotations

from collections import deque

from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import AeronSparkError, ConnectError, RefusedError, Retry, WaitTimeout
from aeron_spark.protocol.client_handshake import (
    Abandoned,
    Actions,
    ClientHandshake,
    HandshakeAccepted,
    Ignored,
    Reopen,
    Send,
    State,
)
from aeron_spark.transport.api import (
    ChannelPair,
    ClientTransport,
    ImageUnavailable,
    LinkIds,
    MessageArrived,
    PublicationRejected,
    SubscriptionFailed,
    TransportEvent,
)


class Attempt:
    """For the agent alone. In the end ``link`` is there with ``connected``, or ``error`` is.

    ``put_off``: the server seems to refuse for a while only. ``refused_for_good``: the server, authenticated, refuses
    until a person or a program has changed something. ``asked_twice``: it answers a first HELLO by a cookie, as it does
    over the network, and wants that by another way, which is opened meanwhile.
    """

    def __init__(
        self, dialing: ClientTransport, machine: ClientHandshake, settings: LinkSettings, server: str, now: float, *,
        asked_twice: bool,
    ) -> None:  # fmt: skip
        self.link: LinkEnds | None = None
        self.connected: HandshakeAccepted | None = None
        self.error: AeronSparkError | None = None
        self.put_off = self.refused_for_good = False
        self._dialing = dialing
        self._machine = machine
        self._settings = settings
        self._server = server
        self._unsent: deque[bytes] = deque()
        self._said_open = False
        self._deadline = now + settings.times.setup_seconds
        self._path: ChannelPair | None = dialing.open_path()
        self._asked_twice = asked_twice
        self._spare: ChannelPair | None = None

    @property
    def tokens(self) -> frozenset[int]:
        """The ways in that are its own."""
        ways = (self._path, self.link.pair if self.link is not None else None)
        return frozenset(pair.token for pair in ways if pair is not None)

    def event(self, event: TransportEvent, now: float) -> None:
        """Something came for the handshake's way in."""
        knocking = self._path
        if knocking is None:
            return
        match event:
            case MessageArrived():
                self._do(self._machine.packet(event.payload, now), now)
            case PublicationRejected() if event.session_id == knocking.publication.session_id:
                self._do(self._machine.hint(event.reason, now), now)
            case PublicationRejected() if (
                self._spare is not None and event.session_id == self._spare.publication.session_id
            ):
                self._close_spare()  # the server did not wait for the cookie
            case ImageUnavailable() if self._machine.state is not State.CONNECTED:
                self._do(self._machine.path_lost(now), now)
            case SubscriptionFailed():
                self._fail(_not_opened(f"the way to {self._server}", event.reason))
            case _:
                pass

    def step(self, now: float, received: int) -> bool:
        """Go on where something has become ready; whether something may be soon. ``received`` is for OPEN."""
        if self.error is not None:
            return False
        knocking = self._path
        if knocking is not None and self.link is None:
            if knocking.publication.failure:
                self._fail(_not_opened(f"the way to {self._server}", knocking.publication.failure))
                return False
            if self._machine.state is State.NEW:
                if knocking.publication.connected:
                    self._do(self._machine.start(now), now)
                elif now >= self._deadline:
                    self._fail(
                        WaitTimeout(
                            f"waited {self._settings.times.setup_seconds:g} s for {self._server} to answer at all",
                            remedy="Is it running, and is its data port open for UDP?",
                        )
                    )
                    return False
            self._send(now)
            self._do(self._machine.tick(now), now)
        elif self.link is not None:
            self._open(self.link, received, now)
        return self._about_to_move

    @property
    def _about_to_move(self) -> bool:
        """Whether it awaits what does not end a poll: room. Answers do, and whoever hears us for the first time."""
        if self.link is not None:
            return self.link.blocked
        return bool(self._unsent) and self._path is not None and self._path.publication.connected

    def why_not(self, before: AeronSparkError | None) -> AeronSparkError:
        """Why there is no connection yet, when its time is over before the step's own.

        ``before``: why the attempt before it was put off, which says more than that this one waits.
        """
        said = self._machine.hinted or (before if self.link is None else None)
        if said is not None:
            return said
        what = (
            f"the duologue with {self._server} to open"
            if self.link is not None
            else (
                f"{self._server} to answer at all"
                if self._machine.state is State.NEW
                else f"an answer of {self._server}: {self._machine.state.value}"
            )
        )
        return WaitTimeout(f"no connection in time: it waited for {what}", remedy="Is the server there, and reachable?")

    def leave_door(self) -> None:
        """Close the handshake's ways."""
        knocking, self._path = self._path, None
        if knocking is not None:
            self._close_spare()
            knocking.publication.close()
            self._dialing.inbox.close_subscription(knocking.token)

    def _open(self, link: LinkEnds, received: int, now: float) -> None:
        publication = link.pair.publication
        if publication.failure:
            self._fail(_not_opened(f"the duologue with {self._server}", publication.failure))
        elif self._said_open and link.blocked:
            link.retry(now)
        elif link.connected and not self._said_open:  # the way in may be opened anew before: see Branch.opening
            self._said_open = True
            link.say_open(received, now)
        elif now >= self._deadline:
            self._fail(
                WaitTimeout(
                    f"waited {self._settings.times.setup_seconds:g} s for the duologue with {self._server} to open",
                    remedy="Are its ports open for UDP?",
                )
            )

    def _do(self, actions: Actions, now: float) -> None:
        for action in actions:
            match action:
                case Send(packet):
                    self._unsent.append(packet)
                    self._send(now)
                case Reopen():
                    assert self._path is not None  # the machine speaks of it only while it is there
                    self._unsent.clear()
                    before, spare = self._path, self._spare
                    self._path, self._spare = spare or self._dialing.reopen_path(before), None
                    before.publication.close()
                case HandshakeAccepted():
                    self._connect(action, now)
                case Abandoned(error, put_off, proved):
                    self.put_off = put_off
                    self.refused_for_good = proved and isinstance(error, RefusedError) and error.retry is Retry.NEVER
                    self._fail(error)
                case Ignored():
                    pass

    def _connect(self, connected: HandshakeAccepted, now: float) -> None:
        ack = connected.ack
        ids = LinkIds(
            ack.session_in, ack.stream_in, ack.session_out, ack.stream_out,
            ack.control_port if ack.duologue == "mdc" else None,
        )  # fmt: skip
        try:
            pair = self._dialing.open_link(ids, self._settings.channel_settings)
        except AeronSparkError as error:
            self._fail(error)
            return
        self._deadline = now + self._settings.times.setup_seconds
        most = min(self._settings.channel_settings.max_message, ack.max_message)
        self.connected = connected
        self.link = LinkEnds(pair, connected.sealing, connected.opening, self._settings.times, most, now)

    def _send(self, now: float) -> None:
        knocking = self._path
        while self._unsent and knocking is not None and knocking.publication.connected:
            if knocking.publication.offer(self._unsent[0]) is not None:
                return
            self._unsent.popleft()
            if self._asked_twice:  # the way for the cookie opens while the first HELLO is on its way
                self._asked_twice = False
                self._spare = self._dialing.reopen_path(knocking)

    def _close_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.publication.close()

    def _fail(self, error: AeronSparkError) -> None:
        if self.error is None:
            self.error = error
            self.leave_door()


def _not_opened(what: str, reason: str) -> ConnectError:
    return ConnectError(
        f"{what} could not be opened: {reason}",
        remedy="Check the server's host and port, and the option 'bind'; 'aeron-spark doctor' looks at this machine",
    )
