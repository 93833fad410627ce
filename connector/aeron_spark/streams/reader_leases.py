"""The leases of a stream's readers: while a lease is live, retention keeps the rows that the reader has not read. Pure.

A lease belongs to the key of the client that took it, so that no client can end or replace the lease of another one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.wire.stream_requests import StreamLease

MAX_LEASES: Final = 10_000  # a lease has a few hundred bytes, and lasts until its expiry if its reader dies
MAX_LEASES_PER_OWNER: Final = 1_000  # so that one key leaves room for others
MAX_LEASE_S: Final = 300.0  # a reader that died holds back retention for so long; readers renew each 15 s


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one reader: by partition the first leased position, and the time of expiry."""

    positions: Mapping[int, int]
    until: float  # seconds, monotonic


class ReaderLeases:
    """The leases of one stream, by owner and reader id. ``now`` is in seconds, monotonic. Not safe for concurrent use.

    ``owner`` identifies the client's key; "" is the server's own program, to which the limit for one owner does not
    apply.
    """

    def __init__(self, max_leases: int = MAX_LEASES, max_per_owner: int = MAX_LEASES_PER_OWNER) -> None:
        self._max_leases = max_leases
        self._max_per_owner = max_per_owner
        self._leases: dict[tuple[str, str], Lease] = {}
        self._owners: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._leases)

    def renew(self, reader: str, positions: Mapping[int, int], seconds: float, now: float, owner: str = "") -> None:
        """Replace the lease of ``reader`` by one of ``seconds``; without positions, or with 0 seconds, end its lease.

        Raises OptionError for other seconds than 0 to MAX_LEASE_S, RefusedError if too many readers have leases.
        """
        if not (math.isfinite(seconds) and 0 <= seconds <= MAX_LEASE_S):
            raise OptionError(
                f"a lease of {seconds!r} seconds", remedy=f"Take a lease of 0 to {MAX_LEASE_S:g} s, and renew it."
            )
        lease = (owner, reader)
        if not seconds or not positions:
            self._remove(lease)
            return
        if lease not in self._leases:
            self._check_room(owner, now)
            self._owners[owner] += 1
        self._leases[lease] = Lease(dict(positions), now + seconds)

    def lowest_position(self, partition: int, now: float) -> int | None:
        """Return the lowest position of ``partition`` under a live lease, or None."""
        leased = [
            lease.positions[partition]
            for lease in self._leases.values()
            if lease.until > now and partition in lease.positions
        ]
        return min(leased, default=None)

    def holders(self, partition: int, before: int, now: float) -> list[StreamLease]:
        """Return the live leases of positions of ``partition`` before a position."""
        return [one for one in self.listed(now) if one.positions.get(partition, before) < before]

    def overridden(self, starts: Mapping[int, int], now: float) -> list[str]:
        """Return the readers with a live lease of a position before the new start of its partition."""
        return [
            reader
            for (_, reader), lease in self._leases.items()
            if lease.until > now and any(lease.positions.get(index, at) < at for index, at in starts.items())
        ]

    def expire(self, now: float) -> list[str]:
        """Remove expired leases; return the ids of their readers."""
        ended = [lease for lease, found in self._leases.items() if found.until <= now]
        for lease in ended:
            self._remove(lease)
        return [reader for _, reader in ended]

    def live(self, now: float) -> dict[tuple[str, str], Lease]:
        """Return the leases that have not expired, by owner and reader id."""
        return {lease: found for lease, found in self._leases.items() if found.until > now}

    def listed(self, now: float) -> list[StreamLease]:
        """Return the leases that have not expired, by owner and reader id."""
        return [
            StreamLease(reader, owner, tuple(lease.positions.items()), lease.until - now)
            for (owner, reader), lease in sorted(self.live(now).items())
        ]

    def release(self, reader: str, now: float) -> None:
        """End the live leases of a reader id. Raises OptionError if it has none."""
        ended = [lease for lease in self.live(now) if lease[1] == reader]
        if not ended:
            raise OptionError(
                f"no reader {reader[:64]!r} has a lease", remedy="Use one of the ids that 'streams leases' lists."
            )
        for lease in ended:
            self._remove(lease)

    def end_of_owner(self, owner: str) -> None:
        """End all leases of an owner."""
        if owner not in self._owners:
            return
        # A list, which is made at once: a renamed stream has these leases, too, and another lock.
        for lease in [lease for lease in list(self._leases) if lease[0] == owner]:
            self._remove(lease)

    def _remove(self, lease: tuple[str, str]) -> None:
        if self._leases.pop(lease, None) is not None:
            self._owners[lease[0]] -= 1
            if not self._owners[lease[0]]:
                del self._owners[lease[0]]

    def _check_room(self, owner: str, now: float) -> None:
        if self._has_room(owner):
            return
        self.expire(now)
        if not self._has_room(owner):
            is_full = len(self._leases) >= self._max_leases
            holders, limit = ("all clients", self._max_leases) if is_full else ("your key", self._max_per_owner)
            raise RefusedError(
                f"{limit} readers of {holders} have leases of this stream, which is the limit",
                remedy="Close some readers, or wait until the leases of ended readers expire.",
                reason="limit",
            )

    def _has_room(self, owner: str) -> bool:
        return len(self._leases) < self._max_leases and (not owner or self._owners[owner] < self._max_per_owner)
