"""The server's side of the secure endpoint's channels: strangers in, answers to each alone, and duologues."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.guard import GuardRules, Ownership, guarded, register
from aeron_spark.aeron.inbox import AeronInbox
from aeron_spark.aeron.outgoing import AeronOutgoing
from aeron_spark.aeron.sole import IsHeld, SoleServer
from aeron_spark.errors import AeronSparkError, TransportError
from aeron_spark.transport import wiring
from aeron_spark.transport.addresses import Endpoint
from aeron_spark.transport.places import address_in_use
from aeron_spark.transport.port import (
    BULK_MESSAGE_BYTES,
    HANDSHAKE_MAX_BYTES,
    HANDSHAKE_STREAM_ID,
    HANDSHAKE_TERM_BYTES,
    IPC,
    DuologueIds,
    Event,
    ImageJoined,
    ImageLeft,
    Pair,
    Place,
    SenderGone,
    Wishes,
)
from aeron_spark.transport.waiting import wait_for

BIND_TIMEOUT: Final = 10.0  # seconds for the driver to open a listener
_BIND_ERROR: Final = re.compile(r"channel error - (.+?) \(at ")  # the system's words in the driver's error
ADDRESS_IN_USE: Final = "Address already in use"
UNKNOWN_HOST: Final = "UnknownHostException"
# Strangers may only knock, with the smallest terms there are; every other session belongs to somebody.
# A handshake is two sessions that the driver keeps for up to 2 s: these let one address, which may be an office
# behind a router, make a hundred handshakes a second, and all together hold some 50 MB of sparse buffers. The driver
# takes about a millisecond to make one, in which nobody else is served: a flood of many addresses gets 400 of them.
RULES: Final = GuardRules(
    streams=(HANDSHAKE_STREAM_ID,),
    term_length=HANDSHAKE_TERM_BYTES,
    sessions=4_000,
    sessions_per_source=1_500,
    rate=250,
    burst=1_000,
    total_rate=400,
    # A client is a receiver on the control port, twice while it shakes hands, and remembered for 5 s when it has left.
    destinations=10_000,
    destinations_per_source=4_000,
    # Who has proved a key may use what Aeron can do; the server's own options say how much that is.
    mtu_max=65_504,
    owned_term_length=1 << 30,
)


class AeronListening:
    """Implements ``transport.port.Listening`` on ``client``'s driver."""

    def __init__(
        self, client: Client, *, idle: str = "backoff", max_message: int = BULK_MESSAGE_BYTES,
        ipc_lock: Path | None = None, is_held: IsHeld | None = None,
    ) -> None:  # fmt: skip
        """``ipc_lock`` and ``is_held``: see :class:`SoleServer`."""
        self.client = client
        self.inbox = _ServerInbox(client, idle=idle, max_message=max_message)
        self._ipc_lock, self._is_held = ipc_lock, is_held
        self._wishes: dict[int, Wishes] = {}
        self._outgoing: set[AeronOutgoing] = set()
        self._sole: SoleServer | None = None

    def listen(self, place: Place, wishes: Wishes) -> int:
        """Open a handshake subscription and return its token.

        Over shared memory there can be one of a media driver, whichever process it is in. Raises InUseError where
        another program has the address, TransportError where it cannot be bound for another reason.
        """
        place = wiring.check_place(place, own=True)
        if place.media == "ipc":
            ports = [one.data_port for one in self.inbox.places.values() if one.media == "udp"]
            self._sole = SoleServer(self.client, ports, self._ipc_lock, self._is_held)
        channel = _watched(place, wiring.handshake_in(place, wishes))
        try:
            subscription = self.client.subscription(channel, HANDSHAKE_STREAM_ID)  # binds, or raises
        except TransportError as error:
            raise _cannot_listen(place, error) from error
        try:
            token = self.inbox.add(channel, HANDSHAKE_STREAM_ID, HANDSHAKE_MAX_BYTES, whole_only=True)
            self.inbox.places[token] = place
            self._wishes[token] = wishes
            wait_for(lambda: self.inbox.ready(token), BIND_TIMEOUT, f"the driver to listen on {channel}")
        finally:
            subscription.close()
        return token

    def respond(self, image: int) -> AeronOutgoing:
        """Open a publication that reaches the sender of a handshake image, and nobody else."""
        token, place = self._known(image)
        session_id = secrets.randbelow(2**31 - 1) + 1
        channel = _watched(place, wiring.response_out(place, image, session_id, self._wishes[token]))
        owners = self._owners(image, place, published=(session_id, HANDSHAKE_STREAM_ID))
        return self._publish(channel, wiring.answers_stream(place), session_id).owned(owners)

    def open_duologue(self, image: int, ids: DuologueIds, wishes: Wishes) -> Pair:
        """Open both ways of a duologue with the sender of an image, of a handshake or a duologue, that still lives."""
        _, place = self._known(image)
        owners = self._owners(
            image, place, received=(ids.session_in, ids.stream_in),
            published=(ids.session_out, ids.stream_out), control_port=ids.mdc_port,
        )  # fmt: skip
        incoming = _watched(place, wiring.duologue_in(place, ids, wishes))
        token = self.inbox.add(incoming, ids.stream_in, wishes.max_message, whole_only=False)
        self.inbox.duologues[token] = place
        try:
            channel = _watched(place, wiring.duologue_out(place, ids, image, wishes))
            outgoing = self._publish(channel, ids.stream_out, ids.session_out)
        except BaseException:
            self.inbox.close_way(token)
            for owner in owners:
                owner.close()
            raise
        outgoing.owned(owners)
        return Pair(token, outgoing)

    def close(self) -> None:
        """Close the inbox and every way out."""
        for outgoing in list(self._outgoing):
            outgoing.close()
        self._outgoing.clear()
        self.inbox.close()
        if self._sole is not None and not self.client.closed:
            self._sole.close()
            self._sole = None

    def _known(self, image: int) -> tuple[int, Place]:
        token = self.inbox.strangers.get(image)
        if token is None:
            raise SenderGone("the sender of a handshake has gone", remedy="It may come again.")
        return token, self.inbox.places.get(token) or self.inbox.duologues[token]

    def _owners(
        self, image: int, place: Place, *, received: tuple[int, int] | None = None,
        published: tuple[int, int] | None = None, control_port: int | None = None,
    ) -> list[Ownership]:  # fmt: skip
        """Tell the guard, where the driver has one, that these sessions are this stranger's and nobody else's.

        The driver takes commands in order: they are in force when what is opened next is ready, and nothing waits here.
        """
        address = self.inbox.addresses.get(image)
        if place.media == "ipc" or address is None:
            return []
        found = []
        if received is not None:
            found.append(
                register(
                    self.client, "received", port=place.data_port, session_id=received[0], stream_id=received[1],
                    address=address, wait=False,
                )
            )  # fmt: skip
        if published is not None:
            found.append(
                register(
                    self.client, "published", port=control_port or place.control_port, session_id=published[0],
                    stream_id=published[1], address=address, wait=False,
                )
            )  # fmt: skip
        return found

    def _publish(self, channel: str, stream_id: int, session_id: int) -> AeronOutgoing:
        for gone in [one for one in self._outgoing if one.closed]:
            self._outgoing.discard(gone)
        outgoing = AeronOutgoing(self.inbox, channel, stream_id, session_id)
        self._outgoing.add(outgoing)
        return outgoing


class _ServerInbox(AeronInbox):
    """Remembers through which listener each stranger came."""

    places: dict[int, Place]
    duologues: dict[int, Place]
    strangers: dict[int, int]
    addresses: dict[int, str]

    def __init__(self, client: Client, *, idle: str, max_message: int) -> None:
        super().__init__(client, idle=idle, max_message=max_message)
        self.places = {}
        self.duologues = {}
        self.strangers = {}
        self.addresses = {}

    def poll(self, timeout: float) -> list[Event]:
        """Poll, and take note of who came and went."""
        events = super().poll(timeout)
        for event in events:
            if isinstance(event, ImageJoined) and (event.token in self.places or event.token in self.duologues):
                self.strangers[event.image] = event.token
                if event.source != IPC:
                    self.addresses[event.image] = Endpoint.parse(event.source).host
            elif isinstance(event, ImageLeft):
                self.strangers.pop(event.image, None)
                self.addresses.pop(event.image, None)
        return events

    def close_way(self, token: int) -> None:
        """Close a way in, and forget where it led."""
        super().close_way(token)
        self.duologues.pop(token, None)


def _cannot_listen(place: Place, error: TransportError) -> AeronSparkError:
    """Return the error of a listener in its server's words: the driver's are about a channel with all its settings."""
    if place.media == "ipc":
        return error
    bind = _BIND_ERROR.search(error.what)
    if bind is not None and bind[1] == ADDRESS_IN_USE:
        return address_in_use(place.host, place.data_port)
    why = bind[1] if bind is not None else "its host is not known" if UNKNOWN_HOST in error.what else error.what
    return TransportError(
        f"cannot listen on {Endpoint(place.host, place.data_port)}: {why}",
        remedy="Give an address of this machine, such as 0.0.0.0 for all that it has",
    )


def _watched(place: Place, channel: str) -> str:
    return channel if place.media == "ipc" else guarded(channel, RULES)
