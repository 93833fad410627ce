"""Tests of retention: it deletes whole segments, but no leased one, and not the last one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.streams.retention import Layout, purge_to, retention_start

LAYOUT = Layout(start=0, term_length=1024, segment_length=4096)


def test_segments_begin_at_the_term_in_which_the_recording_began() -> None:
    assert [LAYOUT.segment_base(at) for at in (0, 4095, 4096, 10_000)] == [0, 0, 4096, 8192]
    late = Layout(start=1500, term_length=1024, segment_length=4096)
    assert [late.segment_base(at) for at in (1500, 5119, 5120, 9300)] == [1024, 1024, 5120, 9216]
    # After a purge, the recording begins with a segment, and the segments stay the same.
    assert Layout(5120, 1024, 4096).segment_base(9300) == 9216


def test_each_limit_alone_moves_the_start() -> None:
    assert retention_start(10_000, retention_bytes=0, by_time=None) == 0
    assert retention_start(10_000, retention_bytes=4000, by_time=None) == 6000
    assert retention_start(10_000, retention_bytes=4000, by_time=7000) == 7000
    assert retention_start(10_000, retention_bytes=40_000, by_time=None) == 0


def test_only_whole_segments_without_leases_are_deleted() -> None:
    def purged(wanted: int, leased: int | None = None, start: int = 0, end: int = 20_000) -> int:
        return purge_to(wanted, LAYOUT, start=start, end=end, leased=leased)

    assert [purged(at) for at in (0, 4095, 4096, 9000, 99_999)] == [0, 0, 4096, 8192, 16_384]
    assert [purged(99_999, leased) for leased in (0, 4095, 4096, 9000)] == [0, 0, 4096, 8192]
    assert purged(5000, start=8192) == 8192
    assert purged(99_999, leased=100, start=8192) == 8192


def test_a_lease_keeps_the_segment_in_which_it_begins() -> None:
    assert purge_to(99_999, LAYOUT, start=0, end=20_000, leased=4095) == 0
    assert purge_to(99_999, LAYOUT, start=0, end=20_000, leased=4096) == 4096


def test_a_lease_does_not_keep_rows_that_are_overdue() -> None:
    def purged(leased: int, overdue: int) -> int:
        return purge_to(12_288, LAYOUT, start=0, end=20_000, leased=leased, overdue=overdue)

    assert [purged(100, at) for at in (0, 4095, 4096, 9000, 99_999)] == [0, 0, 4096, 8192, 12_288]
    assert purged(leased=9000, overdue=4096) == 8192


@given(*(st.integers(0, 1 << 40) for _ in range(4)), st.one_of(st.none(), st.integers(0, 1 << 40)))
def test_a_purge_never_deletes_too_much(origin: int, purged: int, length: int, wanted: int, leased: int | None) -> None:
    layout = Layout(origin, 1024, 4096)
    start = layout.segment_base(origin + purged)
    end = start + length
    found = purge_to(wanted, layout, start=start, end=end, leased=leased)
    assert start <= found <= max(start, end)
    assert found == layout.segment_base(found)
    assert found in (start, layout.segment_base(min(wanted, end, end if leased is None else leased)))
