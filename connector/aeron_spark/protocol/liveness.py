"""Whether a connection is still there: its expiry, its pings, its keep-alive, and how long its session outlives it.

Rules:
* Aeron says, each time it is asked, whether both ways are connected. Only a silence of ``expiry_seconds`` after it
  first said no ends a connection; a shorter outage is not noticed.
* A connection that never was connected has its whole set-up time, however often Aeron says no.
* What has expired stays expired.
* A ping ends once: by its pong, at its deadline, or with its connection. A pong of no pending ping is ignored, so ids
  are bound to a connection by having a :class:`Pings` each, and are never used again.

``now`` is seconds that never go back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aeron_spark.errors import OptionError

EXPIRY_SECONDS: Final = 4.0  # after Aeron's own 5 s (publication) to 10 s (image): a short outage goes unnoticed
SETUP_SECONDS: Final = 10.0  # a handshake's worth of round trips, each lost once
LINGER_SECONDS: Final = 5.0  # what a closed duologue still has to deliver its last frames
KEEP_ALIVE_SECONDS: Final = 15.0  # half of the shortest UDP mapping that NATs are known to keep
PING_SECONDS: Final = 30.0
MAX_PENDING_PINGS: Final = 1000  # of one connection: whoever has more does not wait for pongs
RETENTION_SECONDS: Final = 120.0  # how long a session waits for its client to come back
MIN_RETENTION_SECONDS: Final = 60.0  # less, and a client that has to find its way back comes too late


@dataclass(frozen=True, slots=True)
class Times:
    """What is configured, in seconds. ``min_retention_seconds`` is what a session's retention must reach at least."""

    expiry_seconds: float = EXPIRY_SECONDS
    setup_seconds: float = SETUP_SECONDS
    linger_seconds: float = LINGER_SECONDS
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS
    ping_seconds: float = PING_SECONDS
    retention_seconds: float = RETENTION_SECONDS
    min_retention_seconds: float = MIN_RETENTION_SECONDS

    def __post_init__(self) -> None:
        for name in ("expiry_seconds", "setup_seconds", "keep_alive_seconds", "ping_seconds", "retention_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise OptionError(f"the time {name} is {getattr(self, name)}", remedy="Make it more than 0")
        if not 0 <= self.linger_seconds < float("inf"):
            raise OptionError(f"the time linger_seconds is {self.linger_seconds}", remedy="Make it 0 or more")
        if self.retention_seconds < self.min_retention_seconds:
            raise OptionError(
                f"a session is kept for {self.retention_seconds:g} s, less than {self.min_retention_seconds:g} s",
                remedy=f"Make retention_seconds at least {self.min_retention_seconds:g}",
            )
        ending = self.expiry_seconds + self.linger_seconds
        if self.retention_seconds <= ending:
            raise OptionError(
                f"a session is kept for {self.retention_seconds:g} s, but its connection takes {ending:g} s to end"
                " (expiry and linger)",
                remedy="Raise retention_seconds, or lower expiry_seconds",
            )


class Liveness(Enum):
    """What is known of a connection's way to its peer."""

    SETTING_UP = "setting up"  # never connected yet
    CONNECTED = "connected"
    SILENT = "silent"  # Aeron says not connected; an outage that may be short
    EXPIRED = "expired"


class Expiry:
    """Judges one connection, from what Aeron says of it."""

    def __init__(self, setup_seconds: float, expiry_seconds: float, now: float) -> None:
        self.state = Liveness.SETTING_UP
        self._expiry_seconds = expiry_seconds
        self._deadline = now + setup_seconds

    def observe(self, connected: bool, now: float) -> Liveness:
        """Take what Aeron says at ``now``, and return what that means."""
        match self.state, connected:
            case Liveness.EXPIRED, _:
                pass
            case Liveness.SETTING_UP | Liveness.CONNECTED | Liveness.SILENT, True:
                # also after the deadline: nobody looked meanwhile, and the connection is there
                self.state = Liveness.CONNECTED
            case Liveness.CONNECTED, False:
                self.state, self._deadline = Liveness.SILENT, now + self._expiry_seconds
            case Liveness.SETTING_UP | Liveness.SILENT, False:
                if now >= self._deadline:
                    self.state = Liveness.EXPIRED
        return self.state

    def deadline(self) -> float | None:
        """When the connection expires if Aeron goes on to say no; None while it is connected, or has expired."""
        return self._deadline if self.state in {Liveness.SETTING_UP, Liveness.SILENT} else None


class KeepAlive:
    """Says when a frame must be sent because none was for so long, so that NATs keep the way open."""

    def __init__(self, keep_alive_seconds: float, now: float) -> None:
        self._seconds = keep_alive_seconds
        self._due_at = now + keep_alive_seconds

    def sent(self, now: float) -> None:
        """A frame of whatever kind went out."""
        self._due_at = now + self._seconds

    def due(self, now: float) -> bool:
        """Whether it is time for one."""
        return now >= self._due_at

    def deadline(self) -> float:
        """When it will be, if none goes out meanwhile."""
        return self._due_at


@dataclass(frozen=True, slots=True)
class Ping:
    """One that waits for its pong."""

    sent_at: float
    deadline: float


class Pings:
    """The pings of one connection that wait for their pongs. It outlives the connection's duologues."""

    def __init__(self, ping_seconds: float = PING_SECONDS, most: int = MAX_PENDING_PINGS) -> None:
        self._seconds = ping_seconds
        self._most = most
        self._next_id = 0
        self._pending: dict[int, Ping] = {}
        self._earliest = float("inf")  # at or before the earliest deadline

    @property
    def pending(self) -> int:
        """How many wait for their pong."""
        return len(self._pending)

    def start(self, now: float, timeout: float | None = None) -> int | None:
        """Return the id of a new ping, or None while too many are pending. Raises OptionError for a bad ``timeout``."""
        seconds = self._seconds if timeout is None else timeout
        if not 0 < seconds < float("inf"):
            raise OptionError(f"the ping's timeout is {seconds} s", remedy="Make it more than 0")
        if len(self._pending) >= self._most:
            return None
        number = self._next_id
        self._next_id += 1
        self._pending[number] = Ping(now, now + seconds)
        self._earliest = min(self._earliest, now + seconds)
        return number

    def pong(self, number: int, now: float) -> float | None:
        """Return the round trip in seconds, or None for a pong that comes too late, twice or out of the blue."""
        ping = self._pending.get(number)
        if ping is None or now >= ping.deadline:
            return None
        del self._pending[number]
        return now - ping.sent_at

    def expire(self, now: float) -> list[int]:
        """Give up those whose deadline has come: their ids, oldest first."""
        return self._remove(lambda ping: now >= ping.deadline) if now >= self._earliest else []

    def cancel(self) -> list[int]:
        """Give up all, because the connection is closed: their ids, oldest first."""
        return self._remove(lambda _: True)

    def deadline(self) -> float | None:
        """When :meth:`expire` should be called next, at latest; it may find nothing then."""
        return self._earliest if self._pending else None

    def _remove(self, gone: Callable[[Ping], bool]) -> list[int]:
        removed = [number for number, ping in self._pending.items() if gone(ping)]
        for number in removed:
            del self._pending[number]
        self._earliest = min((ping.deadline for ping in self._pending.values()), default=float("inf"))
        return removed
