"""The requests of a peer that wait for a worker: a few begin on the event loop at once, further ones wait. Pure.

Finding the method of a call takes the event loop some 50 microseconds. A peer that sends thousands of calls at once
would delay all other connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from aeron_spark.protocol.message_types import Buffer

TURN_S: Final = 0.01  # time in which the event loop begins TURN_REQUESTS requests of one connection
TURN_REQUESTS: Final = 32

PeerRequest = tuple[int, Buffer]  # the kind of its record, and the payload


class RequestBacklog:
    """Waiting requests in the order of their arrival. For one thread at a time. Times are monotonic seconds.

    While a worker takes requests, later ones wait behind them, so that a request to delete an object follows the calls
    of it.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """Bytes of the waiting requests."""
        self._waiting: deque[PeerRequest] = deque()
        self._turn_ends = 0.0
        self._begun_in_turn = 0
        self._has_worker = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, requests: Sequence[PeerRequest], now: float) -> bool:
        """Return whether the caller begins these requests now. Otherwise they wait: see ``take_worker``."""
        if now >= self._turn_ends:
            self._turn_ends, self._begun_in_turn = now + TURN_S, 0
        self._begun_in_turn += len(requests)
        if not self._has_worker and self._begun_in_turn <= TURN_REQUESTS:
            return True
        # First, because other threads read both without the lock: a request that they count has its bytes counted.
        self.bytes += sum([len(payload) for _, payload in requests])
        self._waiting.extend(requests)
        return False

    def take_worker(self) -> bool:
        """Return whether the caller must have a worker take the waiting requests: none does so yet."""
        needs_worker, self._has_worker = not self._has_worker, True
        return needs_worker

    def next(self) -> PeerRequest | None:
        """Remove and return the oldest request for the worker; None if none waits: then the worker must end."""
        if not self._waiting:
            self._has_worker = False
            return None
        request = self._waiting.popleft()
        self.bytes -= len(request[1])
        return request

    def clear(self) -> None:
        """Drop all requests."""
        self._waiting.clear()
        self.bytes = 0
