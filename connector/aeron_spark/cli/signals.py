"""What commands that reach a stream have in common: which stream, which archive, which further options."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from aeron_spark.cli.arguments import DEFAULT_TIMEOUT_S
from aeron_spark.cli.main import INTERRUPTED as INTERRUPTED
from aeron_spark.errors import AeronSparkError, OptionError


class OperationError(AeronSparkError):
    """The operation failed, though the command line can be right: a server or an archive refuses a name or a number."""


@contextmanager
def operation() -> Iterator[None]:
    """Run what a command does with a server, an archive or a driver.

    A name or number that those refuse is a failure (exit code 1). A wrong command line (2) is found before.
    """
    try:
        yield
    except OptionError as error:
        raise OperationError(error.what, remedy=error.remedy) from error


class StopRequest:
    """Tells whether a signal asked this process to stop.

    A command that connects, or waits for an answer, does not ask for it. So a signal raises KeyboardInterrupt where the
    main thread is, until the command calls ``begin``: its own loop asks from there on. A signal that comes more than
    ``patience_s`` seconds after the first one always raises.
    """

    def __init__(self, patience_s: float) -> None:
        self.begun = False
        self._patience_s = patience_s
        self._first: float | None = None  # when the first signal came

    def __call__(self) -> bool:
        return self._first is not None

    def begin(self) -> None:
        """Have the first signal only answered by this object from now on: a loop asks it."""
        self.begun = True

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal, as its handler."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            if self.begun:
                return
        elif now - self._first <= self._patience_s:
            return
        raise KeyboardInterrupt


@contextmanager
def interruption() -> Iterator[StopRequest]:
    """Give what tells whether SIGINT asked this process to stop. A second SIGINT stops at once."""
    with _handled(StopRequest(0.0), signal.SIGINT) as request:
        yield request


@contextmanager
def stopping() -> Iterator[StopRequest]:
    """Give what tells whether SIGINT or SIGTERM asked this process to stop. Asked again later, it stops where it is.

    The JVM of this process, which the first use of Aeron starts, leaves all signals to this process.
    """
    from aeron_spark.aeron import jvm

    jvm.keep_signals()
    with _handled(StopRequest(DEFAULT_TIMEOUT_S), signal.SIGINT, signal.SIGTERM) as request:
        yield request


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
