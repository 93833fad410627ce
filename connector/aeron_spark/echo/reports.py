"""Events of Echo servers and clients. ``name`` is for programs (JSON), ``str()`` is a sentence for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final


@dataclass(frozen=True, slots=True)
class ListeningStarted:
    """A server has started. ``control`` is empty for Echo 1.0."""

    name: ClassVar[str] = "listening"
    protocol: int
    listen: str
    control: str

    def __str__(self) -> str:
        return f"Echo {self.protocol}.0 server at {self.listen}" + (f", control {self.control}" if self.control else "")


@dataclass(frozen=True, slots=True)
class ClientIntroduced:
    """A client of Echo 1.0 sent the port at which it receives."""

    name: ClassVar[str] = "introduced"
    source: str
    session_id: int
    port: int

    def __str__(self) -> str:
        return f"{self.source}: receives at port {self.port}"


@dataclass(frozen=True, slots=True)
class DuologueOpened:
    """A client of Echo 2.0 got a duologue, and may join it."""

    name: ClassVar[str] = "opened"
    source: str
    session_id: int
    data_port: int
    control_port: int

    def __str__(self) -> str:
        return f"{self.source}: duologue at data port {self.data_port}, control port {self.control_port}"


@dataclass(frozen=True, slots=True)
class ClientJoined:
    """The client of a duologue joined it."""

    name: ClassVar[str] = "joined"
    source: str
    data_port: int

    def __str__(self) -> str:
        return f"{self.source}: joined the duologue at data port {self.data_port}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server refused a message, a client, or another host in a duologue.

    ``suppressed`` earlier refusals of the same address were not reported.
    """

    name: ClassVar[str] = "refused"
    source: str
    session_id: int
    reason: str
    suppressed: int = 0

    def __str__(self) -> str:
        suppressed = (
            f" ({self.suppressed} earlier refusals of this address were not reported)" if self.suppressed else ""
        )
        return f"{self.source}: refused: {self.reason}{suppressed}"


@dataclass(frozen=True, slots=True)
class ClientEnded:
    """The server ended a client's exchange and released its resources."""

    name: ClassVar[str] = "ended"
    source: str
    echoes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: ended after {self.echoes} echoes: {self.reason}"


@dataclass(frozen=True, slots=True)
class ClientConnected:
    """A client is connected and may send."""

    name: ClassVar[str] = "connected"
    server: str
    session_id: int
    seconds: float

    def __str__(self) -> str:
        return f"connected to {self.server} in {self.seconds:.3f} s"


@dataclass(frozen=True, slots=True)
class EchoReceived:
    """A client received the echo of its text, unchanged, after ``seconds``."""

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

REPORT_BURST: Final = 5  # refusals of one address that are reported without a delay

INTERVAL_S: Final = 10.0  # interval between the later reports of one address

MAX_ADDRESSES: Final = 1_024  # addresses with their own limit; the others share one

OTHERS: Final = "other addresses"


@dataclass(slots=True)
class _AddressState:
    """The reports that one address may still cause, and the refusals that were withheld."""

    allowed: float
    at: float  # time at which ``allowed`` was computed
    withheld: int = 0
    last: Refusal | None = None


class LimitedReport:
    """Reports all events, but only some refusals: five of an address without a delay, then one in 10 s.

    The next reported refusal has the number of withheld ones (``suppressed``). For use by one thread.
    """

    def __init__(self, report: Report, clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self._addresses: dict[str, _AddressState] = {}

    def __call__(self, event: EchoEvent) -> None:
        if not isinstance(event, Refusal):
            self._report(event)
            return
        now = self._clock()
        address = self._address(event.source, now)
        if self._may_report(address, now):
            self._send(address, event)
        else:
            address.withheld += 1
            address.last = event

    def tick(self) -> None:
        """Report the last withheld refusal of each address that may cause a report again."""
        now = self._clock()
        for address in self._addresses.values():
            if address.last is not None and self._may_report(address, now):
                address.withheld -= 1  # the reported refusal itself is not withheld
                self._send(address, address.last)

    def close(self) -> None:
        """Report the last withheld refusal of each address."""
        for address in self._addresses.values():
            if address.last is not None:
                address.withheld -= 1
                self._send(address, address.last)

    def _address(self, source: str, now: float) -> _AddressState:
        host = source.rpartition(":")[0] or source
        if host not in self._addresses and len(self._addresses) >= MAX_ADDRESSES:
            self._forget(now)
            host = OTHERS if len(self._addresses) >= MAX_ADDRESSES else host
        return self._addresses.setdefault(host, _AddressState(float(REPORT_BURST), now))

    def _forget(self, now: float) -> None:
        """Forget the addresses without withheld refusals that may cause ``REPORT_BURST`` reports again."""
        recovery_s = REPORT_BURST * INTERVAL_S
        self._addresses = {
            host: state
            for host, state in self._addresses.items()
            if state.last is not None or now - state.at < recovery_s
        }

    def _may_report(self, address: _AddressState, now: float) -> bool:
        address.allowed = min(float(REPORT_BURST), address.allowed + max(0.0, now - address.at) / INTERVAL_S)
        address.at = now
        return address.allowed >= 1

    def _send(self, address: _AddressState, event: Refusal) -> None:
        address.allowed -= 1
        withheld, address.withheld, address.last = address.withheld, 0, None
        self._report(replace(event, suppressed=withheld))
