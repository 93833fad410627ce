"""A place among the archive's recordings: waited for, and asked for no oftener than it helps."""

from __future__ import annotations

import pytest

from aeron_spark.streams import recordings
from aeron_spark.streams.partition import NoRoomToRecord
from aeron_spark.streams.recordings import with_room


class Places:
    """An archive with no place, until it was tried ``tries`` times."""

    def __init__(self, tries: int, *, gives: bool) -> None:
        self.tries = tries
        self.gives = gives
        self.asked = 0

    def attempt(self) -> str:
        self.tries -= 1
        if self.tries >= 0:
            raise NoRoomToRecord("max_recordings")
        return "recorded"

    def make_room(self) -> bool:
        self.asked += 1
        return self.gives


def test_what_was_closed_for_it_gets_the_time_to_end_before_more_is_closed() -> None:
    places = Places(tries=20, gives=True)
    assert with_room(places.attempt, places.make_room) == "recorded"
    assert places.asked == 1


def test_more_is_closed_where_it_did_not_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "ENDING", 0.0)
    places = Places(tries=20, gives=True)
    assert with_room(places.attempt, places.make_room) == "recorded"
    assert places.asked == 20


def test_where_nobody_can_give_it_is_asked_again_each_time() -> None:
    places = Places(tries=20, gives=False)
    assert with_room(places.attempt, places.make_room) == "recorded"
    assert places.asked == 20


def test_nobody_waits_for_a_place_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "ROOM_TIMEOUT", 0.05)
    places = Places(tries=1 << 40, gives=True)
    with pytest.raises(NoRoomToRecord, match="max_recordings"):
        with_room(places.attempt, places.make_room)
