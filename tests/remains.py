"""Finds what remains in the tables of endpoints, connections and servers that have ended.

A table is any dict, list, set or deque of an object of the package. All must be empty at the end, also those that are
new, unless they are in ``LASTING``. So each test that uses a table finds an entry that nothing removes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

_TABLES: Final = (dict, list, set, deque)
_FOLLOWED: Final = ("aeron_spark.", "tests.memory_transport")  # modules whose objects are looked into

# Settings of the program, and parts of the endpoint or connection itself
_SET_BY_PROGRAMS: Final = """
    Bus._subscribers ClientTable._grants Connection.data OperatorService._commands
    ConnectionCore.disconnect_listeners EndpointListeners._by_event ErrorCodes._codes GlobalObjects._factories
    GlobalObjects._names GlobalObjects._objects Listeners._by_class Listeners._found _Found._by_class
    MemoryPeerStore._authorized MemoryPeerStore._known ServerEndpoint._services Readiness._conditions
    ServerEndpoint.addresses ServerMetrics._families Types._classes Types._ids
"""
# Entries that outlast the end of a client within a bound: waits of ids, rates, used cookies, totals, subjects of log
# limits, logs that the media driver deletes, errors of the driver that were reported
_OF_THE_SERVER: Final = """
    ConnectionHolds._charged Cookies._spent Loop._heap EndpointTraffic._closed EventWatch._known_errors
    HandshakeRate._buckets Histogram._counts IdAllocator._delayed IdAllocator._reusable_at KnownAddresses._connected_at
    LogLimiter._subjects LogLimiter._suppressed RecordedLogs._closed MetricCounts._counters MetricCounts._histograms
    PortAllocator._free RateLimits._buckets ServerEndpoint._refused
"""
# For late records and repeated requests of the peer, within a bound, as long as the connection's object exists
_OF_THE_CONNECTION: Final = """
    ConnectionCore.tampered IncomingStages._failed OperationService._used_at TransferAssembly._abandoned
    Transfers._sent
"""
# The addresses of a closed transport, the senders that it has seen, and the leases of others on its Aeron client
_OF_THE_TRANSPORT: Final = """
    AeronClient.leases AeronServerTransport._channel_settings MemoryServerTransport._links
    MemoryServerTransport._listeners _ServerInbox.listeners _ServerInbox.senders
"""
_CONTENTS_OF_A_STORE: Final = """
    Ledger._epochs Ledger._epochs_of Ledger._writers Ledger.ends Ledger.recordings Ledger.rows Ledger.starts
    Ledger.times Ledger.checked_from Lease.positions ReaderLeases._leases ReaderLeases._owners WriterOwners._ids
    WriterOwners._owned
    Recordings.partitions StreamStore._streams WriterState.tokens WriterHistories._committed_in
"""
LASTING: Final = frozenset(
    " ".join((_SET_BY_PROGRAMS, _OF_THE_SERVER, _OF_THE_CONNECTION, _OF_THE_TRANSPORT, _CONTENTS_OF_A_STORE)).split()
)
COUNTS: Final = frozenset(
    {
        "RequestBacklog.bytes", "SerialExecutor._weight", "StageSpace._reserved", "StreamSession.running",
        "TransferAssembly.memory_bytes", "_ConnectionCount.total", "_PendingCount.total",
    }
)  # fmt: skip
"""Numbers of what is in use, which must be 0 at the end."""


def remains_in(*roots: object) -> dict[str, int]:
    """Return the sizes of all tables that should be empty, and the counts that should be 0, without those that are.

    Follows the attributes of objects of the package and of the tests' transport, and what their tables and bound
    methods refer to.
    """
    found: dict[str, int] = {}
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for attribute, value in _attributes(one):
            name, size = f"{_class_name(one)}.{attribute}", 0
            if isinstance(value, _TABLES):
                size = 0 if name in LASTING else len(value)
                items = [*value, *value.values()] if isinstance(value, dict) else list(value)
            else:
                size = value if name in COUNTS else 0
                items = [value, getattr(value, "__self__", None)]
            if size:
                found[name] = found.get(name, 0) + size
            waiting += [item for item in items if type(item).__module__.startswith(_FOLLOWED)]
    return found


def _class_name(one: object) -> str:
    """Return the name of the object's class, or of the class of the package that it is derived from."""
    return next((kind.__name__ for kind in type(one).__mro__ if kind.__module__.startswith(_FOLLOWED)), "")


def _attributes(one: object) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(one, "__dict__", {}).items())
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(one, name):
                yield name, getattr(one, name)
