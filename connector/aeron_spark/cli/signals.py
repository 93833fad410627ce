"""Runs commands: turns SIGINT and SIGTERM into a stop request that they poll, and errors into exit code 1."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

from aeron_spark.cli.main import INTERRUPTED as INTERRUPTED
from aeron_spark.cli.output import print_warnings
from aeron_spark.errors import AeronSparkError, OptionError

# A terminal and timeout(1) can send several signals at once: signals within this time count as one.
SIGNAL_GRACE_S: Final = 1.0


class OperationError(AeronSparkError):
    """The operation failed: a server or an archive refused a name or a number of a well-formed command line."""


@contextmanager
def operation() -> Iterator[None]:
    """Run the part of a command that uses a server, an archive or a media driver.

    Raises OperationError (exit code 1) for an OptionError of that part. An OptionError that is raised before it means a
    wrong command line (exit code 2).
    """
    try:
        yield
    except OptionError as error:
        raise OperationError(error.what, remedy=error.remedy) from error


class StopRequest:
    """Handles the signals that ask this process to stop; a call returns whether one was received.

    At first, a signal raises KeyboardInterrupt in the main thread, so that it ends a wait for a connection or a
    response. A command with a polling loop calls ``start_polling`` and then polls this object: the first signal only
    sets the request. A signal that follows the first one by more than ``grace_s`` seconds always raises.
    """

    def __init__(self, grace_s: float) -> None:
        self.is_polled = False
        self.number: int | None = None
        """The first signal."""
        self._grace_s = grace_s
        self._first: float | None = None  # monotonic time of the first signal

    def __call__(self) -> bool:
        return self._first is not None

    def start_polling(self) -> None:
        """Promise to poll this object: the first signal does not raise from now on."""
        self.is_polled = True

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. Takes no lock: the interrupted thread may hold it."""
        now = time.monotonic()
        if self._first is None:
            self._first, self.number = now, number
            if self.is_polled:
                return
        elif now - self._first <= self._grace_s:
            return
        raise KeyboardInterrupt


@contextmanager
def catch_sigint() -> Iterator[StopRequest]:
    """Yield a request that SIGINT sets. A second SIGINT raises KeyboardInterrupt."""
    with _handled(StopRequest(0.0), signal.SIGINT) as request:
        yield request


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Yield a request that SIGINT and SIGTERM set. A later one of them raises KeyboardInterrupt.

    The JVM, which starts at the first use of Aeron, then installs no handlers for these signals.
    """
    from aeron_spark.aeron import jvm

    jvm.keep_signals()
    with _handled(StopRequest(SIGNAL_GRACE_S), signal.SIGINT, signal.SIGTERM) as request:
        yield request


@contextmanager
def running(options: Mapping[str, str]) -> Iterator[StopRequest]:
    """Run the part of a command that uses the route of ``options``; an OptionError of it has exit code 1.

    Through a server, SIGTERM ends it as SIGINT does, so that it leaves the server. Directly, SIGTERM ends the process.
    """
    if "server" in options:
        with catch_stop_signals() as stopped, operation():
            yield stopped
    else:
        with catch_sigint() as stopped, print_warnings(), operation():
            yield stopped


@contextmanager
def catch_termination() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as SIGINT does, so that a command that writes files removes them."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _handled(request: StopRequest, *numbers: signal.Signals) -> Iterator[StopRequest]:
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
