"""Tests of a purge by a client: its report, and the wait until space is freed."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_spark.errors import WaitTimeout
from aeron_spark.wire.stream_requests import HeldBytes, PurgedPartition, PurgeReport
from tests.unit.stream_client.connections import Operations

LEASE = HeldBytes(3_000, "lease", "key", "reader", 1_700_000_000_000_000_000)
HOLD = HeldBytes(2_000, "hold", "backup", "", 0)
SEGMENT = HeldBytes(96, "segment", "", "", 0)


class Server:
    """A server that answers each request for a purge with the next report."""

    def __init__(self, *reports: tuple[PurgedPartition, ...]) -> None:
        self.reports = list(reports)
        self.requests: list[Any] = []
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def call(self, request: Any) -> PurgeReport:
        self.requests.append(request)
        return PurgeReport(self.reports.pop(0) if len(self.reports) > 1 else self.reports[0])

    def purge(self, before: Any, wait_s: float) -> list[PurgedPartition]:
        session: Any = self
        return Operations(session).purge_stream("s", before, wait=wait_s)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_wait_ends_when_only_segments_with_readable_rows_are_left() -> None:
    server = Server(
        (PurgedPartition(0, 0, 4_096, 2_000, (HOLD, SEGMENT, LEASE)),),
        (PurgedPartition(0, 4_096, 4_096, 0, (HOLD, SEGMENT, LEASE)),),
        (PurgedPartition(0, 7_096, 7_096, 0, (SEGMENT,)),),
    )
    (purged,) = server.purge("-1h", 60.0)
    # the housekeeping freed the bytes of the hold, and those of the lease, between the requests
    assert purged == PurgedPartition(0, 0, 7_096, 7_000, (HeldBytes(96, "segment"),))
    assert server.now == 2.0
    assert len(set(server.requests)) == 1, "a relative time means the same moment in each request"


def test_without_a_wait_the_report_says_what_is_held_and_why() -> None:
    server = Server((PurgedPartition(0, 0, 4_096, 2_000, (HOLD, SEGMENT, LEASE)),))
    (purged,) = server.purge(5_000, 0.0)
    assert [held.sentence for held in purged.held] == [
        "backup", "segment in use", "lease of reader until 22:13:20Z",
    ]  # fmt: skip
    assert (purged.unreadable_bytes, purged.has_changed, len(server.requests)) == (4_096, True, 1)


def test_a_wait_has_a_deadline_that_says_what_it_waited_for() -> None:
    server = Server((PurgedPartition(0, 0, 4_096, 2_000, (HOLD, SEGMENT, LEASE)),))
    with pytest.raises(WaitTimeout, match=r"the space of stream 's' to be freed \(backup; lease of reader until"):
        server.purge(5_000, 3.0)
    assert server.now == 3.0
