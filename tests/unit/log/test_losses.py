"""Purged, truncated, deleted and replaced recordings are distinguished, and no other change is a data loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataLossError
from aeron_spark.log.api import RecordingState, ServerStream
from aeron_spark.log.losses import Deleted, Finding, Replaced, StartPurged, Truncated, check_recordings, compare
from aeron_spark.log.offsets import Finished, Offset

PRINT = "0a0b0c0d"
OTHER = "ffffffff"
KNOWN = Offset({"host:8010/7": 4096}, {"host:8010/7": PRINT}, {"host:8010/3": Finished(640, 32, PRINT)})


def state(number: int, start: int, end: int, fingerprint: str = PRINT) -> RecordingState:
    return RecordingState(f"host:8010/{number}", fingerprint, start, end, True, 65536)


WHOLE = state(7, 0, 4096)

LOSSES: list[tuple[list[RecordingState], Finding, str, dict[str, int]]] = [
    (
        [state(7, 65536, 131072)],
        StartPurged("host:8010/7", 4096, 65536),
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
        [WHOLE, state(3, 1024, 2048)],  # a finished recording was extended, and purged before the query read more of it
        StartPurged("host:8010/3", 640, 1024),
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
def test_the_error_names_each_loss_and_a_tolerant_query_continues_at_the_first_available_position(
    states: list[RecordingState], finding: Finding, sentence: str, positions: dict[str, int]
) -> None:
    assert compare(KNOWN, states) == (finding,)
    with pytest.raises(DataLossError) as caught:
        check_recordings(KNOWN, states, fail_on_data_loss=True)
    assert sentence in str(caught.value)
    assert "failOnDataLoss=false" in caught.value.remedy
    checked = check_recordings(KNOWN, states, fail_on_data_loss=False)
    assert checked.findings == (finding,)
    assert checked.positions == positions


@pytest.mark.parametrize(
    "states",
    [
        [WHOLE],  # a finished recording may be deleted
        [state(7, 4096, 4096)],  # purged exactly up to the query's position
        [WHOLE, state(3, 640, 640)],  # only the unfinished tail was truncated
        [state(7, 0, 8192), state(9, 65536, 131072)],  # a new recording may begin at any position
    ],
)
def test_a_change_without_data_loss_is_not_reported(states: list[RecordingState]) -> None:
    assert compare(KNOWN, states) == ()
    checked = check_recordings(KNOWN, states, fail_on_data_loss=True)
    assert checked.findings == ()
    assert checked.positions == {
        one.key: {"host:8010/7": 4096, "host:8010/3": 640}.get(one.key, one.start) for one in states
    }


def test_one_error_names_all_losses_in_the_order_of_recordings() -> None:
    offset = Offset({f"a/{number}": 64 for number in range(25)}, {f"a/{number}": PRINT for number in range(25)})
    with pytest.raises(DataLossError) as caught:
        check_recordings(offset, [RecordingState("a/0", PRINT, 96, 96, True, 65536)], fail_on_data_loss=True)
    text = str(caught.value)
    assert (
        text.index("recording 0 of archive a was purged") < text.index("recording 2 of") < text.index("recording 10 of")
    )
    assert "and 5 more recordings" in text
    assert text.count("Check that 'archive'") == 1


@given(
    st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([PRINT, OTHER]))
    ),
    st.dictionaries(st.integers(0, 5), st.integers(0, 18)),
)
def test_after_a_loss_a_query_reads_no_row_twice_and_stays_within_the_recordings(
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


def test_the_error_names_a_server_that_was_removed_from_the_query() -> None:
    """Regression: the error said that its partitions were deleted, and its remedy named options of the direct route."""
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
