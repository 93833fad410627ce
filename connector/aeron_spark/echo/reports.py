"""What servers and clients of Echo report; ``name`` is its name for programs, ``str()`` a sentence for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final


@dataclass(frozen=True, slots=True)
class ListeningStarted:
    """A server serves. ``control`` is empty for Echo 1.0."""

    name: ClassVar[str] = "listening"
    protocol: int
    listen: str
    control: str

    def __str__(self) -> str:
        return f"Echo {self.protocol}.0 at {self.listen}" + (f", control {self.control}" if self.control else "")


@dataclass(frozen=True, slots=True)
class ClientIntroduced:
    """A client of Echo 1.0 said where it listens."""

    name: ClassVar[str] = "introduced"
    source: str
    session_id: int
    port: int

    def __str__(self) -> str:
        return f"{self.source}: listens at port {self.port}"


@dataclass(frozen=True, slots=True)
class DuologueOpened:
    """A client of Echo 2.0 has a duologue, and may come."""

    name: ClassVar[str] = "opened"
    source: str
    session_id: int
    data_port: int
    control_port: int

    def __str__(self) -> str:
        return f"{self.source}: duologue at data port {self.data_port}, control port {self.control_port}"


@dataclass(frozen=True, slots=True)
class ClientJoined:
    """The owner of a duologue came."""

    name: ClassVar[str] = "joined"
    source: str
    data_port: int

    def __str__(self) -> str:
        return f"{self.source}: joined the duologue at data port {self.data_port}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something was not accepted: a message, a client, a foreign address.

    ``suppressed`` others of the same address before it were not reported.
    """

    name: ClassVar[str] = "refused"
    source: str
    session_id: int
    reason: str
    suppressed: int = 0

    def __str__(self) -> str:
        more = f" ({self.suppressed} more of this address before it)" if self.suppressed else ""
        return f"{self.source}: refused: {self.reason}{more}"


@dataclass(frozen=True, slots=True)
class ClientEnded:
    """A client's exchange is over, and what it held is given back."""

    name: ClassVar[str] = "ended"
    source: str
    echoes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: ended after {self.echoes} echoes: {self.reason}"


@dataclass(frozen=True, slots=True)
class ClientConnected:
    """A client may send."""

    name: ClassVar[str] = "connected"
    server: str
    session_id: int
    seconds: float

    def __str__(self) -> str:
        return f"connected to {self.server} in {self.seconds:.3f} s"


@dataclass(frozen=True, slots=True)
class EchoReceived:
    """What a client sent came back the same."""

    name: ClassVar[str] = "echo"
    text: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.text} in {1000 * self.seconds:.1f} ms"


EchoEvent = (
    ListeningStarted
    | ClientIntroduced
    | DuologueOpened
    | ClientJoined
    | Refusal
    | ClientEnded
    | ClientConnected
    | EchoReceived
)

Report = Callable[[EchoEvent], None]

AT_ONCE: Final = 5  # reports of one address

INTERVAL_S: Final = 10.0  # between two reports of one address after those

MOST_ADDRESSES: Final = 1_024  # that are told apart

OTHERS: Final = "other addresses"


@dataclass(slots=True)
class _Address:
    allowed: float
    at: float  # when ``allowed`` was counted
    withheld: int = 0
    last: Refusal | None = None


class LimitedReport:
    """A report that passes every event on but refusals: of these, five of an address at once, then one in 10 s.

    The next one that is passed on says how many were withheld (``suppressed``). For one thread.
    """

    def __init__(self, report: Report, clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self._addresses: dict[str, _Address] = {}

    def __call__(self, event: EchoEvent) -> None:
        if not isinstance(event, Refusal):
            self._report(event)
            return
        now = self._clock()
        address = self._address(event.source, now)
        if self._may_report(address, now):
            self._pass_on(address, event)
        else:
            address.withheld += 1
            address.last = event

    def tick(self) -> None:
        """Report the last of the withheld refusals of each address whose time has come."""
        now = self._clock()
        for address in self._addresses.values():
            if address.last is not None and self._may_report(address, now):
                address.withheld -= 1  # it is reported itself
                self._pass_on(address, address.last)

    def close(self) -> None:
        """Report what is withheld."""
        for address in self._addresses.values():
            if address.last is not None:
                address.withheld -= 1
                self._pass_on(address, address.last)

    def _address(self, source: str, now: float) -> _Address:
        host = source.rpartition(":")[0] or source
        if host not in self._addresses and len(self._addresses) >= MOST_ADDRESSES:
            self._forget(now)
            host = OTHERS if len(self._addresses) >= MOST_ADDRESSES else host
        return self._addresses.setdefault(host, _Address(float(AT_ONCE), now))

    def _forget(self, now: float) -> None:
        """Forget the addresses of which nothing is withheld and all may be reported again."""
        full = AT_ONCE * INTERVAL_S
        kept = {host: one for host, one in self._addresses.items() if one.last is not None or now - one.at < full}
        self._addresses = kept

    def _may_report(self, address: _Address, now: float) -> bool:
        address.allowed = min(float(AT_ONCE), address.allowed + max(0.0, now - address.at) / INTERVAL_S)
        address.at = now
        return address.allowed >= 1

    def _pass_on(self, address: _Address, event: Refusal) -> None:
        address.allowed -= 1
        withheld, address.withheld, address.last = address.withheld, 0, None
        self._report(replace(event, suppressed=withheld))
