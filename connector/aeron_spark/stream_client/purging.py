"""Purges a stream of a server, and reports what it freed and what it did not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from aeron_spark.stream_client.admin import time_of
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.waiting import Deadline
from aeron_spark.wire.stream_admin_rpc import HeldBytes, PurgedPartition, PurgeStream

SEGMENT: Final = "segment"  # the only reason that ends with later purges or the retention alone
REPEAT_S: Final = 1.0  # between two requests of a wait; the server's housekeeping has this interval


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
        request = PurgeStream(name, partition, before_position=before)
    else:
        request = PurgeStream(name, partition, before_time_ns=max(0, time_of(before, now())))
    purged = list(session.call(request).partitions)
    awaited = f"the space of stream {name!r} to be freed"
    deadline = Deadline(wait_s, awaited, clock=clock, sleep=lambda _: sleep(REPEAT_S))
    while wait_s and (held := _still_held(purged)):
        deadline.idle("; ".join(sorted({one.sentence for one in held})))
        purged = [_joined(*both) for both in zip(purged, session.call(request).partitions, strict=True)]
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
