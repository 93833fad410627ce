"""Monitors links and connections: the expiry and keep-alive of a link, and the pings of a connection.

Rules:
* The caller reports regularly whether the link is connected: whether both its publication and its subscription are. A
  link expires after ``expiry_seconds`` without a connection. A shorter outage has no effect.
* A link that was never connected expires only after its set-up time.
* An expired link stays expired.
* Aeron's connected flags say that the media drivers live. Whether the peer lives, its frames say: an end that was sent
  nothing asks with a ping, and gives the link up if nothing arrives then either. A peer that is too busy to read a ping
  still sends keep-alives.
* A measurement of the round trip is a ping without a caller. It is repeated at intervals, and at each new link.
* A ping ends once: by its pong, at its deadline, or with its connection. A pong without a pending ping is ignored. Each
  connection has its own :class:`Pings`, which never reuses a number.

``now`` is in monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from aeron_spark.errors import OptionError

EXPIRY_SECONDS: Final = 4.0  # after Aeron's own timeouts of 5 s (publication) and 10 s (image)
SETUP_SECONDS: Final = 10.0  # time for the round trips of a handshake, each repeated once
LINGER_SECONDS: Final = 5.0  # time in which a closed link can deliver its last frames
KEEP_ALIVE_SECONDS: Final = 15.0  # half of the shortest known lifetime of a UDP mapping in a NAT
PING_SECONDS: Final = 30.0
MAX_PENDING_PINGS: Final = 1000  # of one connection
FIRST_MEASUREMENT: Final = 1 << 63  # for pings with this number and above, no caller waits: they measure, or ask
RETENTION_SECONDS: Final = 120.0  # time in which a client can resume its session
MIN_RETENTION_SECONDS: Final = 60.0  # a client needs this time to reconnect after an outage


@dataclass(frozen=True, slots=True)
class Times:
    """The configured times, in seconds. ``min_retention_seconds`` is the lower limit of ``retention_seconds``."""

    expiry_seconds: float = EXPIRY_SECONDS
    setup_seconds: float = SETUP_SECONDS
    linger_seconds: float = LINGER_SECONDS
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS
    ping_seconds: float = PING_SECONDS
    retention_seconds: float = RETENTION_SECONDS
    min_retention_seconds: float = MIN_RETENTION_SECONDS
    measures_round_trip: bool = False
    """Whether the round trip is measured each ``keep_alive_seconds``: servers show it to their operators."""

    def __post_init__(self) -> None:
        for name in ("expiry_seconds", "setup_seconds", "keep_alive_seconds", "ping_seconds", "retention_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise OptionError(
                    f"{name} is {getattr(self, name)}, expected a finite value above 0",
                    remedy=f"Set {name} to a value above 0.",
                )
        if not 0 <= self.linger_seconds < float("inf"):
            raise OptionError(
                f"linger_seconds is {self.linger_seconds}, expected a finite value of 0 or more",
                remedy="Set linger_seconds to 0 or more.",
            )
        if self.retention_seconds < self.min_retention_seconds:
            raise OptionError(
                f"retention_seconds is {self.retention_seconds:g}, expected at least {self.min_retention_seconds:g}",
                remedy=f"Set retention_seconds to at least {self.min_retention_seconds:g}.",
            )
        ending = self.expiry_seconds + self.linger_seconds
        if self.retention_seconds <= ending:
            raise OptionError(
                f"a session is kept for {self.retention_seconds:g} s, but its link takes {ending:g} s to end"
                " (expiry and linger)",
                remedy="Raise retention_seconds, or lower expiry_seconds.",
            )


class Liveness(Enum):
    """The state of a link."""

    SETTING_UP = "setting up"  # was never connected
    CONNECTED = "connected"
    SILENT = "silent"  # not connected, but its expiry has not passed
    EXPIRED = "expired"


class Expiry:
    """Decides when one link has expired."""

    def __init__(self, setup_seconds: float, expiry_seconds: float, now: float) -> None:
        self.state = Liveness.SETTING_UP
        self._expiry_seconds = expiry_seconds
        self._deadline = now + setup_seconds

    def observe(self, connected: bool, now: float) -> Liveness:
        """Process the observation that the link is, or is not, connected at ``now``. Returns the new state."""
        match self.state, connected:
            case Liveness.EXPIRED, _:
                pass
            case Liveness.SETTING_UP | Liveness.CONNECTED | Liveness.SILENT, True:
                # also after the deadline, because the link is connected now
                self.state = Liveness.CONNECTED
            case Liveness.CONNECTED, False:
                self.state, self._deadline = Liveness.SILENT, now + self._expiry_seconds
            case Liveness.SETTING_UP | Liveness.SILENT, False:
                if now >= self._deadline:
                    self.state = Liveness.EXPIRED
        return self.state

    def deadline(self) -> float | None:
        """Return when the link expires unless it is connected again; None while it is connected or has expired."""
        return self._deadline if self.state in {Liveness.SETTING_UP, Liveness.SILENT} else None


class KeepAlive:
    """Decides when an idle link must send a frame, so that NATs keep its UDP mapping."""

    def __init__(self, keep_alive_seconds: float, now: float) -> None:
        self._seconds = keep_alive_seconds
        self._due_at = now + keep_alive_seconds

    def sent(self, now: float) -> None:
        """Note that a frame was sent."""
        self._due_at = now + self._seconds

    def is_due(self, now: float) -> bool:
        """Whether a frame must be sent now."""
        return now >= self._due_at

    def deadline(self) -> float:
        """Return when a frame must be sent, if none is sent before."""
        return self._due_at


class Answers:
    """Decides when the peer of one link must be asked for a sign of life, and when its link is given up.

    The link is given up ``2 * seconds`` after the last frame of the peer, and ``seconds`` after a question: a process
    that was suspended asks first.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._heard_at = now
        self._asked_at: float | None = None  # without a frame of the peer since then

    def heard(self, now: float) -> None:
        """Note that a frame of the peer arrived, or that this end does not read for now."""
        self._heard_at, self._asked_at = now, None

    def asked(self, now: float) -> None:
        """Note that a question is sent. The first one without an answer counts."""
        if self._asked_at is None:
            self._asked_at = now

    def is_question_due(self, now: float) -> bool:
        """Whether the peer must be asked now."""
        return self._asked_at is None and now >= self._heard_at + self._seconds

    def are_missing(self, now: float) -> bool:
        """Whether the link is given up now."""
        return self._asked_at is not None and now >= self.deadline()

    @property
    def limit_seconds(self) -> float:
        """How long the peer may be silent."""
        return 2 * self._seconds

    def deadline(self) -> float:
        """Return when the peer must be asked, or the link is given up, if no frame arrives before."""
        if self._asked_at is None:
            return self._heard_at + self._seconds
        return max(self._asked_at + self._seconds, self._heard_at + self.limit_seconds)


class RoundTrip:
    """Measures the round trip of one connection at intervals, over all its links."""

    def __init__(self, interval_seconds: float, now: float) -> None:
        self.seconds: float | None = None
        """The last result; None before the first one."""
        self._interval_seconds = interval_seconds
        self._number = FIRST_MEASUREMENT
        self._sent_at: float | None = None  # of the measurement under way
        self._due_at = now

    def attached(self, now: float) -> None:
        """Note a new link: measure it at once. A measurement under way was lost with the link before."""
        self._sent_at, self._due_at = None, now

    def is_due(self, now: float) -> bool:
        """Whether a measurement must be started now."""
        return now >= self._due_at

    def start(self, now: float) -> int:
        """Start a measurement, and return the number of its ping. It replaces one that has no result."""
        self._number += 1
        self._sent_at, self._due_at = now, now + self._interval_seconds
        return self._number

    def pong(self, number: int, now: float) -> None:
        """Take the result, unless the pong is for another measurement."""
        if number == self._number and self._sent_at is not None:
            self.seconds, self._sent_at = now - self._sent_at, None

    def deadline(self) -> float:
        """Return when the next measurement is due."""
        return self._due_at


class Pings:
    """The pending pings of one connection, over all its links."""

    def __init__(self, max_pending: int = MAX_PENDING_PINGS) -> None:
        self._max_pending = max_pending
        self._next_number = 0
        self._sent_at: dict[int, float] = {}

    @property
    def pending(self) -> int:
        """Number of pending pings."""
        return len(self._sent_at)

    def start(self, now: float) -> int | None:
        """Return the number of a new ping, or None if too many are pending."""
        if len(self._sent_at) >= self._max_pending:
            return None
        number = self._next_number
        self._next_number += 1
        self._sent_at[number] = now
        return number

    def pong(self, number: int, now: float) -> float | None:
        """End a ping. Returns the round trip in seconds, or None if the ping has ended or was never sent."""
        sent_at = self._sent_at.pop(number, None)
        return None if sent_at is None else now - sent_at

    def end(self, number: int) -> None:
        """End a ping without its pong, unless it has ended."""
        self._sent_at.pop(number, None)
