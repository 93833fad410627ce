"""Ranges cover the rows between two offsets exactly, in any division into Spark partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataLossError
from aeron_spark.log.api import Range, RecordingState
from aeron_spark.log.losses import Deleted, Finding, Replaced, StartPurged, Truncated
from aeron_spark.log.offsets import Finished, Offset
from aeron_spark.log.planning import PlannedBatch, partition_by_key, partition_by_size, ranges_between

PRINT = "00000000"
OTHER = "ffffffff"
TERM = 65536


def state(start: int, end: int, fingerprint: str = PRINT, key: str = "a/1") -> RecordingState:
    return RecordingState(key, fingerprint, start, end, True, TERM)


def between(start: int, end: int, *, key: str = "a/1", overrun: int | None = None) -> Range:
    return Range(key, PRINT, start, end, end if overrun is None else overrun, TERM)


BEGUN = Offset({"a/1": 64}, {"a/1": PRINT})
END = Offset({"a/1": 640}, {"a/1": PRINT})


def test_the_moved_recordings_have_ranges_in_the_order_of_recordings() -> None:
    begun = Offset({"a/10": 64, "a/9": 0, "b/1": 32, "a/3": 0}, dict.fromkeys(("a/10", "a/9", "b/1", "a/3"), PRINT))
    end = Offset(
        {"a/10": 128, "a/9": 32, "b/1": 32},
        dict.fromkeys(("a/10", "a/9", "b/1"), PRINT),
        {"a/3": Finished(96, 32, PRINT)},
    )
    states = [state(0, 999, key=key) for key in ("a/10", "a/9", "a/3")]
    batch = ranges_between(begun, end, states, fail_on_data_loss=True)
    assert batch == PlannedBatch(
        (between(0, 96, key="a/3"), between(0, 32, key="a/9"), between(64, 128, key="a/10")), ()
    )


@pytest.mark.parametrize(
    ("states", "finding", "rest"),
    [
        ([], Deleted("a/1", 64), ()),
        ([state(0, 999, OTHER)], Replaced("a/1", 64, PRINT, OTHER), ()),
        ([state(96, 999)], StartPurged("a/1", 64, 96), (between(96, 640),)),
        ([state(960, 999)], StartPurged("a/1", 64, 960), ()),
        ([state(0, 320)], Truncated("a/1", 640, 320), (between(64, 320),)),
        ([state(0, 32)], Truncated("a/1", 640, 32), ()),
    ],
)
def test_a_repeated_batch_reports_a_data_loss_and_reads_the_rest_of_its_range(
    states: list[RecordingState], finding: Finding, rest: tuple[Range, ...]
) -> None:
    assert ranges_between(BEGUN, END, states, fail_on_data_loss=False) == PlannedBatch(rest, (finding,))
    with pytest.raises(DataLossError, match="data was lost: recording 1 of archive a was"):
        ranges_between(BEGUN, END, states, fail_on_data_loss=True)


def test_a_truncated_recording_that_continues_at_its_end_has_no_range() -> None:
    assert ranges_between(END, BEGUN, [state(0, 64)], fail_on_data_loss=True) == PlannedBatch((), ())


# partition


def test_many_small_ranges_share_a_partition() -> None:
    ranges = [between(0, 320, key=f"a/{number}") for number in range(50)]
    assert partition_by_size(ranges) == [tuple(ranges)]
    assert [len(one) for one in partition_by_size(ranges, pack_bytes=3200)] == [10] * 5


def test_a_large_range_has_a_separate_partition() -> None:
    ranges = [
        between(0, 32, key="a/1"),
        between(0, 3200, key="a/2"),
        between(0, 32, key="a/3"),
        between(0, 32, key="a/4"),
    ]
    assert partition_by_size(ranges, pack_bytes=64) == [(ranges[0],), (ranges[1],), (ranges[2], ranges[3])]


def test_without_bytes_to_read_there_is_no_partition() -> None:
    assert partition_by_size([]) == []
    assert partition_by_size([between(64, 64)]) == []
    assert partition_by_size([], 4) == []


def test_a_large_range_is_split_at_term_boundaries() -> None:
    whole = between(32, 4 * TERM + 64)
    assert partition_by_size([whole], 4) == [
        (between(32, TERM, overrun=whole.end),),
        (between(TERM, 2 * TERM, overrun=whole.end),),
        (between(2 * TERM, 3 * TERM, overrun=whole.end),),
        (between(3 * TERM, whole.end),),
    ]


def test_a_large_range_is_split_into_no_more_partitions_than_wanted() -> None:
    whole = between(0, 10 * TERM)
    assert partition_by_size([whole], 2, pack_bytes=TERM) == [
        (between(0, 5 * TERM, overrun=whole.end),),
        (between(5 * TERM, 10 * TERM),),
    ]


def test_a_range_within_one_term_cannot_be_split() -> None:
    assert partition_by_size([between(32, TERM)], 8) == [(between(32, TERM),)]
    unknown = Range("a/1", PRINT, 0, 9 * TERM, 9 * TERM, 0)
    assert partition_by_size([unknown], 8) == [(unknown,)]


def test_small_ranges_are_spread_over_the_wanted_partitions() -> None:
    ranges = [between(0, 320, key=f"a/{number}") for number in range(8)]
    assert [len(one) for one in partition_by_size(ranges, 4)] == [2, 2, 2, 2]
    assert len(partition_by_size(ranges, 0)) == 1


@pytest.mark.parametrize("wanted", range(1, 14))
def test_there_are_as_many_partitions_as_wanted_if_there_are_enough_terms(wanted: int) -> None:
    ranges = [between(TERM // 2, 3 * TERM, key="a/1"), between(0, 9 * TERM + 32, key="a/2"), between(0, 64, key="a/3")]
    assert len(partition_by_size(ranges, wanted)) >= wanted
    # this is cheap even for a range of many terms
    assert len(partition_by_size([Range("a/1", PRINT, 0, 1 << 40, 1 << 40, 1 << 30)], wanted)) >= wanted


RANGES = st.lists(st.tuples(st.integers(0, 5 * TERM // 32), st.integers(0, 5 * TERM // 32)), max_size=8).map(
    lambda pairs: [
        between(start * 32, (start + length) * 32, key=f"a/{number}") for number, (start, length) in enumerate(pairs)
    ]
)


@given(RANGES, st.none() | st.integers(1, 40), st.integers(32, 6 * TERM))
def test_partitions_cover_the_ranges_exactly(ranges: list[Range], wanted: int | None, pack: int) -> None:
    partitions = partition_by_size(ranges, wanted, pack)
    assert all(partitions)
    parts: dict[str, list[Range]] = {}
    for one in (one for packed in partitions for one in packed):
        parts.setdefault(one.key, []).append(one)
    assert parts.keys() == {one.key for one in ranges if one.length}
    for one in (one for one in ranges if one.length):
        edges = [one.start, *(part.end for part in parts[one.key])]
        assert [part.start for part in parts[one.key]] == edges[:-1]
        assert edges[-1] == one.end
        assert all(edge % TERM == 0 for edge in edges[1:-1])
        assert all(part.overrun == one.end and part.length > 0 for part in parts[one.key])
    if wanted is None:
        assert all(len(packed) == 1 or sum(one.length for one in packed) <= pack for packed in partitions)
    elif partitions:
        terms = sum(-(-one.end // TERM) - one.start // TERM for one in ranges if one.length)
        assert len(partitions) >= min(wanted, terms)


def test_each_key_has_the_same_partition_in_every_batch() -> None:
    keys = ["b:1/0", "b:1/1", "a:1/0", "a:1/1"]

    def one(key: str) -> Range:
        return Range(key, "", 0, 64, 64, 65536)

    assert partition_by_key([], keys) == []
    assert partition_by_key([one(key) for key in keys], keys) == [(one(key),) for key in keys]
    assert partition_by_key([one("a:1/0")], keys) == [(), (), (one("a:1/0"),)]
    assert partition_by_key([one(key) for key in keys], keys, max_partitions=3) == [
        (one("b:1/0"), one("a:1/1")),
        (one("b:1/1"),),
        (one("a:1/0"),),
    ]
    assert partition_by_key([one("gone:1/0")], keys) == [(one("gone:1/0"),)]
