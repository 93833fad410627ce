"""Offsets: canonical text, the origin of a query, finished recordings, and checkpoints of other programs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import RecordingState
from aeron_spark.log.offsets import Finished, Offset, advance, begin, finish

PRINT = "0a0b0c0d"
OTHER = "ffffffff"
KEYS = st.builds("{}/{}".format, st.sampled_from(["embedded", "host:8010"]), st.integers(0, 40))
PRINTS = st.integers(0, 2**32 - 1).map("{:08x}".format)
POSITIONS = st.integers(0, 2**50).map(lambda frames: frames * 32)


def state(key: str, start: int = 0, end: int = 0, *, active: bool = True, fingerprint: str = PRINT) -> RecordingState:
    return RecordingState(key, fingerprint, start, end, active, 65536)


def text(offset: Offset) -> str:
    return json.dumps(offset.to_dict())


def reread(offset: Offset) -> Offset:
    return Offset.parse(json.loads(text(offset)))


@st.composite
def offsets(draw: st.DrawFn) -> Offset:
    known = draw(st.dictionaries(KEYS, st.tuples(POSITIONS, PRINTS, st.booleans(), st.integers(0, 9)), max_size=12))
    recordings = {key: one[0] for key, one in known.items() if one[2]}
    done = {key: Finished(one[0], one[3] * 32, one[1]) for key, one in known.items() if not one[2]}
    some = st.dictionaries(st.sampled_from(sorted(known)), POSITIONS) if known else st.just({})
    return Offset(
        recordings,
        {key: known[key][1] for key in recordings},
        done,
        draw(st.none() | some),
        draw(st.booleans()),
        draw(some),
        draw(st.none() | KEYS),
    )


@given(offsets())
def test_an_offset_written_as_json_is_read_unchanged(offset: Offset) -> None:
    assert reread(offset) == offset
    assert text(reread(offset)) == text(offset)


@given(offsets(), st.randoms())
def test_equal_offsets_have_equal_texts_in_any_order_of_their_parts(offset: Offset, random: object) -> None:
    def shuffled(values: dict[str, object]) -> dict[str, object]:
        return dict(sorted(values.items(), key=lambda _: random.random()))

    written = shuffled(offset.to_dict())
    for name, part in written.items():
        if isinstance(part, dict):
            written[name] = shuffled(part)
    assert text(Offset.parse(written)) == text(offset)


def test_the_text_of_version_1_does_not_change() -> None:
    offset = Offset(
        {"host:8010/2": 64, "embedded/10": 32},
        {"embedded/10": PRINT, "host:8010/2": OTHER},
        {"embedded/3": Finished(4096, 0, PRINT)},
        {"embedded/10": 0},
        joined={"host:8010/2": 0},
        turn="embedded/10",
    )
    assert text(offset) == (
        '{"done": "CGVtYmVkZGVkAQOAAQAKCwwN", "fingerprints": {"embedded/10": "0a0b0c0d", "host:8010/2": "ffffffff"}, '
        '"joined": {"host:8010/2": 0}, "origin": {"embedded/10": 0}, '
        '"recordings": {"embedded/10": 32, "host:8010/2": 64}, "turn": "embedded/10", "v": 1}'
    )
    assert reread(offset) == offset


def test_an_offset_has_the_position_and_fingerprint_of_each_recording() -> None:
    offset = Offset({"a/1": 64}, {"a/1": PRINT}, {"a/2": Finished(32, 0, OTHER)})
    assert [offset.position(key) for key in ("a/1", "a/2", "a/3")] == [64, 32, None]
    assert [offset.fingerprint(key) for key in ("a/1", "a/2", "a/3")] == [PRINT, OTHER, None]
    assert [key in offset for key in ("a/1", "a/2", "a/3")] == [True, True, False]
    assert offset.positions() == {"a/1": 64, "a/2": 32}


GOOD: dict[str, object] = {"done": "", "fingerprints": {"a/1": PRINT}, "recordings": {"a/1": 64}, "v": 1}


def test_the_undamaged_offset_is_valid() -> None:
    assert Offset.parse(GOOD) == Offset({"a/1": 64}, {"a/1": PRINT})


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({**GOOD, "v": 2}, "an offset of version 2, expected at most 1"),
        ({"topic": {"0": 5}}, 'not one of format(\'aeron\'): {"topic": {"0": 5}}'),
        (None, "not one of format('aeron'): null"),
        (["v"], "not one of format('aeron')"),
        ({"k" * 99: 1}, "kkk..."),
        ({**GOOD, "v": 0}, "its version is 0"),
        ({**GOOD, "v": True}, "its version is true"),
        ({**GOOD, "v": "1"}, "its version is 1"),
        ({**GOOD, "more": 1}, "the unknown part more"),
        ({**GOOD, "recordings": {}}, "not of the same recordings"),
        ({**GOOD, "recordings": None}, "'recordings' is missing"),
        ({**GOOD, "recordings": [1]}, "'recordings' is [1]"),
        ({**GOOD, "recordings": {"a/1": -1}}, "the position -1 of a/1 in 'recordings' is not a position"),
        ({**GOOD, "recordings": {"a/1": True}}, "the position true of a/1 in 'recordings' is not a position"),
        ({**GOOD, "recordings": {"a/1": 1.5}}, "the position 1.5 of a/1 in 'recordings' is not a position"),
        ({**GOOD, "recordings": {"a/1": 1 << 63}}, "the position 9223372036854775808 of a/1 in 'recordings' is not"),
        (
            {**GOOD, "recordings": {"a/9223372036854775808": 1}},
            "a/9223372036854775808 in 'recordings' is not a recording",
        ),
        ({**GOOD, "recordings": {"\ud800/1": 1}}, "half of a surrogate pair"),
        ({**GOOD, "turn": "\ud800"}, "half of a surrogate pair"),
        ({**GOOD, "more": float("nan")}, "not a value of JSON"),
        ({**GOOD, "done": "AWH/////////////fwEBAAAAAA=="}, "'done' is not valid: a number is too long"),
        ({**GOOD, "done": "AWEBAf//////////fwEAAAAA"}, "'done' is not valid: a position is too large"),
        (
            {**GOOD, "marks": "AWEC//////////9/AQAAAAD//////////38BAAAAAA=="},
            "'marks' is not valid: a recording's id is too large",
        ),
        ({**GOOD, "marks": "gQg="}, "'marks' is not valid: an archive's name has 1025 bytes"),
        ({**GOOD, "stream": {"channel": "aeron:ipc", "id": 1 << 31}}, "it does not identify a stream"),
        ({**GOOD, "recordings": {"seven": 1}}, "seven in 'recordings' is not a recording"),
        ({**GOOD, "recordings": {7: 1}}, "7 in 'recordings' is not a recording"),
        ({**GOOD, "fingerprints": {"a/1": "XYZ"}}, "the fingerprint XYZ of a/1 is not eight hex digits"),
        ({**GOOD, "fingerprints": {"a/1": 5}}, "the fingerprint 5 of a/1 is not eight hex digits"),
        ({**GOOD, "done": None}, "'done' is missing"),
        ({**GOOD, "done": 5}, "'done' is 5"),
        ({**GOOD, "done": "?"}, "'done' is not base64"),
        ({**GOOD, "done": "AWEBAQEACgsMDQ=="}, "it has recording a/1 twice"),
        ({**GOOD, "initial": 1}, "'initial' is neither true nor false"),
        ({**GOOD, "turn": 1}, "'turn' is not a recording"),
        ({**GOOD, "origin": {"a/2": 0}}, "it has the first position of recording a/2, but not its next position"),
        ({**GOOD, "joined": {"a/2": 0}}, "it has the first position of recording a/2, but not its next position"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused(value: object, sentence: str) -> None:
    with pytest.raises(DataFormatError) as caught:
        Offset.parse(value)
    assert sentence in str(caught.value)
    assert "checkpoint" in caught.value.remedy


def test_an_offset_of_any_depth_is_damaged() -> None:
    """Regression: of a depth that could just be parsed, the error's text could not be made."""
    for depth in range(700, 1_000):
        text = json.dumps({**GOOD, "epochs": None}).replace("null", "[" * depth + "]" * depth)
        try:
            value = json.loads(text)
        except RecursionError:  # Spark's parser refuses deeper ones
            break
        with pytest.raises(DataFormatError):
            Offset.parse(value)
    assert depth > 700


# advance: from batch to batch


def test_without_a_moved_recording_the_end_is_the_start_itself() -> None:
    start = Offset({"a/1": 64}, {"a/1": PRINT}, {"a/2": Finished(32, 0, PRINT)}, initial=True, turn="a/1")
    # one recording has stopped, and one is new and empty: neither needs a batch
    states = [state("a/1", 0, 64, active=False), state("a/2", 0, 32, active=False), state("a/3", 96, 128)]
    assert advance(start, {"a/1": 64, "a/2": 32, "a/3": 96}, states, turn="a/3") is start


def test_a_moved_recording_moves_the_offset() -> None:
    start = Offset({"a/1": 64}, {"a/1": PRINT})
    end = advance(start, {"a/1": 96}, [state("a/1", 0, 128)], turn="a/1")
    assert end == Offset({"a/1": 96}, {"a/1": PRINT}, turn="a/1")
    assert begin(start, end) == start


def test_a_finished_recording_is_packed_and_is_unpacked_when_it_is_extended() -> None:
    start = Offset({"a/1": 64}, {"a/1": PRINT})
    done = advance(start, {"a/1": 96}, [state("a/1", 0, 96, active=False)])
    assert done == Offset({}, {}, {"a/1": Finished(96, 0, PRINT)})
    same = state("a/1", 0, 96)  # an extension began, and has no messages yet
    assert advance(done, {"a/1": 96}, [same]) is done
    extended = advance(done, {"a/1": 160}, [state("a/1", 0, 160)])
    assert extended == Offset({"a/1": 160}, {"a/1": PRINT})
    assert begin(done, extended).position("a/1") == 96


def test_an_unfinished_tail_is_packed_with_its_recording() -> None:
    start = Offset({"a/1": 64}, {"a/1": PRINT})
    stopped = state("a/1", 0, 160, active=False)
    assert advance(start, {"a/1": 96}, [stopped]).done == {}
    assert advance(start, {"a/1": 96}, [stopped], finished={"a/1"}).done == {"a/1": Finished(96, 64, PRINT)}


def test_an_active_or_unaligned_recording_is_not_packed() -> None:
    start = Offset({"a/1": 64}, {"a/1": PRINT})
    assert advance(start, {"a/1": 96}, [state("a/1", 0, 96)], finished={"a/1"}).done == {}
    assert advance(start, {"a/1": 97}, [state("a/1", 0, 97, active=False)], finished={"a/1"}).recordings == {"a/1": 97}


def test_other_finished_recordings_stay_packed_whether_listed_or_not() -> None:
    done = {"a/2": Finished(32, 32, PRINT), "a/3": Finished(32, 0, PRINT)}
    start = Offset({"a/1": 64}, {"a/1": PRINT}, done)
    states = [state("a/1", 0, 96), state("a/2", 0, 64, active=False)]
    assert advance(start, {"a/1": 96, "a/2": 32}, states).done == done


def test_a_deleted_recording_that_reappears_is_not_read_twice() -> None:
    start = Offset({"a/1": 64, "a/2": 33}, {"a/1": PRINT, "a/2": PRINT})
    end = advance(start, {}, [])
    assert end == Offset({"a/2": 33}, {"a/2": PRINT}, {"a/1": Finished(64, 0, PRINT)})
    back = advance(end, {"a/1": 96, "a/2": 33}, [state("a/1", 0, 96), state("a/2", 0, 33)])
    assert begin(end, back).position("a/1") == 64


def test_a_failed_first_batch_is_planned_from_the_origin_of_its_query() -> None:
    """Trap 1: Spark does not save the first offset of a query, so a restart gets a later one."""
    initial = Offset.first({"a/1": 0}, [state("a/1", 0, 320)])
    assert initial.initial
    end = reread(advance(initial, {"a/1": 320, "a/2": 64}, [state("a/1", 0, 320), state("a/2", 32, 64)]))
    later = Offset.first({"a/1": 224, "a/2": 64}, [state("a/1", 0, 320), state("a/2", 32, 64)])
    assert end.origin == {"a/1": 0}
    assert begin(later, end).positions() == {"a/1": 0, "a/2": 32}
    assert begin(later, end) == begin(initial, end)


def test_a_recording_that_was_deleted_before_the_first_batch_ended_is_not_read_again() -> None:
    initial = Offset.first({"a/1": 64}, [state("a/1", 0, 64)])
    end = advance(initial, {}, [])
    assert end.origin == {"a/1": 64}
    assert begin(initial, end).position("a/1") == end.position("a/1") == 64


def test_an_empty_first_batch_reads_nothing_when_it_is_repeated() -> None:
    initial = Offset.first({"a/1": 64}, [state("a/1", 0, 64)])
    later = Offset.first({"a/1": 96, "a/2": 0}, [state("a/1", 0, 96), state("a/2", 0, 0)])
    assert begin(later, initial).positions() == initial.positions()


def test_the_batch_after_an_empty_first_batch_has_the_origin() -> None:
    initial = Offset.first({"a/1": 64}, [state("a/1", 0, 64)])
    end = advance(initial, {"a/1": 96}, [state("a/1", 0, 96)])
    assert end.origin == {"a/1": 64}
    assert advance(end, {"a/1": 128}, [state("a/1", 0, 128)]).origin is None


def test_a_repeated_batch_reads_a_new_recording_from_its_first_position_even_after_a_purge() -> None:
    start = Offset({"a/1": 64}, {"a/1": PRINT})
    end = reread(advance(start, {"a/1": 64, "a/2": 320}, [state("a/1", 0, 64), state("a/2", 96, 320)]))
    assert end.joined == {"a/2": 96}
    assert begin(start, end).positions() == {"a/1": 64, "a/2": 96}
    after = advance(end, {"a/1": 64, "a/2": 640}, [state("a/1", 0, 64), state("a/2", 96, 640)])
    assert after.joined == {}


def test_an_offset_begins_at_itself() -> None:
    start = Offset({"a/1": 64}, {"a/1": PRINT})
    end = advance(start, {"a/1": 64, "a/2": 320}, [state("a/1", 0, 64), state("a/2", 96, 320)])
    assert begin(end, reread(end)).positions() == end.positions()


@pytest.mark.parametrize("initial", [False, True])
def test_a_replaced_recording_is_read_from_its_start(initial: bool) -> None:
    start = Offset({"a/1": 640}, {"a/1": PRINT}, initial=initial)
    end = advance(start, {"a/1": 64}, [state("a/1", 0, 64, fingerprint=OTHER)])
    assert end.joined == {"a/1": 0}
    assert begin(start, end).position("a/1") == 0
    assert begin(start, end).fingerprint("a/1") == OTHER


def test_a_replaced_recording_without_messages_changes_the_offset() -> None:
    start = Offset({}, {}, {"a/1": Finished(0, 0, PRINT)})
    end = advance(start, {"a/1": 0}, [state("a/1", 0, 0, fingerprint=OTHER)])
    assert end == Offset({"a/1": 0}, {"a/1": OTHER})


@given(offsets())
def test_an_offset_that_does_not_move_keeps_its_text(offset: Offset) -> None:
    offset = replace(offset, joined={}, origin=None)
    states = [
        state(key, 0, position, fingerprint=offset.fingerprint(key) or "")
        for key, position in offset.positions().items()
    ]
    assert text(advance(offset, offset.positions(), states)) == text(offset)
    assert begin(offset, advance(offset, offset.positions(), states)).positions() == offset.positions()


def test_a_recording_that_was_seen_to_have_ended_is_finished_without_a_batch() -> None:
    offset = Offset({"embedded/1": 64, "embedded/2": 96}, {"embedded/1": PRINT, "embedded/2": PRINT})
    known = finish(offset, {"embedded/1": PRINT})
    assert known.recordings == {"embedded/2": 96}
    assert known.fingerprints == {"embedded/2": PRINT}
    assert known.done == {"embedded/1": Finished(64, 0, PRINT)}
    assert known.positions() == offset.positions()


@pytest.mark.parametrize("ended", [{}, {"embedded/9": PRINT}, {"embedded/1": OTHER}])
def test_the_end_of_another_recording_finishes_no_recording(ended: dict[str, str]) -> None:
    offset = Offset({"embedded/1": 64}, {"embedded/1": PRINT})
    assert finish(offset, ended) is offset
