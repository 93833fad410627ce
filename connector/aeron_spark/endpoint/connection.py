"""One connection: its core, for the modules of its endpoint, and the object that a program uses.

Both last over successive links until the connection is closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from aeron_spark.endpoint.deliveries import (
    LISTENER_FAILED,
    NO_LISTENER,
    Deliveries,
    Listeners,
    SerialExecutor,
    messages_of,
)
from aeron_spark.endpoint.links import OFFER_TIMEOUT_S, Link
from aeron_spark.endpoint.owner import ConnectionOwner, PeerInfo
from aeron_spark.endpoint.peer_calls import PeerCalls
from aeron_spark.endpoint.rpc import Rpc
from aeron_spark.endpoint.sender import Pending, Sender
from aeron_spark.endpoint.spill import content_of
from aeron_spark.endpoint.transfers import Transfers
from aeron_spark.endpoint.usage import Traffic
from aeron_spark.errors import (
    REFUSALS,
    AeronSparkError,
    ConnectError,
    EndedError,
    OptionError,
    RefusedError,
    UsageError,
)
from aeron_spark.process import bind_to_process
from aeron_spark.protocol.frames import (
    NUMBER_BYTES,
    Buffer,
    OutgoingRecord,
    PeerClose,
    Record,
    RecordKind,
    decode,
    decode_close,
    decode_refused,
    encode_number,
    number_of,
)
from aeron_spark.protocol.grants import EVERYTHING, Grant
from aeron_spark.protocol.liveness import FIRST_MEASUREMENT, Answers, Expiry, Liveness, Pings, RoundTrip
from aeron_spark.protocol.message_types import TYPE_ID, BuiltIn, Encoded
from aeron_spark.protocol.rpc_dispatch import ObjectService, PeerCall, Service, memory_refusal
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE, Create, Target, call_name, text_of
from aeron_spark.protocol.rpc_objects import CALL_TIMEOUT, Origin, Proxy
from aeron_spark.protocol.session import Session
from aeron_spark.protocol.transfers import Purpose, ReceivedTransfer, TransferStart
from aeron_spark.transport.api import OfferResult
from aeron_spark.waiting import fail, resolve

BATCH_MESSAGES: Final = 2_000  # encoded at a time by send_many
BYTES_HEAD: Final = TYPE_ID.pack(BuiltIn.BYTES)  # precedes the bytes of a message of type bytes
PURPOSES: Final = {Purpose.CALL: RecordKind.CALL, Purpose.RETURN: RecordKind.RETURN, Purpose.OBJECT: RecordKind.OBJECT}
REQUESTS: Final = (Purpose.CALL, Purpose.OBJECT)  # transfers that count as calls of the peer

# as int: each received record is compared with them
_MESSAGES: Final = frozenset((int(RecordKind.MESSAGE), int(RecordKind.MESSAGE_ACK_WANTED)))


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call of the peer of a connection has ended. Emitted on a thread of the workers.

    ``name`` is that of the call in the errors and logs of both ends, "" for a one-way call. ``service`` is the number
    of the endpoint's own service that was called; PROGRAM for an object of the program. ``what`` describes the object
    and method. ``request`` is the decoded request to a service that has typed ones. ``seconds`` is the time since the
    call's arrival. ``error`` is None if it returned.
    """

    connection: ConnectionCore
    name: str
    service: int
    what: str
    request: Any
    seconds: float
    error: BaseException | None


class ConnectionCore:
    """The connection of an endpoint with one peer, for the modules of the endpoint. Thread-safe, unless noted.

    ``id`` is the same number at both ends. ``for_program`` is the object that the program sees: an instance of
    ``connection_class``, which delegates to the core.
    """

    def __init__(
        self,
        owner: ConnectionOwner,
        peer: PeerInfo,
        number: int,
        connection_class: Callable[[ConnectionCore], Connection],
    ) -> None:
        """Raises what ``connection_class`` raises."""
        options, loop = owner.options, owner.loop
        now = loop.clock()
        self.id = number
        self.peer = peer
        self._grant = EVERYTHING
        self.owner = owner
        self.loop = loop
        self.connected_at = time.time()
        """When the connection was made, in seconds since 1970."""
        self.traffic = Traffic(now)
        self.close_error: AeronSparkError | None = None  # why this endpoint closes it, if the program did not close it
        self.tampered: list[float] = []  # times of recent frames that failed their authentication
        self.state_lock = threading.RLock()
        self.session = Session(options.session_limits, now)
        self.sender = Sender(self.session, options.times, self.state_lock, lambda: self.label, loop)
        self.is_held = False
        """Whether the endpoint reads nothing from it for now."""
        self.messages_received = 0
        self.listeners: Listeners[Callable[[Any], object]] = Listeners()
        self.disconnect_listeners: list[Callable[[Connection], object]] = []
        self._times = times = options.times
        self._pings = Pings()
        self._pongs: dict[int, Future[float]] = {}  # by number
        self._round_trip = RoundTrip(times.keep_alive_seconds, now) if times.measures_round_trip else None
        self._watch_link(now)
        self._delivering = SerialExecutor(loop.pool, options.queue_bytes, self._has_room)
        self._assembling = SerialExecutor(loop.pool, options.queue_bytes, self._has_room)
        self.transfers = Transfers(
            self.sender, options, self._assembling, self._refusal_of_transfer, self._take_transfer, self._report
        )
        self.rpc = Rpc(owner, self.state_lock, self.transfers, number)
        self.peer_calls = self._make_peer_calls()
        self.deliveries = Deliveries(
            self.sender,
            self._delivering,
            owner.types,
            self.rpc.objects,
            lambda: self._refusal(Purpose.MESSAGE),
            self._call_listeners,
            self._report,
        )
        self.for_program: Final = connection_class(self)
        """The connection as the program sees it."""
        bind_to_process(self)

    def _make_peer_calls(self) -> PeerCalls:
        owner, objects = self.owner, self.rpc.objects
        return PeerCalls(
            owner,
            ObjectService(owner.types, objects, owner.error_codes, self._is_permitted),
            objects,
            lambda response: self.transfers.send(RecordKind.RETURN, response, None),
            self._is_memory_full,
            self._has_room,
            self._resume_source,
            self._report,
            self._call_ended,
            self.peer.key,
        )

    @property
    def connected(self) -> bool:
        """Whether a link carries the connection now."""
        return self.session.attached

    @property
    def closed(self) -> bool:
        """Whether it is closed, and cannot resume."""
        return self.sender.error is not None

    @property
    def grant(self) -> Grant:
        """The grant of the peer: a server sets it, and a change of its clients file. Raises EndedError if closed."""
        if self.closed:
            raise EndedError(f"{self.label} is closed", remedy="Connect again.")
        return self._grant

    @grant.setter
    def grant(self, grant: Grant) -> None:
        self._grant = grant

    @property
    def id_text(self) -> str:
        """The id as logs, lists and commands have it: eight hexadecimal digits."""
        return f"{self.id:08x}"

    @property
    def label(self) -> str:
        """The name of the connection in the logs of both ends."""
        return f"connection {self.id_text} {self.peer.tag}".rstrip()

    def serve(self, value: object, methods: Iterable[str], number: int) -> None:
        """Register a service of the endpoint itself, which does not count as an object of the program."""
        self.rpc.objects.register(value, methods, number, origin=Origin.SERVICE)

    def add_service(self, service: Service, number: int) -> None:
        """Have a service of the endpoint itself run the calls of this number."""
        self.peer_calls.services[number] = service

    def send_seconds(self, timeout: float | None) -> float:
        """Return the seconds that a program waits for room: its own timeout, or else the endpoint's."""
        return self.owner.options.send_timeout if timeout is None else timeout

    def ping_seconds(self, timeout: float | None) -> float:
        """Return the seconds that a program waits for the response to a ping: its own, or else the endpoint's."""
        return self.owner.options.times.ping_seconds if timeout is None else timeout

    def call_seconds(self, timeout: float | None) -> float:
        """Return the seconds that a program waits for a creation or deletion: its own, or else those of a call."""
        return CALL_TIMEOUT if timeout is None else timeout

    def close(self, *, keep_session: bool) -> None:
        """Close as :meth:`Connection.close` does."""
        self.owner.close_connection(self, keep_session)

    @property
    def round_trip(self) -> float | None:
        """The last measured round trip in seconds; None before the first measurement, or if it is not measured."""
        return None if self._round_trip is None else self._round_trip.seconds

    @property
    def refuses_records(self) -> bool:
        """Whether sending raises the error that ended the connection, or that stopped the client."""
        return self.sender.refuses_records

    # Sending, on any thread. ``Connection`` describes the messages and errors.

    def begin_send(
        self, message: object, seconds: float, *, acknowledge: bool, threads: Executor | None = None
    ) -> Pending[None] | None:
        """Send a message as soon as there is room; return the wait for that, None if it was accepted at once.

        With ``acknowledge`` it is the wait until the peer's listeners have returned. A message that is too large for a
        record is sent as a transfer on ``threads``; None: on this thread, which waits.
        """
        longest = self.session.limits.max_record_bytes - NUMBER_BYTES
        if type(message) is bytes and len(message) + len(BYTES_HEAD) <= longest:  # the usual case, without objects
            record = BYTES_HEAD + message
        else:
            encoded = self.owner.types.encode(message, self.rpc.objects)
            if encoded.size > longest:
                return self._begin_transfer(encoded, seconds, acknowledge, threads)
            record = _joined(encoded)
        offer_s = OFFER_TIMEOUT_S if threads is None else 0.0
        if acknowledge:
            return self.sender.begin_confirmed(record, seconds, offer_s=offer_s)
        waits = self.sender.begin_push(RecordKind.MESSAGE, record, None, offer_s)
        return None if waits is None else self.sender.wait_for_room(waits, seconds)

    def _begin_transfer(
        self, encoded: Encoded, seconds: float, acknowledge: bool, threads: Executor | None
    ) -> Pending[None] | None:
        confirm = (lambda: self.sender.begin_confirmed(b"", seconds).result()) if acknowledge else None
        send = partial(self.transfers.send_message, encoded, seconds, confirm)
        if threads is not None:
            return Pending(self.sender, threads.submit(send), None, "a large message to be sent")
        send()
        return None

    def send_many(self, messages: Sequence[object], seconds: float) -> None:
        """Send messages with many in a frame."""
        encode, objects = self.owner.types.encode, self.rpc.objects
        for first in range(0, len(messages), BATCH_MESSAGES):
            batch = messages[first : first + BATCH_MESSAGES]
            payloads = [BYTES_HEAD + one if type(one) is bytes else _joined(encode(one, objects)) for one in batch]
            if max(map(len, payloads)) > self.session.limits.max_record_bytes:
                for one in batch:
                    waits = self.begin_send(one, seconds, acknowledge=False)
                    if waits is not None:
                        waits.result()
            else:
                self.sender.push_many(RecordKind.MESSAGE, payloads, self.loop.clock() + seconds)

    def begin_ping(self, seconds: float) -> Pending[float]:
        """Send a ping; return the wait for its pong, whose result is the round-trip time in seconds.

        Raises as :meth:`Connection.ping`.
        """
        if not 0 < seconds < float("inf"):
            raise OptionError(
                f"the timeout of a ping is {seconds} s, expected more than 0", remedy="Use a timeout above 0."
            )
        pong: Future[float] = Future()
        with self.state_lock:
            self.sender.check()
            if not self.connected:
                raise ConnectError(f"{self.label} is not connected", remedy="Try again when it has resumed.")
            number = self._pings.start(self.loop.clock())
            if number is None:
                raise UsageError("too many pings wait for their responses", remedy="Wait for some of them.")
            self._pongs[number] = pong
        self.sender.push_unsequenced(RecordKind.PING, encode_number(number))
        what, forget = f"the response of {self.label} to a ping", partial(self._end_ping, number)
        return Pending(self.sender, pong, seconds, what, "Check the network.", forget=forget)

    def _end_ping(self, number: int) -> None:
        with self.state_lock:
            self._pings.end(number)
            self._pongs.pop(number, None)

    # For the event loop.

    def attach(self, link: Link, peer_received: int, now: float) -> None:
        """Let this link carry the session; the peer has received all records below ``peer_received``.

        Raises SessionLost if the states of the two ends do not match.
        """
        self.sender.attach(link, peer_received, now)
        self._watch_link(now)
        self._expiry.observe(True, now)
        if self._round_trip is not None:
            self._round_trip.attached(now)

    def _watch_link(self, now: float) -> None:
        """Begin to watch a link."""
        self._expiry = Expiry(self._times.setup_seconds, self._times.expiry_seconds, now)
        self._answers = Answers(self._times.keep_alive_seconds, now)

    def detach(self, now: float) -> None:
        """Send nothing over the link any more, which its owner closes. Repeated calls do nothing."""
        self.sender.detach(now)

    def receive(self, link: Link, payload: memoryview, now: float) -> PeerClose | None:
        """Take a frame of the current link; return the peer's CLOSE if the frame has one.

        Raises TamperedError or DataFormatError, and changes nothing, for a frame that is not the peer's.
        """
        frame, session = decode(link.decrypt(payload)), self.session
        with self.state_lock:
            acknowledged = session.acknowledged
            records = session.receive(frame, now)
            has_room = session.acknowledged != acknowledged
            had_deferred = has_room and self.sender.make_room(now)
            is_frame_due = had_deferred or session.ack_due(now)
        self._answers.heard(now)
        if (has_room and self.sender.push_begun()) or is_frame_due:
            self.sender.flush()
        if not records:
            return None
        if {kind for kind, _, _ in records} <= _MESSAGES:
            self._deliver(records)
            closed = None
        else:
            closed = self._take(records, now)
        if frame.sequenced:
            self._pause_source(link)
        return closed

    def _take(self, records: Sequence[Record], now: float) -> PeerClose | None:
        """Give each record of a frame to what it is for; return the peer's CLOSE."""
        closed = None
        messages: list[Record] = []
        requests: list[tuple[int, Buffer]] = []
        for record in records:
            kind, _, payload = record
            try:
                match kind:
                    case RecordKind.MESSAGE | RecordKind.MESSAGE_ACK_WANTED:
                        messages.append(record)
                    case RecordKind.CALL | RecordKind.OBJECT:
                        requests.append((kind, payload))
                    case RecordKind.RETURN:
                        self.rpc.take_response(payload)
                    case RecordKind.DELIVERED:
                        self.sender.confirm(number_of(payload))
                    case RecordKind.REFUSED:
                        self._take_refusal(*decode_refused(payload))
                    case RecordKind.TRANSFER_START | RecordKind.TRANSFER_DATA:
                        self.transfers.take_record(kind, payload)
                    case RecordKind.TRANSFER_FINISHED:
                        self._deliver(messages)
                        messages = []
                        self.deliveries.deliver_transfer(self.transfers.take_end(payload))
                    case RecordKind.TRANSFER_FAILED:
                        self.transfers.take_failure(payload)
                    case RecordKind.PING:
                        self.sender.queue_unsequenced(RecordKind.PONG, bytes(payload[:NUMBER_BYTES]))
                    case RecordKind.PONG:
                        self._take_pong(number_of(payload), now)
                    case RecordKind.CLOSE:
                        closed = decode_close(payload)
            except AeronSparkError as error:  # of one record: the other ones are still valid
                self._report(error)
        self._deliver(messages)
        if requests:
            self.peer_calls.take(requests)
        if self.sender.has_unsequenced:
            self.sender.flush()
        return closed

    def _deliver(self, messages: Sequence[Record]) -> None:
        if messages:
            self.messages_received += len(messages)
            self.deliveries.deliver(messages)

    def _take_refusal(self, number: int, error: AeronSparkError) -> None:
        if not self.sender.confirm(number, error):
            self._report(error)

    def _take_pong(self, number: int, now: float) -> None:
        if number >= FIRST_MEASUREMENT:
            if self._round_trip is not None:
                self._round_trip.pong(number, now)
            return
        with self.state_lock:
            round_trip = self._pings.pong(number, now)
            pong = self._pongs.pop(number, None)
        if pong is not None and round_trip is not None:
            resolve(pong, round_trip)

    def tick(self, now: float) -> float | None:
        """Do the work that is due at ``now``; return for how many seconds the link was silent, if that ends it.

        Raises the error with which the endpoint must end the connection.
        """
        if self.closed:
            return None
        deferred, limit = self.sender.deferred_bytes, self.session.limits.buffer_bytes
        if deferred > limit:
            text = f"the peer does not read its responses: {deferred} bytes wait, limit {limit}"
            raise RefusedError(text, remedy="Make the peer read its responses.")
        with self.state_lock:
            if not self.session.attached:
                self.session.check(now)
                return None
            is_due = self.session.ack_due(now)
        silent_s = self._silence(now)
        if is_due or self.sender.is_blocked or self.sender.has_unsequenced:
            self.sender.flush()
        return silent_s

    def _silence(self, now: float) -> float | None:
        """Ask the peer for a sign of life if that is due; return how long the link was silent, if that ends it."""
        link, answers, round_trip = self.sender.link, self._answers, self._round_trip
        if self.session.acks_paused:  # this end may not read for now, and so hears nothing
            answers.heard(now)
        are_missing = answers.are_missing(now)
        if round_trip is not None and round_trip.is_due(now):
            self._ask(round_trip.start(now), now)
        elif self.sender.keep_alive.is_due(now) or answers.is_question_due(now):
            self._ask(FIRST_MEASUREMENT, now)
        if self._expiry.observe(link is not None and link.connected, now) is Liveness.EXPIRED:
            return self._times.expiry_seconds
        return answers.limit_seconds if are_missing else None

    def _ask(self, number: int, now: float) -> None:
        """Queue a ping without a caller; its pong, like every frame, says that the peer lives."""
        self.sender.queue_unsequenced(RecordKind.PING, encode_number(number))
        self.sender.keep_alive.sent(now)
        self._answers.asked(now)

    def deadline(self) -> float | None:
        """Return a time before which :meth:`tick` has nothing to do unless the state changes; None: never."""
        if self.closed:
            return None
        with self.state_lock:
            session = self.session
            is_paused = session.attached and session.acks_paused
            dues = [None if is_paused else session.deadline()]
            if session.attached:
                dues += [self.sender.keep_alive.deadline(), self._expiry.deadline()]
                dues.append(None if is_paused else self._answers.deadline())
                dues.append(None if self._round_trip is None else self._round_trip.deadline())
        return min((due for due in dues if due is not None), default=None)

    def is_due(self, now: float) -> bool:
        """Whether :meth:`tick` may have something to do by ``now``."""
        deadline = self.deadline()
        return deadline is not None and deadline <= now

    def run_in_order(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the listener pool, after the listeners of all earlier messages."""
        self._delivering.submit(work)

    def notify_disconnect(self) -> None:
        """Call the connection's own disconnect listeners."""
        for listener in self.disconnect_listeners:
            try:
                listener(self.for_program)
            except Exception as error:
                self.owner.report(self, error)

    def end(self, error: AeronSparkError) -> list[OutgoingRecord]:
        """End the connection: threads that wait raise ``error``, and incomplete transfers are removed.

        Returns the records that the peer has not acknowledged.
        """
        unacknowledged = self.sender.close(error)
        self.rpc.close(error.what)
        self.peer_calls.close()
        self.transfers.close()
        for number, pong in list(self._pongs.items()):
            self._end_ping(number)
            fail(pong, error)
        return unacknowledged

    def messages_of(self, records: Sequence[OutgoingRecord]) -> tuple[object, ...]:
        """Return the messages and files of the records that ``end`` returned."""
        return tuple(messages_of(records, self.owner.types, self.transfers.unconfirmed()))

    @property
    def held_bytes(self) -> int:
        """Bytes that the connection makes this endpoint hold, without its bulk links."""
        return self.waiting_bytes + self.unacknowledged_bytes

    def hold(self, is_held: bool) -> None:
        """Read nothing from the peer for now, so that Aeron's window fills; or read again."""
        if is_held:
            self.is_held = True
            self._pause_acks(True)
            link = self.sender.link
            if link is not None:
                self.loop.inbox.pause(link.token)
        elif self.is_held:
            self.is_held = False
            self._has_room()

    @property
    def usage(self) -> dict[str, int]:
        """Counts of the resources of the connection, for statistics and for tests of leaks."""
        return {
            "calls": len(self.rpc),
            "running": self.peer_calls.running,
            "objects": len(self.rpc.objects),
            "pings": self._pings.pending,
            "streams": len(self.transfers.assembly),
            "stream_bytes": self.transfers.assembly.memory_bytes,
            "buffered_bytes": self.session.buffered_bytes,
            "acknowledgements": self.sender.awaits_confirmations,
        }

    @property
    def running_calls(self) -> int:
        """Number of the peer's calls that wait for a worker or run."""
        return self.peer_calls.running

    @property
    def unread_calls(self) -> int:
        """Number of the client's calls that were received, and whose method no thread has looked up yet."""
        return self.peer_calls.unread

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were received and wait for listeners, for workers, or for the rest of a transfer."""
        listeners = self._delivering.weight + self._assembling.weight
        return listeners + self.peer_calls.held_bytes + self.transfers.assembly.memory_bytes

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes that were accepted from this endpoint's program, and not acknowledged by the peer yet."""
        return self.session.buffered_bytes + self.sender.deferred_bytes

    @property
    def is_paused(self) -> bool:
        """Whether acknowledgements to the peer pause, because what it sent before waits."""
        return self.session.acks_paused

    def idle_seconds(self, now: float) -> float:
        """Return the seconds at ``now`` since a message, a call, or data of a bulk link was last sent or received."""
        return max(0.0, now - max(self.session.active_at, self.traffic.bulk_active_at))

    def _pause_source(self, link: Link) -> None:
        """Pause acknowledgements when listeners or calls are too slow. The peer's buffer fills, and its senders wait.

        For a peer that does not respect the bound of its buffer, pause the subscription: Aeron's window fills. A long
        backlog of calls also pauses it, for some milliseconds: the event loop needs time for each call in a frame.
        """
        for work in (self._delivering, self._assembling, self.peer_calls):
            if work.is_full:
                self._pause_acks(True)
                if work.exceeds(self.owner.options.session_limits.buffer_bytes):
                    self.loop.inbox.pause(link.token)
                self._has_room()  # the work may have become less meanwhile
        if self.peer_calls.has_long_backlog:
            self.loop.inbox.pause(link.token)
            self._resume_source()  # the backlog may have become short meanwhile

    def _has_room(self) -> None:
        if self.is_held or self._delivering.is_full or self._assembling.is_full or self.peer_calls.is_full:
            return
        self._pause_acks(False)
        self.sender.flush()
        self._resume_source()

    def _resume_source(self) -> None:
        """Take messages from the subscription again, unless there is a reason against it."""
        link, limit = self.sender.link, self.owner.options.session_limits.buffer_bytes
        if link is None or self.is_held or self.peer_calls.has_long_backlog:
            return
        if not any(work.exceeds(limit) for work in (self._delivering, self._assembling, self.peer_calls)):
            self.loop.inbox.resume(link.token)

    def _pause_acks(self, paused: bool) -> None:
        with self.state_lock:
            self.session.acks_paused = paused

    def _call_ended(self, call: PeerCall, seconds: float, error: BaseException | None) -> None:
        name = "" if call.is_one_way else call_name(self.id, call.call_id)
        self.owner.facts.emit(CallEnded(self, name, call.number, call.what, call.request, seconds, error))

    def _is_memory_full(self, size: int) -> bool:
        """Whether the endpoint has no memory for a request or a transfer of ``size`` bytes of this connection."""
        memory = self.owner.memory  # a part is assured to each connection
        return memory.is_full and self.held_bytes + size > memory.assured

    def _report(self, error: BaseException) -> None:
        self.owner.report(self, error)

    def _take_transfer(self, received: ReceivedTransfer) -> Callable[[], None] | None:
        kind = PURPOSES.get(received.start.purpose)
        if kind is None:
            return self.deliveries.prepare(received, self.owner.options.spill_folder)
        if kind is RecordKind.RETURN:
            self.rpc.take_response(content_of(received))
        else:
            self.peer_calls.take(((kind, content_of(received)),))
        return None

    def _call_listeners(self, message: object) -> RefusedError | None:
        """Call the listeners of a message; return why it was not processed: a listener raised, or there is none."""
        failure: RefusedError | None = None
        listeners, own = self.owner.message_listeners.matching(type(message)), self.listeners.matching(type(message))
        for listener in listeners:
            try:
                listener(self.for_program, message)
            except Exception as error:
                failure = self._listener_failed(error)
        for own_listener in own:
            try:
                own_listener(message)
            except Exception as error:
                failure = self._listener_failed(error)
        if listeners or own:
            return failure
        what = f"a message of class {type(message).__name__} has no listener"
        self._report(UsageError(what, remedy="Add a listener for it."))
        return RefusedError(f"{what} at the peer", remedy=REFUSALS[NO_LISTENER].remedy, reason=NO_LISTENER)

    def _listener_failed(self, error: Exception) -> RefusedError:
        self._report(error)
        what = f"a listener of the peer raised {type(error).__name__}: {text_of(error)}"
        return RefusedError(what, remedy=REFUSALS[LISTENER_FAILED].remedy, reason=LISTENER_FAILED)

    def _is_permitted(self, target: Target, method: str) -> bool:
        """Whether the peer may call this method of the program's objects. The endpoint's services check grants."""
        is_service = isinstance(target, int) and target >= FIRST_SERVICE
        return not self.closed and (is_service or self._grant.may_call(f"{target}.{method}"))

    def _refusal(self, purpose: Purpose) -> RefusedError | None:
        """Why the peer may not send messages or files; None: it may."""
        if self.closed or purpose not in (Purpose.FILE, Purpose.MESSAGE):
            return None  # a closed connection drops what arrives
        is_file = purpose is Purpose.FILE
        if self._grant.may_send_files() if is_file else self._grant.may_pass_messages("send"):
            return None
        return RefusedError(
            f"your key may not send {'files' if is_file else 'messages'}",
            remedy=f"Ask the server's operator to grant {'files' if is_file else 'messages'}=send in its clients file.",
            reason="not-permitted",
        )

    def _refusal_of_transfer(self, start: TransferStart) -> RefusedError | None:
        if self._is_memory_full(start.total):
            return memory_refusal(start.total)
        if start.purpose in REQUESTS:
            return self.peer_calls.refusal_of_bytes(start.total, self.transfers.assembly.announced_bytes(*REQUESTS))
        return self._refusal(start.purpose)


def _joined(encoded: Encoded) -> bytes:
    return b"".join(encoded.parts())


class Connection:
    """The connection with one peer. Thread-safe.

    ``data`` is for the program. A program can give a subclass to its endpoint as ``connection_class``. An endpoint
    makes the object; its methods delegate to the core of the connection.
    """

    def __init__(self, core: ConnectionCore) -> None:
        self.data: dict[str, Any] = {}
        self._core: Final = core
        bind_to_process(self)

    @property
    def id(self) -> int:
        """The number of the connection, which is the same at both ends."""
        return self._core.id

    @property
    def key(self) -> bytes:
        """The peer's public key, 32 bytes, which the peer has proved to own."""
        return self._core.peer.key

    @property
    def tag(self) -> str:
        """The name that the client gave itself."""
        return self._core.peer.tag

    @property
    def remote_address(self) -> str:
        """The peer's IP address as this endpoint sees it; empty over IPC."""
        return self._core.peer.address

    @property
    def remote_port(self) -> int:
        """The peer's UDP port as this endpoint sees it; 0 over IPC."""
        return self._core.peer.port

    @property
    def is_ipc(self) -> bool:
        """Whether the peer shares this endpoint's media driver."""
        return self._core.peer.is_ipc

    @property
    def remote_key_changed(self) -> bool:
        """Whether the peer was known by another key, and was accepted because validation is off."""
        return self._core.peer.key_changed

    @property
    def connected_at(self) -> float:
        """When the connection was made, in seconds since 1970."""
        return self._core.connected_at

    @property
    def max_message(self) -> int:
        """Bytes of the longest message that is sent in one record. A longer one is sent as a transfer."""
        return self._core.session.limits.max_record_bytes - TYPE_ID.size

    @property
    def connected(self) -> bool:
        """Whether a link carries the connection now."""
        return self._core.connected

    @property
    def closed(self) -> bool:
        """Whether it is closed, and cannot resume."""
        return self._core.closed

    @property
    def last_result(self) -> OfferResult | None:
        """Why Aeron did not take the last frame that was offered; None if it did."""
        return self._core.sender.last_result

    @property
    def id_text(self) -> str:
        """The id as logs, lists and commands have it: eight hexadecimal digits."""
        return self._core.id_text

    @property
    def label(self) -> str:
        """The name of the connection in the logs of both ends."""
        return self._core.label

    def __repr__(self) -> str:
        return f"<{self.label}, {'closed' if self.closed else 'connected' if self.connected else 'not connected'}>"

    def send(self, message: object, *, timeout: float | None = None, acknowledge: bool = False) -> None:
        """Send a message. It arrives once and in order, unless the session is lost.

        Returns when the message is accepted, and with ``acknowledge`` when the peer's listeners have returned. The call
        waits for that for ``timeout`` seconds, by default the endpoint's; 0 tries once. Raises WaitTimeout with Aeron's
        last result, OptionError for a value that cannot be sent, SessionLost or EndedError for a closed connection, and
        RefusedError with ``acknowledge`` if a listener of the peer raised, or if none takes the message.
        """
        pending = self._core.begin_send(message, self._core.send_seconds(timeout), acknowledge=acknowledge)
        if pending is not None:
            pending.result()

    def send_many(self, messages: Sequence[object], *, timeout: float | None = None) -> None:
        """Send messages with many in a frame, which is faster for small ones. Raises as ``send`` does."""
        self._core.send_many(messages, self._core.send_seconds(timeout))

    def send_file(self, path: str | Path, *, name: str | None = None, timeout: float | None = None) -> None:
        """Send a file to the peer's listeners of ReceivedFile, reading it meanwhile. Raises as ``send`` does."""
        self._core.transfers.send_file(Path(path), name, self._core.send_seconds(timeout))

    def on_message(self, kind: type, listener: Callable[[Any], object]) -> None:
        """Call ``listener(message)`` for each message of this class or a subclass; ``object`` stands for all."""
        with self._core.state_lock:
            self._core.listeners.add(kind, listener)

    def on_disconnect(self, listener: Callable[[Connection], object]) -> Callable[[Connection], object]:
        """Call ``listener(connection)`` when the connection is lost or closed."""
        self._core.disconnect_listeners.append(listener)
        return listener

    def register(self, value: object, methods: Iterable[str], number: int | None = None) -> int:
        """Let this peer call the listed methods of ``value``; return the number of the object."""
        return self._core.rpc.objects.register(value, methods, number)

    def unregister(self, value: object) -> bool:
        """End a registered object for this peer, and notify the peer; return whether it was registered."""
        return self._core.rpc.end(value)

    def remote(self, target: str | int) -> Proxy:
        """Return a proxy of the peer's object of this name or number. A wrong name fails at the first call."""
        return self._core.rpc.objects.proxy(target)

    def create(self, factory: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Proxy:
        """Have the peer's factory of this name create an object, and return its proxy."""
        create = Create(factory, args, kwargs)
        proxy: Proxy = self._core.rpc.begin(create, self._core.call_seconds(timeout)).result()
        return proxy

    def delete(self, proxy: Proxy, *, timeout: float | None = None) -> None:
        """Delete an object that the peer created for this endpoint."""
        self._core.rpc.begin_delete(proxy, self._core.call_seconds(timeout)).result()

    def ping(self, timeout: float | None = None) -> float:
        """Return the round-trip time to the peer's endpoint in seconds.

        Raises WaitTimeout without a response within ``timeout`` seconds, ConnectError while no link is connected.
        """
        return self._core.begin_ping(self._core.ping_seconds(timeout)).result()

    def close(self, *, keep_session: bool = False) -> None:
        """Close: send the unsent messages, for some seconds at most, then CLOSE.

        With ``keep_session`` both ends keep the session with its unacknowledged messages, and the client can resume it.
        """
        self._core.close(keep_session=keep_session)


def grant_of(connection: Connection) -> Grant:
    """Return what the peer of a connection may do now. Raises EndedError if it is closed."""
    return connection._core.grant


def rpc_of(connection: Connection) -> Rpc:
    """Return the remote calls of a connection, for the modules of an endpoint."""
    return connection._core.rpc
