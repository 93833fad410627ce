"""One Aeron client a process and directory, kept across tasks, rebuilt when its driver or its own time-out ended it."""

from __future__ import annotations

import os
from typing import Any, Final

from aeron_spark.aeron.exceptions import describe, java_errors
from aeron_spark.aeron.interruptible import interruptible
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import TransportError
from aeron_spark.process_cache import ProcessCache
from aeron_spark.transport.waiting import wait_for

CONDUCTOR_IDLE_NS: Final = (
    1_000_000  # how late a new image may be noticed; Aeron's own default of 16 ms shows in every task
)
CONNECT_TIMEOUT: Final = 10.0  # seconds for the driver to answer


class Client:
    """An Aeron client of the media driver in ``aeron_dir``."""

    def __init__(self, aeron_dir: str) -> None:
        self.aeron_dir = aeron_dir
        self._driver = _driver_identity(aeron_dir)
        self.errors = jclass("io.aeronspark.ErrorLatch")()
        context = jclass("io.aeron.Aeron$Context")()
        context.aeronDirectoryName(aeron_dir).errorHandler(self.errors)
        # A handler that throws must stop a poll: Aeron would else count the fragment as consumed.
        context.subscriberErrorHandler(jclass("io.aeron.RethrowingErrorHandler").INSTANCE)
        context.idleStrategy(jclass("org.agrona.concurrent.SleepingIdleStrategy")(CONDUCTOR_IDLE_NS))
        context.threadFactory(jclass("io.aeronspark.DaemonThreads")())
        self.rejections = jclass("io.aeronspark.Rejections")()
        context.publicationErrorFrameHandler(self.rejections)
        context.clientName(f"aeron-spark {os.getpid()}")
        with java_errors(f"connecting to the media driver in {aeron_dir}"):
            connect = jclass("io.aeron.Aeron").connect
            self.aeron: Any = interruptible(connect, context, discard=lambda late: late.close())
        self._endings = jclass("io.aeronspark.Endings")
        self._endings.add(self.aeron)

    @property
    def closed(self) -> bool:
        """Whether this client can do nothing more: closed here, or its driver is gone or was replaced.

        Aeron itself notices a lost driver only after ten seconds; a driver that was started anew has a new file.
        """
        return bool(self.aeron.isClosed()) or _driver_identity(self.aeron_dir) != self._driver

    @property
    def last_error(self) -> str:
        """What Aeron last reported on its own threads, or an empty text."""
        error = self.errors.last()
        return describe(error) if error is not None else ""

    def subscription(self, channel: str, stream_id: int) -> Any:
        """Add a subscription; the driver's refusal is a TransportError."""
        with java_errors(f"subscribing to {channel} stream {stream_id}"):
            return interruptible(self.aeron.addSubscription, channel, stream_id, discard=lambda late: late.close())

    def exclusive_publication(self, channel: str, stream_id: int) -> Any:
        """Add an exclusive publication; the driver's refusal is a TransportError."""
        with java_errors(f"publishing on {channel} stream {stream_id}"):
            add = self.aeron.addExclusivePublication
            return interruptible(add, channel, stream_id, discard=lambda late: late.close())

    def close(self) -> None:
        """Close the client and everything it opened."""
        self._endings.remove(self.aeron)
        self.aeron.close()


def _driver_identity(aeron_dir: str) -> tuple[int, int]:
    try:
        found = os.stat(os.path.join(aeron_dir, "cnc.dat"))
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def image_of(subscription: Any, session_id: int, seconds: float, what: str) -> Any:
    """Return the image of ``session_id``, or raise WaitTimeout naming ``what``."""
    return wait_for(
        lambda: subscription.imageBySessionId(session_id),
        seconds,
        what,
        state=lambda: f"subscription {subscription.channel()} with {int(subscription.imageCount())} images",
    )


CLIENTS: Final[ProcessCache[str, Client]] = ProcessCache()  # by the driver's directory


def client_of(aeron_dir: str) -> Client:
    """Return this process's client of the driver in ``aeron_dir``; a dead one is replaced."""
    return CLIENTS.get(aeron_dir, lambda: Client(aeron_dir), lambda client: not client.closed, Client.close)


def close_all() -> None:
    """Close every client of this process."""
    for aeron_dir in CLIENTS.kept_keys():
        close_client(aeron_dir)


def close_client(aeron_dir: str) -> None:
    """Close this process's client of the driver in ``aeron_dir``, where it has one."""
    client = CLIENTS.take(aeron_dir)
    if client is not None:
        client.close()


def require_open(client: Client, doing: str) -> None:
    """Raise TransportError where the client died while ``doing`` something; a retry gets a new one."""
    if client.closed:
        raise TransportError(
            f"the Aeron client of {client.aeron_dir} ended while {doing} ({client.last_error or 'no reason given'})",
            remedy="The media driver stopped or this process was frozen for longer than its time-out; try again.",
        )
