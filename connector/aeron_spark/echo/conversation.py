"""Runs Echo clients and servers. A client is a generator of steps, which yields while it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import Final, Protocol, TypeVar

from aeron_spark.echo import reports
from aeron_spark.echo.reports import Report
from aeron_spark.errors import DataFormatError, OptionError, WaitTimeout

T = TypeVar("T")
Clock = Callable[[], float]

POLL_INTERVAL_S: Final = 0.001  # interval between two polls of an idle client or server


class EchoServer(Protocol):
    """A server of either protocol."""

    def poll(self) -> int:
        """Handle the available messages, without waiting. Return a number above 0 if there was work."""


class EchoClient(Protocol):
    """A client of either protocol."""

    def connect(self) -> Generator[None, None, reports.ClientConnected]:
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
        report(reports.EchoReceived(text, clock() - start))
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


def serve(server: EchoServer, stopped: Callable[[], bool]) -> None:
    """Poll a server until ``stopped`` returns True."""
    while not stopped():
        if not server.poll():
            time.sleep(POLL_INTERVAL_S)
