"""The streams of a server on which clients have taken leases."""

from __future__ import annotations

import threading
from weakref import WeakSet

from aeron_spark.streams.stream import Stream


class LeasedStreams:
    """The streams on which any client has taken leases, until they are deleted. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: WeakSet[Stream] = WeakSet()

    def add(self, stream: Stream) -> None:
        """Note that a client takes a lease on a stream."""
        with self._lock:
            self._streams.add(stream)

    def end_leases(self, owner: str) -> None:
        """End all leases of a client's key, also those that it took over earlier connections."""
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.end_leases(owner)
