"""Purged, truncated, deleted and replaced are told apart, and nothing else is a loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataLossError
from aeron_spark.log.api import RecordingState
from aeron_spark.log.losses import Deleted, Finding, Purged, Replaced, Truncated, check_recordings, compare
from aeron_spark.log.offsets import Finished, Offset
from aeron_spark.log.source_stream import ServerStream

PRINT = "0a0b0c0d"
OTHER = "ffffffff"
KNOWN = Offset({"host:8010/7": 4096}, {"host:8010/7": PRINT}, {"host:8010/3": Finished(640, 32, PRINT)})


def state(number: int, start: int, end: int, fingerprint: str = PRINT) -> RecordingState:
    return RecordingState(f"host:8010/{number}", fingerprint, start, end, True, 65536)


WHOLE = state(7, 0, 4096)

LOSSES: list[tuple[list[RecordingState], Finding, str, dict[str, int]]] = [
    (
        [state(7, 65536, 131072)],
        Purged("host:8010/7", 4096, 65536),
        "recording 7 of archive host:8010 was purged: the query's next position is 4096, but the recording begins at "
        "65536 now; 61440 bytes of the log are gone",
        {"host:8010/7": 65536},
    ),
    (
        [state(7, 0, 4064)],
        Truncated("host:8010/7", 4096, 4064),
        "recording 7 of archive host:8010 was truncated: the query is at position 4096, but the recording ends at "
        "4064 now",
        {"host:8010/7": 4064},
    ),
    (
        [],
        Deleted("host:8010/7", 4096),
        "recording 7 of archive host:8010 was deleted: the query's next position is 4096",
        {},
    ),
    (
        [state(7, 32, 8192, OTHER)],
        Replaced("host:8010/7", 4096, PRINT, OTHER),
        "recording 7 of archive host:8010 was replaced: up to position 4096 the query read the recording with "
        "fingerprint 0a0b0c0d, but the recording with that id has fingerprint ffffffff now",
        {"host:8010/7": 32},
    ),
    (
        [WHOLE, state(3, 1024, 2048)],  # a finished one was extended, and purged before it was read on
        Purged("host:8010/3", 640, 1024),
        "recording 3 of archive host:8010 was purged",
        {"host:8010/7": 4096, "host:8010/3": 1024},
    ),
    (
        [WHOLE, state(3, 0, 320)],
        Truncated("host:8010/3", 640, 320),
        "recording 3 of archive host:8010 was truncated",
        {"host:8010/7": 4096, "host:8010/3": 320},
    ),
    (
        [WHOLE, state(3, 0, 320, OTHER)],
        Replaced("host:8010/3", 640, PRINT, OTHER),
        "recording 3 of archive host:8010 was replaced",
        {"host:8010/7": 4096, "host:8010/3": 0},
    ),
]


@pytest.mark.parametrize(("states", "finding", "sentence", "positions"), LOSSES)
def test_each_loss_is_named_and_goes_on_where_there_is_something(
    states: list[RecordingState], finding: Finding, sentence: str, positions: dict[str, int]
) -> None:
    assert compare(KNOWN, states) == (finding,)
    with pytest.raises(DataLossError) as caught:
        check_recordings(KNOWN, states, fail_on_data_loss=True)
    assert sentence in str(caught.value)
    assert "failOnDataLoss=false" in caught.value.remedy
    settled = check_recordings(KNOWN, states, fail_on_data_loss=False)
    assert settled.findings == (finding,)
    assert settled.positions == positions


@pytest.mark.parametrize(
    "states",
    [
        [WHOLE],  # a finished recording may be deleted
        [state(7, 4096, 4096)],  # purged up to exactly where the query is
        [WHOLE, state(3, 640, 640)],  # only the unfinished tail was truncated
        [state(7, 0, 8192), state(9, 65536, 131072)],  # an unknown one may begin anywhere: it joined late
    ],
)
def test_what_loses_nothing_is_no_finding(states: list[RecordingState]) -> None:
    assert compare(KNOWN, states) == ()
    settled = check_recordings(KNOWN, states, fail_on_data_loss=True)
    assert settled.findings == ()
    assert settled.positions == {
        one.key: {"host:8010/7": 4096, "host:8010/3": 640}.get(one.key, one.start) for one in states
    }


def test_all_losses_are_told_at_once_in_the_order_of_recordings() -> None:
    offset = Offset({f"a/{number}": 64 for number in range(25)}, {f"a/{number}": PRINT for number in range(25)})
    with pytest.raises(DataLossError) as caught:
        check_recordings(offset, [RecordingState("a/0", PRINT, 96, 96, True, 65536)], fail_on_data_loss=True)
    told = str(caught.value)
    assert (
        told.index("recording 0 of archive a was purged") < told.index("recording 2 of") < told.index("recording 10 of")
    )
    assert "and 5 more recordings" in told
    assert told.count("Check that 'archive'") == 1


@given(
    st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([PRINT, OTHER]))
    ),
    st.dictionaries(st.integers(0, 5), st.integers(0, 18)),
)
def test_going_on_never_reads_a_row_twice_and_stays_within_what_there_is(
    found: dict[int, tuple[int, int, str]], read: dict[int, int]
) -> None:
    offset = Offset({f"a/{n}": at for n, at in read.items()}, {f"a/{n}": PRINT for n in read})
    states = [RecordingState(f"a/{n}", one[2], one[0], one[0] + one[1], True, 64) for n, one in found.items()]
    positions = check_recordings(offset, states, fail_on_data_loss=False).positions
    assert positions.keys() == {one.key for one in states}
    for one in states:
        assert one.start <= positions[one.key] <= one.end
        if one.fingerprint == PRINT:
            assert positions[one.key] >= min(offset.position(one.key) or 0, one.end)


def test_a_server_that_is_no_longer_read_is_named_as_that() -> None:
    """Finding C6: its partitions were said to be deleted, and the remedy named options of the direct route."""
    servers = ServerStream("flights", {"a:1": "KeyA", "b:1": "KeyB"})
    offset = Offset(
        {"a:1/0": 64, "b:1/0": 128, "a:1/1": 32}, dict.fromkeys(("a:1/0", "b:1/0", "a:1/1"), PRINT), stream=servers
    )
    states = [RecordingState("a:1/0", PRINT, 0, 64, True, 65536)]
    assert compare(offset, states) == (Deleted("a:1/1", 32), Deleted("b:1/0", 128, server_removed=True))
    with pytest.raises(DataLossError) as caught:
        check_recordings(offset, states, fail_on_data_loss=True)
    assert (
        "server b:1 is no longer in option 'server', but the query has read its partition 0 only up to position 128"
        in str(caught.value)
    )
    assert "Name the server again until the query has read it to its end" in caught.value.remedy
