"""Tests of retention: by time and bytes it begins at a transaction, it keeps leased rows, and files follow whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.streams.retention import JOIN_PART, MOVE_PART, Layout, RetentionLimits, allowed_start
from aeron_spark.streams.time_index import SECOND_NS, THINNING, TimeIndex

LAYOUT = Layout(start=0, term_length=1024, segment_length=4096)
NOW = 1_700_000_000 * SECOND_NS


def index_of(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for entry in entries:
        index.add(*entry)
    return index


def test_segments_begin_at_the_term_in_which_the_recording_began() -> None:
    assert [LAYOUT.segment_base(at) for at in (0, 4095, 4096, 10_000)] == [0, 0, 4096, 8192]
    late = Layout(start=1500, term_length=1024, segment_length=4096)
    assert [late.segment_base(at) for at in (1500, 5119, 5120, 9300)] == [1024, 1024, 5120, 9216]
    # After a purge, the recording begins with a segment, and the segments stay the same.
    assert Layout(5120, 1024, 4096).segment_base(9300) == 9216


def test_whole_segments_before_the_start_are_deleted_and_the_last_one_stays() -> None:
    assert [LAYOUT.purge_base(start, 9000) for start in (0, 4095, 4096, 8191, 8192, 9000)] == [
        0,
        0,
        4096,
        4096,
        8192,
        8192,
    ]
    assert LAYOUT.purge_base(8192, 8192) == 4096  # no byte is in the segment from 8192 on
    empty = Layout(start=1500, term_length=1024, segment_length=4096)
    assert empty.purge_base(1500, 1500) <= 1500


def test_each_limit_alone_moves_the_start_to_a_transaction() -> None:
    times = index_of(*((NOW + at * SECOND_NS, begin) for at, begin in ((0, 0), (10, 3000), (20, 6400), (30, 9000))))

    def start(size: int = 0, seconds: int = 0) -> int:
        return RetentionLimits(size, seconds).start(times, 10_000, NOW + 40 * SECOND_NS)

    assert start() == 0
    assert [start(size) for size in (10_000, 9_999, 7_000, 6_999, 3_600, 3_599, 1_000, 1)] == [
        0, 3000, 3000, 6400, 6400, 9000, 9000, 9000,
    ]  # fmt: skip
    assert [start(seconds=back) for back in (41, 40, 39, 30, 29, 10, 9)] == [0, 0, 3000, 3000, 6400, 9000, 10_000]
    assert start(7_000, 20) == 6400
    assert start(1, 40) == 9000


def test_the_last_transaction_goes_by_time_but_not_by_bytes() -> None:
    times = index_of((NOW, 0))
    assert RetentionLimits(1, 0).start(times, 5_000, NOW + SECOND_NS) == 0
    assert RetentionLimits(1, 1).start(times, 5_000, NOW + SECOND_NS) == 0
    assert RetentionLimits(1, 1).start(times, 5_000, NOW + SECOND_NS + 1) == 5_000
    assert RetentionLimits(1, 1).start(TimeIndex(), 5_000, NOW) == 5_000


def test_commits_that_were_joined_without_a_limit_of_bytes_go_together() -> None:
    times = index_of(*((NOW + at * SECOND_NS // 10, at * 100_000) for at in range(1, 9)))  # within a second
    times.add(NOW + 7_200 * SECOND_NS, 900_000)
    times.thin(NOW + 7_200 * SECOND_NS)
    limits = RetentionLimits(500_000, 0)
    starts = [limits.start(times, end, NOW + 7_200 * SECOND_NS) for end in (1_000_000, 1_399_999, 1_400_000)]
    assert starts == [100_000, 100_000, 900_000]


def test_a_start_is_a_transaction_before_the_wanted_position_and_each_lease() -> None:
    times = index_of((1, 0), (2, 3000), (3, 6400), (4, 9000))

    def allowed(wanted: int, leased: int | None = None, start: int = 0, overdue: int = 0) -> int:
        return allowed_start(times, wanted, start=start, end=10_000, leased=leased, overdue=overdue)

    assert [allowed(at) for at in (0, 2999, 3000, 9999, 10_000, 99_999)] == [0, 0, 3000, 9000, 10_000, 10_000]
    assert [allowed(99_999, leased) for leased in (0, 3001, 9000, 10_000)] == [0, 3000, 9000, 10_000]
    assert allowed(5000, start=6400) == 6400
    assert allowed(99_999, leased=100, start=6400) == 6400
    # leases do not keep rows that are overdue
    assert [allowed(9000, 100, overdue=at) for at in (0, 3000, 6400, 99_999)] == [0, 3000, 6400, 9000]
    assert allowed(9000, leased=7000, overdue=3000) == 6400


def test_a_start_is_due_when_a_small_part_of_the_retention_may_go() -> None:
    times = index_of((NOW, 0), (NOW + 5 * SECOND_NS, 3200))
    by_bytes = RetentionLimits(1_000_000, 0)
    part = int(1_000_000 * MOVE_PART)
    assert [by_bytes.is_due(times, 0, wanted, NOW) for wanted in (part - 1, part)] == [False, True]
    by_time = RetentionLimits(0, 1_000)
    due_ns = NOW + int(1_000 * (1 + MOVE_PART)) * SECOND_NS + SECOND_NS // 2
    assert [by_time.is_due(times, 0, 3200, at) for at in (due_ns - 1, due_ns)] == [False, True]


def test_the_sum_of_the_delays_keeps_the_promise() -> None:
    for age_ns, step_ns in THINNING:
        assert step_ns / age_ns + MOVE_PART < 0.002  # the housekeeping's second is left of the 2 s
    assert JOIN_PART + MOVE_PART < 0.002


@given(st.data())
def test_rows_beyond_the_retention_are_unreadable_in_time_and_others_stay(data: st.DataObject) -> None:
    """Whatever the commits and the thinning, a start that is due cuts exactly what the promise says."""
    seconds = data.draw(st.sampled_from([0, 5, 600, 3_600, 4_000, 86_400, 7 * 86_400, 40 * 86_400]), "seconds")
    size = data.draw(st.sampled_from([0, 320, 64_000, 10_000_000]), "bytes")
    steps = data.draw(
        st.lists(st.tuples(st.integers(1, max(1, seconds or 60) * SECOND_NS // 4), st.integers(1, 20_000)))
    )
    limits, times, end, now = RetentionLimits(size, seconds), TimeIndex(), 0, NOW
    transactions = []  # commit time, begin, end
    start = 0
    for passed, length in steps:
        now += passed
        times.add(now, end)
        transactions.append((now, end, end + 32 * length))
        end += 32 * length
        if data.draw(st.booleans(), "thin"):
            times.thin(now, limits.max_joined_bytes)
        wanted = limits.start(times, end, now)
        allowed = allowed_start(times, wanted, start=start, end=end)
        if allowed > start and limits.is_due(times, start, allowed, now):
            start = allowed
            times.forget_before(start)
        for index, (committed, begin, stop) in enumerate(transactions):
            by_time = bool(seconds) and committed < now - seconds * SECOND_NS
            by_bytes = bool(size) and begin < end - size and index < len(transactions) - 1
            if not by_time and not by_bytes:
                assert start <= begin, "a row within the retention is unreadable"
            overdue = bool(seconds) and committed < now - seconds * 1.002 * SECOND_NS - SECOND_NS
            too_much = bool(size) and stop <= end - size * 1.002 and index < len(transactions) - 1
            if overdue or too_much:
                assert start >= stop, "a row beyond the retention is readable"
        assert start in [begin for _, begin, _ in transactions] or start == end


@given(*(st.integers(0, 1 << 40) for _ in range(4)))
def test_a_purge_never_deletes_readable_rows_nor_the_last_byte(
    origin: int, purged: int, length: int, beyond: int
) -> None:
    layout = Layout(origin, 1024, 4096)
    start = origin + purged
    end = start + length
    base = layout.purge_base(start, end + beyond)
    assert base <= start
    assert base == layout.segment_base(base)
    assert start - base < 4096 or start == end + beyond
