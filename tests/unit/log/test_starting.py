"""The first positions of a query: the ends of recordings, named positions, and unknown recordings."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.log.api import RecordingState
from aeron_spark.log.planning import resolve
from aeron_spark.options import WantedOffsets

STATES = [
    RecordingState("embedded/7", "00000000", 64, 640, True, 65536),
    RecordingState("embedded/8", "00000000", 0, 320, False, 65536),
]
ONE = ("embedded",)


def latest(state: RecordingState) -> int:
    return state.end - 32


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (WantedOffsets("earliest"), {"embedded/7": 64, "embedded/8": 0}),
        (WantedOffsets("latest"), {"embedded/7": 608, "embedded/8": 288}),
        (WantedOffsets("earliest", {"embedded/7": 128}), {"embedded/7": 128, "embedded/8": 0}),
        (WantedOffsets("earliest", {"7": 640, "8": "latest"}), {"embedded/7": 640, "embedded/8": 288}),
        (WantedOffsets("latest", {"7": "earliest"}), {"embedded/7": 64, "embedded/8": 288}),
    ],
)
def test_wanted_offsets_are_resolved_to_positions(wanted: WantedOffsets, expected: dict[str, int]) -> None:
    assert resolve(wanted, STATES, latest, archives=ONE) == expected


def test_the_end_is_searched_only_in_recordings_that_need_it() -> None:
    searched: list[str] = []

    def find_end(state: RecordingState) -> int:
        searched.append(state.key)
        return state.end

    resolve(WantedOffsets("earliest", {"8": "latest"}), STATES, find_end, archives=ONE)
    assert searched == ["embedded/8"]


@pytest.mark.parametrize(
    ("named", "archives", "sentence"),
    [
        ({"9": 0}, ONE, "has recording 9, which the stream does not have. Choose from its recordings: embedded/7, emb"),
        ({"host:1/7": 0}, ONE, "has recording host:1/7, which the stream does not have"),
        ({"7": 32}, ONE, "position 32 is outside of recording embedded/7, expected 64 to 640"),
        ({"7": 672}, ONE, "position 672 is outside of recording embedded/7"),
        ({"7": 64, "embedded/7": 64}, ONE, "names recording embedded/7 twice"),
        (
            {"7": 64},
            ("embedded", "host:1"),
            "ids are not unique with several archives. Write archive/id, with one of the archives embedded, host:1",
        ),
    ],
)
def test_an_unknown_recording_or_position_is_refused(
    named: dict[str, int], archives: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(OptionError) as caught:
        resolve(WantedOffsets("earliest", named), STATES, latest, archives=archives, option="endingOffsets")
    assert sentence in str(caught.value)
    assert "option 'endingOffsets'" in str(caught.value)


def test_the_error_says_that_a_stream_has_no_recordings_yet() -> None:
    assert resolve(WantedOffsets("latest"), [], latest, archives=ONE) == {}
    with pytest.raises(OptionError, match="none yet"):
        resolve(WantedOffsets("latest", {"7": 64}), [], latest, archives=ONE)
