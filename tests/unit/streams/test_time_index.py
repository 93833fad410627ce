"""Tests of the time index: search, thinning and encoding."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.streams.time_index import SECOND_NS, THINNING, TimeIndex

NOW = 1_700_000_000 * SECOND_NS
YEAR = 365 * 86_400


def index_of(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for entry in entries:
        index.add(*entry)
    return index


def test_the_first_entry_at_or_after_a_time_is_found() -> None:
    index = index_of((100, 0), (200, 32), (300, 64))
    assert [index.find(at) for at in (0, 100, 101, 200, 300, 301)] == [0, 0, 32, 32, 64, None]
    assert TimeIndex().find(0) is None


def test_the_commit_time_of_a_position_is_that_of_its_transaction() -> None:
    index = index_of((100, 32), (200, 64), (300, 96))
    assert [index.time_of(at) for at in (0, 32, 63, 64, 95, 96, 1_000)] == [100, 100, 100, 200, 200, 300, 300]
    index.forget_before(80)
    assert [index.time_of(at) for at in (0, 80, 96)] == [200, 200, 300]
    assert TimeIndex().time_of(0) is None


def test_the_commit_time_of_a_joined_transaction_is_too_late_by_less_than_the_step() -> None:
    times = [NOW - 7_200 * SECOND_NS + at * SECOND_NS // 4 for at in range(8)]
    index = index_of(*((time, 32 * at) for at, time in enumerate(times)))
    assert index.thin(NOW) == 5  # the last transaction is never joined
    for at, time in enumerate(times):
        found = index.time_of(32 * at)
        assert found is not None
        assert 0 <= found - time < SECOND_NS


class Counted(array):
    """An array that counts reads of its elements."""

    reads = 0

    def __getitem__(self, at: int) -> int:
        Counted.reads += 1
        return int(super().__getitem__(at))


def test_a_search_reads_few_entries() -> None:
    index = TimeIndex()
    index._times = Counted("q", range(100_000))
    index._begins = array("q", range(0, 3_200_000, 32))
    assert index.find(77_777) == 77_777 * 32
    assert 0 < Counted.reads <= 18


def test_purged_transactions_are_not_found() -> None:
    index = index_of((100, 0), (200, 32), (300, 64))
    index.forget_before(40)
    assert (len(index), index.find(0), index.find(201)) == (2, 40, 64)
    index.forget_before(64)
    assert (len(index), index.find(0)) == (1, 64)
    index.forget_before(10)
    assert index.find(0) == 64


def test_recent_entries_stay_and_old_ones_are_joined() -> None:
    times = [NOW - age for age in (3_602 * SECOND_NS, 3_602 * SECOND_NS - 1, 3_600 * SECOND_NS, 5, 4, 3)]
    index = index_of(*((time, 32 * at) for at, time in enumerate(times)))
    assert index.thin(NOW) == 1
    assert [index.find(time) for time in times] == [0, 0, 64, 96, 128, 160]
    assert index.find(times[1] + 1) == 64


@pytest.mark.slow
def test_the_index_of_a_year_is_small() -> None:
    index = TimeIndex()
    for at in range(0, YEAR, 20):
        index.add(NOW + at * SECOND_NS, at)
    index.thin(NOW + YEAR * SECOND_NS)
    assert len(index) < 55_000
    assert [len(part) for part in index.to_bytes()] == [8 * len(index), 8 * len(index), len(index)]


@given(
    st.lists(st.integers(1, 3 * 86_400 * SECOND_NS), min_size=1, max_size=60),
    st.lists(st.integers(0, 40 * 86_400 * SECOND_NS), max_size=3),
)
def test_a_thinned_index_returns_earlier_positions_but_never_later_ones(steps: list[int], passing: list[int]) -> None:
    index, entries, time = TimeIndex(), [], NOW
    for at, step in enumerate(steps):
        time += step
        entries.append((time, 32 * at))
        index.add(*entries[-1])
    now = time
    for passed in passing:
        now += passed
        index.thin(now)
    coarsest = THINNING[-1][1]
    for asked, begin in entries:
        for exactly in (asked, asked - 1):
            found = index.find(exactly)
            assert found is not None
            assert found <= begin
            (when,) = [time for time, position in entries if position == found]
            assert asked - when < coarsest or found == begin
    assert index.find(time + 1) is None
    again = TimeIndex.from_bytes(*index.to_bytes())
    assert again.to_bytes() == index.to_bytes()


def test_numbers_are_little_endian() -> None:
    assert index_of((1, 2)).to_bytes() == (b"\1" + bytes(7), b"\2" + bytes(7), b"\0")


@pytest.mark.parametrize(
    ("times", "begins", "joined"),
    [(bytes(8), b"", b""), (bytes(7), bytes(7), b""), (bytes(8), bytes(8), bytes(2)), (b"", b"", b"\1")],
)
def test_bytes_that_are_not_an_index_are_refused(times: bytes, begins: bytes, joined: bytes) -> None:
    with pytest.raises(DataFormatError, match="a time index has"):
        TimeIndex.from_bytes(times, begins, joined)


def test_the_first_transaction_at_or_after_a_position_is_found() -> None:
    index = index_of((100, 32), (200, 64), (300, 160))
    assert [index.begin_after(at) for at in (0, 32, 33, 64, 65, 160, 161, 999)] == [32, 32, 64, 64, 160, 160, 160, 160]
    assert [index.begin_before(at) for at in (0, 31, 32, 63, 64, 159, 160, 999)] == [
        None, None, 32, 32, 64, 64, 160, 160,
    ]  # fmt: skip
    assert (TimeIndex().begin_after(0), TimeIndex().begin_before(0)) == (None, None)
    index.clear()
    assert (len(index), index.begin_after(0)) == (0, None)


def test_a_position_inside_of_joined_transactions_finds_the_first_of_them() -> None:
    old = NOW - 7_200 * SECOND_NS
    index = index_of((old, 0), (old + 1, 320), (old + 2, 640), (old + 2 * SECOND_NS, 960), (NOW, 1280))
    assert index.thin(NOW) == 2
    # 960 is not joined: rows of one transaction only
    assert [index.begin_after(at) for at in (0, 1, 640, 959, 960, 961, 1280)] == [0, 0, 0, 0, 960, 1280, 1280]
    again = TimeIndex.from_bytes(*index.to_bytes())
    assert [again.begin_after(at) for at in (1, 961)] == [0, 1280]
    of_earlier_release = TimeIndex.from_bytes(*index.to_bytes()[:2])
    assert [of_earlier_release.begin_after(at) for at in (1, 961, 1281)] == [0, 960, 1280]


def test_joined_transactions_have_at_most_the_bytes_of_the_limit() -> None:
    old = NOW - 7_200 * SECOND_NS
    entries = [(old + at, 320 * at) for at in range(10)]
    index = index_of(*entries, (NOW, 3200))
    assert index.thin(NOW, 960) == 6
    assert [index.begin_before(at) for at in (0, 959, 960, 1920, 3199)] == [0, 0, 960, 1920, 2880]
    assert index.thin(NOW, 960) == 0
