"""Runs the machine of one connection: feeds it frames, times and records, and executes the effects that it returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aeron_spark.connection.connection import Connection, ConnectionParts
from aeron_spark.connection.deliveries import (
    LISTENER_FAILED,
    NO_LISTENER,
    Deliveries,
    Listeners,
    SerialExecutor,
    messages_of,
)
from aeron_spark.connection.frame_sender import FrameSender
from aeron_spark.connection.links import Link
from aeron_spark.connection.message_sender import MessageSender
from aeron_spark.connection.owner import EndpointServices, PeerInfo
from aeron_spark.connection.peer_calls import PeerCalls
from aeron_spark.connection.rpc import Rpc
from aeron_spark.connection.spill import content_of
from aeron_spark.connection.transfers import TransferRunner
from aeron_spark.connection.usage import Traffic
from aeron_spark.errors import REFUSALS, AeronSparkError, ConnectError, RefusedError, UsageError, WaitTimeout
from aeron_spark.facts import Bus
from aeron_spark.process import bind_to_process
from aeron_spark.protocol.connection_machine import (
    ConfirmDelivery,
    ConnectionMachine,
    Deliver,
    Effect,
    EndConnection,
    LinkExpired,
    MessageRefused,
    PeerClosed,
    Report,
    ResolvePing,
    SendFrame,
    TakeRequest,
    TakeResponse,
    TakeTransferRecord,
    TransferRefused,
)
from aeron_spark.protocol.frames import OutgoingRecord, RecordKind, decode
from aeron_spark.protocol.message_types import Buffer
from aeron_spark.protocol.rpc_dispatch import ObjectService, PeerCall, Service, memory_refusal
from aeron_spark.protocol.rpc_messages import Target, call_name, text_of
from aeron_spark.protocol.rpc_objects import Origin
from aeron_spark.protocol.transfers import Purpose, ReceivedTransfer, TransferStart
from aeron_spark.waiting import fail, resolve

PURPOSES: Final = {Purpose.CALL: RecordKind.CALL, Purpose.RETURN: RecordKind.RETURN, Purpose.OBJECT: RecordKind.OBJECT}
REQUESTS: Final = (Purpose.CALL, Purpose.OBJECT)  # transfers that count as calls of the peer


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call of the peer of a connection has ended. Emitted on a thread of the workers.

    ``name`` is that of the call in the errors and logs of both ends, "" for a one-way call. ``service`` is the number
    of the endpoint's own service that was called; PROGRAM for an object of the program. ``what`` describes the object
    and method. ``request`` is the decoded request to a service that has typed ones. ``seconds`` is the time since the
    call's arrival. ``error`` is None if it returned.
    """

    connection: ConnectionRunner
    name: str
    service: int
    what: str
    request: Any
    seconds: float
    error: BaseException | None


class ConnectionOwner(EndpointServices, Protocol):
    """The runtime of the client or server that a connection belongs to. Thread-safe; only its last method blocks."""

    @property
    def facts(self) -> Bus:
        """The facts of the endpoint and its connections."""

    def is_permitted(self, connection: ConnectionRunner, target: Target, method: str) -> bool:
        """Whether the peer of a connection may call this method."""

    def refusal(self, connection: ConnectionRunner, purpose: Purpose) -> RefusedError | None:
        """Why the peer of a connection may not send messages or files; None: it may."""

    def is_memory_full(self, connection: ConnectionRunner, size: int) -> bool:
        """Whether the endpoint has no memory for a request or a transfer of ``size`` bytes of this connection."""

    def listeners_of(self, kind: type) -> Sequence[Callable[[Connection, Any], object]]:
        """Return the endpoint's listeners of messages of exactly this class."""

    def report(self, connection: ConnectionRunner | None, error: BaseException) -> None:
        """Report an error to the error listeners."""

    def request_flush(self, connection: ConnectionRunner) -> None:
        """Have the event loop flush the connection's sender soon, because Aeron did not take a frame."""

    def pause(self, token: int) -> None:
        """Stop taking messages from a subscription, so that Aeron's window fills."""

    def resume(self, token: int) -> None:
        """Take messages from a subscription again."""

    def close_connection(self, connection: ConnectionRunner, keep_session: bool) -> None:
        """Close a connection: send its unsent messages, for some seconds at most, then send CLOSE."""


class ConnectionRunner:
    """The connection of an endpoint with one peer, for the modules of the endpoint. Thread-safe, unless noted.

    ``id`` is the same number at both ends. ``for_program`` is the object that the program sees: an instance of
    ``connection_class``, which delegates to the parts of the runner.
    """

    def __init__(
        self, owner: ConnectionOwner, peer: PeerInfo, number: int,
        connection_class: Callable[[ConnectionParts], Connection],
    ) -> None:  # fmt: skip
        """Raises what ``connection_class`` raises."""
        options = owner.options
        self.id = number
        self.peer = peer
        self.owner = owner
        self.connected_at = time.time()
        """When the connection was made, in seconds since 1970."""
        self.traffic = Traffic(time.monotonic())
        self.close_error: AeronSparkError | None = None  # why this endpoint closes it, if the program did not close it
        self.tampered: list[float] = []  # times of recent frames that failed their authentication
        self.state_lock = threading.RLock()
        self.machine = ConnectionMachine(options.session_limits, options.times, time.monotonic())
        self.sender = FrameSender(self.machine, self.state_lock, lambda: self.label, lambda: owner.request_flush(self))
        self.is_held = False
        """Whether the endpoint reads nothing from it for now."""
        self.messages_received = 0
        self._ping_waiters: dict[int, Future[float]] = {}  # by number
        self.listeners: Listeners[Callable[[Any], object]] = Listeners()
        self.disconnect_listeners: list[Callable[[Connection], object]] = []
        self._delivering = SerialExecutor(owner.listener_pool, options.queue_bytes, self._has_room)
        self._assembling = SerialExecutor(owner.listener_pool, options.queue_bytes, self._has_room)
        self.rpc = Rpc(
            owner, self.state_lock, self._send_record, self._send_request, self._begin_record, number
        )  # fmt: skip
        types, objects = owner.types, self.rpc.objects
        service = ObjectService(
            types, objects, owner.error_codes, lambda target, method: owner.is_permitted(self, target, method)
        )
        self.peer_calls = PeerCalls(
            owner, service, objects, lambda response: self._send_record(RecordKind.RETURN, response, None),
            lambda size: owner.is_memory_full(self, size), self._has_room, self._resume_source, self._report,
            self._call_ended, peer.key,
        )  # fmt: skip
        self.transfers = TransferRunner(
            self.sender, self.machine, self.state_lock, owner, self._assembling,
            self._refusal_of_transfer, self._take_transfer, self._report,
        )  # fmt: skip
        self._deliveries = Deliveries(
            self.sender, self.state_lock, self._delivering, lambda: owner.refusal(self, Purpose.MESSAGE),
            lambda data: types.decode(data, objects),
            lambda type_id, body: types.decode_body(type_id, body, objects), self._call_listeners, self._report,
        )  # fmt: skip
        self.messages = MessageSender(
            self.sender, self.machine, self._deliveries, self.transfers, types, objects, lambda: self.label
        )
        self.for_program: Final = connection_class(self)
        """The connection as the program sees it."""
        bind_to_process(self)

    @property
    def connected(self) -> bool:
        """Whether a link carries the connection now."""
        return self.machine.attached

    @property
    def closed(self) -> bool:
        """Whether it is closed, and cannot resume."""
        return self.machine.error is not None

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

    def close(self, *, keep_session: bool) -> None:
        """Close as :meth:`Connection.close` does."""
        self.owner.close_connection(self, keep_session)

    def begin_ping(self, seconds: float) -> Future[float]:
        """Send a ping that ends after ``seconds``; return the future of its round-trip time.

        Raises as :meth:`Connection.ping`, and the future fails so.
        """
        waiter: Future[float] = Future()
        with self.state_lock:
            self.machine.check()
            if not self.connected:
                raise ConnectError(f"{self.label} is not connected", remedy="Try again when it has resumed.")
            number = self.machine.start_ping(seconds, time.monotonic())
            if number is None:
                raise UsageError("too many pings wait for their responses", remedy="Wait for some of them.")
            self._ping_waiters[number] = waiter
        self.sender.flush()
        return waiter

    # For the event loop.

    def receive(self, link: Link, payload: memoryview, now: float) -> PeerClosed | None:
        """Take a frame of the current link; return the peer's CLOSE if the frame has one.

        Raises TamperedError or DataFormatError, and changes nothing, for a frame that is not the peer's.
        """
        frame = decode(link.decrypt(payload))
        with self.state_lock:
            received = self.machine.receive(frame, now)
            if received.made_room:
                self.sender.room.notify_all()
        has_pushed = received.made_room and self.sender.push_begun()
        if received.frame_due or has_pushed:
            self.sender.flush()
        closed: PeerClosed | None = None
        requests: list[tuple[int, Buffer]] = []
        for effect in received.effects:
            if isinstance(effect, Deliver):
                self.messages_received += len(effect.messages)
                self._deliveries.deliver(effect.messages)
            elif isinstance(effect, PeerClosed):
                closed = effect
            elif isinstance(effect, TakeRequest):
                requests.append((effect.kind, effect.payload))
            else:
                self._execute(effect)
        if requests:
            self.peer_calls.take(requests)
        if received.effects:
            self._pause_source(link)
        return closed

    def tick(self, now: float) -> float | None:
        """Do the work that is due at ``now``; return for how many seconds the link was silent, if that ends it.

        Raises the error with which the endpoint must end the connection.
        """
        self.rpc.tick(now)
        link = self.sender.link
        link_connected = link is not None and link.connected
        with self.state_lock:
            effects = self.machine.tick(link_connected, now)
        silent_s: float | None = None
        frame_due = self.sender.is_blocked
        for effect in effects:
            match effect:
                case SendFrame():
                    frame_due = True
                case LinkExpired(seconds):
                    silent_s = seconds
                case EndConnection():
                    raise effect.error
                case _:
                    self._execute(effect)
        if frame_due:
            self.sender.flush()
        return silent_s

    def is_due(self, now: float) -> bool:
        """Whether :meth:`tick` may have something to do by ``now``."""
        with self.state_lock:
            deadline = self.machine.deadline()
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
        unconfirmed = self.sender.close(error)
        self.rpc.close(error.what)
        self.peer_calls.close()
        self.transfers.close()
        self._deliveries.fail_all(error)
        with self.state_lock:
            waiters, self._ping_waiters = self._ping_waiters, {}
        for waiter in waiters.values():
            fail(waiter, error)
        return unconfirmed

    def messages_of(self, records: Sequence[OutgoingRecord]) -> tuple[object, ...]:
        """Return the messages and files of the records that ``end`` returned."""
        return tuple(messages_of(records, self.owner.types, self.transfers.unconfirmed()))

    def ends_wait_by(self, at: float) -> bool:
        """Whether a ping or a call that waits for its response has its deadline by ``at``, in monotonic seconds."""
        deadlines = (self.machine.ping_deadline, self.rpc.deadline)
        return any(deadline is not None and deadline <= at for deadline in deadlines)

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
                self.owner.pause(link.token)
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
            "pings": self.machine.pings,
            "streams": len(self.transfers.assembly),
            "stream_bytes": self.transfers.assembly.memory_bytes,
            "buffered_bytes": self.machine.session.buffered_bytes,
            "acknowledgements": len(self._deliveries),
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
        return self.machine.session.buffered_bytes + self.machine.deferred_bytes

    @property
    def is_paused(self) -> bool:
        """Whether acknowledgements to the peer pause, because what it sent before waits."""
        return self.machine.session.acks_paused

    def idle_seconds(self, now: float) -> float:
        """Return the seconds at ``now`` since a message, a call, or data of a bulk link was last sent or received."""
        return max(0.0, now - max(self.machine.session.active_at, self.traffic.bulk_active_at))

    def _execute(self, effect: Effect) -> None:
        try:
            match effect:
                case TakeResponse():
                    self.rpc.take_response(effect.payload)
                case ConfirmDelivery():
                    self._deliveries.confirm(effect.number)
                case MessageRefused():
                    self._deliveries.refuse(effect.number, effect.error)
                case TakeTransferRecord(kind=RecordKind.TRANSFER_FINISHED):
                    self._deliveries.deliver_transfer(self.transfers.take_end(effect.payload))
                case TakeTransferRecord():
                    self.transfers.take_record(effect.kind, effect.payload)
                case TransferRefused():
                    self.transfers.refuse(effect.number, effect.error)
                case ResolvePing():
                    self._resolve_ping(effect)
                case Report():
                    self._report(effect.error)
        except AeronSparkError as error:  # of one record: the other ones are still valid
            self._report(error)

    def _resolve_ping(self, ended: ResolvePing) -> None:
        with self.state_lock:
            waiter = self._ping_waiters.pop(ended.number, None)
        if waiter is None:
            return
        if ended.round_trip is None:
            fail(waiter, WaitTimeout(f"no response to a ping of {self.label} in time", remedy="Check the network."))
        else:
            resolve(waiter, ended.round_trip)

    def _pause_source(self, link: Link) -> None:
        """Pause acknowledgements when listeners or calls are too slow. The peer's buffer fills, and its senders wait.

        For a peer that does not respect the bound of its buffer, pause the subscription: Aeron's window fills. A long
        backlog of calls also pauses it, for some milliseconds: the event loop needs time for each call in a frame.
        """
        for work in (self._delivering, self._assembling, self.peer_calls):
            if work.is_full:
                self._pause_acks(True)
                if work.exceeds(self.owner.options.session_limits.buffer_bytes):
                    self.owner.pause(link.token)
                self._has_room()  # the work may have become less meanwhile
        if self.peer_calls.has_long_backlog:
            self.owner.pause(link.token)
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
            self.owner.resume(link.token)

    def _pause_acks(self, paused: bool) -> None:
        with self.state_lock:
            self.machine.pause_acks(paused)

    def _call_ended(self, call: PeerCall, seconds: float, error: BaseException | None) -> None:
        name = "" if call.is_one_way else call_name(self.id, call.call_id)
        self.owner.facts.emit(CallEnded(self, name, call.number, call.what, call.request, seconds, error))

    def _report(self, error: BaseException) -> None:
        self.owner.report(self, error)

    def _take_transfer(self, received: ReceivedTransfer) -> Callable[[], None] | None:
        kind = PURPOSES.get(received.start.purpose)
        if kind is None:
            return self._deliveries.prepare(received, self.owner.options.spill_folder)
        if kind is RecordKind.RETURN:
            self.rpc.take_response(content_of(received))
        else:
            self.peer_calls.take(((kind, content_of(received)),))
        return None

    def _call_listeners(self, message: object) -> RefusedError | None:
        """Call the listeners of a message; return why it was not processed: a listener raised, or there is none."""
        failure: RefusedError | None = None
        listeners, own = self.owner.listeners_of(type(message)), self.listeners.matching(type(message))
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

    def _send_record(self, kind: int, payload: bytes, end: float | None) -> None:
        if len(payload) > self.machine.session.limits.max_record_bytes:
            self.transfers.send_record(kind, payload, self.owner.options.send_timeout)
        elif end is None:
            self.sender.reply(kind, payload)
        else:
            self.sender.push(kind, payload, end)

    def _begin_record(self, kind: int, payload: bytes) -> Future[None] | None:
        fits = len(payload) <= self.machine.session.limits.max_record_bytes
        return self.sender.begin_push(kind, payload) if fits else None

    def _send_request(self, kind: int, payload: bytes, end: float, response: Future[Any]) -> None:
        if len(payload) > self.machine.session.limits.max_record_bytes:
            self.transfers.send_request(kind, payload, self.owner.options.send_timeout, response)
        else:
            self.sender.push(kind, payload, end)

    def _refusal_of_transfer(self, start: TransferStart) -> RefusedError | None:
        if self.owner.is_memory_full(self, start.total):
            return memory_refusal(start.total)
        if start.purpose in REQUESTS:
            return self.peer_calls.refusal_of_bytes(start.total, self.transfers.assembly.announced_bytes(*REQUESTS))
        return self.owner.refusal(self, start.purpose)
