"""A branch: a further duologue of a connection, for bulk. Frames are sealed and in order; nothing is kept to resend.

Its receiver's pace is the sender's: what is not taken stays in Aeron's window. A branch that breaks is over, and who
used it asks anew, from where it stands, on another one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.link import OFFER_TIMEOUT_S, LinkEnds
from aeron_spark.errors import AeronSparkError, DataFormatError, EndedError, TamperedError, TransportError, WaitTimeout
from aeron_spark.protocol.access import is_from_address
from aeron_spark.protocol.bulk import BulkFrameKind
from aeron_spark.protocol.frames import Buffer
from aeron_spark.protocol.liveness import Liveness
from aeron_spark.protocol.rpc_objects import FIRST_SERVICE
from aeron_spark.transport.api import (
    ImageAvailable,
    ImageUnavailable,
    Inbox,
    MessageArrived,
    SubscriptionFailed,
    TransportEvent,
)

if TYPE_CHECKING:
    from aeron_spark.connection.connection import Connection

WAITING_BYTES: Final = 4 << 20  # received and not taken yet, before Aeron's window holds the sender up

DATA: Final = bytes([BulkFrameKind.DATA])

ALIVE: Final = bytes([BulkFrameKind.ALIVE])

CLOSE: Final = bytes([BulkFrameKind.CLOSE])


class BulkLink:
    """One end. ``number`` is the same at both; :meth:`send` is for one thread, :meth:`receive` for another.

    ``begins``: this end says OPEN first, and the other answers.
    """

    def __init__(
        self, owner: BulkLinks, connection: Connection, link: LinkEnds, number: int, label: str, *, begins: bool
    ) -> None:
        self.connection = connection
        self.number = number
        self.label = label
        self.link = link
        self.error: AeronSparkError | None = None
        self.open = False
        self._owner = owner
        self._begins = begins
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: deque[memoryview] = deque()
        self._bytes = 0
        self._paused = False
        self._said_open = False
        self._open_taken = False  # by Aeron

    def __repr__(self) -> str:
        state = "closed" if self.error is not None else "open" if self.open else "opening"
        return f"<{self.label}, {state}>"

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self.error is not None

    @property
    def room(self) -> int:
        """Bytes that one call of :meth:`send` takes at most."""
        return self.link.room - len(DATA)

    def wait_open(self, seconds: float) -> None:
        """Wait until the peer has proved that it has the keys. Raises WaitTimeout, or why it is over."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.open or self.closed, seconds):
                raise WaitTimeout(f"waited {seconds:g} s for {self.label} to open", remedy="Look at the network")
        self.check()

    def send(self, *parts: Buffer, timeout: float) -> None:
        """Send one message of at most ``room`` bytes; return when Aeron has taken it.

        Raises WaitTimeout with Aeron's result after ``timeout`` seconds, and why the branch is over.
        """
        end = time.monotonic() + timeout
        with self._sending:
            self._settle(end)
            if not self.link.send([DATA, *parts], time.monotonic(), OFFER_TIMEOUT_S):
                self._settle(end)

    def send_from(self, memory: memoryview, *, timeout: float) -> None:
        """Send ``memory``, behind its first byte, as one message that is not copied; see :meth:`send`.

        The first byte is overwritten: it is the frame's own. All of it is free again once this returns or raises.
        """
        end = time.monotonic() + timeout
        memory[:1] = DATA
        with self._sending:
            self._settle(end)
            if not self.link.send([memory], time.monotonic(), OFFER_TIMEOUT_S):
                self._settle(end)

    def receive(self, timeout: float) -> memoryview | None:
        """Return the next message, or None when none came within ``timeout`` seconds; raise why the branch is over."""
        with self._changed:
            if not self._waiting:
                self._changed.wait_for(lambda: bool(self._waiting) or self.closed, timeout)
            if not self._waiting:
                self.check()
                return None
            message = self._waiting.popleft()
            self._bytes -= message.nbytes
            resume = self._paused and 2 * self._bytes < WAITING_BYTES
            self._paused = self._paused and not resume
            if resume:  # under the lock: a pause that was decided before must not come after
                self._owner.resume(self.link.token)
        return message

    def check(self) -> None:
        """Raise why it is over, if it is."""
        if self.error is not None:
            raise self.error.with_what(self.error.what)

    def close(self) -> None:
        """End it on both sides."""
        self._owner.leave(self)

    # What follows is for the agent.

    @property
    def opened(self) -> bool:
        """Whether both sides' OPEN is through."""
        return self.open and self._open_taken

    def opening(self, now: float) -> bool:
        """Say OPEN until Aeron takes it; whether that is still to come, and may at any moment.

        The end that begins does so when both ways are there. Until then its way in may be opened anew, to ask for the
        set-up again, and what the other end had sent by then would be lost.
        """
        if self._open_taken or self.closed:
            return False
        if self._said_open:
            if self._sending.acquire(blocking=False):  # else a sender offers it, before its own frame
                try:
                    self._open_taken = self.link.retry(now)
                finally:
                    self._sending.release()
            return not self._open_taken
        failure = self.link.pair.publication.failure
        if failure:
            self.end(TransportError(f"{self.label} could not be opened: {failure}"))
        elif self._begins and self.link.connected:
            self._say_open(now)
        return self._begins and not self._open_taken

    def arrived(self, payload: memoryview, now: float) -> None:
        """Take a frame. Raises TamperedError or DataFormatError for one that is not the peer's."""
        if not self.link.proved:
            self.link.first(payload)
            self.link.proved = True
            self.link.expiry.observe(True, now)
            if not self._said_open:
                self._say_open(now)
            with self._changed:
                self.open = True
                self._changed.notify_all()
            return
        plain = self.link.decryptor.decrypt(payload)
        match plain[0] if len(plain) else 0:
            case BulkFrameKind.DATA:
                self._keep(plain[1:])
            case BulkFrameKind.ALIVE:
                pass
            case BulkFrameKind.CLOSE:
                self.end(EndedError(f"the other side closed {self.label}", remedy="Open another one"))
            case _:
                raise DataFormatError(f"a frame of {self.label} is of no kind", remedy="Use the same release")

    def tick(self, now: float) -> None:
        """Look after the time."""
        if self.connection.closed:
            self.end(TransportError(f"{self.label} ended with its connection", remedy="Connect anew"))
            return
        if self.link.expiry.observe(self.link.connected, now) is Liveness.EXPIRED:
            self.end(TransportError(f"{self.label} was silent for too long", remedy="Open another one"))
        elif self.open and self.link.keep_alive.is_due(now) and self._sending.acquire(blocking=False):
            try:
                if self.link.retry(now):
                    self.link.send([ALIVE], now)
            finally:
                self._sending.release()

    def say_close(self) -> None:
        """Tell the peer, if there is room."""
        with self._sending:
            now = time.monotonic()
            if self.open and self.link.retry(now, OFFER_TIMEOUT_S):
                self.link.send([CLOSE], now, OFFER_TIMEOUT_S)

    def end(self, error: AeronSparkError) -> None:
        """It is over: whoever waits hears ``error``; what had arrived can still be taken."""
        with self._changed:
            if self.error is None:
                self.error = error
                self._owner.ended(self)
            self._changed.notify_all()

    def close_publication(self) -> None:
        """Close the publication, once nobody offers on it; offers do not wait for long."""
        with self._sending:
            self.link.close()

    def _say_open(self, now: float) -> None:
        self._said_open = True
        self._open_taken = self.link.say_open(0, now)

    def _keep(self, message: memoryview) -> None:
        with self._changed:
            self._waiting.append(message)
            self._bytes += message.nbytes
            full = not self._paused and self._bytes > WAITING_BYTES
            self._paused = self._paused or full
            if full:
                self._owner.pause(self.link.token)
            self._changed.notify()

    def _settle(self, end: float) -> None:
        """Have what waits taken."""
        while True:
            self.check()
            now = time.monotonic()
            if self.link.retry(now, OFFER_TIMEOUT_S):
                return
            if now >= end:
                result = self.link.last_result
                raise WaitTimeout(
                    f"{self.label} took no more in time{f' ({result.sentence})' if result is not None else ''}",
                    remedy="The other side is slow, or away; try again",
                )


SERVICE: Final = FIRST_SERVICE  # the number of the object through which a client asks for one

METHODS: Final = ("open",)


class BulkLinkOwner(Protocol):
    """The runtime of an endpoint, as far as bulk links use it. Thread-safe."""

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now."""

    def run_on_loop(self, job: Callable[[], None]) -> None:
        """Run ``job`` on the event loop."""


def _ignore(bulk_link: BulkLink) -> None:
    pass


class BulkLinks:
    """The bulk links of an endpoint. ``on_removed`` is called with each one that has ended.

    Methods run on the event loop unless they are named thread-safe.
    """

    def __init__(self, owner: BulkLinkOwner) -> None:
        self.on_removed: Callable[[BulkLink], object] = _ignore
        self._owner = owner
        self._by_token: dict[int, BulkLink] = {}
        self._by_number: dict[tuple[int, int], BulkLink] = {}
        self._lock = threading.Lock()
        self.opened = 0  # since the start, for whoever counts them against handshakes

    def __len__(self) -> int:
        return len(self._by_token)

    def add(self, bulk_link: BulkLink) -> None:
        """Take over a branch whose ways are being opened."""
        with self._lock:
            self._by_token[bulk_link.link.token] = bulk_link
            self._by_number[id(bulk_link.connection), bulk_link.number] = bulk_link
            self.opened += 1

    def of(self, connection: Connection, number: int) -> BulkLink:
        """Return a connection's branch of this number. Raises EndedError where it has none. Thread-safe."""
        with self._lock:
            bulk_link = self._by_number.get((id(connection), number))
        if bulk_link is None:
            raise EndedError(f"{connection.label} has no branch {number}", remedy="Open another one")
        return bulk_link

    def count(self, connection: Connection) -> int:
        """Return how many a connection has. Thread-safe."""
        with self._lock:
            return sum(1 for bulk_link in self._by_token.values() if bulk_link.connection is connection)

    def event(self, event: TransportEvent, now: float) -> bool:
        """Take an event; whether it was of a branch."""
        bulk_link = self._by_token.get(getattr(event, "token", -1))
        if bulk_link is None:
            return False
        link = bulk_link.link
        match event:
            case MessageArrived() if event.image == link.image:
                try:
                    bulk_link.arrived(event.payload, now)
                except (TamperedError, DataFormatError) as error:
                    bulk_link.end(error)
            case ImageAvailable():
                if link.image is None and is_from_address(event.source, link.owner):
                    link.image = event.image
                else:
                    self._owner.inbox.reject(event.image, "aeron-spark/1 FAILED not-permitted not yours")
            case ImageUnavailable() if event.image == link.image:
                bulk_link.end(TransportError(f"the other side has left {bulk_link.label}", remedy="Open another one"))
            case SubscriptionFailed():
                bulk_link.end(TransportError(f"{bulk_link.label} could not be opened: {event.reason}"))
            case _:
                pass
        return True

    def work(self, now: float) -> bool:
        """Go on with those that are being opened; whether something is about to happen."""
        opening = [bulk_link for bulk_link in self._by_token.values() if not bulk_link.opened]
        return sum(bulk_link.opening(now) for bulk_link in opening) > 0

    def tick(self, now: float) -> None:
        """Look after the time of all."""
        for bulk_link in list(self._by_token.values()):
            bulk_link.tick(now)

    def fail_all(self, error: AeronSparkError) -> None:
        """Everything is over: the driver is gone, or the endpoint is closed."""
        for bulk_link in list(self._by_token.values()):
            bulk_link.end(error)
            self._remove(bulk_link)

    # What follows is for the branches, in any thread.

    def pause(self, token: int) -> None:
        """Take no more from there."""
        self._owner.inbox.pause(token)

    def resume(self, token: int) -> None:
        """Take it again."""
        self._owner.inbox.resume(token)

    def leave(self, bulk_link: BulkLink) -> None:
        """Close from our side."""
        if not bulk_link.closed:
            bulk_link.say_close()
            bulk_link.end(EndedError(f"{bulk_link.label} is closed", remedy="Open another one"))

    def ended(self, bulk_link: BulkLink) -> None:
        """Have the agent give back what it held."""
        self._owner.run_on_loop(lambda: self._remove(bulk_link))

    def _remove(self, bulk_link: BulkLink) -> None:
        with self._lock:
            known = self._by_token.get(bulk_link.link.token) is bulk_link  # a new inbox counts its tokens from 1 again
            if known:
                del self._by_token[bulk_link.link.token]
                self._by_number.pop((id(bulk_link.connection), bulk_link.number), None)
        if known:
            self._owner.inbox.close_subscription(bulk_link.link.token)
            bulk_link.close_publication()
            self.on_removed(bulk_link)
