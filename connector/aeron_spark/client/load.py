"""A load test: many clients of one server connect, send messages, ping for some time, and close."""

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

THREADS: Final = 32  # that send, ping and close: more threads would only wait for each other
PING_INTERVAL_S: Final = 1.0  # between two pings of one client
STOP_POLL_S: Final = 0.1  # between two checks whether to stop

T = TypeVar("T")
Advance = Callable[[str, int, int], None]  # phase, done, total
IsStopped = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The work of each client: ``messages`` of ``size`` bytes, then a ping per second for ``hold_seconds``.

    ``at_once`` of the ``clients`` connect at a time.
    """

    clients: int
    messages: int = 0
    size: int = 200
    hold_seconds: float = 0.0
    at_once: int = 8

    def __post_init__(self) -> None:
        for name, minimum in (("clients", 1), ("at_once", 1), ("messages", 0), ("size", 0), ("hold_seconds", 0)):
            if getattr(self, name) < minimum:
                raise OptionError(f"{name} is {getattr(self, name)}", remedy=f"Make it at least {minimum}.")


@dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of durations, in seconds."""

    median: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread | None:
        """Return the distribution of durations; None for none."""
        if not seconds:
            return None
        ordered = sorted(seconds)
        return cls(statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1], ordered[-1])


@dataclass(frozen=True, slots=True)
class FailureCount:
    """An error class that ``count`` clients met; ``first`` is the text of the first error."""

    error: str
    count: int
    first: str


@dataclass(slots=True)
class LoadReport:
    """The results. ``messages`` counts those whose listeners on the server have returned. Times are in seconds."""

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
    failures: list[FailureCount] = field(default_factory=list)


def run_load(
    make: Callable[[int], Client],
    plan: LoadPlan,
    stopped: IsStopped = lambda: False,
    advance: Advance = lambda what, done, total: None,
) -> LoadReport:
    """Run ``plan`` with clients that ``make`` makes from their numbers, and close them all.

    A client that fails is counted, and the others continue. When ``stopped`` returns true, the load ends early, and
    clients that are connecting are closed.
    """
    return _Load(make, plan, stopped, advance).run()


class _Load:
    def __init__(self, make: Callable[[int], Client], plan: LoadPlan, stopped: IsStopped, advance: Advance) -> None:
        self._make = make
        self._plan = plan
        self._stopped = stopped
        self._advance = advance
        self._lock = threading.Lock()
        self._clients: list[Client] = []
        self._connecting: set[Client] = set()
        self._connect_s: list[float] = []
        self._ping_s: list[float] = []
        self._messages = 0
        self._errors: dict[str, list[str]] = {}

    def run(self) -> LoadReport:
        """Connect all clients, send, ping, and close them."""
        plan, begun = self._plan, time.monotonic()
        report = LoadReport(plan.clients, size=plan.size)
        try:
            self._each("connecting", range(plan.clients), self._connect, plan.at_once)
            report.connected, report.connect = len(self._clients), Spread.of(self._connect_s)
            if plan.messages:
                since = time.monotonic()
                self._each("sending", self._clients, self._send, THREADS)
                report.send_seconds = time.monotonic() - since
                report.messages = self._messages
                report.messages_per_second = self._messages / report.send_seconds
            self._hold(report)
        finally:
            self._each("closing", self._clients, Client.close, THREADS, even_if_stopped=True)
        report.failures = [FailureCount(kind, len(texts), texts[0]) for kind, texts in sorted(self._errors.items())]
        report.seconds = time.monotonic() - begun
        return report

    def _connect(self, number: int) -> None:
        begun = time.monotonic()
        client = self._make(number)
        with self._lock:
            self._connecting.add(client)
        try:
            if not self._stopped():  # otherwise _close_connecting may have run before this client was added
                client.connect()
        except BaseException:
            client.close()
            raise
        finally:
            with self._lock:
                self._connecting.discard(client)
        with self._lock:
            self._connect_s.append(time.monotonic() - begun)
            self._clients.append(client)

    def _close_connecting(self) -> None:
        """Close the clients that are connecting: without a server they would wait until their timeout."""
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
        seconds = client.ping()
        with self._lock:
            self._ping_s.append(seconds)

    def _hold(self, report: LoadReport) -> None:
        end = time.monotonic() + self._plan.hold_seconds
        due = time.monotonic()
        while self._clients and not self._stopped():
            if time.monotonic() >= due:
                due = time.monotonic() + PING_INTERVAL_S
                self._each("", self._clients, self._ping, THREADS)
            remaining = end - time.monotonic()
            if remaining <= 0:
                break
            self._advance("pinging", round(self._plan.hold_seconds - remaining), round(self._plan.hold_seconds))
            time.sleep(min(STOP_POLL_S, remaining))
        report.pings, report.ping = len(self._ping_s), Spread.of(self._ping_s)

    def _each(
        self,
        phase: str,
        items: Iterable[T],
        work: Callable[[T], object],
        at_once: int,
        *,
        even_if_stopped: bool = False,
    ) -> None:
        """Do ``work`` with each item on ``at_once`` threads, and count errors."""
        waiting = list(items)
        done = 0

        def one(item: T) -> None:
            nonlocal done
            if self._stopped() and not even_if_stopped:
                return
            try:
                work(item)
            except AeronSparkError as error:
                if self._stopped() and not even_if_stopped:
                    return  # _close_connecting closed the client
                with self._lock:
                    self._errors.setdefault(type(error).__name__, []).append(str(error))
            with self._lock:
                done += 1
                now = done
            if phase:
                self._advance(phase, now, len(waiting))

        with ThreadPoolExecutor(max(1, min(at_once, len(waiting)))) as pool:
            futures = [pool.submit(one, item) for item in waiting]
            while wait(futures, STOP_POLL_S).not_done:
                if self._stopped() and not even_if_stopped:
                    self._close_connecting()
            for finished in futures:
                finished.result()
