"""Positions identify the stream that they are of."""

from __future__ import annotations

import json

import pytest

from aeron_spark.errors import DataLossError, OptionError
from aeron_spark.log.api import RecordingState
from aeron_spark.log.epochs import Epochs
from aeron_spark.stream_client.reader import Positions, check_epochs, set_position

EPOCH = 5 << 20


def state(partition: int, fingerprint: str, end: int = 4096) -> RecordingState:
    epochs = Epochs(((0, 0), (EPOCH, 0)))
    return RecordingState(f"s:1/{partition}", fingerprint, 64, end, True, 65536, channel="flights", epochs=epochs)


def stored_positions(*states: RecordingState) -> Positions:
    """Return positions after 1,024 bytes of each partition, after a round trip through JSON."""
    found = Positions()
    for state_ in states:
        set_position(found, state_, 1024)
    return Positions.from_json(found.to_json())


def test_json_keeps_epochs_and_fingerprints() -> None:
    found = stored_positions(state(0, "aaaaaaaa"), state(1, "bbbbbbbb"))
    assert found == {0: 1024, 1: 1024}
    assert found.epochs == dict.fromkeys((0, 1), Epochs(((0, 0), (EPOCH, 0))))
    assert found.fingerprints == {0: "aaaaaaaa", 1: "bbbbbbbb"}
    copy = found.copy()
    set_position(copy, state(0, "cccccccc"), 2048)
    assert (found[0], found.fingerprints[0]) == (1024, "aaaaaaaa")


def test_a_position_gets_the_epochs_before_it_only_if_its_epoch_changes() -> None:
    """All histories with an epoch have the same epochs before it."""
    found = Positions()
    set_position(found, state(0, "aaaaaaaa"), 1024)
    saved = found.epochs[0]
    set_position(found, state(0, "aaaaaaaa"), 2048)
    assert found.epochs[0] is saved
    set_position(found, state(0, "aaaaaaaa"), 0)
    assert found.epochs[0] == Epochs(((0, 0),))


def test_the_error_of_positions_of_an_earlier_release_claims_only_what_is_proved() -> None:
    """They have one epoch, which the stream does not have: the reader continues at the partition's beginning."""
    text = json.dumps({"epochs": {"0": f"{EPOCH + 1:016x}"}, "positions": {"0": 1024}, "v": 1})
    with pytest.raises(DataLossError, match=r"same rows at least up to 0, .* its rows up to 64 were purged") as caught:
        check_epochs(Positions.from_json(text), {0: state(0, "aaaaaaaa")}, "flights", "reader")
    assert caught.value.positions == {0: 64}
    assert caught.value.positions.epochs == {0: Epochs(((0, 0), (EPOCH, 0)))}  # type: ignore[union-attr]
    check_epochs(caught.value.positions, {0: state(0, "aaaaaaaa")}, "flights", "reader")  # type: ignore[arg-type]


def test_positions_of_an_earlier_release_have_no_fingerprints() -> None:
    text = json.dumps({"epochs": {"0": f"{EPOCH:016x}"}, "positions": {"0": 1024}, "v": 1})
    found = Positions.from_json(text)
    assert found.fingerprints == {}
    check_epochs(found, {0: state(0, "aaaaaaaa")}, "flights", "reader")
    assert json.loads(found.to_json()) == json.loads(text)


@pytest.mark.parametrize("wrong", [{"0": 7}, {"x": "aaaaaaaa"}, 7])
def test_wrong_fingerprints_are_refused(wrong: object) -> None:
    text = json.dumps({"epochs": {}, "fingerprints": wrong, "positions": {"0": 1024}, "v": 1})
    with pytest.raises(OptionError):
        Positions.from_json(text)


@pytest.mark.parametrize("wrong", ["1e999", "NaN", "-1", "9223372036854775808", "1.5", "true", '"1"', "[]"])
def test_a_position_that_is_no_position_is_refused(wrong: str) -> None:
    for text in (f'{{"0": {wrong}}}', f'{{"epochs": {{}}, "positions": {{"0": {wrong}}}, "v": 1}}'):
        with pytest.raises(OptionError):
            Positions.from_json(text)


def test_more_positions_than_a_stream_has_partitions_are_refused() -> None:
    """Regression: a program that chooses 90,000 numbers made the dict of them take 8 s."""
    with pytest.raises(OptionError, match="positions have 10001 partitions, the limit is 10000"):
        Positions.from_json(json.dumps({str(number): 0 for number in range(10_001)}))


def test_a_text_that_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(OptionError):
        Positions.from_json('{"epochs": {}, "fingerprints": {"0": "\\ud800"}, "positions": {"0": 0}, "v": 1}')


def test_the_error_of_positions_of_another_stream_has_the_epochs_of_this_one() -> None:
    """All streams of a store have the same epochs, with other first positions."""
    now = state(0, "cccccccc")
    positions = Positions({0: 1024}, {0: Epochs(((0, 0), (EPOCH, 512)))}, {0: "aaaaaaaa"})
    with pytest.raises(DataLossError) as caught:
        check_epochs(positions, {0: now}, "flights", "reader")
    assert isinstance(caught.value.positions, Positions)
    assert caught.value.positions.epochs == {0: Epochs(((0, 0), (EPOCH, 0)))}


@pytest.mark.parametrize("end", [512, 4096])
def test_positions_of_another_stream_are_refused_as_replaced_and_not_as_diverged(end: int) -> None:
    """Regression: the reader delivered rows of the other stream, or reported a restored store."""
    positions = stored_positions(state(0, "aaaaaaaa"), state(1, "bbbbbbbb"))
    now = {0: state(0, "aaaaaaaa"), 1: state(1, "cccccccc", end)}
    with pytest.raises(DataLossError, match="positions of partitions 1 do not belong to stream 'flights'") as caught:
        check_epochs(positions, now, "flights", "reader")
    assert caught.value.reason == "replaced"
    assert caught.value.positions == {0: 1024, 1: 64}
    assert isinstance(caught.value.positions, Positions)
    check_epochs(caught.value.positions, now, "flights", "reader")
