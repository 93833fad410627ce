"""What a client does, as a generator: it yields whenever there is nothing to do but to wait a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import Final, Protocol, TypeVar

from aeron_spark.echo import reports
from aeron_spark.echo.reports import Report
from aeron_spark.errors import DataFormatError, WaitTimeout

T = TypeVar("T")
Clock = Callable[[], float]

IDLE: Final = 0.001  # seconds between two looks where nothing happens


class Polled(Protocol):
    """A server: polled until it is time to stop."""

    def poll(self) -> int:
        """Do what can be done now; return how much that was."""


class EchoClient(Protocol):
    """A client of either protocol."""

    def connecting(self) -> Generator[None, None, reports.ClientConnected]:
        """Come to where the server takes what is sent."""

    def echoing(self, payload: bytes) -> Generator[None, None, bytes]:
        """Send ``payload`` and return what comes back."""

    def look(self) -> None:
        """Raise where the server has gone, or said that it will."""


def awaiting(poll: Callable[[], T | None], seconds: float, step: str, clock: Clock) -> Generator[None, None, T]:
    """Return the first value of ``poll()`` that is neither None nor False; raise WaitTimeout that names ``step``."""
    end = clock() + seconds
    while True:
        value = poll()
        if value is not None and value is not False:
            return value
        if clock() >= end:
            raise WaitTimeout(
                f"step '{step}' was not done within {seconds:g} s",
                remedy="Is the server there, and does every router and firewall on the way let its ports pass?",
            )
        yield


def conversation(
    client: EchoClient, payloads: Iterable[bytes], interval: float, report: Report, clock: Clock = time.monotonic
) -> Generator[None, None, int]:
    """Connect, have each payload echoed, ``interval`` seconds between two; return how many were.

    Raises WaitTimeout naming the step, RefusedError with the server's words, ConnectError where the server has gone,
    DataFormatError where something else comes back than was sent.
    """
    report((yield from client.connecting()))
    count = 0
    for payload in payloads:
        if count:
            yield from _pausing(client, interval, clock)
        began = clock()
        answer = yield from client.echoing(payload)
        text = payload.decode("utf-8", "backslashreplace")
        if answer != payload:
            raise DataFormatError(
                f"{text!r} came back as {answer.decode('utf-8', 'backslashreplace')!r}", remedy="Look at the server."
            )
        report(reports.EchoReceived(text, clock() - began))
        count += 1
    return count


def _pausing(client: EchoClient, interval: float, clock: Clock) -> Generator[None, None, None]:
    end = clock() + interval
    while clock() < end:
        client.look()
        yield


def drive(steps: Generator[None, None, T], stopped: Callable[[], bool]) -> T | None:
    """Run a generator to its end and return its value; None where it was stopped first."""
    while not stopped():
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        time.sleep(IDLE)
    return None


def serve(server: Polled, stopped: Callable[[], bool]) -> None:
    """Poll a server until it is stopped."""
    while not stopped():
        if not server.poll():
            time.sleep(IDLE)
