"""Purges a stream of a server, and reports what it freed and what it did not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from aeron_spark.stream_client.admin import time_of
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.units import NANOS
from aeron_spark.waiting import Deadline
from aeron_spark.wire import stream_admin_rpc as rpc

SEGMENT: Final = "segment"  # the only reason that ends with later purges or the retention alone
REPEAT_S: Final = 1.0  # between two requests of a wait; the server's housekeeping has this interval


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes that a purge did not free, and why.

    ``why`` is ``segment`` (their segment file also has readable rows), ``recording`` (the partition has no rows, and
    the server moves it to another file within a minute), ``lease`` (the rows stay readable until the lease of
    ``reader`` ends, at ``until`` unless the reader renews it) or ``hold`` (``holder``, such as a backup, uses the
    files). With ``lease``, ``holder`` is the fingerprint of the reader's key.
    """

    bytes: int
    why: str
    holder: str = ""
    reader: str = ""
    until: datetime | None = None

    @property
    def sentence(self) -> str:
        """The reason in words."""
        match self.why:
            case "segment":
                return "segment in use"
            case "recording":
                return "moves to another file within a minute"
            case "lease":
                until = "" if self.until is None else f" until {self.until:%H:%M:%S}Z"
                return f"lease of {self.reader}{until}"
            case _:
                return self.holder or self.why


@dataclass(frozen=True, slots=True)
class PurgedPartition:
    """A purge of one partition: its first position before and after it, and the bytes of files that it freed."""

    number: int
    before: int
    start: int
    freed_bytes: int
    held: tuple[HeldBytes, ...] = ()

    @property
    def unreadable_bytes(self) -> int:
        """The bytes that are unreadable since the purge."""
        return self.start - self.before

    @property
    def has_changed(self) -> bool:
        """Whether the purge changed the partition."""
        return bool(self.unreadable_bytes or self.freed_bytes)


def purge_stream(
    session: StreamSession, name: str, before: int | str | datetime, *, partition: int | None = None,
    wait_s: float = 0.0, now: Callable[[], int] = time.time_ns, clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[PurgedPartition]:  # fmt: skip
    """Make the transactions before a position or a commit time unreadable, and free their space.

    With ``wait_s`` it waits until everything is freed except bytes whose segment has readable rows. Raises WaitTimeout
    after so many seconds; what was unreadable then stays unreadable.
    """
    if isinstance(before, int):
        request = rpc.PurgeStream(name, partition, before_position=before)
    else:
        request = rpc.PurgeStream(name, partition, before_time_ns=max(0, time_of(before, now())))
    purged = [_purged(one) for one in session.call(request).partitions]
    awaited = f"the space of stream {name!r} to be freed"
    deadline = Deadline(wait_s, awaited, clock=clock, sleep=lambda _: sleep(REPEAT_S))
    while wait_s and (held := _still_held(purged)):
        deadline.idle("; ".join(sorted({one.sentence for one in held})))
        now_purged = map(_purged, session.call(request).partitions)
        purged = [_joined(*both) for both in zip(purged, now_purged, strict=True)]
    return purged


def _still_held(purged: Sequence[PurgedPartition]) -> list[HeldBytes]:
    return [held for one in purged for held in one.held if held.why != SEGMENT]


def _joined(first: PurgedPartition, then: PurgedPartition) -> PurgedPartition:
    """Return both purges of a partition as one. Between them, the housekeeping freed what the second one did not."""
    freed = first.freed_bytes + _on_disk(first) + then.start - first.start - _on_disk(then)
    return PurgedPartition(first.number, first.before, then.start, freed, then.held)


def _on_disk(purged: PurgedPartition) -> int:
    """Return the unreadable bytes that are still on the disk."""
    return sum(held.bytes for held in purged.held if held.why != "lease")


def _purged(found: rpc.PurgedPartition) -> PurgedPartition:
    held = tuple(
        HeldBytes(
            one.bytes,
            one.why,
            one.holder,
            one.reader,
            datetime.fromtimestamp(one.until_ns / NANOS, tz=timezone.utc) if one.until_ns else None,
        )
        for one in found.held
    )
    return PurgedPartition(found.partition, found.before, found.start, found.freed, held)
