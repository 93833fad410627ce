"""Tests of the wait for a recording slot of the archive."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from aeron_spark.streams import recordings
from aeron_spark.streams.recordings import retry_for_slot
from aeron_spark.streams.store_parts import NoRoomToRecord, RecordedLogs


class FullArchive:
    """An archive without a free slot, until a slot is freed or ``attempt`` was called ``tries`` times."""

    def __init__(self, tries: int, *, can_free: bool) -> None:
        self.tries = tries
        self.can_free = can_free
        self.freed = 0
        self.is_being_freed = False

    def attempt(self) -> str:
        self.tries -= 1
        if self.tries >= 0:
            error = NoRoomToRecord("max_recordings")
            error.is_being_freed = self.is_being_freed
            raise error
        return "recorded"

    def free_slots(self) -> bool:
        self.freed += 1
        if self.can_free:
            self.tries = 0
        return self.can_free


@pytest.mark.parametrize(
    ("can_free", "freed"), [(True, 1), (False, 20)], ids=["free_slots frees one", "another program frees one"]
)
def test_an_attempt_is_repeated_until_a_slot_is_free(can_free: bool, freed: int) -> None:
    archive = FullArchive(tries=20, can_free=can_free)
    assert retry_for_slot(archive.attempt, archive.free_slots) == "recorded"
    assert archive.freed == freed


def test_no_further_slots_are_freed_while_the_driver_deletes_logs() -> None:
    archive = FullArchive(tries=20, can_free=True)
    archive.is_being_freed = True
    assert retry_for_slot(archive.attempt, archive.free_slots) == "recorded"
    assert archive.freed == 0


def test_logs_count_until_the_driver_has_deleted_them(tmp_path: Path) -> None:
    logs, log = RecordedLogs(100), tmp_path / "1.logbuffer"
    logs.add(60)
    with pytest.raises(NoRoomToRecord) as error:
        logs.add(50)
    assert not error.value.is_being_freed
    log.touch()
    logs.remove(60, log)
    with pytest.raises(NoRoomToRecord) as error:
        logs.add(50)
    assert error.value.is_being_freed
    log.unlink()
    logs.add(50)
    logs.remove(50)
    logs.add(1_000)  # the first one exceeds no limit
    with pytest.raises(NoRoomToRecord):
        logs.add(1)
    RecordedLogs().add(1 << 60)


def test_a_slot_that_took_long_to_free_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "SLOT_TIMEOUT_S", 0.05)
    archive = FullArchive(tries=20, can_free=True)

    def slowly() -> bool:
        time.sleep(0.1)
        return archive.free_slots()

    assert retry_for_slot(archive.attempt, slowly) == "recorded"


def test_the_wait_for_a_slot_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "SLOT_TIMEOUT_S", 0.05)
    archive = FullArchive(tries=1 << 40, can_free=False)
    with pytest.raises(NoRoomToRecord, match="max_recordings"):
        retry_for_slot(archive.attempt, archive.free_slots)
