"""One Aeron client per process and driver directory, and the clients of a driver whose process has ended.

A driver learns that a client's process has ended only when the client's heartbeat is as old as its liveness timeout, 10
s, by the wall clock: later if the clock was set back. Until then it keeps the client's subscriptions, and the peers of
a killed server would send to them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from aeron_spark.aeron.counters import CNC_FILE, Counter, open_cnc
from aeron_spark.aeron.java_calls import CORRECT_CHANNEL, describe, interruptible, java_errors
from aeron_spark.aeron.jvm import enter_java, jclass
from aeron_spark.errors import ConnectError, TransportError
from aeron_spark.process import ProcessCache, bind_to_process, has_ended, has_mapped

_NAME: Final = "aeron-spark {}"  # of the client in the label of its heartbeat
_NAMED: Final = re.compile(" name=" + _NAME.format(r"(?P<pid>\d+)") + " ")


def client_name() -> str:
    """Return the name for an Aeron client of this process."""
    return _NAME.format(os.getpid())


class EndedClient(NamedTuple):
    """An Aeron client whose process has ended."""

    client_id: int
    pid: int


class ClientProcesses:
    """The processes of a driver's Aeron clients, as far as they are known: those of this package in this namespace."""

    def __init__(
        self,
        aeron_dir: str,
        *,
        has_mapped: Callable[[int, Path], bool] = has_mapped,
        has_ended: Callable[[int], bool] = has_ended,
    ) -> None:
        self._cnc: Final = Path(aeron_dir) / CNC_FILE
        self._has_mapped: Final = has_mapped
        self._has_ended: Final = has_ended
        self._known: dict[int, int | None] = {}  # process ids by client id; None: of another program or namespace

    def ended(self, heartbeats: Iterable[Counter]) -> list[EndedClient]:
        """Return the clients whose process has ended. ``heartbeats`` are the counters of all clients of the driver.

        A client is known from the first call at which its process ran, and named itself.
        """
        found = {one.registration_id: one.label for one in heartbeats}
        self._known = {client: pid for client, pid in self._known.items() if client in found}
        for client, label in found.items():
            named = _NAMED.search(label)
            if client not in self._known and named is not None:  # a client names itself with its first heartbeat
                pid = int(named["pid"])
                self._known[client] = pid if self._has_mapped(pid, self._cnc) else None
        return [
            EndedClient(client, pid) for client, pid in self._known.items() if pid is not None and self._has_ended(pid)
        ]


# The longest delay until the client sees a new image. Aeron's default of 16 ms would delay each task.
CONDUCTOR_IDLE_NS: Final = 1_000_000
# Closing a client unmaps all its logs immediately. A thread that was offering when its publication was closed must have
# returned before. Aeron itself unmaps closed logs after 3 s.
UNUSED_TIMEOUT_S: Final = 5.0
# A client whose driver was lost is closed while other threads may be inside a call of Aeron. Such a call ends at once,
# but the client must not unmap its logs before.
LOST_CLOSE_NS: Final = 100_000_000


class AeronClient:
    """An Aeron client of the media driver in ``aeron_dir``."""

    def __init__(self, aeron_dir: str) -> None:
        bind_to_process(self)
        self.aeron_dir = aeron_dir
        self.is_permanent = False  # whether `client_of` returned it, which needs it until the process ends
        self.leases: set[ClientLease] = set()  # a lease is added under the lock of ``CLIENTS``
        self.unused_since = time.monotonic()  # end of the last lease
        self._driver = _driver_identity(aeron_dir)
        self.errors = jclass("io.aeronspark.client.LastErrorHandler")()
        context = jclass("io.aeron.Aeron$Context")()
        context.aeronDirectoryName(aeron_dir).errorHandler(self.errors)
        # A handler that throws must stop the poll. By default Aeron would count the fragment as consumed.
        context.subscriberErrorHandler(jclass("io.aeron.RethrowingErrorHandler").INSTANCE)
        context.idleStrategy(jclass("org.agrona.concurrent.SleepingIdleStrategy")(CONDUCTOR_IDLE_NS))
        context.threadFactory(jclass("io.aeronspark.client.DaemonThreadFactory")())
        self.rejections = jclass("io.aeronspark.inbox.PublicationRejections")()
        self.idle_inbox_poller = jclass("io.aeronspark.inbox.IdleInboxPoller")()
        context.publicationErrorFrameHandler(self.rejections)
        context.clientName(client_name())
        with java_errors(f"connecting to the media driver in {aeron_dir}"):
            connect = jclass("io.aeron.Aeron").connect
            self._aeron: Any = interruptible(connect, context, discard=lambda late: late.close())
        self._driver_pid = _driver_pid(aeron_dir)
        self._endings = jclass("io.aeronspark.client.ClientShutdown")
        self._endings.add(self.aeron)

    @property
    def aeron(self) -> Any:
        """Aeron's own client."""
        enter_java()
        return self._aeron

    @property
    def closed(self) -> bool:
        """Whether this client is unusable: it was closed, or its driver has ended or was replaced.

        The check compares the driver's CnC file and looks for its process, because Aeron notices a lost driver only
        after 10 s, by the wall clock.
        """
        return (
            bool(self.aeron.isClosed())
            or _driver_identity(self.aeron_dir) != self._driver
            or (self._driver_pid is not None and has_ended(self._driver_pid))
        )

    @property
    def last_error(self) -> str:
        """The last error that Aeron's own threads reported, or an empty text."""
        error = self.errors.last()
        return describe(error) if error is not None else ""

    def subscription(self, channel: str, stream_id: int) -> Any:
        """Add a subscription. Raises TransportError if the driver refuses it."""
        with java_errors(f"subscribing to {channel} stream {stream_id}"):
            return interruptible(self.aeron.addSubscription, channel, stream_id, discard=lambda late: late.close())

    def exclusive_publication(self, channel: str, stream_id: int) -> Any:
        """Add an exclusive publication. Raises TransportError if the driver refuses it."""
        with java_errors(f"publishing on {channel} stream {stream_id}", unknown_host=CORRECT_CHANNEL):
            add = self.aeron.addExclusivePublication
            return interruptible(add, channel, stream_id, discard=lambda late: late.close())

    def close(self) -> None:
        """Close the client with its publications and subscriptions."""
        self._endings.remove(self.aeron)
        if self.closed:
            self.aeron.context().closeLingerDurationNs(LOST_CLOSE_NS)
        self.aeron.close()


def _driver_identity(aeron_dir: str) -> tuple[int, int]:
    try:
        found = os.stat(os.path.join(aeron_dir, CNC_FILE))
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _driver_pid(aeron_dir: str) -> int | None:
    """Return the process id of the driver, or None if its process cannot be observed from here."""
    try:
        with open_cnc(aeron_dir) as cnc:
            pid = cnc.pid
    except ConnectError:
        return None
    return pid if has_mapped(pid, Path(aeron_dir) / CNC_FILE) else None


class ClientLease:
    """A use of ``client`` until ``close``. At that time no thread of the user may be inside a call of Aeron."""

    def __init__(self, client: AeronClient) -> None:
        self.client = client
        client.leases.add(self)

    def close(self) -> None:
        """End the use. A second call does nothing."""
        if self in self.client.leases:
            self.client.unused_since = time.monotonic()
            self.client.leases.discard(self)


CLIENTS: Final[ProcessCache[str, AeronClient]] = ProcessCache()  # by the driver's directory


def client_of(aeron_dir: str) -> AeronClient:
    """Return this process's client of the driver in ``aeron_dir``, until the process ends; replace a closed one."""

    def make_permanent(client: AeronClient) -> bool:
        client.is_permanent = True
        return True

    return _client(aeron_dir, make_permanent)


def lease_client(aeron_dir: str) -> ClientLease:
    """Return a lease of this process's client of the driver in ``aeron_dir``; replace a closed one."""
    leases: list[ClientLease] = []

    def lease(client: AeronClient) -> bool:
        leases.append(ClientLease(client))
        return True

    _client(aeron_dir, lease)
    return leases[-1]


def _client(aeron_dir: str, use: Callable[[AeronClient], bool]) -> AeronClient:
    """Return the client after ``use(client)`` under the lock of ``CLIENTS``, which ``close_unused`` needs, too."""

    def make() -> AeronClient:
        client = AeronClient(aeron_dir)
        use(client)
        return client

    return CLIENTS.get(aeron_dir, make, lambda client: not client.closed and use(client), AeronClient.close)


def close_unused() -> float | None:
    """Close the clients that have been unused for ``UNUSED_TIMEOUT_S``.

    Returns the seconds until the next unused client can be closed, or None if no client is unused.
    """
    now = time.monotonic()
    for client in CLIENTS.take_unused(lambda one: _is_unused(one) and now - one.unused_since >= UNUSED_TIMEOUT_S):
        client.close()
    unused = CLIENTS.values(_is_unused)
    return min((max(0.0, client.unused_since + UNUSED_TIMEOUT_S - now) for client in unused), default=None)


def _is_unused(client: AeronClient) -> bool:
    return not client.is_permanent and not client.leases


def close_client(aeron_dir: str) -> None:
    """Close this process's client of the driver in ``aeron_dir``, if it has one."""
    client = CLIENTS.take(aeron_dir)
    if client is not None:
        client.close()


def require_open(client: AeronClient, action: str) -> None:
    """Raise TransportError if the client ended during ``action``. A retry gets a new client."""
    if client.closed:
        raise TransportError(
            f"the Aeron client of {client.aeron_dir} ended while {action} ({client.last_error or 'no reason known'})",
            remedy="Try again. The media driver stopped, or this process was suspended for longer than its timeout.",
        )
