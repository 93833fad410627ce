"""What arrived, on its way to the program: each connection's listeners run in order, on a pool that all share."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final

from aeron_spark.connection.frame_sender import FrameSender
from aeron_spark.connection.spill import ReceivedFile, content_of, file_of
from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.connection_machine import NUMBER_BYTES
from aeron_spark.protocol.frames import Record, RecordKind
from aeron_spark.protocol.session import RECORD_COST
from aeron_spark.protocol.transfers import Purpose, ReceivedTransfer
from aeron_spark.waiting import result_within

LOG: Final = logging.getLogger("aeron_spark.endpoint")
MESSAGE_ACK_WANTED: Final = int(RecordKind.MESSAGE_ACK_WANTED)  # a number: each message is compared with it

Work = Callable[[], object]  # the result is dropped
Decode = Callable[[int, Any], object]  # type id, body
Hand = Callable[[object], None]  # to all listeners; never raises


class SerialExecutor:
    """Runs what it is given one after the other, in order, on a pool. Thread-safe. Errors of the work are logged.

    ``weight`` is in bytes. An executor with more than ``most`` of them is ``full``; it takes more all the same, for
    what has arrived is here. ``on_room`` is called when a full one has become less than half full.
    """

    def __init__(self, pool: Executor, most: int, on_room: Callable[[], None]) -> None:
        self._pool = pool
        self._most = most
        self._on_room = on_room
        self._lock = threading.Lock()
        self._work: deque[tuple[Work, int]] = deque()
        self._weight = 0
        self._was_full = False
        self._running = False

    @property
    def full(self) -> bool:
        """Whether acknowledgements to its source should pause."""
        return self._weight > self._most

    def beyond(self, more: int) -> bool:
        """Whether it holds so many bytes more than what makes it full."""
        return self._weight > self._most + more

    def weigh(self, weight: int) -> None:
        """Count bytes that are kept for work that waits; fewer than 0: bytes that no longer are."""
        with self._lock:
            self._weight += weight
            self._was_full = self._was_full or self.full

    def submit(self, work: Work, weight: int = 0) -> bool:
        """Run ``work`` after everything submitted before; False where it will not run: the pool was shut down."""
        with self._lock:
            self._work.append((work, weight))
            self._weight += weight
            self._was_full = self._was_full or self.full
            if self._running:
                return True
            self._running = True
        try:
            self._pool.submit(self._run)
        except RuntimeError:  # the endpoint is closed, and has no listeners any more
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
            except BaseException:  # also SystemExit of a listener: the next work runs all the same
                LOG.exception("work of a connection raised an error")
            with self._lock:
                self._weight -= weight
                room = self._was_full and self._weight * 2 < self._most
                self._was_full = self._was_full and not room
            if room:
                self._on_room()


class Deliveries:
    """Messages on their way to listeners, in order, and the acknowledgement that the listeners had them.

    Receiving is for the event loop, ``send`` for any thread; listeners run on ``executor``.
    """

    def __init__(
        self, sender: FrameSender, state_lock: threading.RLock, executor: SerialExecutor,
        decode: Callable[[Any], object], decode_body: Decode, hand: Hand, report: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._sender = sender
        self._state_lock = state_lock
        self._executor = executor
        self._decode = decode
        self._decode_body = decode_body
        self._hand = hand
        self._report = report
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[None]] = {}  # by the number of the message

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, message: bytes, seconds: float, label: str) -> None:
        """Send an encoded message and wait until the peer's listeners have had it."""
        waiter: Future[None] = Future()
        with self._state_lock:
            number = next(self._numbers)
            self._waiting[number] = waiter
        end = time.monotonic() + seconds
        try:
            self._sender.push(RecordKind.MESSAGE_ACK_WANTED, number.to_bytes(NUMBER_BYTES, "big") + message, end)
            result_within(
                waiter, end - time.monotonic(), f"{label} to say that its listeners had a message",
                remedy="It may still be delivered; give it more time",
            )  # fmt: skip
        finally:
            with self._state_lock:
                self._waiting.pop(number, None)

    def confirmed(self, number: int) -> None:
        """The peer's listeners had the message of this number."""
        with self._state_lock:
            waiter = self._waiting.pop(number, None)
        if waiter is not None:
            waiter.set_result(None)

    def fail_all(self, error: AeronSparkError) -> None:
        """Raise ``error`` in the threads that wait."""
        with self._state_lock:
            waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            waiter.set_exception(error)

    def messages(self, records: Sequence[Record]) -> None:
        """Decode and deliver messages after everything before."""
        weight = sum([len(payload) for _, _, payload in records]) + RECORD_COST * len(records)
        self._executor.submit(lambda: self._deliver(records), weight)

    def stream(self, received: ReceivedTransfer, folder: Path) -> Callable[[], None]:
        """Return the delivery of a stream that came whole, a message or a file; it runs in its turn."""
        weight = 0 if received.spilled else received.start.total
        self._executor.weigh(weight)

        def deliver() -> None:
            try:
                if received.start.purpose is Purpose.FILE:
                    self._deliver_file(file_of(received, folder))
                else:
                    self._hand(self._decode_body(received.start.type_id, content_of(received)))
            except (AeronSparkError, OSError) as error:
                self._report(error)
            finally:
                self._executor.weigh(-weight)

        return deliver

    def in_turn(self, whole: Future[Callable[[], None] | None]) -> None:
        """Run what a stream's end brings after everything before."""

        def deliver() -> None:
            then = whole.result()
            if then is not None:
                then()

        self._executor.submit(deliver)

    def _deliver(self, records: Sequence[Record]) -> None:
        decode, hand = self._decode, self._hand
        for kind, _, payload in records:
            acknowledge = kind == MESSAGE_ACK_WANTED
            body = payload[NUMBER_BYTES:] if acknowledge else payload
            if body:  # without one it asks whether the message before it was delivered, which came as a stream
                try:
                    message = decode(body)
                except AeronSparkError as error:
                    self._report(error)
                    continue
                hand(message)
            if acknowledge:
                self._sender.reply(RecordKind.DELIVERED, bytes(payload[:NUMBER_BYTES]))

    def _deliver_file(self, file: ReceivedFile) -> None:
        try:
            self._hand(file)
        finally:
            file.path.unlink(missing_ok=True)
