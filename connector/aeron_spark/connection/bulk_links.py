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
from aeron_spark.connection.link import PATIENCE, Link
from aeron_spark.errors import AeronSparkError, DataFormatError, EndedError, TamperedError, TransportError, WaitTimeout
from aeron_spark.protocol.access import same_owner
from aeron_spark.protocol.bulk import Piece
from aeron_spark.protocol.frames import Buffer
from aeron_spark.protocol.liveness import Liveness
from aeron_spark.protocol.rpc_objects import FIRST_SERVICE
from aeron_spark.transport.api import Arrived, Event, Failed, ImageJoined, ImageLeft, Inbox

if TYPE_CHECKING:
    from aeron_spark.connection.connection import Connection

WAITING_BYTES: Final = 4 << 20  # received and not taken yet, before Aeron's window holds the sender up

DATA: Final = bytes([Piece.DATA])

ALIVE: Final = bytes([Piece.ALIVE])

CLOSE: Final = bytes([Piece.CLOSE])


class Branch:
    """One end. ``number`` is the same at both; :meth:`send` is for one thread, :meth:`receive` for another.

    ``begins``: this end says OPEN first, and the other answers.
    """

    def __init__(
        self, home: Branches, connection: Connection, link: Link, number: int, label: str, *, begins: bool
    ) -> None:
        self.connection = connection
        self.number = number
        self.label = label
        self.link = link
        self.error: AeronSparkError | None = None
        self.open = False
        self._home = home
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
            if not self.link.send([DATA, *parts], time.monotonic(), PATIENCE):
                self._settle(end)

    def send_from(self, memory: memoryview, *, timeout: float) -> None:
        """Send ``memory``, behind its first byte, as one message that is not copied; see :meth:`send`.

        The first byte is overwritten: it is the frame's own. All of it is free again once this returns or raises.
        """
        end = time.monotonic() + timeout
        memory[:1] = DATA
        with self._sending:
            self._settle(end)
            if not self.link.send([memory], time.monotonic(), PATIENCE):
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
                self._home.resume(self.link.token)
        return message

    def check(self) -> None:
        """Raise why it is over, if it is."""
        if self.error is not None:
            raise self.error.with_what(self.error.what)

    def close(self) -> None:
        """End it on both sides."""
        self._home.leave(self)

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
        failure = self.link.pair.outgoing.failure
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
        plain = self.link.opening.open(payload)
        match plain[0] if len(plain) else 0:
            case Piece.DATA:
                self._keep(plain[1:])
            case Piece.ALIVE:
                pass
            case Piece.CLOSE:
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
        elif self.open and self.link.keep_alive.due(now) and self._sending.acquire(blocking=False):
            try:
                if self.link.retry(now):
                    self.link.send([ALIVE], now)
            finally:
                self._sending.release()

    def say_close(self) -> None:
        """Tell the peer, if there is room."""
        with self._sending:
            now = time.monotonic()
            if self.open and self.link.retry(now, PATIENCE):
                self.link.send([CLOSE], now, PATIENCE)

    def end(self, error: AeronSparkError) -> None:
        """It is over: whoever waits hears ``error``; what had arrived can still be taken."""
        with self._changed:
            if self.error is None:
                self.error = error
                self._home.ended(self)
            self._changed.notify_all()

    def close_way_out(self) -> None:
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
                self._home.pause(self.link.token)
            self._changed.notify()

    def _settle(self, end: float) -> None:
        """Have what waits taken."""
        while True:
            self.check()
            now = time.monotonic()
            if self.link.retry(now, PATIENCE):
                return
            if now >= end:
                result = self.link.last_result
                raise WaitTimeout(
                    f"{self.label} took no more in time{f' ({result.sentence})' if result is not None else ''}",
                    remedy="The other side is slow, or away; try again",
                )


SERVICE: Final = FIRST_SERVICE  # the number of the object through which a client asks for one

METHODS: Final = ("open",)


class Rooms(Protocol):
    """What branches need of their endpoint."""

    def inbox_now(self) -> Inbox:
        """Where everything arrives."""

    def later(self, job: Callable[[], None]) -> None:
        """Run a job on the agent."""


class Branches:
    """``gone`` is called on the agent for each that ended. Methods are the agent's, but for those named thread-safe."""

    gone: Callable[[Branch], object]

    def __init__(self, rooms: Rooms) -> None:
        self.gone = id  # nothing to do
        self._rooms = rooms
        self._by_token: dict[int, Branch] = {}
        self._by_number: dict[tuple[int, int], Branch] = {}
        self._lock = threading.Lock()
        self.opened = 0  # since the start, for whoever counts them against handshakes

    def __len__(self) -> int:
        return len(self._by_token)

    def add(self, branch: Branch) -> None:
        """Take over a branch whose ways are being opened."""
        with self._lock:
            self._by_token[branch.link.token] = branch
            self._by_number[id(branch.connection), branch.number] = branch
            self.opened += 1

    def of(self, connection: Connection, number: int) -> Branch:
        """Return a connection's branch of this number. Raises EndedError where it has none. Thread-safe."""
        with self._lock:
            branch = self._by_number.get((id(connection), number))
        if branch is None:
            raise EndedError(f"{connection.label} has no branch {number}", remedy="Open another one")
        return branch

    def count(self, connection: Connection) -> int:
        """Return how many a connection has. Thread-safe."""
        with self._lock:
            return sum(1 for branch in self._by_token.values() if branch.connection is connection)

    def event(self, event: Event, now: float) -> bool:
        """Take an event; whether it was of a branch."""
        branch = self._by_token.get(getattr(event, "token", -1))
        if branch is None:
            return False
        link = branch.link
        match event:
            case Arrived() if event.image == link.image:
                try:
                    branch.arrived(event.payload, now)
                except (TamperedError, DataFormatError) as error:
                    branch.end(error)
            case ImageJoined():
                if link.image is None and same_owner(event.source, link.owner):
                    link.image = event.image
                else:
                    self._rooms.inbox_now().reject(event.image, "aeron-spark/1 FAILED not-permitted not yours")
            case ImageLeft() if event.image == link.image:
                branch.end(TransportError(f"the other side has left {branch.label}", remedy="Open another one"))
            case Failed():
                branch.end(TransportError(f"{branch.label} could not be opened: {event.reason}"))
            case _:
                pass
        return True

    def work(self, now: float) -> bool:
        """Go on with those that are being opened; whether something is about to happen."""
        opening = [branch for branch in self._by_token.values() if not branch.opened]
        return sum(branch.opening(now) for branch in opening) > 0

    def tick(self, now: float) -> None:
        """Look after the time of all."""
        for branch in list(self._by_token.values()):
            branch.tick(now)

    def fail_all(self, error: AeronSparkError) -> None:
        """Everything is over: the driver is gone, or the endpoint is closed."""
        for branch in list(self._by_token.values()):
            branch.end(error)
            self._remove(branch)

    # What follows is for the branches, in any thread.

    def pause(self, token: int) -> None:
        """Take no more from there."""
        self._rooms.inbox_now().pause(token)

    def resume(self, token: int) -> None:
        """Take it again."""
        self._rooms.inbox_now().resume(token)

    def leave(self, branch: Branch) -> None:
        """Close from our side."""
        if not branch.closed:
            branch.say_close()
            branch.end(EndedError(f"{branch.label} is closed", remedy="Open another one"))

    def ended(self, branch: Branch) -> None:
        """Have the agent give back what it held."""
        self._rooms.later(lambda: self._remove(branch))

    def _remove(self, branch: Branch) -> None:
        with self._lock:
            known = self._by_token.get(branch.link.token) is branch  # a new inbox counts its tokens from 1 again
            if known:
                del self._by_token[branch.link.token]
                self._by_number.pop((id(branch.connection), branch.number), None)
        if known:
            self._rooms.inbox_now().close_way(branch.link.token)
            branch.close_way_out()
            self.gone(branch)
