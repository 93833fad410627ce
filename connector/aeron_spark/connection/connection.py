"""A connection as a program uses it: send, listen, call, ping, close. It outlives its duologues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Protocol

from aeron_spark.connection.frame_sender import FrameSender
from aeron_spark.connection.inbound import Deliveries, SerialExecutor
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.listeners import Listeners
from aeron_spark.connection.owner import EndpointServices, PeerInfo
from aeron_spark.connection.rpc import GRACE, STUCK, RpcRunner
from aeron_spark.connection.spill import content_of
from aeron_spark.connection.transfers import TransferRunner
from aeron_spark.errors import AeronSparkError, ConnectError, UsageError, WaitTimeout
from aeron_spark.protocol.connection_machine import (
    NUMBER_BYTES,
    ConfirmDelivery,
    ConnectionMachine,
    Deliver,
    Effect,
    EndConnection,
    LinkExpired,
    PeerClosed,
    Report,
    ResolvePing,
    SendFrame,
    TakeRequest,
    TakeResponse,
    TakeTransferRecord,
)
from aeron_spark.protocol.frames import RecordKind, decode
from aeron_spark.protocol.message_types import TYPE_ID, BuiltIn
from aeron_spark.protocol.rpc_messages import Target
from aeron_spark.protocol.rpc_objects import Origin, Proxy
from aeron_spark.protocol.transfers import Purpose, ReceivedTransfer
from aeron_spark.transport.api import OfferResult
from aeron_spark.waiting import result_within

BATCH: Final = 2_000  # small messages encoded at a time by send_many
BYTES_HEAD: Final = TYPE_ID.pack(BuiltIn.BYTES)  # what makes a message of bytes
PURPOSES: Final = {Purpose.CALL: RecordKind.CALL, Purpose.RETURN: RecordKind.RETURN, Purpose.OBJECT: RecordKind.OBJECT}


class ConnectionOwner(EndpointServices, Protocol):
    """The client or the server that a connection belongs to. Any thread may call it, and nothing here blocks."""

    def is_permitted(self, connection: Connection, target: Target, method: str) -> bool:
        """Whether this peer may call this."""

    def deliver(self, connection: Connection, message: object) -> bool:
        """Hand a message to the endpoint's own listeners; whether there was any."""

    def report(self, connection: Connection | None, error: BaseException) -> None:
        """Tell whoever listens for errors."""

    def request_flush(self, connection: Connection) -> None:
        """Have the agent look at the connection soon: Aeron did not take a frame."""

    def pause(self, token: int) -> None:
        """Hold the peer up: its messages are not taken as fast as they come."""

    def resume(self, token: int) -> None:
        """Take its messages again."""

    def close_connection(self, connection: Connection, keep_session: bool) -> None:
        """Close the connection, and tell the peer; return when that is done or has taken too long."""


class Connection:
    """One peer. Thread-safe; what its own endpoint calls stands below ``close``.

    ``id`` is the same number at both ends; ``data`` is the program's own. A subclass of a program's own is given to its
    endpoint as ``connection_class``.
    """

    def __init__(self, owner: ConnectionOwner, who: PeerInfo, number: int) -> None:
        settings = owner.settings
        self.id = number
        self.who = who
        self.data: dict[str, Any] = {}
        self.owner = owner
        self.tampered: list[float] = []  # when frames failed their authentication, of late
        self.state_lock = threading.RLock()
        self.machine = ConnectionMachine(settings.session, settings.times, time.monotonic())
        self.sender = FrameSender(self.machine, self.state_lock, lambda: self.label, lambda: owner.request_flush(self))
        self._ping_waiters: dict[int, Future[float]] = {}  # by number
        self._listeners: Listeners[Callable[[Any], object]] = Listeners()
        self._goodbyes: list[Callable[[Connection], object]] = []
        self._delivering = SerialExecutor(owner.listener_pool, settings.queue_bytes, self._has_room)
        self._assembling = SerialExecutor(owner.listener_pool, settings.queue_bytes, self._has_room)
        self._rpc = RpcRunner(
            self.state_lock, owner, lambda target, method: owner.is_permitted(self, target, method), self._send_record,
            self._has_room, self._report, number, lambda: self.label,
        )  # fmt: skip
        self._transfers = TransferRunner(
            self.sender, self.machine, self.state_lock, owner, self._assembling, self._transfer_came, self._report
        )
        types, objects = owner.types, self._rpc.references
        self._deliveries = Deliveries(
            self.sender, self.state_lock, self._delivering, lambda data: types.decode(data, objects),
            lambda type_id, body: types.decode_body(type_id, body, objects), self._hand, self._report,
        )  # fmt: skip

    @property
    def key(self) -> bytes:
        """The peer's public key, 32 bytes; it has proved to own it."""
        return self.who.key

    @property
    def tag(self) -> str:
        """What the client calls itself."""
        return self.who.tag

    @property
    def remote_address(self) -> str:
        """The peer's IP address as it is seen here; an empty text over IPC."""
        return self.who.address

    @property
    def remote_port(self) -> int:
        """The peer's UDP port as it is seen here; 0 over IPC."""
        return self.who.port

    @property
    def is_ipc(self) -> bool:
        """Whether the peer shares this endpoint's media driver."""
        return self.who.is_ipc

    @property
    def remote_key_changed(self) -> bool:
        """Whether the peer is known by another key, and was let in because validation is off."""
        return self.who.key_changed

    @property
    def max_message(self) -> int:
        """Bytes of the longest message that is sent in one piece; longer ones are streamed in chunks."""
        return self.machine.session.limits.max_record_bytes - TYPE_ID.size

    @property
    def connected(self) -> bool:
        """Whether a duologue carries the connection now."""
        return self.machine.attached

    @property
    def closed(self) -> bool:
        """Whether it is over for good."""
        return self.machine.error is not None

    @property
    def last_result(self) -> OfferResult | None:
        """Why Aeron did not take the last frame that was offered; None if it did."""
        return self.sender.last_result

    @property
    def label(self) -> str:
        """How both ends name the connection in their logs."""
        return f"connection {self.id:08x} {self.tag}".rstrip()

    def __repr__(self) -> str:
        return f"<{self.label}, {'closed' if self.closed else 'connected' if self.connected else 'away'}>"

    def send(self, message: object, *, timeout: float | None = None, acknowledge: bool = False) -> None:
        """Send a message; it arrives once, in order, or the session is lost.

        Returns once it is accepted, with ``acknowledge`` once the peer's listeners have returned. ``timeout`` is how
        long to wait for that, in seconds (default: the endpoint's); 0 tries once. Raises WaitTimeout with the result
        that Aeron gave last, OptionError for what cannot be sent, SessionLost or EndedError once it is over.
        """
        seconds = self._seconds(timeout)
        if type(message) is bytes and len(message) <= self.max_message - NUMBER_BYTES and not acknowledge:
            self.sender.push(RecordKind.MESSAGE, BYTES_HEAD + message, time.monotonic() + seconds)
            return
        encoded = self.owner.types.encode(message, self._rpc.references)
        if encoded.size + NUMBER_BYTES <= self.machine.session.limits.max_record_bytes:
            data = b"".join(encoded.parts())
            if acknowledge:
                self._deliveries.send(data, seconds, self.label)
            else:
                self.sender.push(RecordKind.MESSAGE, data, time.monotonic() + seconds)
            return
        acknowledged = (lambda: self._deliveries.send(b"", seconds, self.label)) if acknowledge else None
        self._transfers.send_message(encoded, seconds, acknowledged)

    def send_many(self, messages: Sequence[object], *, timeout: float | None = None) -> None:
        """Send many messages, many to a frame: the fast way for small ones. Raises as ``send`` does."""
        seconds = self._seconds(timeout)
        most = self.machine.session.limits.max_record_bytes
        encode, objects = self.owner.types.encode, self._rpc.references
        for first in range(0, len(messages), BATCH):
            some = messages[first : first + BATCH]
            payloads = [
                BYTES_HEAD + one if type(one) is bytes else b"".join(encode(one, objects).parts()) for one in some
            ]
            if max(map(len, payloads)) > most:
                for one in some:
                    self.send(one, timeout=timeout)
            else:
                self.sender.push_many(RecordKind.MESSAGE, payloads, time.monotonic() + seconds)

    def send_file(self, path: str | Path, *, name: str | None = None, timeout: float | None = None) -> None:
        """Send a file, read as it goes; the peer's listeners for ReceivedFile get it. Raises as ``send`` does."""
        self._transfers.send_file(Path(path), name, self._seconds(timeout))

    def on_message(self, kind: type, listener: Callable[[Any], object]) -> None:
        """Have ``listener(message)`` called for each message of this class or a subclass; ``object`` for all."""
        with self.state_lock:
            self._listeners.add(kind, listener)

    def on_disconnect(self, listener: Callable[[Connection], object]) -> Callable[[Connection], object]:
        """Have ``listener(connection)`` called once when the connection has gone."""
        self._goodbyes.append(listener)
        return listener

    def register(self, value: object, methods: Iterable[str], number: int | None = None) -> int:
        """Let this peer call the listed methods of ``value``; return the number by which it does."""
        with self.state_lock:
            return self._rpc.objects.register(value, methods, number)

    def serve(self, value: object, methods: Iterable[str], number: int) -> None:
        """As ``register``, for what the endpoint itself offers on every connection; it counts as no object."""
        with self.state_lock:
            self._rpc.objects.register(value, methods, number, origin=Origin.SERVICE)

    def unregister(self, value: object) -> bool:
        """End an object of ours for this peer, who is told; whether it was one."""
        return self._rpc.end(value)

    def remote(self, target: str | int) -> Proxy:
        """A stand-in for the peer's object of this name or number. Nobody is asked: a wrong one fails when called."""
        with self.state_lock:
            return self._rpc.objects.proxy(target)

    def create(self, factory: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Proxy:
        """Have the peer's factory of this name make an object for us, and return a stand-in for it."""
        return self._rpc.create(factory, args, kwargs, timeout)

    def delete(self, proxy: Proxy, *, timeout: float | None = None) -> None:
        """End an object that was made for us, on both sides."""
        self._rpc.delete(proxy, timeout)

    def ping(self, timeout: float | None = None) -> float:
        """Return the round trip to the peer's endpoint and back, in seconds.

        Raises WaitTimeout without an answer in time, ConnectError while no duologue is there.
        """
        seconds = self.owner.settings.times.ping_seconds if timeout is None else timeout
        waiter: Future[float] = Future()
        with self.state_lock:
            self.machine.check()
            if not self.connected:
                raise ConnectError(f"{self.label} is away", remedy="It is being made anew; try again")
            number = self.machine.start_ping(seconds, time.monotonic())
            if number is None:
                raise UsageError("too many pings wait for their answer", remedy="Wait for some of them")
            self._ping_waiters[number] = waiter
        self.sender.flush()
        # the event loop ends it at its deadline, and ``end`` where there is no event loop any more
        return result_within(waiter, seconds + GRACE, f"the answer of {self.label} to a ping", remedy=STUCK)

    def close(self, *, keep_session: bool = False) -> None:
        """Close: what was sent goes out first, for some seconds at most. The peer is told at once.

        With ``keep_session`` both sides keep what was not acknowledged, and the client can come back to it.
        """
        self.owner.close_connection(self, keep_session)

    # What follows is for the endpoint it belongs to.

    def receive(self, link: LinkEnds, payload: memoryview, now: float) -> PeerClosed | None:
        """Take a frame of the current link; return whether the peer closed the connection with it.

        Raises TamperedError or DataFormatError, and changes nothing, for one that the peer cannot have sent.
        """
        frame = decode(link.decryptor.decrypt(payload))
        with self.state_lock:
            received = self.machine.receive(frame, now)
            if received.made_room:
                self.sender.room.notify_all()
        if received.frame_due:
            self.sender.flush()
        closed: PeerClosed | None = None
        for effect in received.effects:
            if isinstance(effect, Deliver):
                self._deliveries.messages(effect.messages)
            elif isinstance(effect, PeerClosed):
                closed = effect
            else:
                self._carry_out(effect)
        if received.effects:
            self._pause_source(link)
        return closed

    def tick(self, now: float) -> bool:
        """Do what is due at ``now``; return whether the link was silent for longer than its expiry.

        Raises the error with which the connection must be ended.
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
                    self._carry_out(effect)
        if frame_due:
            self.sender.flush()
        return expired

    def is_due(self, now: float) -> bool:
        """Whether :meth:`tick` may have something to do by ``now``."""
        with self.state_lock:
            deadline = self.machine.deadline()
        return deadline is not None and deadline <= now

    def in_order(self, work: Callable[[], None]) -> None:
        """Run ``work`` after all listeners of what came before."""
        self._delivering.submit(work)

    def say_goodbye(self) -> None:
        """Call those who listen for the end."""
        for listener in self._goodbyes:
            try:
                listener(self)
            except Exception as error:
                self.owner.report(self, error)

    def end(self, error: AeronSparkError) -> None:
        """It is over for good: whoever waits hears ``error``, and what had arrived in parts is removed."""
        self.sender.close(error)
        self._rpc.close(error.what)
        self._transfers.close()
        self._deliveries.fail_all(error)
        with self.state_lock:
            waiters, self._ping_waiters = self._ping_waiters, {}
        for waiter in waiters.values():
            waiter.set_exception(error)

    @property
    def asks(self) -> bool:
        """Whether a ping or a call waits for its answer, or its deadline."""
        return bool(self.machine.pings or len(self._rpc.calls))

    @property
    def held(self) -> dict[str, int]:
        """What is in use: for statistics, and for a look that nothing leaks."""
        return {
            "calls": len(self._rpc.calls),
            "running": self._rpc.dispatcher.running,
            "objects": len(self._rpc.objects),
            "pings": self.machine.pings,
            "streams": len(self._transfers.assembly),
            "stream_bytes": self._transfers.assembly.memory_bytes,
            "buffered_bytes": self.machine.session.buffered_bytes,
            "acknowledgements": len(self._deliveries),
        }

    def _carry_out(self, effect: Effect) -> None:
        try:
            match effect:
                case TakeRequest():
                    self._rpc.take_request(effect.kind, effect.payload)
                case TakeResponse():
                    self._rpc.take_response(effect.payload)
                case ConfirmDelivery():
                    self._deliveries.confirmed(effect.number)
                case TakeTransferRecord(kind=RecordKind.TRANSFER_FINISHED):
                    self._deliveries.in_turn(self._transfers.take_end(effect.payload))
                case TakeTransferRecord():
                    self._transfers.take_record(effect.kind, effect.payload)
                case ResolvePing():
                    self._resolve_ping(effect)
                case Report():
                    self._report(effect.error)
        except AeronSparkError as error:  # of one record: the others are as good as before
            self._report(error)

    def _resolve_ping(self, ended: ResolvePing) -> None:
        with self.state_lock:
            waiter = self._ping_waiters.pop(ended.number, None)
        if waiter is None:
            return
        if ended.round_trip is None:
            waiter.set_exception(
                WaitTimeout(f"no answer to a ping of {self.label} in time", remedy="Look at the network")
            )
        else:
            waiter.set_result(ended.round_trip)

    def _pause_source(self, link: LinkEnds) -> None:
        """Pause acknowledgements where listeners or calls are too slow: the peer's buffer fills, and its senders wait.

        A peer that ignores the bound of its buffer fills Aeron's window instead.
        """
        for work in (self._delivering, self._assembling, self._rpc):
            if work.full:
                self._pause_acks(True)
                if work.beyond(self.owner.settings.session.buffer_bytes):
                    self.owner.pause(link.token)
                self._has_room()  # they may have made some in between

    def _has_room(self) -> None:
        if self._delivering.full or self._assembling.full or self._rpc.full:
            return
        self._pause_acks(False)
        self.sender.flush()
        link = self.sender.link
        if link is not None:
            self.owner.resume(link.token)

    def _pause_acks(self, paused: bool) -> None:
        with self.state_lock:
            self.machine.pause_acks(paused)

    def _report(self, error: BaseException) -> None:
        self.owner.report(self, error)

    def _transfer_came(self, received: ReceivedTransfer) -> Callable[[], None] | None:
        kind = PURPOSES.get(received.start.purpose)
        if kind is None:
            return self._deliveries.stream(received, self.owner.settings.spill_folder)
        if kind is RecordKind.RETURN:
            self._rpc.take_response(content_of(received))
        else:
            self._rpc.take_request(kind, content_of(received))
        return None

    def _hand(self, message: object) -> None:
        heard = self.owner.deliver(self, message)
        for listener in self._listeners.matching(type(message)):
            heard = True
            try:
                listener(message)
            except Exception as error:
                self.owner.report(self, error)
        if not heard:
            self.owner.report(
                self, UsageError(f"nobody listens for a {type(message).__name__}", remedy="Add a listener for it")
            )

    def _send_record(self, kind: int, payload: bytes, end: float | None) -> None:
        if len(payload) > self.machine.session.limits.max_record_bytes:
            self._transfers.send_record(kind, payload, self.owner.settings.send_seconds)
        elif end is None:
            self.sender.reply(kind, payload)
        else:
            self.sender.push(kind, payload, end)

    def _seconds(self, timeout: float | None) -> float:
        return self.owner.settings.send_seconds if timeout is None else timeout
