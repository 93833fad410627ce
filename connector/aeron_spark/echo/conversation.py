"""A conversation of an Echo client: the messages to send, and the report of what came back.

A server never blocks in a publication, so that no client waits for another one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol, TypeVar

from aeron_spark.errors import DataFormatError, OptionError, WaitTimeout
from aeron_spark.transport.api import OfferResult

MAX_REPLIES: Final = 256  # waiting replies of one client; a duologue has at most those of one poll
REFUSAL_BURST: Final = 100
REFUSALS_PER_S: Final = 100.0  # limited because every client that waits for its own response receives all of them


Offer = Callable[[bytes], OfferResult | None]
"""Offers a message to a publication, once. Returns None if it was published, else the reason."""


class Outbox:
    """A queue of messages for a publication. Each message may wait ``timeout_s`` seconds."""

    def __init__(self, offer: Offer, timeout_s: float) -> None:
        self.sent = 0
        self._offer = offer
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[float, bytes]] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether no message waits."""
        return not self._waiting

    def put(self, message: bytes, now: float) -> None:
        """Add a message at the end. Drops the oldest message of a full queue."""
        if len(self._waiting) == MAX_REPLIES:
            self._waiting.popleft()
        self._waiting.append((now + self._timeout_s, message))

    def flush(self, now: float, limit: int = MAX_REPLIES) -> int:
        """Publish up to ``limit`` messages and return their number. Stops at a message that has waited too long."""
        before = self.sent
        while self._waiting and self._waiting[0][0] > now and self.sent - before < limit:
            if self._offer(self._waiting[0][1]) is not None:
                break
            self._waiting.popleft()
            self.sent += 1
        return self.sent - before

    def is_overdue(self, now: float) -> bool:
        """Return whether the oldest message has waited longer than ``timeout_s``."""
        return bool(self._waiting) and self._waiting[0][0] <= now

    def drop_overdue(self, now: float) -> None:
        """Drop messages that have waited longer than ``timeout_s``, so that they do not block the later ones."""
        while self.is_overdue(now):
            self._waiting.popleft()


class SharedOutbox:
    """Queues of the responses on the channel of all clients. A client that floods the channel delays no other client.

    Admissions are sent first; the server's limit of clients limits their number. Each session has its own queue of
    refusals, and the queues take turns. Together they send ``REFUSALS_PER_S``. The server does not poll a session with
    a waiting refusal (:meth:`has_refusal`), so a queue has at most the refusals of one poll.
    """

    def __init__(self, offer: Offer, timeout_s: float) -> None:
        self._offer = offer
        self._timeout_s = timeout_s
        self._admissions = Outbox(offer, timeout_s)
        self._refusals: dict[int, Outbox] = {}  # by image id; the first one sends next
        self._allowed = float(REFUSAL_BURST)
        self._allowed_at = 0.0

    def admit(self, message: bytes, now: float) -> None:
        """Queue a response that gives a client the address of its duologue."""
        self._admissions.put(message, now)

    def refuse(self, image: int, message: bytes, now: float) -> None:
        """Queue a refusal for the sender of an image."""
        self._refusals.setdefault(image, Outbox(self._offer, self._timeout_s)).put(message, now)

    def has_refusal(self, image: int) -> bool:
        """Return whether a refusal for this image waits."""
        return image in self._refusals

    def flush(self, now: float) -> int:
        """Send waiting messages, and drop those that have waited too long. Return the number of sent messages."""
        self._admissions.drop_overdue(now)
        sent = self._admissions.flush(now)
        elapsed_s = max(0.0, now - self._allowed_at)
        self._allowed, self._allowed_at = min(REFUSAL_BURST, self._allowed + elapsed_s * REFUSALS_PER_S), now
        for _ in range(len(self._refusals)):
            image, queue = next(iter(self._refusals.items()))
            queue.drop_overdue(now)
            flushed = queue.flush(now, 1) if self._admissions.is_empty and self._allowed >= 1 else 0
            if not flushed and not queue.is_empty:
                break
            sent += flushed
            self._allowed -= flushed
            del self._refusals[image]
            if not queue.is_empty:
                self._refusals[image] = queue  # moves it behind the others
        return sent


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
class EchoRefused:
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
    | EchoRefused
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
    last: EchoRefused | None = None


class LimitedReport:
    """Reports all events, but only some refusals: five of an address without a delay, then one in 10 s.

    The next reported refusal has the number of withheld ones (``suppressed``). For use by one thread.
    """

    def __init__(self, report: Report, clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self._addresses: dict[str, _AddressState] = {}

    def __call__(self, event: EchoEvent) -> None:
        if not isinstance(event, EchoRefused):
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

    def _send(self, address: _AddressState, event: EchoRefused) -> None:
        address.allowed -= 1
        withheld, address.withheld, address.last = address.withheld, 0, None
        self._report(replace(event, suppressed=withheld))


T = TypeVar("T")
Clock = Callable[[], float]

POLL_INTERVAL_S: Final = 0.001  # interval between two polls of an idle client or server


class EchoClient(Protocol):
    """A client of either protocol."""

    def connect(self) -> Generator[None, None, ClientConnected]:
        """Connect to the server, until it accepts messages."""

    def echo(self, payload: bytes) -> Generator[None, None, bytes]:
        """Send ``payload`` and return the echo."""

    def check_connection(self) -> None:
        """Raise ConnectError if the connection is lost, RefusedError if the server ended it with an error."""


def check_size(size: int, limit: int) -> None:
    """Raise OptionError if a text of ``size`` bytes does not fit into one message."""
    if size > limit:
        raise OptionError(f"a text has {size} bytes, the limit is {limit}", remedy="Send a shorter text.")


def refuse_echo(payload: bytes | None) -> None:
    """Raise DataFormatError for an echo that answers no request; None: none came."""
    if payload is not None:
        raise DataFormatError(f"an echo without a request came: {payload[:80]!r}", remedy="Check the server's program.")


def wait_for_step(poll: Callable[[], T | None], seconds: float, step: str, clock: Clock) -> Generator[None, None, T]:
    """Return the first value of ``poll()`` that is neither None nor False.

    Raises WaitTimeout, which names ``step``, after ``seconds``.
    """
    end = clock() + seconds
    while True:
        value = poll()
        if value is not None and value is not False:
            return value
        if clock() >= end:
            raise WaitTimeout(
                f"step '{step}' was not done within {seconds:g} s",
                remedy="Check that the server runs, and that all routers and firewalls on the path let its ports pass.",
            )
        yield


def converse(
    client: EchoClient, payloads: Iterable[bytes], interval: float, report: Report, clock: Clock = time.monotonic
) -> Generator[None, None, int]:
    """Connect, then send each payload and receive its echo, with ``interval`` seconds between them.

    Return the number of echoes. Raises WaitTimeout with the name of a step that took too long, RefusedError with the
    server's error text, ConnectError if the connection is lost, DataFormatError if an echo differs from its payload.
    """
    report((yield from client.connect()))
    count = 0
    for payload in payloads:
        if count:
            yield from _pause(client, interval, clock)
        start = clock()
        response = yield from client.echo(payload)
        text = payload.decode("utf-8", "backslashreplace")
        if response != payload:
            raise DataFormatError(
                f"{text!r} came back as {response.decode('utf-8', 'backslashreplace')!r}",
                remedy="Check that the server at this address is an Echo server of the same protocol.",
            )
        report(EchoReceived(text, clock() - start))
        count += 1
    return count


def _pause(client: EchoClient, interval: float, clock: Clock) -> Generator[None, None, None]:
    end = clock() + interval
    while clock() < end:
        client.check_connection()
        yield


def run_steps(steps: Generator[None, None, T], stopped: Callable[[], bool]) -> T | None:
    """Run a generator to its end and return its value, or None if ``stopped`` returns True before."""
    while not stopped():
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        time.sleep(POLL_INTERVAL_S)
    return None


def serve(poll: Callable[[], int], stopped: Callable[[], bool]) -> None:
    """Poll a server until ``stopped`` returns True. ``poll`` returns 0 if it had no work."""
    while not stopped():
        if not poll():
            time.sleep(POLL_INTERVAL_S)
