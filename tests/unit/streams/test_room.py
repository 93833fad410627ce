"""A place among the archive's recordings is asked for, awaited, and given up on."""

from __future__ import annotations

import time

import pytest

from aeron_spark.streams import recordings
from aeron_spark.streams.partition import NoRoomToRecord
from aeron_spark.streams.recordings import retry_for_slot


class Places:
    """An archive with no place, until room was made or it was tried ``tries`` times."""

    def __init__(self, tries: int, *, gives: bool) -> None:
        self.tries = tries
        self.gives = gives
        self.asked = 0

    def attempt(self) -> str:
        self.tries -= 1
        if self.tries >= 0:
            raise NoRoomToRecord("max_recordings")
        return "recorded"

    def free_slots(self) -> bool:
        self.asked += 1
        if self.gives:
            self.tries = 0
        return self.gives


@pytest.mark.parametrize(("gives", "asked"), [(True, 1), (False, 20)], ids=["that is made", "that others free"])
def test_a_place_is_asked_for_until_there_is_one(gives: bool, asked: int) -> None:
    places = Places(tries=20, gives=gives)
    assert retry_for_slot(places.attempt, places.free_slots) == "recorded"
    assert places.asked == asked


def test_room_that_took_long_to_make_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "SLOT_TIMEOUT_S", 0.05)
    places = Places(tries=20, gives=True)

    def slowly() -> bool:
        time.sleep(0.1)
        return places.free_slots()

    assert retry_for_slot(places.attempt, slowly) == "recorded"


def test_nobody_waits_for_a_place_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "SLOT_TIMEOUT_S", 0.05)
    places = Places(tries=1 << 40, gives=False)
    with pytest.raises(NoRoomToRecord, match="max_recordings"):
        retry_for_slot(places.attempt, places.free_slots)
