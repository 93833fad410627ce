"""One Aeron client a process and directory, kept across tasks, rebuilt when its driver or its own time-out ended it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

from aeron_spark.aeron.exceptions import CORRECT_CHANNEL, describe, java_errors
from aeron_spark.aeron.interruptible import interruptible
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import TransportError
from aeron_spark.process_cache import ProcessCache
from aeron_spark.waiting import wait_for

CONDUCTOR_IDLE_NS: Final = (
    1_000_000  # how late a new image may be noticed; Aeron's own default of 16 ms shows in every task
)
# Seconds that an unused client stays: Aeron unmaps all logs at once when a client is closed, and a thread that was
# offering when its publication was closed must have come back. Aeron itself unmaps closed logs after 3 s.
LINGER: Final = 5.0
CONNECT_TIMEOUT: Final = 10.0  # seconds for the driver to answer


class Client:
    """An Aeron client of the media driver in ``aeron_dir``."""

    def __init__(self, aeron_dir: str) -> None:
        self.aeron_dir = aeron_dir
        self.is_kept = False  # whether it was given out without a lease, for what the process keeps until its end
        self.leases: set[ClientLease] = set()  # added to under the lock of ``CLIENTS``
        self.returned = time.monotonic()  # when the last lease ended
        self._driver = _driver_identity(aeron_dir)
        self.errors = jclass("io.aeronspark.client.LastErrorHandler")()
        context = jclass("io.aeron.Aeron$Context")()
        context.aeronDirectoryName(aeron_dir).errorHandler(self.errors)
        # A handler that throws must stop a poll: Aeron would else count the fragment as consumed.
        context.subscriberErrorHandler(jclass("io.aeron.RethrowingErrorHandler").INSTANCE)
        context.idleStrategy(jclass("org.agrona.concurrent.SleepingIdleStrategy")(CONDUCTOR_IDLE_NS))
        context.threadFactory(jclass("io.aeronspark.client.DaemonThreadFactory")())
        self.rejections = jclass("io.aeronspark.inbox.PublicationRejections")()
        context.publicationErrorFrameHandler(self.rejections)
        context.clientName(f"aeron-spark {os.getpid()}")
        with java_errors(f"connecting to the media driver in {aeron_dir}"):
            connect = jclass("io.aeron.Aeron").connect
            self.aeron: Any = interruptible(connect, context, discard=lambda late: late.close())
        self._endings = jclass("io.aeronspark.client.ClientShutdown")
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
        with java_errors(f"publishing on {channel} stream {stream_id}", unknown_host=CORRECT_CHANNEL):
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


class ClientLease:
    """A use of ``client`` that ends by ``close``: no thread of the user's is in the middle of Aeron then."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client.leases.add(self)

    def close(self) -> None:
        """End the use. Again, it does nothing."""
        if self in self.client.leases:
            self.client.returned = time.monotonic()
            self.client.leases.discard(self)


CLIENTS: Final[ProcessCache[str, Client]] = ProcessCache()  # by the driver's directory


def client_of(aeron_dir: str) -> Client:
    """Return this process's client of the driver in ``aeron_dir``, for good; a dead one is replaced."""

    def keep(client: Client) -> bool:
        client.is_kept = True
        return True

    return _client(aeron_dir, keep)


def lease_client(aeron_dir: str) -> ClientLease:
    """Return a use of this process's client of the driver in ``aeron_dir``; a dead one is replaced."""
    leases: list[ClientLease] = []

    def lease(client: Client) -> bool:
        leases.append(ClientLease(client))
        return True

    _client(aeron_dir, lease)
    return leases[-1]


def _client(aeron_dir: str, use: Callable[[Client], bool]) -> Client:
    """Return the client, used under the lock of ``CLIENTS``: ``close_unused`` takes it before or not at all."""

    def make() -> Client:
        made = Client(aeron_dir)
        use(made)
        return made

    return CLIENTS.get(aeron_dir, make, lambda client: not client.closed and use(client), Client.close)


def close_unused() -> float | None:
    """Close the clients whose last lease ended ``LINGER`` seconds ago, unless something else of this process has one.

    Returns the seconds until others can be closed, or None where no other one is without a lease.
    """
    now = time.monotonic()
    for client in CLIENTS.take_unused(lambda one: _is_unused(one) and now - one.returned >= LINGER):
        client.close()
    waiting = CLIENTS.values(_is_unused)
    return min((max(0.0, client.returned + LINGER - now) for client in waiting), default=None)


def _is_unused(client: Client) -> bool:
    return not client.is_kept and not client.leases


def close_all() -> None:
    """Close every client of this process."""
    for aeron_dir in CLIENTS.cached_keys():
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
