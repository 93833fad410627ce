"""The branches of an endpoint, by the token of their way in: what arrives for them, their time, their end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from aeron_spark.duologue.branch import Branch
from aeron_spark.duologue.connection import Connection
from aeron_spark.endpoint.addresses import same_owner
from aeron_spark.endpoint.objects import FIRST_SERVICE
from aeron_spark.errors import AeronSparkError, DataFormatError, EndedError, TamperedError, TransportError
from aeron_spark.transport.port import Arrived, Event, Failed, ImageJoined, ImageLeft, Inbox

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
