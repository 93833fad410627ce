"""Bulk links: further links of a connection for large data.

Frames are encrypted and in order, but not acknowledged and not sent again. A receiver that is slower than the sender
leaves frames in Aeron's window, and the sender waits. A bulk link that fails is closed; its user opens another one and
repeats its request from the position that it has reached.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from math import inf
from typing import Final

from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.links import OFFER_TIMEOUT_S, Link
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.packet_watch import PacketWatch
from aeron_spark.endpoint.usage import EndpointTraffic
from aeron_spark.errors import AeronSparkError, DataFormatError, EndedError, TamperedError, TransportError, WaitTimeout
from aeron_spark.process import bind_to_process
from aeron_spark.protocol.frame_cipher import BulkFrameKind
from aeron_spark.protocol.frames import Buffer
from aeron_spark.protocol.liveness import Liveness
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE
from aeron_spark.protocol.sources import is_from_address
from aeron_spark.transport.api import (
    SEE_DRIVER,
    ImageAvailable,
    ImageUnavailable,
    MessageArrived,
    PublicationRejected,
    SubscriptionFailed,
    TransportEvent,
)

# A sending thread waits so long in Java for room. Many threads that returned to Python sooner would use all processors.
ROOM_TIMEOUT_S: Final = 0.1
MAX_RECEIVED_BYTES: Final = 4 << 20  # received and not delivered, until the image is paused and Aeron's window fills
SERVICE: Final = FIRST_SERVICE  # number of the server's object through which a client requests a bulk link
METHODS: Final = ("open", "open_with_mtu")
FOREIGN_IMAGE: Final = "aeron-spark/1 FAILED not-permitted This link belongs to another client"
OPEN_ANOTHER: Final = "Open another one."

DATA: Final = bytes([BulkFrameKind.DATA])
ALIVE: Final = bytes([BulkFrameKind.ALIVE])
CLOSE: Final = bytes([BulkFrameKind.CLOSE])


def _do_nothing() -> None:
    pass


class BulkLink:
    """One end of a bulk link. ``number`` is the same at both ends.

    One thread may call :meth:`send` while another one calls :meth:`receive`. ``begins``: this end sends OPEN first, and
    the other end replies with OPEN. ``watch``: of packets whose size the network may not carry any more.
    """

    def __init__(
        self,
        owner: BulkLinks,
        connection: ConnectionCore,
        link: Link,
        number: int,
        label: str,
        *,
        begins: bool,
        watch: PacketWatch | None = None,
    ) -> None:
        self.connection = connection
        self.number = number
        self.label = label
        self.link = link
        self.error: AeronSparkError | None = None
        """Why it is closed; None while it is not."""
        self.is_open = False
        """Whether the peer's OPEN has arrived."""
        self.is_open_sent = False
        """Whether Aeron has taken this end's OPEN."""
        self.watch = watch
        self.when_received: Callable[[], object] = _do_nothing
        """Called, on any thread, when a message has arrived, and when it was closed. It must not wait."""
        self.on_removed: Callable[[], object] = _do_nothing
        """Called on the event loop when both ends are closed here."""
        self._owner = owner
        self._begins = begins
        self._send_lock = threading.Lock()
        self._clock = owner.loop.clock
        self._changed = owner.loop.condition()
        bind_to_process(self)
        self._received: deque[memoryview] = deque()
        self._received_bytes = 0
        self._is_paused = False
        self._is_held = False  # the endpoint reads nothing from its connection for now
        self._is_sending_held = False  # the endpoint sends no data to its connection for now
        self._closes_at: float | None = None  # monotonic seconds

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self.is_open else "opening"
        return f"<{self.label}, {state}>"

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.error is not None

    @property
    def room(self) -> int:
        """Bytes of the longest message for :meth:`send`."""
        return self.link.room - len(DATA)

    def wait_open(self, timeout_s: float, answer_s: float = inf) -> None:
        """Wait until the peer is verified, after this end's OPEN for at most ``answer_s``.

        Raises WaitTimeout, or the error that closed the bulk link.
        """
        start = self._clock()
        with self._changed:
            self._changed.wait_for(lambda: self.is_open_sent or self.closed, timeout_s)
            remaining_s = min(answer_s, max(0.0, start + timeout_s - self._clock()))
            if not self._changed.wait_for(lambda: self.is_open or self.closed, remaining_s):
                waited_s = self._clock() - start
                raise WaitTimeout(f"waited {waited_s:.3g} s for {self.label} to open", remedy="Check the network.")
        self.check()

    def send(self, *parts: Buffer, timeout: float) -> None:
        """Send one message of at most ``room`` bytes; return when Aeron has taken it.

        Raises WaitTimeout with Aeron's result after ``timeout`` seconds, and the error that closed the bulk link.
        """
        end = self._await_permission(timeout)
        with self._send_lock:
            self._await_taken(end, timeout)
            now = self.connection.traffic.bulk_active_at = self._clock()
            if not self.link.send([DATA, *parts], now):
                self._await_taken(end, timeout)

    def send_from(self, memory: memoryview, *, timeout: float) -> None:
        """Send ``memory`` without its first byte as one message, without a copy; see :meth:`send`.

        The first byte is overwritten with the frame's kind. The caller may reuse the memory after the call.
        """
        end = self._await_permission(timeout)
        memory[:1] = DATA
        with self._send_lock:
            self._await_taken(end, timeout)
            now = self.connection.traffic.bulk_active_at = self._clock()
            if not self.link.send([memory], now):
                self._await_taken(end, timeout)

    def offer_from(self, memory: memoryview, *, timeout: float) -> bool:
        """Send ``memory`` as :meth:`send_from` does, if there is room within ``timeout`` seconds; return whether.

        A message that Aeron does not take at once is sent later: the last one when :meth:`has_room` is true.
        """
        with self._send_lock:
            if not self._has_room(timeout):
                return False
            memory[:1] = DATA
            now = self.connection.traffic.bulk_active_at = self._clock()
            self.link.send([memory], now)
        return True

    def has_room(self, *, timeout: float) -> bool:
        """Wait for at most ``timeout`` seconds until Aeron has taken all messages; return whether it has.

        Returns False also while the endpoint sends no data for now. Raises the error that closed the bulk link.
        """
        with self._send_lock:
            return self._has_room(timeout)

    def receive(self, timeout: float) -> memoryview | None:
        """Return the next message; None if none arrives within ``timeout`` seconds.

        Raises the error that closed the bulk link, after its last message.
        """
        with self._changed:
            if not self._received:
                self._changed.wait_for(lambda: bool(self._received) or self.closed, timeout)
            if not self._received:
                self.check()
                return None
            message = self._received.popleft()
            self._received_bytes -= message.nbytes
            resumes = self._is_paused and 2 * self._received_bytes < MAX_RECEIVED_BYTES
            self._is_paused = self._is_paused and not resumes
            if (
                resumes and not self._is_held
            ):  # under the lock: otherwise a pause that was decided before could come after it
                self._owner.resume(self.link.token)
        return message

    def check(self) -> None:
        """Raise the error that closed it, if it is closed."""
        if self.error is not None:
            raise self.error.with_what(self.error.what)

    def close(self) -> None:
        """Close both ends."""
        # The reason is set before CLOSE is sent: the peer leaves at CLOSE, and that would set another reason.
        if self._set_error(EndedError(f"{self.label} is closed", remedy=OPEN_ANOTHER)):
            self._send_close()
            self._release()

    def close_after(self, seconds: float) -> None:
        """Have the event loop close both ends after ``seconds``, unless :meth:`keep_open` is called before."""
        with self._changed:
            self._closes_at = self._clock() + seconds

    def keep_open(self) -> bool:
        """Undo :meth:`close_after`; return False if the bulk link is closed."""
        with self._changed:
            self._closes_at = None
            return not self.closed

    # For BulkLinks, on the event loop unless noted.

    def hold(self, is_held: bool) -> None:
        """Read nothing from the peer for now, or read again."""
        with self._changed:
            self._is_held = is_held
            if is_held:
                self._owner.pause(self.link.token)
            elif not self._is_paused:
                self._owner.resume(self.link.token)

    def hold_sending(self, is_held: bool) -> None:
        """Send no data for now, while threads that send wait; or send again."""
        with self._changed:
            self._is_sending_held = is_held
            self._changed.notify_all()

    @property
    def held_bytes(self) -> int:
        """Bytes of the received messages that no thread has taken. Thread-safe."""
        return self._received_bytes

    @property
    def is_established(self) -> bool:
        """Whether both ends' OPEN was sent and received."""
        return self.is_open and self.is_open_sent

    def work_opening(self, now: float) -> bool:
        """Send OPEN, or offer it again; return whether Aeron has no room for it.

        The end that begins sends OPEN when publication and subscription are connected. Before that, its subscription
        may be opened again to repeat the set-up, and would lose frames that the other end had sent.
        """
        if self.is_open_sent or self.closed:
            return False
        if self.link.has_offered_open:
            if self._send_lock.acquire(blocking=False):  # otherwise a sender offers OPEN before its own frame
                try:
                    self._note_open_sent(self.link.retry(now))
                finally:
                    self._send_lock.release()
            return not self.is_open_sent
        failure = self.link.pair.publication.failure
        if failure:
            self.end(TransportError(f"{self.label} could not be opened: {failure}", remedy=SEE_DRIVER))
        elif self._begins and self.link.connected:
            return not self._send_open(now)
        return False

    def on_event(self, event: TransportEvent, now: float) -> None:
        """Take frames, and end with the image of the peer."""
        link = self.link
        match event:
            case MessageArrived() if event.image == link.image:
                try:
                    self.take_frame(event.payload, now)
                except (TamperedError, DataFormatError) as error:
                    self.end(error)
            case ImageAvailable():
                if link.image is None and is_from_address(event.source, link.source_address):
                    link.image = event.image
                else:
                    self._owner.loop.inbox.reject(event.image, FOREIGN_IMAGE)
            case ImageUnavailable() if event.image == link.image:
                self.end(TransportError(f"the peer has left {self.label}", remedy=OPEN_ANOTHER))
            case SubscriptionFailed() | PublicationRejected():
                self.end(event.error_of(self.label))
            case _:
                pass

    def take_frame(self, payload: memoryview, now: float) -> None:
        """Take a frame. Raises TamperedError or DataFormatError for a frame that is not the peer's."""
        if not self.link.is_verified:
            self.link.verify(payload)
            self.link.expiry.observe(True, now)
            if not self.link.has_offered_open:
                self._send_open(now)
            with self._changed:
                self.is_open = True
                self._changed.notify_all()
            return
        plain = self.link.decrypt(payload)
        match plain[0] if len(plain) else 0:
            case BulkFrameKind.DATA:
                self.connection.traffic.bulk_active_at = now
                self._add_received(plain[1:])
            case BulkFrameKind.ALIVE:
                pass
            case BulkFrameKind.CLOSE:
                self.end(EndedError(f"the peer closed {self.label}", remedy=OPEN_ANOTHER))
            case _:
                raise DataFormatError(
                    f"a frame of {self.label} has an unknown kind",
                    remedy="Use the same release of aeron-spark at both ends.",
                )

    def tick(self, now: float) -> None:
        """Check the expiry, and send a keep-alive or close when it is due."""
        if self.connection.closed:
            self.end(TransportError(f"{self.label} ended with its connection", remedy="Connect again."))
            return
        with self._changed:  # a keep_open() comes before this check, or finds the bulk link closed
            if self._closes_at is not None and now >= self._closes_at:
                self.close()
                return
        if self.link.expiry.observe(self.link.connected, now) is Liveness.EXPIRED:
            self.end(TransportError(f"{self.label} was silent for its expiry time", remedy=OPEN_ANOTHER))
        elif self.is_open and self.link.keep_alive.is_due(now) and self._send_lock.acquire(blocking=False):
            try:
                if self.link.retry(now):
                    self.link.send([ALIVE], now)
            finally:
                self._send_lock.release()

    def check_packets(self, now: float) -> TransportError | None:
        """Return the error of a network that does not carry this bulk link's packets any more, or None."""
        if self.watch is None or self.closed or not self.is_established:
            return None
        return self.watch.check(self.link.received_bytes, now, is_reading=not (self._is_paused or self._is_held))

    def end(self, error: AeronSparkError) -> None:
        """Close this end: threads that wait raise ``error``. Received messages can still be taken. Thread-safe."""
        if self._set_error(error):
            self._release()

    def close_publication(self) -> None:
        """Close the publication when no thread offers on it; offers do not wait after :meth:`end`."""
        with self._send_lock:
            self.link.close()

    def _set_error(self, error: AeronSparkError) -> bool:
        """Set the reason for which it is closed; return False if it is closed already."""
        with self._changed:
            if self.error is not None:
                return False
            self.error = error
        return True

    def _send_close(self) -> None:
        """Send CLOSE, if Aeron takes it at once."""
        with self._send_lock:
            now = self._clock()
            if self.is_open and self.link.retry(now, OFFER_TIMEOUT_S):
                self.link.send([CLOSE], now, OFFER_TIMEOUT_S)

    def _release(self) -> None:
        """End the waits of all threads, and have the event loop close publication and subscription."""
        self._owner.schedule_removal(self)
        with self._changed:
            self._changed.notify_all()
        self.link.stop_waiting()
        self.when_received()

    def _send_open(self, now: float) -> bool:
        # The peer may reply before the offer returns. A sender that then found OPEN unsent would offer it again.
        with self._send_lock:
            is_sent = self.link.send_open(0, now)
            self._note_open_sent(is_sent)
        return is_sent

    def _note_open_sent(self, is_sent: bool) -> None:
        if is_sent:
            with self._changed:
                self.is_open_sent = True
                self._changed.notify_all()

    def _add_received(self, message: memoryview) -> None:
        with self._changed:
            self._received.append(message)
            self._received_bytes += message.nbytes
            pauses = not self._is_paused and self._received_bytes > MAX_RECEIVED_BYTES
            self._is_paused = self._is_paused or pauses
            if pauses:
                self._owner.pause(self.link.token)
            self._changed.notify()
        self.when_received()

    def _await_permission(self, timeout_s: float) -> float:
        """Wait until the endpoint lets this end send; return when sending must end, in monotonic seconds.

        Raises WaitTimeout after ``timeout_s``, and the error that closed the bulk link.
        """
        end = self._clock() + timeout_s
        if self._is_sending_held:
            with self._changed:
                may_send = self._changed.wait_for(lambda: not self._is_sending_held or self.closed, timeout_s)
            self.check()
            if not may_send:
                raise WaitTimeout(
                    f"{self.label} may not send for {timeout_s:g} s, because its key is at its limit of bytes",
                    remedy="Send less, or raise the limit (bytesOut, or bytes-out= in the line of the key).",
                )
        return end

    def _has_room(self, timeout_s: float) -> bool:
        self.check()
        return not self._is_sending_held and self.link.retry(self._clock(), timeout_s)

    def _await_taken(self, end: float, timeout_s: float) -> None:
        """Offer the waiting frame until Aeron takes it. Raises WaitTimeout at ``end`` (monotonic seconds)."""
        while True:
            self.check()
            now = self._clock()
            if self.link.retry(now, max(0.0, min(ROOM_TIMEOUT_S, end - now))):
                return
            if now >= end:
                result = self.link.last_result
                raise WaitTimeout(
                    f"{self.label} did not take a frame within {timeout_s:g} s"
                    f"{f' ({result.sentence})' if result is not None else ''}",
                    remedy="The peer is slow or not connected. Try again.",
                )


class BulkLinks:
    """The bulk links of an endpoint.

    Methods run on the event loop unless they are named thread-safe.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop: Final = loop
        self.traffic = EndpointTraffic()
        """Counts the bytes of bulk links, with those of other links of the endpoint."""
        self.opened = 0
        """Number of bulk links since the start, for comparison with the number of handshakes."""
        self._by_token: dict[int, BulkLink] = {}
        self._by_number: dict[tuple[int, int], BulkLink] = {}
        self._opening: list[BulkLink] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_token)

    @property
    def opening(self) -> int:
        """The number of bulk links without an image of the peer."""
        return sum(bulk_link.link.image is None for bulk_link in self._by_token.values())

    def add(self, bulk_link: BulkLink) -> None:
        """Add a bulk link whose publication and subscription are opening."""
        with self._lock:
            self._by_token[bulk_link.link.token] = bulk_link
            self._by_number[id(bulk_link.connection), bulk_link.number] = bulk_link
            self.opened += 1
        self.loop.own(bulk_link.link.token, bulk_link)
        self._opening.append(bulk_link)
        bulk_link.connection.traffic.add(bulk_link.link)
        self.traffic.add(bulk_link.link, "bulk")

    def of(self, connection: ConnectionCore, number: int) -> BulkLink:
        """Return the bulk link of a connection with this number. Raises EndedError if it has none. Thread-safe."""
        with self._lock:
            bulk_link = self._by_number.get((id(connection), number))
        if bulk_link is None:
            raise EndedError(f"{connection.label} has no bulk link {number}", remedy=OPEN_ANOTHER)
        return bulk_link

    def count(self, connection: ConnectionCore) -> int:
        """Return the number of bulk links of a connection. Thread-safe."""
        with self._lock:
            return sum(1 for bulk_link in self._by_token.values() if bulk_link.connection is connection)

    def counts(self) -> Counter[int]:
        """Return the number of bulk links of each connection that has some, by ``id(connection)``. Thread-safe."""
        with self._lock:
            return Counter(id(bulk_link.connection) for bulk_link in self._by_token.values())

    def held_bytes(self) -> dict[ConnectionCore, int]:
        """Return the bytes of received messages that no thread has taken, by connection. Thread-safe."""
        with self._lock:
            bulk_links = list(self._by_token.values())
        held: dict[ConnectionCore, int] = {}
        for bulk_link in bulk_links:
            held[bulk_link.connection] = held.get(bulk_link.connection, 0) + bulk_link.held_bytes
        return held

    def hold_sending(self, connection: ConnectionCore, is_held: bool) -> None:
        """Send no data over the bulk links of a connection for now, or send again."""
        for bulk_link in self._by_token.values():
            if bulk_link.connection is connection:
                bulk_link.hold_sending(is_held)

    def hold(self, connection: ConnectionCore, is_held: bool) -> None:
        """Read nothing from the bulk links of a connection for now, or read again."""
        for bulk_link in self._by_token.values():
            if bulk_link.connection is connection:
                bulk_link.hold(is_held)

    def work(self, now: float) -> bool:
        """Continue the opening of bulk links; return whether an OPEN is about to be sent."""
        if not self._opening:  # as in most turns of the event loop, also of an endpoint with many bulk links
            return False
        self._opening = [one for one in self._opening if not (one.is_open_sent or one.closed)]
        return sum(bulk_link.work_opening(now) for bulk_link in self._opening) > 0

    def tick(self, now: float) -> None:
        """Check expiries, keep-alives and packet sizes."""
        for bulk_link in list(self._by_token.values()):
            bulk_link.tick(now)
            lost = bulk_link.check_packets(now)
            if lost is not None:
                self._end_watched(bulk_link.connection, lost)

    def fail_all(self, error: AeronSparkError) -> None:
        """End all bulk links: the media driver is lost, or the endpoint is closed."""
        for bulk_link in list(self._by_token.values()):
            bulk_link.end(error)
            self._remove(bulk_link)

    # For bulk links. Thread-safe.

    def pause(self, token: int) -> None:
        """Stop taking messages from a subscription."""
        self.loop.inbox.pause(token)

    def resume(self, token: int) -> None:
        """Take messages from a subscription again."""
        self.loop.inbox.resume(token)

    def schedule_removal(self, bulk_link: BulkLink) -> None:
        """Have the event loop close the publication and the subscription."""
        self.loop.run_soon(lambda: self._remove(bulk_link))

    def _end_watched(self, connection: ConnectionCore, error: TransportError) -> None:
        """End the bulk links of a connection whose packets take the same way: the idle ones, too, would lose data."""
        for bulk_link in list(self._by_token.values()):
            if bulk_link.connection is connection and bulk_link.watch is not None and not bulk_link.closed:
                bulk_link.end(error.with_what(f"{bulk_link.label}: {error.what}"))

    def _remove(self, bulk_link: BulkLink) -> None:
        with self._lock:
            is_known = self._by_token.get(bulk_link.link.token) is bulk_link
            if is_known:
                del self._by_token[bulk_link.link.token]
                self._by_number.pop((id(bulk_link.connection), bulk_link.number), None)
        if is_known:
            self._opening = [one for one in self._opening if one is not bulk_link]
            self.loop.disown(bulk_link.link.token)
            self.loop.inbox.close_subscription(bulk_link.link.token)
            bulk_link.close_publication()
            bulk_link.connection.traffic.remove(bulk_link.link)
            self.traffic.remove(bulk_link.link)
            bulk_link.on_removed()
