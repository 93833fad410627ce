"""Executes what a client's machine wants on the event loop, and tells the machine what came of it."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, NoReturn, TypeVar

from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.owner import PeerInfo
from aeron_spark.connection.runtime import Runtime
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    TamperedError,
    TransportError,
    UsageError,
)
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.protocol.client_events import ClientEffect, ClientEvent, ClientState, Effects
from aeron_spark.protocol.client_machine import ClientMachine
from aeron_spark.protocol.type_digests import type_digests
from aeron_spark.transport.api import (
    ChannelPair,
    ClientTransport,
    DriverLost,
    ImageUnavailable,
    Inbox,
    LinkIds,
    MessageArrived,
    PublicationRejected,
    SubscriptionFailed,
    TransportEvent,
)

LOG: Final = logging.getLogger("aeron_spark.endpoint")

T = TypeVar("T")

WITHOUT_DRIVER: Final = 0.01  # seconds of a turn of the event loop: the inbox of a driver that has gone does not wait


class _Publication:
    """One publication of a path, with the packets that Aeron has not taken yet."""

    def __init__(self, pair: ChannelPair) -> None:
        self.pair = pair
        self.unsent: deque[bytes] = deque()

    def send(self) -> None:
        """Offer what waits, until Aeron takes no more."""
        publication = self.pair.publication
        while self.unsent and publication.connected and publication.offer(self.unsent[0]) is None:
            self.unsent.popleft()

    @property
    def is_about_to_send(self) -> bool:
        """Whether it waits for room, which no event tells of."""
        return bool(self.unsent) and self.pair.publication.connected


class _Path:
    """What the transport has opened for a path."""

    def __init__(self, number: int, publication: int, pair: ChannelPair) -> None:
        self.number = number
        self.first = publication
        self.pair = pair
        self.token = pair.token
        self.publications = {publication: _Publication(pair)}
        self.failed: dict[int, AeronSparkError] = {}  # publications that could not even be begun
        self.is_ready = False  # and that was said

    def number_of(self, session_id: int) -> int | None:
        """Return the publication with this id of Aeron's."""
        found = (n for n, one in self.publications.items() if one.pair.publication.session_id == session_id)
        return next(found, None)


class _OpenLink:
    """A link by its number; ``said_open``: our first frame was offered."""

    def __init__(self, number: int, ends: LinkEnds) -> None:
        self.number = number
        self.ends = ends
        self.said_open = False


class ClientRunner(Runtime):
    """Everything here but ``__init__`` runs on the event loop, or after its end, unless it says otherwise.

    ``dial`` opens the transport, again when its media driver was lost. The key store, and ``dial`` for a driver that
    was lost, run on threads of the listeners' pool.
    """

    def __init__(
        self, dial: Callable[[], ClientTransport], server: ServerName, store: PeerStore, settings: ClientSettings,
        connection_class: type[Connection], *, is_ipc: bool, data_port: int,
    ) -> None:  # fmt: skip
        self._client_settings = settings
        self._dial = dial
        self._dialing = dial()
        super().__init__("aeron-spark-client", settings.link, connection_class)
        self._server = server
        self._store = store
        self._is_ipc = is_ipc
        self._port = 0 if is_ipc else data_port or server.port
        self._machine = ClientMachine(server, settings.policy(is_ipc=is_ipc), store.identity(), secrets.token_bytes)
        self._by_session: dict[int, Connection] = {}
        self._path: _Path | None = None
        self._link: _OpenLink | None = None
        self._driver_lost = False
        self._reopening: Future[ClientTransport] | None = None
        self._connected: Future[Connection] = Future()
        self._connected.cancel()  # no thread waits

    @property
    def _connection(self) -> Connection | None:
        """The connection of the session there is. For any thread."""
        session = self._machine.session
        return None if session is None else self._by_session.get(session.session)

    def _handle_event(self, event: ClientEvent, now: float) -> None:
        self._execute(self._machine.handle(event, now), now)

    def _execute(self, effects: Effects, now: float) -> None:
        pending = deque(effects)
        while pending:
            effect, answer = pending.popleft(), None
            try:
                answer = self._perform(effect, now)
            except Exception as error:  # of one effect: what the others close and report must not be left undone
                LOG.exception("client of %s: %s failed", self._server, type(effect).__name__)
                self._agent.failed = error
            if answer is not None:
                pending.extend(self._machine.handle(answer, now))

    def _perform(self, effect: ClientEffect, now: float) -> ClientEvent | None:
        """Execute one effect; return its answer if that is there at once."""
        match effect:
            case e.LookUpKey():
                self._in_pool(lambda: self._store.server_key(self._server), self._looked_up)
            case e.RememberKey(session, key):
                self._listening.submit(self._remember, self._by_session[session], key)
            case e.OpenPath():
                return self._open_path(effect)
            case e.OpenPublication() | e.ClosePublication() | e.ClosePath() | e.Transmit():
                self._change_path(effect)
            case e.MakeConnection():
                return self._make_connection(effect)
            case e.ForgetConnection(session):
                del self._by_session[session]
            case e.OpenLink():
                return self._open_link(effect, now)
            case e.CloseLink(link):
                self._close_link(link)
            case e.Attach():
                return self._attach(effect, now)
            case e.Detach(session):
                self._by_session[session].sender.detach(now)
            case e.RefuseSending(session, error):
                self._by_session[session].sender.refuse(error)
            case e.EndConnection(session, error):
                self._by_session[session].end(error)
            case e.Notify():
                self._notify(effect)
            case e.Report(session, error):
                self.report(self._by_session[session], error)
            case e.Resolve(outcome):
                self._resolve(outcome)
            case e.ReopenTransport():
                self._reopening = self._in_pool(self._dial, self._reopened)
            case _:
                _assert_never(effect)
        return None

    # Paths.

    def _open_path(self, effect: e.OpenPath) -> ClientEvent | None:
        try:
            pair = self._dialing.open_path()
        except Exception as error:  # the next attempt comes after a pause
            return e.PathFailed(effect.path, _as_ours(error))
        self._path = _Path(effect.path, effect.publication, pair)
        return None

    def _change_path(self, effect: e.OpenPublication | e.ClosePublication | e.ClosePath | e.Transmit) -> None:
        path = self._path
        if path is None or path.number != effect.path:
            return  # it could not be opened
        match effect:
            case e.OpenPublication(_, publication):
                self._open_publication(path, publication)
            case e.ClosePublication(_, publication):
                path.failed.pop(publication, None)
                closed = path.publications.pop(publication, None)
                if closed is not None:
                    closed.pair.publication.close()
            case e.Transmit(_, publication, packet):
                if publication in path.publications:
                    path.publications[publication].unsent.append(packet)
                    path.publications[publication].send()
            case e.ClosePath():
                self._path = None
                for one in path.publications.values():
                    one.pair.publication.close()
                self._inbox().close_subscription(path.token)

    def _open_publication(self, path: _Path, publication: int) -> None:
        try:
            pair = self._dialing.reopen_path(path.pair)
        except Exception as error:
            path.failed[publication] = _as_ours(error)
        else:
            path.publications[publication] = _Publication(pair)

    def _path_event(self, path: _Path, event: TransportEvent, now: float) -> None:
        match event:
            case MessageArrived():
                self._handle_event(e.Packet(path.number, event.payload), now)
            case PublicationRejected():
                publication = path.number_of(event.session_id)
                if publication is not None:
                    self._handle_event(e.PublicationRejected(path.number, publication, event.reason), now)
            case ImageUnavailable():
                self._handle_event(e.PathLost(path.number), now)
            case SubscriptionFailed():
                self._handle_event(e.PathFailed(path.number, self._not_opened("the way to", event.reason)), now)
            case _:
                pass

    def _look_at_path(self, path: _Path, now: float) -> bool:
        """See what no event tells of: a publication that is connected, or failed. Whether more may come soon."""
        failed = dict(path.failed)
        for number, one in path.publications.items():
            if one.pair.publication.failure:
                failed[number] = self._not_opened("the way to", one.pair.publication.failure)
        for number, error in failed.items():
            if self._path is path:
                self._handle_event(e.PublicationFailed(path.number, number, error), now)
        first = path.publications.get(path.first)
        if self._path is path and not path.is_ready and first is not None and first.pair.publication.connected:
            path.is_ready = True
            self._handle_event(e.PathReady(path.number, path.first), now)
        for one in path.publications.values():
            one.send()
        return any(one.is_about_to_send for one in path.publications.values())

    # Connections and links.

    def _make_connection(self, effect: e.MakeConnection) -> ClientEvent:
        host = "" if self._is_ipc else self._server.host
        tag, changed = self._client_settings.tag, effect.key_changed
        who = PeerInfo(effect.server_key, tag, host, self._port, self._is_ipc, changed)
        try:
            self._by_session[effect.session] = self._connection_class(self, who, effect.number)
        except Exception as error:  # of a connection class of the program's own
            self.report(None, error)
            return e.ConnectionFailed(effect.session, UsageError(f"the connection could not be made: {error!r}"))
        return e.ConnectionMade(effect.session)

    def _open_link(self, effect: e.OpenLink, now: float) -> ClientEvent | None:
        ack, channel_settings = effect.ack, self._settings.channel_settings
        ids = LinkIds(
            ack.session_in, ack.stream_in, ack.session_out, ack.stream_out,
            ack.control_port if ack.reply_channel == "mdc" else None,
        )  # fmt: skip
        try:
            pair = self._dialing.open_link(ids, channel_settings)
        except Exception as error:
            return e.LinkFailed(effect.link, _as_ours(error))
        most = min(channel_settings.max_message, ack.max_message)
        ends = LinkEnds(pair, effect.encryptor, effect.decryptor, self._settings.times, most, now)
        self._link = _OpenLink(effect.link, ends)
        self._join(self._by_session[effect.session], ends)
        return None

    def _close_link(self, number: int) -> None:
        link = self._link
        if link is not None and link.number == number:
            self._link = None
            self._drop(link.ends)

    def _look_at_link(self, link: _OpenLink, now: float) -> bool:
        """Send our first frame on a link that is connected. Whether it waits for room."""
        ends = link.ends
        if ends.proved:
            return False
        if ends.pair.publication.failure:
            error = self._not_opened("the duologue with", ends.pair.publication.failure)
            self._handle_event(e.LinkFailed(link.number, error), now)
            return False
        if link.said_open:
            ends.retry(now)
        elif ends.connected:  # the way in may be opened anew before: see Branch.opening
            link.said_open = True
            ends.say_open(self._links[ends.token][0].machine.session.received, now)
        return ends.blocked

    def _attach(self, effect: e.Attach, now: float) -> ClientEvent:
        connection, link = self._by_session[effect.session], self._link
        assert link is not None  # its first frame has just come
        try:
            connection.sender.attach(link.ends, effect.received, now)
        except AeronSparkError as error:
            return e.SessionFailed(effect.session, error)
        connection.sender.flush()
        return e.Attached(effect.session)

    def _notify(self, effect: e.Notify) -> None:
        connection = self._by_session[effect.session]

        def notify() -> None:
            self.tell(effect.about, connection)
            if effect.about == "disconnect":
                connection.say_goodbye()

        connection.in_order(notify)

    def _resolve(self, outcome: int | AeronSparkError) -> None:
        waiting = self._connected
        if waiting.done():  # the program has cancelled it
            return
        if isinstance(outcome, AeronSparkError):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(self._by_session[outcome])

    # The key store and the transport, which take their time.

    def _in_pool(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> Future[T]:
        """Run ``work`` on a thread, and ``then`` on the event loop, with its future."""
        future = self._listening.submit(work)
        future.add_done_callback(lambda done: self._later(lambda: then(done)))
        return future

    def _looked_up(self, answer: Future[bytes | None]) -> None:
        event: ClientEvent
        try:
            received = 0 if self._connection is None else self._connection.machine.session.received
            event = e.KeyKnown(answer.result(), received, type_digests(self._types))
        except AeronSparkError as error:
            event = e.LookUpFailed(error)
        except Exception as error:  # of a store of the program's own
            event = e.LookUpFailed(UsageError(f"the store of keys failed: {error!r}"))
        self._handle_event(event, time.monotonic())

    def _remember(self, connection: Connection, key: bytes) -> None:
        """Have the store remember the server. For a thread of the pool."""
        try:
            self._store.trust(self._server, key)
        except Exception as error:  # of files, or of a store of the program's own
            self.report(connection, error)

    def _reopened(self, answer: Future[ClientTransport]) -> None:
        self._reopening = None
        try:
            opened = answer.result()
        except Exception as error:
            self._handle_event(e.DriverFailed(_as_ours(error)), time.monotonic())
            return
        before, self._dialing, self._driver_lost = self._dialing, opened, False
        self._handle_event(e.DriverBack(), time.monotonic())
        before.close()

    def _close_transport(self) -> None:
        """Close the transport, and one that is being opened. For the thread that closes the client, after the loop."""
        reopening, self._reopening = self._reopening, None
        if reopening is not None:
            reopening.add_done_callback(_close_opened)
        self._dialing.close()

    # What the event loop calls.

    def _inbox(self) -> Inbox:
        return self._dialing.inbox

    def _connections_now(self) -> list[Connection]:
        connection = self._connection
        return [] if connection is None else [connection]

    def _other_event(self, event: TransportEvent, now: float) -> None:
        path = self._path
        if isinstance(event, DriverLost):
            self._driver_lost = True
            self._handle_event(e.DriverLost(TransportError(f"the media driver is gone: {event.reason}")), now)
        elif path is not None and getattr(event, "token", None) == path.token:
            self._path_event(path, event, now)

    def _other_work(self, now: float) -> bool:
        if self._driver_lost:
            time.sleep(WITHOUT_DRIVER)
        busy = self._path is not None and self._look_at_path(self._path, now)
        if self._link is not None:
            busy = self._look_at_link(self._link, now) or busy
        link, connection = self._link, self._connection
        if self._machine.state is ClientState.CLOSING:
            busy = True
            if link is not None and connection is not None and connection.sender.is_idle:
                self._handle_event(e.Drained(link.number), now)
        deadline = self._machine.deadline()
        if deadline is not None and now >= deadline:
            self._execute(self._machine.tick(now), now)
        return busy

    def _other_calm(self) -> bool:
        machine, connection = self._machine, self._connection
        waits = machine.state not in (ClientState.IDLE, ClientState.CONNECTED) or machine.deadline() is not None
        return not (waits or self._driver_lost or (connection is not None and connection.asks))

    def _opened(self, connection: Connection, link: LinkEnds, received: int, now: float) -> None:
        number = self._number_of(link)
        if number is not None:
            self._handle_event(e.LinkProved(number, received), now)

    def _unproved(self, connection: Connection, link: LinkEnds, error: AeronSparkError, now: float) -> None:
        if isinstance(error, TamperedError | DataFormatError):
            # reported already; the server alone can have sealed DONE_ACK, so that another attempt may well succeed
            why = f"the duologue with {self._server} began with a frame that is not the server's: {error.what}"
            error = ConnectError(why)
        number = self._number_of(link)
        if number is not None:
            self._handle_event(e.LinkFailed(number, error), now)

    def _interrupted(self, connection: Connection, why: AeronSparkError, now: float, *, silent: bool = False) -> None:
        if self._link is not None and connection is self._connection:
            self._handle_event(e.LinkFailed(self._link.number, why, silent), now)

    def _image_left(self, connection: Connection, link: LinkEnds, now: float) -> None:
        # its publication was closed, or Aeron gave it up: nothing comes over this duologue any more
        self._path_lost(connection, link, TransportError(f"{self._server} has left the duologue"), now)

    def _over(self, connection: Connection, error: AeronSparkError) -> None:
        session = self._machine.session
        if session is not None and connection is self._connection:
            self._handle_event(e.SessionFailed(session.session, error), time.monotonic())

    def _left(self, connection: Connection, keep_session: bool) -> None:
        if connection is self._connection:
            now = time.monotonic()
            self._execute(self._machine.close(keep_session=keep_session, now=now), now)

    def _was_left(self, connection: Connection, keep_session: bool, now: float) -> None:
        if self._link is not None and connection is self._connection:
            self._handle_event(e.PeerClosed(self._link.number, keep_session), now)

    def _end_all(self) -> None:
        now = time.monotonic()
        self._execute(self._machine.shut_down(now), now)
        # the loop may have ended before it handed a connect to the machine
        self._resolve(EndedError("the client is closed", remedy="Make another one"))

    def _number_of(self, link: LinkEnds) -> int | None:
        return self._link.number if self._link is not None and self._link.ends is link else None

    def _not_opened(self, what: str, reason: str) -> ConnectError:
        return ConnectError(
            f"{what} {self._server} could not be opened: {reason}",
            remedy="Check the server's host and port, and the option 'bind'; "
            "'aeron-spark doctor' looks at this machine",
        )


def _as_ours(error: Exception) -> AeronSparkError:
    return error if isinstance(error, AeronSparkError) else TransportError(str(error))


def _close_opened(opened: Future[ClientTransport]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


def _assert_never(value: NoReturn) -> NoReturn:
    """Stand in for ``typing.assert_never``, which came with Python 3.11."""
    raise AssertionError(f"unexpected effect {value!r}")
