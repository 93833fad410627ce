"""Opening a log: the one place that knows which kind of log a way leads to, and what a process keeps of its servers.

A process has one connection with a server for everything it does there, made by its first use and kept while the
process lives; with ``handshake=partition`` each task's partition has one of its own, which waits a while for the next
task of that partition. A forked child makes its own.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.log.api import Log
from aeron_spark.options import Direct, ReadOptions, Through

if TYPE_CHECKING:
    from aeron_spark.client.opening import Client
    from aeron_spark.duologue.branch import Branch
    from aeron_spark.endpoint.proxies import Proxy
    from aeron_spark.remote.asking import Asking

ANSWER_SECONDS: Final = 60.0  # a question may take so long, an outage or a restart of the server included
TURN_SECONDS: Final = 300.0  # for a place at a server that is full, before whoever waits gives up
LOOK: Final = 0.25  # seconds between two attempts at a server that is full
KEPT_SECONDS: Final = 60.0  # a partition's connection waits so long for the partition's next task
# Refusals that another client's going ends; see endpoint.limits.
_PASSING: Final = re.compile(r"\((?:full|address-limit|pending|rate|ids|shutdown)\)$")


def open_log(
    way: Direct | Through, *, framed: bool, idle_timeout: float, read_path: str = "auto",
    hosts: Mapping[str, Asking] | None = None,
) -> Log:  # fmt: skip
    """Return the log of ``way`` as this process reaches it; what has to run on this machine is started where absent.

    ``idle_timeout`` is in seconds. ``hosts``: what :func:`lent` gave, else the connections of the whole process.
    """
    if isinstance(way, Direct):
        from aeron_spark.log.archive_log import ArchiveLog, StreamAddress
        from aeron_spark.log.reach import reach

        address = StreamAddress(way.channel, way.stream_id, reach(way).archives, idle_timeout, read_path)
        return ArchiveLog(address, framed=framed)
    from aeron_spark.remote.endpoint_log import EndpointLog

    known = dict(hosts) if hosts else {one.name: one.asking for one in _reached(way, None, using=False)}
    return EndpointLog(known, way.stream, framed=framed, idle_timeout=idle_timeout)


def log_of(options: ReadOptions, framed: bool) -> Log:
    """Return the log that a reader's options lead to, for whoever plans."""
    return open_log(options.way, framed=framed, idle_timeout=options.idle_timeout_s)


@contextmanager
def lent(way: Direct | Through, partition: int | None = None) -> Iterator[dict[str, Asking]]:
    """Lend the connections with the servers of ``way``, by name; none where it is direct. They connect when asked.

    With ``handshake=partition`` they are those of this ``partition`` alone, and idle ones make room for others.
    """
    if isinstance(way, Direct):
        yield {}
        return
    reached = _reached(way, partition if way.handshake == "partition" else None, using=True)
    try:
        yield {one.name: one.asking for one in reached}
    finally:
        _give_back(reached)


def close_all() -> None:
    """Close every connection of this process; whoever uses them makes others."""
    with _lock:
        mine = [key for key in _kept if key[0] == os.getpid()]
        found = [_kept.pop(key) for key in mine]
    for one in found:
        one.close()


class ReachedServer:
    """One server as this process reaches it: connected by use, and anew where that connection ended.

    What :class:`aeron_spark.remote.asking.Asking` asks. A full server is waited for, ``TURN_SECONDS`` at most.
    """

    def __init__(self, name: str, address: str, options: Mapping[str, Any], seconds: float) -> None:
        from aeron_spark.remote.asking import Asking

        self.name = name
        self.asking: Asking = Asking(self, ANSWER_SECONDS)
        self.users = 0
        self.idle_since = time.monotonic()
        self._address = address
        self._options = options
        self._seconds = seconds
        self._lock = threading.Lock()
        self._client: Client | None = None

    @property
    def closed(self) -> bool:
        """Whether asking again is of no use: nobody was ever reached."""
        return self._client is None

    def connect(self, timeout: float | None = None) -> Any:
        """Be connected within ``timeout`` seconds, or raise."""
        return self._there().connect(timeout)

    def remote(self, target: str | int) -> Proxy:
        """Return an object of the server's."""
        return self._there().remote(target)

    def branch(self, timeout: float | None = None) -> Branch:
        """Open a branch of the connection."""
        return self._there().branch(timeout)

    def close(self) -> None:
        """End the connection; the next use makes another."""
        self.asking.close()
        if self._client is not None:
            self._client.close()

    def _there(self) -> Client:
        with self._lock:
            if self._client is None or self._client.closed:
                self._client = self._connected()
            return self._client

    def _connected(self) -> Client:
        from aeron_spark.client.opening import connect

        end = time.monotonic() + TURN_SECONDS
        while True:
            try:
                return connect(self._address, timeout=self._seconds, **self._options)
            except RefusedError as error:
                if not _PASSING.search(error.what):
                    raise
                if time.monotonic() >= end:
                    raise RefusedError(
                        f"{error.what}, for {TURN_SECONDS:g} s", remedy="Raise the server's limit, or run fewer tasks."
                    ) from None
            _make_room()
            time.sleep(LOOK)


_Key = tuple[object, ...]  # the process, the server, everything that makes a connection another one, the partition
_lock = threading.Lock()
_kept: dict[_Key, ReachedServer] = {}
_sweeping: set[int] = set()  # processes that have a sweeper


def _reached(way: Through, partition: int | None, *, using: bool) -> list[ReachedServer]:
    """Find this process's connections with the servers of ``way``; ``using`` keeps them from being swept."""
    found = []
    with _lock:
        for server in way.servers:
            options: dict[str, Any] = dict(way.client) | {"serverKey": server.key}
            if way.identity is not None:
                options["identity"] = way.identity
            if way.aeron_dir is not None:
                options["aeronDir"] = way.aeron_dir
            place = (os.getpid(), server.address, tuple(sorted(options.items())), way.connect_timeout_s, partition)
            one = _kept.get(place)
            if one is None:
                one = _kept[place] = ReachedServer(server.name, server.address, options, way.connect_timeout_s)
            one.users += using
            found.append(one)
    return found


def _give_back(reached: list[ReachedServer]) -> None:
    with _lock:
        for one in reached:
            one.users -= 1
            one.idle_since = time.monotonic()
        if os.getpid() in _sweeping or not _of_partitions():
            return
        _sweeping.add(os.getpid())
    threading.Thread(target=_sweep, name="aeron-spark-connections", daemon=True).start()


def _of_partitions() -> list[_Key]:
    """The keys of this process's connections that belong to one partition; the lock is held."""
    return [key for key in _kept if key[0] == os.getpid() and key[-1] is not None]


def _sweep() -> None:
    """Close the connections of partitions that nobody came back to; ends when none is left."""
    while True:
        time.sleep(KEPT_SECONDS / 10)
        _make_room(KEPT_SECONDS)
        with _lock:
            if not _of_partitions():
                _sweeping.discard(os.getpid())
                return


def _make_room(idle_for: float = 0.0) -> None:
    """Close the connections of partitions that nobody has used for so many seconds."""
    before = time.monotonic() - idle_for
    with _lock:
        idle = [key for key in _of_partitions() if not _kept[key].users and _kept[key].idle_since <= before]
        going = [_kept.pop(key) for key in idle]
    for one in going:
        try:
            one.close()
        except AeronSparkError:  # it is gone all the same
            continue
