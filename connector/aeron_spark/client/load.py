"""Many clients against one server: they connect, send, stay for a while and leave, and what each took is kept."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final, TypeVar

from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError, OptionError

THREADS: Final = 32  # that send, ping and close: more would only wait for each other
PING_SECONDS: Final = 1.0  # between two pings of one client that stays
LOOK: Final = 0.1  # seconds between two looks at whether to stop

T = TypeVar("T")
Advance = Callable[[str, int, int], None]  # what is done, how many, of how many
Stopped = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What each of ``clients`` does: ``messages`` of ``size`` bytes, then ``hold_seconds`` with a ping a second.

    ``at_once`` of them connect at a time.
    """

    clients: int
    messages: int = 0
    size: int = 200
    hold_seconds: float = 0.0
    at_once: int = 8

    def __post_init__(self) -> None:
        for name, least in (("clients", 1), ("at_once", 1), ("messages", 0), ("size", 0), ("hold_seconds", 0)):
            if getattr(self, name) < least:
                raise OptionError(f"{name} is {getattr(self, name)}", remedy=f"Make it at least {least}")


@dataclass(frozen=True, slots=True)
class Spread:
    """Of some times, in seconds."""

    median: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread | None:
        """Describe them; None where there are none."""
        if not seconds:
            return None
        ordered = sorted(seconds)
        return cls(statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1], ordered[-1])


@dataclass(frozen=True, slots=True)
class Failure:
    """``count`` clients met an error of this kind; ``first`` is what it said to the first of them."""

    error: str
    count: int
    first: str


@dataclass(slots=True)
class LoadReport:
    """What came of it. ``messages`` are those that the server's listeners have had; times are in seconds."""

    clients: int
    connected: int = 0
    connect: Spread | None = None
    messages: int = 0
    size: int = 0
    send_seconds: float = 0.0
    messages_per_second: float = 0.0
    pings: int = 0
    ping: Spread | None = None
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def run_load(
    make: Callable[[int], Client], plan: LoadPlan, stopped: Stopped = lambda: False,
    advance: Advance = lambda what, done, total: None,
) -> LoadReport:  # fmt: skip
    """Carry out ``plan`` with the clients that ``make`` makes of their numbers; every one is closed in the end.

    A client that fails is counted, and the others go on. ``stopped`` is asked for a reason to end early: clients that
    are connecting then are closed.
    """
    return _Load(make, plan, stopped, advance).run()


class _Load:
    def __init__(self, make: Callable[[int], Client], plan: LoadPlan, stopped: Stopped, advance: Advance) -> None:
        self._make = make
        self._plan = plan
        self._stopped = stopped
        self._advance = advance
        self._lock = threading.Lock()
        self._clients: list[Client] = []
        self._connecting: set[Client] = set()
        self._took: list[float] = []
        self._trips: list[float] = []
        self._messages = 0
        self._errors: dict[str, list[str]] = {}

    def run(self) -> LoadReport:
        """Connect all, let them talk and stay, and close them."""
        plan, begun = self._plan, time.monotonic()
        report = LoadReport(plan.clients, size=plan.size)
        try:
            self._each("connecting", range(plan.clients), self._come, plan.at_once)
            report.connected, report.connect = len(self._clients), Spread.of(self._took)
            if plan.messages:
                since = time.monotonic()
                self._each("sending", self._clients, self._send, THREADS)
                report.send_seconds = time.monotonic() - since
                report.messages = self._messages
                report.messages_per_second = self._messages / report.send_seconds
            self._stay(report)
        finally:
            self._each("closing", self._clients, Client.close, THREADS, whatever=True)
        report.failures = [Failure(kind, len(texts), texts[0]) for kind, texts in sorted(self._errors.items())]
        report.seconds = time.monotonic() - begun
        return report

    def _come(self, number: int) -> None:
        begun = time.monotonic()
        client = self._make(number)
        with self._lock:
            self._connecting.add(client)
        try:
            if not self._stopped():  # else it may have been added after the others were closed
                client.connect()
        except BaseException:
            client.close()
            raise
        finally:
            with self._lock:
                self._connecting.discard(client)
        with self._lock:
            self._took.append(time.monotonic() - begun)
            self._clients.append(client)

    def _abandon(self) -> None:
        """Close the clients that are connecting: a server that is not there would keep them for their whole time."""
        with self._lock:
            connecting = list(self._connecting)
        for client in connecting:
            client.close()

    def _send(self, client: Client) -> None:
        message = bytes(self._plan.size)
        client.send_many([message] * (self._plan.messages - 1))
        client.send(message, acknowledge=True)
        with self._lock:
            self._messages += self._plan.messages

    def _ping(self, client: Client) -> None:
        trip = client.ping()
        with self._lock:
            self._trips.append(trip)

    def _stay(self, report: LoadReport) -> None:
        end = time.monotonic() + self._plan.hold_seconds
        due = time.monotonic()
        while self._clients and not self._stopped():
            if time.monotonic() >= due:
                due = time.monotonic() + PING_SECONDS
                self._each("", self._clients, self._ping, THREADS)
            left = end - time.monotonic()
            if left <= 0:
                break
            self._advance("staying", round(self._plan.hold_seconds - left), round(self._plan.hold_seconds))
            time.sleep(min(LOOK, left))
        report.pings, report.ping = len(self._trips), Spread.of(self._trips)

    def _each(
        self, what: str, items: Iterable[T], work: Callable[[T], object], at_once: int, *, whatever: bool = False
    ) -> None:
        """Do ``work`` with each item, and count what fails; ``whatever``: even if it was asked to stop."""
        waiting = list(items)
        done = 0

        def one(item: T) -> None:
            nonlocal done
            if self._stopped() and not whatever:
                return
            try:
                work(item)
            except AeronSparkError as error:
                if self._stopped() and not whatever:
                    return  # it was closed meanwhile
                with self._lock:
                    self._errors.setdefault(type(error).__name__, []).append(str(error))
            with self._lock:
                done += 1
                now = done
            if what:
                self._advance(what, now, len(waiting))

        with ThreadPoolExecutor(max(1, min(at_once, len(waiting)))) as pool:
            under_way = [pool.submit(one, item) for item in waiting]
            while wait(under_way, LOOK).not_done:
                if self._stopped() and not whatever:
                    self._abandon()
            for finished in under_way:
                finished.result()
