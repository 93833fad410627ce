"""Where clients arrive: handshakes under way, who was let in, and what each of them holds."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.home import PeerInfo
from aeron_spark.connection.link import LinkEnds
from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.access import Candidate, Grant, PeerStore, Source, UdpSource, judge_client, parse_source
from aeron_spark.protocol.handshake_payloads import ClientDone, DoneAck, ServerHello
from aeron_spark.protocol.limits import Admission, Permit
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.refusals import Refusal, undecided
from aeron_spark.protocol.retry_cookies import Cookies
from aeron_spark.protocol.server_handshake import ClientAccepted, ServerIdentity
from aeron_spark.protocol.tickets import Offer, TicketStore
from aeron_spark.protocol.type_comparison import schema_refusal, type_digests
from aeron_spark.server.doorman import Accepted, Decision, Doorman
from aeron_spark.server.guests import AcceptedHandshake, AwaitingFirstFrame, ServerSession
from aeron_spark.server.pools import Pools
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import LinkIds, ServerAddress, ServerTransport

MakeConnection = Callable[[PeerInfo, int], Connection]
BAD_SOURCE = "aeron-spark/1 FAILED message Bad source address"


class Reception:
    """Implements ``doorman.Host``. Everything here runs on the agent's thread, but for what ``decide`` begins."""

    def __init__(
        self,
        listening: ServerTransport,
        store: PeerStore,
        settings: ServerSettings,
        types: Types,
        make: MakeConnection,
        join: Callable[[Connection, LinkEnds], None],
        drop: Callable[[LinkEnds], None],
        report: Callable[[Connection | None, BaseException], None],
    ) -> None:
        now = time.monotonic()
        self.listening = listening
        self.settings = settings
        self.admission = Admission(settings.limits)
        self.pools = Pools(settings, secrets.token_bytes)
        self.tickets: TicketStore[ServerSession] = TicketStore(
            secrets.token_bytes,
            settings.link.session.retention_seconds,
            most=settings.max_sessions,
            most_per_key=settings.max_sessions_per_key,
            confirm_seconds=settings.timing.authenticating + settings.link.times.setup_seconds,
        )
        self.refused: Counter[str] = Counter()
        self.doormen: dict[int, Doorman] = {}
        self.places: dict[int, ServerAddress] = {}
        self.expired: list[ServerSession] = []
        self.closing = False
        self._store = store
        self._types = types
        self._make = make
        self._join = join
        self._drop = drop
        self._report = report
        self._invited: dict[int, AcceptedHandshake] = {}  # by the token of the duologue
        self._arriving: dict[int, AwaitingFirstFrame] = {}  # likewise
        self._deciders = ThreadPoolExecutor(settings.deciders, thread_name_prefix="aeron-spark-decider")
        self._identity = ServerIdentity(
            keys=store.identity(),
            hello=ServerHello(max_message=settings.link.channel_settings.max_message),
            cookies=Cookies(secrets.token_bytes, now),
            entropy=secrets.token_bytes,
            psk=settings.psk,
            timing=settings.timing,
            limits=settings.link.keys,
        )

    @property
    def public_key(self) -> bytes:
        """The server's own."""
        return self._identity.keys.public

    @property
    def statistics(self) -> dict[str, int]:
        """What those who come and those who are here hold, and what was refused by code."""
        return {
            "places": self.admission.connections,
            "pending": self.admission.pending,
            "addresses": self.admission.addresses,
            "handshakes": len(self.doormen),
            **self.pools.in_use,
            **{f"refused-{code}": count for code, count in dict(self.refused).items()},
        }

    @property
    def busy(self) -> bool:
        """Whether somebody knocks, or was let in and has not come yet."""
        return bool(self.doormen or self._arriving)

    def joined(self, token: int, image: int, source: str, now: float, *, late: bool = False) -> None:
        """Somebody knocks; ``late``: and has said something that we did not hear."""
        try:
            parsed = parse_source(source)
        except DataFormatError as error:
            self.listening.inbox.reject(image, BAD_SOURCE)
            self._report(None, error)
            return
        address = str(parsed.address) if isinstance(parsed, UdpSource) else None
        doorman = Doorman(self, self._identity, image, self.places[token], parsed, address, now)
        self.doormen[image] = doorman
        if self.closing:
            doorman.close(now)
        elif late:
            doorman.missed(now)

    def step(self, now: float) -> bool:
        """Go on with every handshake; whether one is about to move."""
        soon = False
        for image, doorman in list(self.doormen.items()):
            soon = doorman.step(now) or soon
            if doorman.done:
                del self.doormen[image]
        return soon

    def close(self, now: float) -> None:
        """Tell everybody who knocks that the server shuts down."""
        self.closing = True
        for doorman in self.doormen.values():
            doorman.close(now)
        self._deciders.shutdown(wait=False, cancel_futures=True)

    def lose(self, now: float) -> None:
        """Whoever knocks or was let in has gone, with the media driver."""
        for doorman in self.doormen.values():
            doorman.image_left(now)
            doorman.give_back()
        self.doormen.clear()
        self.places.clear()
        for token in list(self._arriving):
            self.give_up(token, now)

    def tick(self, now: float) -> None:
        """Give up the duologues to which nobody came in time."""
        for token, arriving in list(self._arriving.items()):
            deadline = arriving.link.expiry.deadline()
            if deadline is not None and now >= deadline:
                self.give_up(token, now)

    def admit(self, source: Source, now: float) -> Permit | Refusal:
        """Take a place for a handshake."""
        return self.admission.begin_handshake(source, now)

    def decide(self, source: Source, key: bytes, done: ClientDone) -> Future[Decision]:
        """Look at the client in another thread: the store is files, and filters are the user's functions."""
        decided = self._deciders.submit(self._decide, source, key, done)
        decided.add_done_callback(lambda _: self.listening.inbox.wake())
        return decided

    def accept(
        self, doorman: Doorman, key: bytes, done: ClientDone, grant: Grant | None, now: float
    ) -> Accepted | Refusal:
        """Take a place, ids and a session, and open the duologue; or nothing of it."""
        refusal = schema_refusal(self._types, done.types)
        if refusal is not None:
            return refusal
        who = _who(doorman.source, key, done.tag)
        offer = self._come_back(done.ticket, key, now) if done.ticket is not None else None
        resumed = offer is not None
        ids = self.pools.take(now)
        if isinstance(ids, Refusal):
            return ids
        permit: Permit | None = None
        if offer is not None and not offer.session.permit.held:
            again = self.admission.connect(doorman.source)
            if isinstance(again, Refusal):
                self.pools.release(ids, now)
                return again
            permit = again
        if offer is None:
            opened = self._new_guest(doorman.source, who, grant, ids, done.ticket, now)
            if isinstance(opened, Refusal):
                self.pools.release(ids, now)
                return opened
            offer = opened
        guest = offer.session
        guest.grant = grant
        invited = AcceptedHandshake(guest, who, ids, offer.ticket, permit)
        try:
            pair = self.listening.open_link(doorman.image, ids, self.settings.link.channel_settings)
        except BaseException:
            self._give_back(invited, now)
            raise
        self._invited[pair.token] = invited
        return Accepted(self._ack(doorman.place, guest, offer.ticket, ids, resumed), pair, ids)

    def established(self, doorman: Doorman, accepted: Accepted, connected: ClientAccepted, now: float) -> None:
        """DONE_ACK is on its way: await the first frame, see ``came``."""
        invited = self._invited.pop(accepted.pair.token)
        settings = self.settings.link
        link = LinkEnds(
            accepted.pair,
            connected.sealing,
            connected.opening,
            settings.times,
            settings.channel_settings.max_message,
            now,
            owner=invited.who.address,
        )
        self._arriving[link.token] = AwaitingFirstFrame(
            invited.guest, invited.who, link, invited.ids, invited.ticket, invited.permit
        )
        self._join(invited.guest.connection, link)

    def came(self, token: int, now: float) -> AwaitingFirstFrame | None:
        """The first frame of a duologue came: what it is for. None where that is gone; it is given up then."""
        arriving = self._arriving[token]
        if not self.tickets.confirm(arriving.ticket):
            self.give_up(token, now)
            return None
        return self._arriving.pop(token)

    def give_up(self, token: int, now: float) -> None:
        """The client never came to its duologue. An unknown token is ignored."""
        arriving = self._arriving.pop(token, None)
        if arriving is not None:
            self._drop(arriving.link)
            self._give_back(arriving, now)

    def abandon(self, accepted: Accepted, now: float) -> None:
        """Give back what was made for a client that did not come."""
        invited = self._invited.pop(accepted.pair.token)
        self.listening.inbox.close_subscription(accepted.pair.token)
        accepted.pair.publication.close()
        self._give_back(invited, now)

    def ended(self, doorman: Doorman, why: str, refusal: Refusal | None) -> None:
        """Count a refusal."""
        if refusal is not None:
            self.refused[refusal.code] += 1
            if refusal.cause is not None:
                self._report(None, refusal.cause)

    def _decide(self, source: Source, key: bytes, done: ClientDone) -> Decision:
        address = source.address if isinstance(source, UdpSource) else None
        try:
            grant = self._store.grant(key)
            refusal = judge_client(grant, done.tag, required=self.settings.authorized_only)
            refusal = refusal or self.settings.filters.refusal(Candidate(address, done.tag, key))
        except Exception as error:
            return undecided(error)
        return refusal or grant

    def _come_back(self, ticket: bytes, key: bytes, now: float) -> Offer[ServerSession] | None:
        """The session of a ticket, which goes on. Who comes anew has left the duologues to which it never came.

        A session whose first message never came does not go on: nobody was told of it, and its client may know nothing
        of it. It gives its place to the next.
        """
        offer = self.tickets.present(ticket, key, now)
        if offer is None:
            return None
        guest = offer.session
        for token in [token for token, arriving in self._arriving.items() if arriving.guest is guest]:
            self.give_up(token, now)
        if guest.ticket:
            return offer
        self.tickets.drop(offer.ticket)
        guest.permit.release()
        return None

    def _new_guest(
        self, source: Source, who: PeerInfo, grant: Grant | None, ids: LinkIds, ticket: bytes | None, now: float
    ) -> Offer[ServerSession] | Refusal:
        permit = self.admission.connect(source)
        if isinstance(permit, Refusal):
            return permit
        try:
            guest = ServerSession(self._make(who, ids.session_in), grant, permit)
        except Exception as error:  # of a connection class of the program's own
            permit.release()
            return undecided(error)
        opened = self.tickets.open(who.key, guest, now, ticket)
        if isinstance(opened, Refusal):
            permit.release()
            return opened
        offer, ended = opened
        self.expired += ended
        return offer

    def _give_back(self, one: AcceptedHandshake | AwaitingFirstFrame, now: float) -> None:
        """Take back what a client that did not come was given; a session it had before goes on as it was."""
        self.pools.release(one.ids, now)
        if one.permit is not None:
            one.permit.release()
        if not one.guest.ticket:
            self.tickets.drop(one.ticket)
            one.guest.permit.release()

    def _ack(self, place: ServerAddress, guest: ServerSession, ticket: bytes, ids: LinkIds, resumed: bool) -> DoneAck:
        link = self.settings.link
        return DoneAck(
            session_in=ids.session_in,
            stream_in=ids.stream_in,
            session_out=ids.session_out,
            stream_out=ids.stream_out,
            data_port=place.data_port,
            control_port=place.control_port if ids.mdc_port is None else ids.mdc_port,
            duologue=self.settings.duologue,
            expiry_ms=int(link.times.expiry_seconds * 1000),
            linger_ms=int(link.session.retention_seconds * 1000),
            ticket=ticket,
            resumed=resumed,
            received=guest.connection.machine.session.received,
            max_message=link.channel_settings.max_message,
            types=type_digests(self._types),
        )


def _who(source: Source, key: bytes, tag: str) -> PeerInfo:
    if isinstance(source, UdpSource):
        return PeerInfo(key, tag, str(source.address), source.port)
    return PeerInfo(key, tag, is_ipc=True)
