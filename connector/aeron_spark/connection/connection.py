"""The connection that a program uses: messages, listeners, calls, pings. It lasts over several links."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Protocol

from aeron_spark.connection.call_observer import ServedCall
from aeron_spark.connection.frame_sender import FrameSender
from aeron_spark.connection.inbound import Deliveries, SerialExecutor
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.listeners import Listeners
from aeron_spark.connection.message_sender import BegunMessage, MessageSender
from aeron_spark.connection.owner import EndpointServices, PeerInfo
from aeron_spark.connection.rpc import GRACE_S, STUCK_REMEDY, BegunRequest, RpcRunner
from aeron_spark.connection.spill import content_of
from aeron_spark.connection.traffic import Traffic
from aeron_spark.connection.transfers import TransferRunner
from aeron_spark.connection.unconfirmed import messages_of
from aeron_spark.errors import AeronSparkError, ConnectError, RefusedError, UsageError, WaitTimeout
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
from aeron_spark.protocol.message_types import TYPE_ID, Buffer
from aeron_spark.protocol.rpc_dispatch import memory_refusal
from aeron_spark.protocol.rpc_messages import Call, Create, Target
from aeron_spark.protocol.rpc_objects import Origin, Proxy
from aeron_spark.protocol.transfers import Purpose, ReceivedTransfer, TransferStart
from aeron_spark.transport.api import OfferResult
from aeron_spark.waiting import fail, resolve, result_within

PURPOSES: Final = {Purpose.CALL: RecordKind.CALL, Purpose.RETURN: RecordKind.RETURN, Purpose.OBJECT: RecordKind.OBJECT}
REQUESTS: Final = (Purpose.CALL, Purpose.OBJECT)  # transfers that count as calls of the peer


class ConnectionOwner(EndpointServices, Protocol):
    """The runtime of the client or server that a connection belongs to. Thread-safe; only its last method blocks."""

    def is_permitted(self, connection: Connection, target: Target, method: str) -> bool:
        """Whether the peer of a connection may call this method."""

    def refusal(self, connection: Connection, purpose: Purpose) -> RefusedError | None:
        """Why the peer of a connection may not send messages or files; None: it may."""

    def is_memory_full(self, connection: Connection, size: int) -> bool:
        """Whether the endpoint has no memory for a request or a transfer of ``size`` bytes of this connection."""

    def deliver(self, connection: Connection, message: object) -> bool:
        """Call the endpoint's listeners of a message; return whether it has any."""

    def report(self, connection: Connection | None, error: BaseException) -> None:
        """Report an error to the error listeners."""

    def call_ended(self, connection: Connection, ended: ServedCall) -> None:
        """Learn that a call of the peer has ended."""

    def request_flush(self, connection: Connection) -> None:
        """Have the event loop flush the connection's sender soon, because Aeron did not take a frame."""

    def pause(self, token: int) -> None:
        """Stop taking messages from a subscription, so that Aeron's window fills."""

    def resume(self, token: int) -> None:
        """Take messages from a subscription again."""

    def close_connection(self, connection: Connection, keep_session: bool) -> None:
        """Close a connection: send its unsent messages, for some seconds at most, then send CLOSE."""


class Connection:
    """The connection with one peer. Thread-safe; the methods below ``close`` are for its endpoint.

    ``id`` is the same number at both ends. ``data`` is for the program. A program can give a subclass to its endpoint
    as ``connection_class``.
    """

    def __init__(self, owner: ConnectionOwner, peer: PeerInfo, number: int) -> None:
        settings = owner.settings
        self.id = number
        self.peer = peer
        self.data: dict[str, Any] = {}
        self.owner = owner
        self.connected_at = time.time()
        """When the connection was made, in seconds since 1970."""
        self.traffic = Traffic(time.monotonic())
        self.close_error: AeronSparkError | None = None  # why this endpoint closes it, if the program did not close it
        self.tampered: list[float] = []  # times of recent frames that failed their authentication
        self.state_lock = threading.RLock()
        self.machine = ConnectionMachine(settings.session, settings.times, time.monotonic())
        self.sender = FrameSender(self.machine, self.state_lock, lambda: self.label, lambda: owner.request_flush(self))
        self.is_held = False
        """Whether the endpoint reads nothing from it for now."""
        self.messages_received = 0
        self._ping_waiters: dict[int, Future[float]] = {}  # by number
        self._listeners: Listeners[Callable[[Any], object]] = Listeners()
        self._disconnect_listeners: list[Callable[[Connection], object]] = []
        self._delivering = SerialExecutor(owner.listener_pool, settings.queue_bytes, self._has_room)
        self._assembling = SerialExecutor(owner.listener_pool, settings.queue_bytes, self._has_room)
        self._rpc = RpcRunner(
            self.state_lock, owner, lambda target, method: owner.is_permitted(self, target, method), self._send_record,
            self._send_request, lambda size: owner.is_memory_full(self, size), self._has_room, self._resume_source,
            self._report, number, lambda ended: owner.call_ended(self, ended),
        )  # fmt: skip
        self._transfers = TransferRunner(
            self.sender, self.machine, self.state_lock, owner, self._assembling,
            self._refusal_of_transfer, self._take_transfer, self._report,
        )  # fmt: skip
        types, objects = owner.types, self._rpc.references
        self._deliveries = Deliveries(
            self.sender, self.state_lock, self._delivering, lambda: owner.refusal(self, Purpose.MESSAGE),
            lambda data: types.decode(data, objects),
            lambda type_id, body: types.decode_body(type_id, body, objects), self._call_listeners, self._report,
        )  # fmt: skip
        self._messages = MessageSender(
            self.sender, self.machine, self._deliveries, self._transfers, types, objects, lambda: self.label
        )

    @property
    def key(self) -> bytes:
        """The peer's public key, 32 bytes, which the peer has proved to own."""
        return self.peer.key

    @property
    def tag(self) -> str:
        """The name that the client gave itself."""
        return self.peer.tag

    @property
    def remote_address(self) -> str:
        """The peer's IP address as this endpoint sees it; empty over IPC."""
        return self.peer.address

    @property
    def remote_port(self) -> int:
        """The peer's UDP port as this endpoint sees it; 0 over IPC."""
        return self.peer.port

    @property
    def is_ipc(self) -> bool:
        """Whether the peer shares this endpoint's media driver."""
        return self.peer.is_ipc

    @property
    def remote_key_changed(self) -> bool:
        """Whether the peer was known by another key, and was accepted because validation is off."""
        return self.peer.key_changed

    @property
    def max_message(self) -> int:
        """Bytes of the longest message that is sent in one record. A longer one is sent as a transfer."""
        return self.machine.session.limits.max_record_bytes - TYPE_ID.size

    @property
    def connected(self) -> bool:
        """Whether a link carries the connection now."""
        return self.machine.attached

    @property
    def closed(self) -> bool:
        """Whether it is closed, and cannot resume."""
        return self.machine.error is not None

    @property
    def last_result(self) -> OfferResult | None:
        """Why Aeron did not take the last frame that was offered; None if it did."""
        return self.sender.last_result

    @property
    def id_text(self) -> str:
        """The id as logs, lists and commands have it: eight hexadecimal digits."""
        return f"{self.id:08x}"

    @property
    def label(self) -> str:
        """The name of the connection in the logs of both ends."""
        return f"connection {self.id_text} {self.tag}".rstrip()

    def __repr__(self) -> str:
        return f"<{self.label}, {'closed' if self.closed else 'connected' if self.connected else 'not connected'}>"

    def send(self, message: object, *, timeout: float | None = None, acknowledge: bool = False) -> None:
        """Send a message. It arrives once and in order, unless the session is lost.

        Returns when the message is accepted, and with ``acknowledge`` when the peer's listeners have returned. The call
        waits for that for ``timeout`` seconds, by default the endpoint's; 0 tries once. Raises WaitTimeout with Aeron's
        last result, OptionError for a value that cannot be sent, SessionLost or EndedError for a closed connection.
        """
        self._messages.send(message, self._seconds(timeout), acknowledge=acknowledge)

    def send_many(self, messages: Sequence[object], *, timeout: float | None = None) -> None:
        """Send messages with many in a frame, which is faster for small ones. Raises as ``send`` does."""
        self._messages.send_many(messages, self._seconds(timeout))

    def send_file(self, path: str | Path, *, name: str | None = None, timeout: float | None = None) -> None:
        """Send a file to the peer's listeners of ReceivedFile, reading it meanwhile. Raises as ``send`` does."""
        self._transfers.send_file(Path(path), name, self._seconds(timeout))

    def on_message(self, kind: type, listener: Callable[[Any], object]) -> None:
        """Call ``listener(message)`` for each message of this class or a subclass; ``object`` stands for all."""
        with self.state_lock:
            self._listeners.add(kind, listener)

    def on_disconnect(self, listener: Callable[[Connection], object]) -> Callable[[Connection], object]:
        """Call ``listener(connection)`` when the connection is lost or closed."""
        self._disconnect_listeners.append(listener)
        return listener

    def register(self, value: object, methods: Iterable[str], number: int | None = None) -> int:
        """Let this peer call the listed methods of ``value``; return the number of the object."""
        with self.state_lock:
            return self._rpc.objects.register(value, methods, number)

    def serve(self, value: object, methods: Iterable[str], number: int) -> None:
        """Register a service of the endpoint itself, which does not count as an object of the program."""
        with self.state_lock:
            self._rpc.objects.register(value, methods, number, origin=Origin.SERVICE)

    def unregister(self, value: object) -> bool:
        """End a registered object for this peer, and notify the peer; return whether it was registered."""
        return self._rpc.end(value)

    def remote(self, target: str | int) -> Proxy:
        """Return a proxy of the peer's object of this name or number. A wrong name fails at the first call."""
        with self.state_lock:
            return self._rpc.objects.proxy(target)

    def create(self, factory: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Proxy:
        """Have the peer's factory of this name create an object, and return its proxy."""
        return self._rpc.create(factory, args, kwargs, timeout)

    def delete(self, proxy: Proxy, *, timeout: float | None = None) -> None:
        """Delete an object that the peer created for this endpoint."""
        self._rpc.delete(proxy, timeout)

    def ping(self, timeout: float | None = None) -> float:
        """Return the round-trip time to the peer's endpoint in seconds.

        Raises WaitTimeout without a response within ``timeout`` seconds, ConnectError while no link is connected.
        """
        seconds = self.owner.settings.times.ping_seconds if timeout is None else timeout
        # The event loop ends the ping at its deadline, and ``end`` after the end of the event loop.
        what = f"the response of {self.label} to a ping"
        return result_within(self.begin_ping(timeout), seconds + GRACE_S, what, remedy=STUCK_REMEDY)

    def close(self, *, keep_session: bool = False) -> None:
        """Close: send the unsent messages, for some seconds at most, then CLOSE.

        With ``keep_session`` both ends keep the session with its unacknowledged messages, and the client can resume it.
        """
        self.owner.close_connection(self, keep_session)

    # For a program's event loop of asyncio: these calls do not wait.

    def begin_send(self, message: object, *, acknowledge: bool = False) -> BegunMessage | None:
        """Send a message as soon as there is room; None if it is too large for a record."""
        return self._messages.begin(message, acknowledge=acknowledge)

    def begin_call(self, call: Call, timeout: float | None) -> BegunRequest | None:
        """Call a remote method as soon as there is room; None if its arguments are too large for a record."""
        return self._rpc.begin_request(RecordKind.CALL, call, timeout, self._begin_record)

    def begin_one_way(self, call: Call) -> Future[None] | None:
        """Call a remote method without a response; return the future of its acceptance, or None as ``begin_call``."""
        return self._begin_record(RecordKind.CALL, self._rpc.encode_one_way(call))

    def begin_create(self, create: Create, timeout: float | None) -> BegunRequest | None:
        """Have the peer's factory create an object; as ``begin_call``."""
        return self._rpc.begin_request(RecordKind.OBJECT, create, timeout, self._begin_record)

    def begin_ping(self, timeout: float | None = None) -> Future[float]:
        """Send a ping; return the future of its round-trip time. Raises as :meth:`ping`, and the future fails so."""
        seconds = self.owner.settings.times.ping_seconds if timeout is None else timeout
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

    # For the endpoint.

    def receive(self, link: LinkEnds, payload: memoryview, now: float) -> PeerClosed | None:
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
            self._rpc.take_requests(requests)
        if received.effects:
            self._pause_source(link)
        return closed

    def tick(self, now: float) -> bool:
        """Do the work that is due at ``now``; return whether the link was silent for its expiry time.

        Raises the error with which the endpoint must end the connection.
        """
        self._rpc.tick(now)
        link = self.sender.link
        link_connected = link is not None and link.connected
        with self.state_lock:
            effects = self.machine.tick(link_connected, now)
        expired, frame_due = False, self.sender.is_blocked
        for effect in effects:
            match effect:
                case SendFrame():
                    frame_due = True
                case LinkExpired():
                    expired = True
                case EndConnection():
                    raise effect.error
                case _:
                    self._execute(effect)
        if frame_due:
            self.sender.flush()
        return expired

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
        for listener in self._disconnect_listeners:
            try:
                listener(self)
            except Exception as error:
                self.owner.report(self, error)

    def end(self, error: AeronSparkError) -> list[OutgoingRecord]:
        """End the connection: threads that wait raise ``error``, and incomplete transfers are removed.

        Returns the records that the peer has not acknowledged.
        """
        unconfirmed = self.sender.close(error)
        self._rpc.close(error.what)
        self._transfers.close()
        self._deliveries.fail_all(error)
        with self.state_lock:
            waiters, self._ping_waiters = self._ping_waiters, {}
        for waiter in waiters.values():
            fail(waiter, error)
        return unconfirmed

    def messages_of(self, records: Sequence[OutgoingRecord]) -> tuple[object, ...]:
        """Return the messages and files of the records that ``end`` returned."""
        return tuple(messages_of(records, self.owner.types, self._transfers.unconfirmed()))

    @property
    def is_awaiting(self) -> bool:
        """Whether a ping or a call waits for its response or its deadline."""
        return bool(self.machine.pings or len(self._rpc.calls))

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
            "calls": len(self._rpc.calls),
            "running": self._rpc.running,
            "objects": len(self._rpc.objects),
            "pings": self.machine.pings,
            "streams": len(self._transfers.assembly),
            "stream_bytes": self._transfers.assembly.memory_bytes,
            "buffered_bytes": self.machine.session.buffered_bytes,
            "acknowledgements": len(self._deliveries),
        }

    @property
    def running_calls(self) -> int:
        """Number of the peer's calls that wait for a worker or run."""
        return self._rpc.running

    @property
    def unread_calls(self) -> int:
        """Number of the client's calls that were received, and whose method no thread has looked up yet."""
        return self._rpc.unread

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were received and wait for listeners, for workers, or for the rest of a transfer."""
        listeners = self._delivering.weight + self._assembling.weight
        return listeners + self._rpc.held_bytes + self._transfers.assembly.memory_bytes

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
                    self._rpc.take_response(effect.payload)
                case ConfirmDelivery():
                    self._deliveries.confirm(effect.number)
                case MessageRefused():
                    self._deliveries.refuse(effect.number, effect.error)
                case TakeTransferRecord(kind=RecordKind.TRANSFER_FINISHED):
                    self._deliveries.deliver_transfer(self._transfers.take_end(effect.payload))
                case TakeTransferRecord():
                    self._transfers.take_record(effect.kind, effect.payload)
                case TransferRefused():
                    self._transfers.refuse(effect.number, effect.error)
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

    def _pause_source(self, link: LinkEnds) -> None:
        """Pause acknowledgements when listeners or calls are too slow. The peer's buffer fills, and its senders wait.

        For a peer that does not respect the bound of its buffer, pause the subscription: Aeron's window fills. A long
        backlog of calls also pauses it, for some milliseconds: the event loop needs time for each call in a frame.
        """
        for work in (self._delivering, self._assembling, self._rpc):
            if work.is_full:
                self._pause_acks(True)
                if work.exceeds(self.owner.settings.session.buffer_bytes):
                    self.owner.pause(link.token)
                self._has_room()  # the work may have become less meanwhile
        if self._rpc.has_long_backlog:
            self.owner.pause(link.token)
            self._resume_source()  # the backlog may have become short meanwhile

    def _has_room(self) -> None:
        if self.is_held or self._delivering.is_full or self._assembling.is_full or self._rpc.is_full:
            return
        self._pause_acks(False)
        self.sender.flush()
        self._resume_source()

    def _resume_source(self) -> None:
        """Take messages from the subscription again, unless there is a reason against it."""
        link, limit = self.sender.link, self.owner.settings.session.buffer_bytes
        if link is None or self.is_held or self._rpc.has_long_backlog:
            return
        if not any(work.exceeds(limit) for work in (self._delivering, self._assembling, self._rpc)):
            self.owner.resume(link.token)

    def _pause_acks(self, paused: bool) -> None:
        with self.state_lock:
            self.machine.pause_acks(paused)

    def _report(self, error: BaseException) -> None:
        self.owner.report(self, error)

    def _take_transfer(self, received: ReceivedTransfer) -> Callable[[], None] | None:
        kind = PURPOSES.get(received.start.purpose)
        if kind is None:
            return self._deliveries.prepare(received, self.owner.settings.spill_folder)
        if kind is RecordKind.RETURN:
            self._rpc.take_response(content_of(received))
        else:
            self._rpc.take_request(kind, content_of(received))
        return None

    def _call_listeners(self, message: object) -> None:
        has_listener = self.owner.deliver(self, message)
        for listener in self._listeners.matching(type(message)):
            has_listener = True
            try:
                listener(message)
            except Exception as error:
                self.owner.report(self, error)
        if not has_listener:
            self.owner.report(
                self,
                UsageError(
                    f"a message of class {type(message).__name__} has no listener", remedy="Add a listener for it."
                ),
            )

    def _send_record(self, kind: int, payload: bytes, end: float | None) -> None:
        if len(payload) > self.machine.session.limits.max_record_bytes:
            self._transfers.send_record(kind, payload, self.owner.settings.send_seconds)
        elif end is None:
            self.sender.reply(kind, payload)
        else:
            self.sender.push(kind, payload, end)

    def _begin_record(self, kind: int, payload: bytes) -> Future[None] | None:
        fits = len(payload) <= self.machine.session.limits.max_record_bytes
        return self.sender.begin_push(kind, payload) if fits else None

    def _send_request(self, kind: int, payload: bytes, end: float, response: Future[Any]) -> None:
        if len(payload) > self.machine.session.limits.max_record_bytes:
            self._transfers.send_request(kind, payload, self.owner.settings.send_seconds, response)
        else:
            self.sender.push(kind, payload, end)

    def _refusal_of_transfer(self, start: TransferStart) -> RefusedError | None:
        if self.owner.is_memory_full(self, start.total):
            return memory_refusal(start.total)
        if start.purpose in REQUESTS:
            return self._rpc.transfer_refusal(start.total, self._transfers.assembly.announced_bytes(*REQUESTS))
        return self.owner.refusal(self, start.purpose)

    def _seconds(self, timeout: float | None) -> float:
        return self.owner.settings.send_seconds if timeout is None else timeout
