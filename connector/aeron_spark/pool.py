"""The pool of connections between this process and servers, shared by all Spark tasks of the process.

An entry is idle while no task borrows it, none of its calls runs and none of its bulk links is borrowed. The pool
closes the connection of an entry that was idle for 60 s, for each value of the option ``handshake``, and at once that
of an idle entry that loses its link: only a use connects, or starts a media driver. A thread closes idle entries while
entries are open. A forked child begins with an empty pool.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aeron_spark.errors import AeronSparkError, RefusedError, Retry, WaitTimeout
from aeron_spark.options import DirectRoute, ServerRoute

if TYPE_CHECKING:
    from aeron_spark.client.client import Client
    from aeron_spark.endpoint.bulk_links import BulkLink
    from aeron_spark.endpoint.connection import Connection
    from aeron_spark.stream_client.session import StreamSession

CALL_TIMEOUT_S: Final = 60.0  # longest time for a call, including an outage or a restart of the server
REFUSED_TIMEOUT_S: Final = 300.0  # longest time for attempts at a server that refuses connections for now
RETRY_INTERVAL_S: Final = 0.25  # between two attempts at such a server
MIN_CONNECT_TIMEOUT_S: Final = 0.1  # of an attempt to connect, even if the caller has less time left
REFUSED_REMEDY: Final = "Raise the server's limit, or run fewer tasks."
IDLE_TIMEOUT_S: Final = 60.0  # after which an idle entry is closed
ENDED: Final = ("stopped", "closed")  # states of a client that is not used again
THREAD_NAME: Final = "aeron-spark-connections"
LOG: Final = logging.getLogger("aeron_spark.pool")

Connect = Callable[..., "Client"]  # the arguments of _connect -> a connected client
_Key = tuple[object, ...]  # address, client options, timeout and partition: one connection for each combination


class ConnectionPool:
    """A pool of connections with servers. Thread-safe.

    ``clock`` returns seconds. With ``watch`` False, the pool starts no thread, and the caller calls ``sweep``.
    ``close_shared`` closes the Aeron clients that connections share; the pool calls it while no entry is open. It
    returns the seconds until it can close more, or None.
    """

    def __init__(
        self,
        connect: Connect | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        watch: bool = True,
        close_shared: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.connect = connect or _connect
        self._close_shared = close_shared
        self.clock = clock
        self._idle_timeout_s = idle_timeout_s
        self._watch = watch
        self._parent_objects: list[object] = []  # in a forked child: keeps the parent's objects from being finalized
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._entries: dict[_Key, PoolEntry] = {}
        self._open: set[PoolEntry] = set()
        self._watching = False
        self._closes = 0  # calls of ``close``

    @contextmanager
    def borrow(
        self, route: DirectRoute | ServerRoute, partition: int | None = None
    ) -> Iterator[dict[str, StreamSession]]:
        """Borrow the connections with the servers of ``route``, by server name, for a ``with`` block.

        The first use of a connection connects it. A direct route has none. With ``handshake=partition``, each
        ``partition`` has separate connections.
        """
        if isinstance(route, DirectRoute):
            yield {}
            return
        own = partition if route.handshake == "partition" else None
        with self._changed:
            entries = [self._entry(route, server.name, server.address, server.key, own) for server in route.servers]
            for entry in entries:
                entry.borrowers += 1
        try:
            yield {entry.name: entry.session for entry in entries}
        finally:
            with self._changed:
                for entry in entries:
                    entry.borrowers -= 1
                    entry.returned = self.clock()

    def sessions(self, route: ServerRoute) -> dict[str, StreamSession]:
        """Return the connections with the servers of ``route``, by server name, for any time.

        The pool closes them while they are idle, and a later call connects them again.
        """
        with self._changed:
            entries = [self._entry(route, server.name, server.address, server.key, None) for server in route.servers]
        return {entry.name: entry.session for entry in entries}

    def sweep(self, now: float) -> float | None:
        """Close the entries that were idle for the timeout.

        Return the seconds until the next sweep, or None if no entry is open and no shared client remains.
        """
        timeout_s = self._idle_timeout_s
        with self._changed:
            self._forget_unused(now - timeout_s)
            idle = [entry for entry in self._open if not entry.is_busy and now - entry.idle_since >= timeout_s]
        self._close_idle(idle, now - timeout_s)
        with self._changed:
            wait_s = min((self._wait_s(entry, now) for entry in self._open), default=None)
        return self._sweep_shared() if wait_s is None else wait_s

    def _sweep_shared(self) -> float | None:
        try:
            return self._close_shared()
        except Exception:
            LOG.exception("closing the shared Aeron clients failed")
            return None

    def _wait_s(self, entry: PoolEntry, now: float) -> float:
        remaining_s = 0.0 if entry.is_busy else entry.idle_since + self._idle_timeout_s - now
        return remaining_s if remaining_s > 0 else self._idle_timeout_s / 10

    def free_connections(self, address: str) -> None:
        """Close the entries of a full server that are idle now, so that it accepts another connection."""
        with self._changed:
            idle = [entry for entry in self._open if entry.address == address]
        self._close_idle(idle, self.clock())

    def drop(self, entry: PoolEntry, client: Client) -> None:
        """Close a client that has lost its link without use; the next use of the entry connects another one."""
        entry.detach_client(client)
        entry.close_client(client)
        with self._changed:
            if not entry.is_connected:  # otherwise, a use that has begun has connected another client
                self._open.discard(entry)
            self._changed.notify_all()  # the thread may close the shared Aeron clients, which this client used

    def close(self) -> None:
        """Close every connection, in use or not, and end the thread; later uses connect again."""
        with self._changed:
            entries = set(self._entries.values()) | self._open
            self._entries.clear()
            self._open.clear()
            self._closes += 1
            self._changed.notify_all()
        for entry in entries:
            entry.close()

    def after_fork(self) -> None:
        """Empty the pool in a forked child, without closing the parent's connections."""
        self._parent_objects += [self._entries, self._open]
        for entry in {*self._entries.values(), *self._open}:
            entry.after_fork()
        self._begin()

    def register_open(self, entry: PoolEntry) -> None:
        """Register an entry that has connected, and start the thread if it does not run."""
        with self._changed:
            self._entries.setdefault(entry.key, entry)  # a sweep may have removed it while a caller still uses it
            self._open.add(entry)
            if self._watching or not self._watch:
                self._changed.notify_all()
                return
            self._watching = True
        try:
            threading.Thread(target=self._run_sweeps, name=THREAD_NAME, daemon=True).start()
        except BaseException:
            self._end_watching()
            raise

    def _entry(
        self, route: ServerRoute, name: str, address: str, server_key: str | None, partition: int | None
    ) -> PoolEntry:
        options: dict[str, Any] = dict(route.client) | {"serverKey": server_key}
        if route.identity is not None:
            options["identity"] = route.identity
        if route.aeron_dir is not None:
            options["aeronDir"] = route.aeron_dir
        key = (address, tuple(sorted(options.items())), route.connect_timeout, partition)
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = PoolEntry(self, key, name, address, options, route.connect_timeout)
        return found

    def _close_idle(self, entries: list[PoolEntry], since: float) -> None:
        for entry in entries:
            with self._changed:
                client = entry.detach_idle_client(since)
                if client is None:
                    continue
                self._open.discard(entry)
                if self._entries.get(entry.key) is entry:
                    del self._entries[entry.key]
            entry.close_client(client)

    def _forget_unused(self, since: float) -> None:
        """Forget the entries without a connection that were idle since then. The caller has the lock."""
        for key, entry in list(self._entries.items()):
            if entry not in self._open and not entry.is_busy and entry.idle_since <= since:
                del self._entries[key]

    def _run_sweeps(self) -> None:
        try:
            while self._sweep_and_wait():
                pass
        except BaseException:
            self._end_watching()
            raise

    def _sweep_and_wait(self) -> bool:
        """Sweep, and wait until the next sweep is due; return False if no entry is open or the pool was closed."""
        closes = self._closes
        wait_s = self.sweep(self.clock())
        with self._changed:
            if wait_s is not None and (self._open or closes == self._closes):
                self._changed.wait(wait_s)
            if self._open or (wait_s is not None and closes == self._closes):
                return True
            self._watching = False
            return False

    def _end_watching(self) -> None:
        """Make the next opened entry start another thread."""
        with self._changed:
            self._watching = False


class PoolEntry:
    """The connection with one server, and its ``StreamSession``. A use connects it if it is not connected.

    A connection in use resumes its session after the loss of its link. Without a use, the loss ends the connection.

    If the server refuses for now, the entry tries again for ``REFUSED_TIMEOUT_S``, or for the caller's timeout if that
    is shorter. Other callers wait for this attempt, each within its timeout.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        key: _Key,
        name: str,
        address: str,
        options: Mapping[str, Any],
        connect_timeout_s: float,
    ) -> None:
        from aeron_spark.stream_client.session import StreamSession

        self.key = key
        self.name = name
        self.address = address
        self.session: StreamSession = StreamSession(
            self, CALL_TIMEOUT_S, clock=pool.clock, ensure_connected=self._connected
        )
        self.borrowers = 0  # guarded by the pool's lock, as ``returned``
        self.returned = pool.clock()  # time of the last return
        self._pool = pool
        self._options = options
        self._connect_timeout_s = connect_timeout_s
        self._connecting = threading.Lock()
        self._client: Client | None = None
        self._was_connected = False
        self._was_reached = False  # the server has accepted a connection, or has refused one for now
        self._parent_objects: list[object] = []

    @property
    def is_busy(self) -> bool:
        """Whether the entry or one of its bulk links is borrowed, or a call runs."""
        return self.borrowers > 0 or self.session.running > 0

    @property
    def is_connected(self) -> bool:
        """Whether the entry has a client."""
        return self._client is not None

    @property
    def idle_since(self) -> float:
        """The time of the last use, by the pool's clock."""
        return max(self.returned, self.session.last_used)

    @property
    def closed(self) -> bool:
        """Whether the server was never reached, so that a repeated call would fail, too. A full server was reached."""
        return not self._was_reached

    @property
    def connected(self) -> bool:
        """Whether the entry has a client whose connection has a link now."""
        client = self._client
        return client is not None and client.connected

    def connect(self, timeout: float | None = None) -> Any:
        """Connect within ``timeout`` seconds if not connected; raise the error otherwise."""
        return self._connected(timeout).connect(timeout)

    @property
    def connection(self) -> Connection:
        """The connection, made first if needed."""
        return self._connected(None).connection

    def bulk_link(self, timeout: float | None = None) -> BulkLink:
        """Open a bulk link of the connection."""
        return self._connected(timeout).bulk_link(timeout)

    def detach_idle_client(self, since: float) -> Client | None:
        """Remove and return the client if the entry was idle since then; None otherwise, or while it connects."""
        if not self._connecting.acquire(blocking=False):
            return None
        try:
            # a call is counted before it uses the client: a call that begins now gets a new client
            if self.is_busy or self.idle_since > since:
                return None
            client, self._client = self._client, None
            return client
        finally:
            self._connecting.release()

    def detach_client(self, client: Client) -> None:
        """Remove ``client``, unless a use connects now, which replaces it."""
        if self._connecting.acquire(blocking=False):
            try:
                if self._client is client:
                    self._client = None
            finally:
                self._connecting.release()

    def close(self) -> None:
        """Close the connection, even while it is used; the next use connects again."""
        client = self._client
        if client is not None:
            self.close_client(client)

    def close_client(self, client: Client) -> None:
        """Close a client of this entry, and its bulk links that are not borrowed."""
        _close_quietly(f"bulk links with {self.address}", self.session.close)
        _close_quietly(f"a connection with {self.address}", client.close)

    def after_fork(self) -> None:
        """Drop the client, which belongs to the parent process, without closing it."""
        self._parent_objects.append(self._client)
        self._connecting = threading.Lock()
        self._client = None
        self.session.after_fork()

    def _connected(self, seconds: float | None) -> Client:
        """Return the client, connected within ``seconds``; None means REFUSED_TIMEOUT_S and the connect timeout.

        Raises WaitTimeout, also if another thread takes longer to connect.
        """
        timeout_s = REFUSED_TIMEOUT_S + self._connect_timeout_s if seconds is None else seconds
        end = self._pool.clock() + timeout_s
        if not self._connecting.acquire(timeout=timeout_s):
            raise WaitTimeout(
                f"waited {timeout_s:g} s for another thread of this process to connect to {self.address}",
                remedy="Check that the server runs, is reachable and is not full; then try again, or allow more time.",
            )
        try:
            client = self._client
            if client is None or client.state in ENDED:
                if client is not None:
                    self.close_client(client)
                client = self._client = self._new_client(None if seconds is None else end)
                self._was_connected = self._was_reached = True
                self._pool.register_open(self)
            return client
        finally:
            self._connecting.release()

    def _new_client(self, end: float | None) -> Client:
        """Connect by ``end`` of the pool's clock; None means that the caller gave no timeout."""
        start = self._pool.clock()
        timeout_s = self._connect_timeout_s  # a server that was connected before may restart
        if self._was_connected:
            timeout_s = max(timeout_s, CALL_TIMEOUT_S)
        retry_s = REFUSED_TIMEOUT_S if end is None else min(REFUSED_TIMEOUT_S, end - start)
        while True:
            within = None if end is None else max(MIN_CONNECT_TIMEOUT_S, end - self._pool.clock())
            try:
                return self._pool.connect(
                    self.address,
                    timeout=timeout_s,
                    within=within,
                    is_in_use=lambda: self.is_busy,
                    on_unused=partial(self._pool.drop, self),
                    **self._options,
                )
            except RefusedError as error:
                if not error.retriable:
                    raise
                self._was_reached = True
                if self._pool.clock() >= start + retry_s:
                    raise _refused_error(error, self.address, retry_s) from None
                if error.retry is Retry.WHEN_FREED:
                    self._pool.free_connections(self.address)
            time.sleep(min(RETRY_INTERVAL_S, max(0.0, start + retry_s - self._pool.clock())))


def _refused_error(error: RefusedError, address: str, seconds: float) -> AeronSparkError:
    """Return the error for a server that refused connections for ``seconds``."""
    what = f"the server {address} refused connections for {seconds:g} s: {error.what}"
    if seconds < REFUSED_TIMEOUT_S:  # the caller had less time, and may repeat the call
        return WaitTimeout(what, remedy=REFUSED_REMEDY, reason=error.reason)
    return RefusedError(what, remedy=REFUSED_REMEDY, reason=error.reason)


def _connect(
    address: str,
    *,
    timeout: float,
    within: float | None,
    is_in_use: Callable[[], bool],
    on_unused: Callable[[Client], object],
    **options: Any,
) -> Client:
    """Connect to a server within ``timeout`` seconds, or within the caller's timeout ``within`` if that is shorter.

    Without ``within``, the start of this machine's node is not part of ``timeout``. ``is_in_use`` and
    ``on_unused`` are those of ``connect_for_pool``.
    """
    from aeron_spark import node
    from aeron_spark.client.client import connect_for_pool

    if within is not None:
        return connect_for_pool(address, min(timeout, within), is_in_use, on_unused, options)
    with node.ensure(options.get("aeronDir"), wait_s=timeout):
        return connect_for_pool(address, timeout, is_in_use, on_unused, options)


def _close_shared_clients() -> float | None:
    from aeron_spark.aeron.client import close_unused

    return close_unused()


def _close_quietly(what: str, close: Callable[[], object]) -> None:
    """Close a resource, and log an error instead of raising it, so that the caller can close the others."""
    try:
        close()
    except AeronSparkError as error:  # the server or the driver is gone: the resource counts as closed
        LOG.debug("closing %s: %s", what, error)
    except Exception:
        LOG.exception("closing %s failed", what)


POOL: Final = ConnectionPool(close_shared=_close_shared_clients)
os.register_at_fork(after_in_child=POOL.after_fork)
