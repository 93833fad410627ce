"""The listeners of a connection, which receive its messages in order on a pool that all connections share."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from aeron_spark.endpoint.sender import Sender
from aeron_spark.endpoint.spill import ReceivedFile, content_of, file_of
from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, RefusedError, UsageError
from aeron_spark.protocol.frames import (
    NUMBER_BYTES,
    OutgoingRecord,
    Record,
    RecordKind,
    encode_refused,
    number_of,
)
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_objects import ConnectionObjects
from aeron_spark.protocol.session import RECORD_COST
from aeron_spark.protocol.transfers import FINISHED, Purpose, ReceivedTransfer, TransferStart, encode_failed

_L = TypeVar("_L")


class Listeners(Generic[_L]):
    """Listeners by class, in a fixed order: those of the exact class first, then superclass by superclass."""

    def __init__(self) -> None:
        self._by_class: dict[type, tuple[_L, ...]] = {}
        self._found: _Found[_L] = _Found(self._by_class)
        self.matching: Callable[[type], tuple[_L, ...]] = self._found.__getitem__
        """Return all listeners for a message of exactly this class, in the order of the calls."""

    def add(self, cls: type, listener: _L) -> None:
        """Add a listener for messages of ``cls``, after earlier ones. Raises OptionError if ``cls`` is not a class."""
        if not isinstance(cls, type):
            raise OptionError(f"{cls!r} is not a class, by which listeners select messages", remedy="Give a class.")
        self._by_class[cls] = (*self._by_class.get(cls, ()), listener)
        self._found.clear()

    def remove(self, cls: type, listener: _L) -> bool:
        """Remove one registration of a listener; return whether it was registered."""
        remaining = list(self._by_class.get(cls, ()))
        if listener not in remaining:
            return False
        remaining.remove(listener)
        self._by_class[cls] = tuple(remaining)
        self._found.clear()
        return True


class _Found(dict[type, tuple[_L, ...]]):
    """Cache of the listeners by exact class, because each message needs them."""

    def __init__(self, by_class: dict[type, tuple[_L, ...]]) -> None:
        super().__init__()
        self._by_class = by_class

    def __missing__(self, cls: type) -> tuple[_L, ...]:
        self[cls] = found = tuple(listener for one in cls.__mro__ for listener in self._by_class.get(one, ()))
        return found


@dataclass(frozen=True, slots=True)
class UnconfirmedTransfer:
    """A file, or a message of more than one record, that was sent completely and not confirmed.

    ``name`` is that of the file, and empty for a message. ``size`` is in bytes.
    """

    name: str
    size: int


def messages_of(
    records: Iterable[OutgoingRecord], types: Types, transfers: Mapping[int, TransferStart]
) -> Iterator[object]:
    """Yield the messages and files of unacknowledged records, in the order in which they were sent.

    ``transfers`` are those that were sent completely. A message with a remote object is yielded as its encoded bytes.
    Calls are not messages, and a message with ``acknowledge`` raises in its own call of ``send``.
    """
    for kind, _, payload in records:
        if kind == RecordKind.MESSAGE:
            try:
                yield types.decode(payload)
            except DataFormatError:  # the objects of the session have ended with it
                yield bytes(payload)
        elif kind == RecordKind.TRANSFER_FINISHED:
            start = transfers.get(FINISHED.unpack(payload)[0])
            if start is not None:
                yield UnconfirmedTransfer(start.name, start.total)


LOG: Final = logging.getLogger("aeron_spark.endpoint")
NO_LISTENER: Final = "no-listener"  # reasons of messages that were not processed
LISTENER_FAILED: Final = "listener-failed"
MESSAGE_ACK_WANTED: Final = int(RecordKind.MESSAGE_ACK_WANTED)  # an int, which compares faster

Work = Callable[[], object]  # the result is dropped
CallListeners = Callable[[object], RefusedError | None]  # never raises; returns why the message was not processed


class SerialExecutor:
    """Runs work on a pool, one piece after the other, in order. Thread-safe. Logs errors of the work.

    The weight of work is in bytes. An executor with more than ``max_bytes`` is full. It still takes work, because
    received messages are in memory in any case. ``on_room`` is called when a full executor has become less than half
    full.
    """

    def __init__(self, pool: Executor, max_bytes: int, on_room: Callable[[], None]) -> None:
        self._pool = pool
        self._max_bytes = max_bytes
        self._on_room = on_room
        self._lock = threading.Lock()
        self._work: deque[tuple[Work, int]] = deque()
        self._weight = 0
        self._was_full = False
        self._running = False

    @property
    def weight(self) -> int:
        """Bytes of the waiting and running work."""
        return self._weight

    @property
    def is_full(self) -> bool:
        """Whether acknowledgements to the sender should pause."""
        return self._weight > self._max_bytes

    def exceeds(self, excess_bytes: int) -> bool:
        """Whether its bytes exceed ``max_bytes`` by more than ``excess_bytes``."""
        return self._weight > self._max_bytes + excess_bytes

    def add_weight(self, weight: int) -> None:
        """Count bytes that are kept for later work; a negative number when they are released."""
        with self._lock:
            self._weight += weight
            self._was_full = self._was_full or self.is_full

    def submit(self, work: Work, weight: int = 0) -> bool:
        """Run ``work`` after earlier work; return False if it will not run, because the pool is shut down."""
        with self._lock:
            self._work.append((work, weight))
            self._weight += weight
            self._was_full = self._was_full or self.is_full
            if self._running:
                return True
            self._running = True
        try:
            self._pool.submit(self._run)
        except RuntimeError:  # the endpoint is closed
            with self._lock:
                self._weight -= sum(refused for _, refused in self._work)
                self._work.clear()
                self._running = False
            return False
        return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._running = False
                    return
                work, weight = self._work.popleft()
            try:
                work()
            except BaseException:  # also SystemExit of a listener: later work still runs
                LOG.exception("delivery on a connection failed")
            with self._lock:
                self._weight -= weight
                has_room = self._was_full and self._weight * 2 < self._max_bytes
                self._was_full = self._was_full and not has_room
            if has_room:
                self._on_room()


class Deliveries:
    """Delivers the peer's messages to listeners in order, and confirms to the peer that the listeners have returned.

    For the event loop. Listeners run on ``executor``. ``refusal`` returns why the peer may not send messages now, or
    None.
    """

    def __init__(
        self,
        sender: Sender,
        executor: SerialExecutor,
        types: Types,
        objects: ConnectionObjects,
        refusal: Callable[[], AeronSparkError | None],
        call_listeners: CallListeners,
        report: Callable[[BaseException], None],
    ) -> None:
        self._sender = sender
        self._executor = executor
        self._types = types
        self._objects = objects
        self._refusal = refusal
        self._call_listeners = call_listeners
        self._report = report

    def deliver(self, records: Sequence[Record]) -> None:
        """Decode and deliver messages after all earlier ones."""
        weight = sum([len(payload) for _, _, payload in records]) + RECORD_COST * len(records)
        self._executor.submit(lambda: self._deliver_records(records), weight)

    def prepare(self, received: ReceivedTransfer, folder: Path) -> Callable[[], None]:
        """Return the delivery of a complete transfer, a message or a file, for :meth:`deliver_transfer`."""
        weight = 0 if received.spilled else received.start.total
        self._executor.add_weight(weight)

        def deliver() -> None:
            failure: AeronSparkError | None
            try:
                if received.start.purpose is Purpose.FILE:
                    failure = self._deliver_file(file_of(received, folder))
                else:
                    failure = self._call_listeners(self._body_of(received))
            except AeronSparkError as error:
                failure = error
                self._report(error)
            finally:
                self._executor.add_weight(-weight)
            if failure is not None:
                refused = encode_failed(
                    received.start.transfer_id, failure.what, by_receiver=True, reason=failure.reason
                )
                self._sender.reply(RecordKind.TRANSFER_FAILED, refused)

        return deliver

    def deliver_transfer(self, delivery: Future[Callable[[], None] | None]) -> None:
        """Deliver a transfer after all earlier messages; ``delivery`` gives None if it failed."""

        def deliver() -> None:
            deliver_now = self._sender.loop.wait(delivery, None, "a transfer to be assembled")
            if deliver_now is not None:
                deliver_now()

        self._executor.submit(deliver)

    def _deliver_records(self, records: Sequence[Record]) -> None:
        refusal = self._refusal()
        if refusal is not None:
            self._refuse_records(records, refusal)
            return
        decode, objects, call_listeners = self._types.decode, self._objects, self._call_listeners
        for kind, _, payload in records:
            acknowledge = kind == MESSAGE_ACK_WANTED
            body = payload[NUMBER_BYTES:] if acknowledge else payload
            failure: AeronSparkError | None = None
            if body:  # without a body, it requests the confirmation of the transfer before it
                try:
                    message = decode(body, objects)
                except AeronSparkError as error:
                    self._report(error)
                    failure = error
                else:
                    failure = call_listeners(message)
            if not acknowledge:
                continue
            if failure is None:
                self._sender.reply(RecordKind.DELIVERED, bytes(payload[:NUMBER_BYTES]))
            else:
                self._sender.reply(RecordKind.REFUSED, encode_refused(number_of(payload), failure))

    def _refuse_records(self, records: Sequence[Record], error: AeronSparkError) -> None:
        """Answer each message whose sender waits, and all other ones together."""
        numbers = {number_of(payload) if kind == MESSAGE_ACK_WANTED else 0 for kind, _, payload in records}
        for number in sorted(numbers):
            self._sender.reply(RecordKind.REFUSED, encode_refused(number, error))

    def _body_of(self, received: ReceivedTransfer) -> object:
        return self._types.decode_body(received.start.type_id, content_of(received), self._objects)

    def _deliver_file(self, file: ReceivedFile) -> RefusedError | None:
        """Call the listeners of a file. The file stays where a listener raised, because it may be the only copy."""
        failure = self._call_listeners(file)
        if failure is None or failure.reason == NO_LISTENER:
            file.path.unlink(missing_ok=True)
        elif file.path.exists():
            what = f"a listener raised an error, so the received file {file.name} stays at {file.path}"
            self._report(UsageError(what, remedy="Process the file, then delete it."))
        return failure
