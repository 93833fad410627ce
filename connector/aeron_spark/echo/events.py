"""What servers and clients of Echo report; ``name`` is its name for programs, ``str()`` a sentence for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Listening:
    """A server serves. ``control`` is empty for Echo 1.0."""

    name: ClassVar[str] = "listening"
    protocol: int
    listen: str
    control: str

    def __str__(self) -> str:
        return f"Echo {self.protocol}.0 at {self.listen}" + (f", control {self.control}" if self.control else "")


@dataclass(frozen=True, slots=True)
class Introduced:
    """A client of Echo 1.0 said where it listens."""

    name: ClassVar[str] = "introduced"
    source: str
    session_id: int
    port: int

    def __str__(self) -> str:
        return f"{self.source}: listens at port {self.port}"


@dataclass(frozen=True, slots=True)
class Opened:
    """A client of Echo 2.0 has a duologue, and may come."""

    name: ClassVar[str] = "opened"
    source: str
    session_id: int
    data_port: int
    control_port: int

    def __str__(self) -> str:
        return f"{self.source}: duologue at data port {self.data_port}, control port {self.control_port}"


@dataclass(frozen=True, slots=True)
class Joined:
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
class Ended:
    """A client's exchange is over, and what it held is given back."""

    name: ClassVar[str] = "ended"
    source: str
    echoes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: ended after {self.echoes} echoes: {self.reason}"


@dataclass(frozen=True, slots=True)
class Connected:
    """A client may send."""

    name: ClassVar[str] = "connected"
    server: str
    session_id: int
    seconds: float

    def __str__(self) -> str:
        return f"connected to {self.server} in {self.seconds:.3f} s"


@dataclass(frozen=True, slots=True)
class Echoed:
    """What a client sent came back the same."""

    name: ClassVar[str] = "echo"
    text: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.text} in {1000 * self.seconds:.1f} ms"


Event = Listening | Introduced | Opened | Joined | Refusal | Ended | Connected | Echoed
Report = Callable[[Event], None]
