"""Answers from the archive's files are those of the archive at a moment of the call, or there is no answer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_spark.aeron import counters
from aeron_spark.direct import archive_recordings
from aeron_spark.direct.archive_recordings import ATTEMPTS, CannotAnswerError, FileRecordings
from tests.unit.direct.simulated_archive import SimulatedArchive, Truth

STREAM = 1001
Operations = list[tuple[str, int]]
History = tuple[Operations, Operations, list[int], list[int]]  # before and during the call; steps and cuts at its reads
OPERATIONS = ("start", "record", "stop", "extend", "purge", "delete", "grow", "shift")


def finish(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def answer(archive: SimulatedArchive) -> Truth:
    found = FileRecordings(archive.address, sleep=lambda _: None).of_stream(STREAM)
    return {one.recording.id: (one.recording.start_position, one.end, one.active) for one in found}


@pytest.fixture
def archive(tmp_path: Path) -> SimulatedArchive:
    """A live archive without recordings."""
    return SimulatedArchive(tmp_path)


def test_a_recording_has_the_end_of_its_counter_and_then_that_of_the_catalog(archive: SimulatedArchive) -> None:
    assert answer(archive) == {}
    finish(archive.start(STREAM, 96))
    finish(archive.start(STREAM + 1, 0))
    finish(archive.record(0, 640))
    assert answer(archive) == {0: (96, 736, True)}
    finish(archive.stop(0))
    assert answer(archive) == {0: (96, 736, False)}
    finish(archive.extend(0))
    finish(archive.record(0, 64))
    assert answer(archive) == {0: (96, 800, True)}
    finish(archive.purge(0))
    assert answer(archive) == {0: (448, 800, True)}
    finish(archive.stop(0))
    finish(archive.delete(0))
    assert answer(archive) == {}
    assert FileRecordings(archive.address).find(0) is None
    found = FileRecordings(archive.address).find(1)
    assert (found.recording.stream_id, found.end) == (STREAM + 1, 0)


@pytest.mark.parametrize(
    ("beat", "reason"),
    [
        ({"driver_age": 10.1}, "no heartbeat"),
        ({"archive_age": 10.1}, "no heartbeat"),
        ({"archive_pid": os.getpid() + 1}, "the driver of process"),
    ],
)
def test_an_archive_that_may_have_ended_gives_no_answer(
    archive: SimulatedArchive, beat: dict[str, Any], reason: str
) -> None:
    """Regression guard: the files of a dead archive look like those of a live one."""
    finish(archive.start(STREAM, 0))
    archive.beat(**beat)
    with pytest.raises(CannotAnswerError, match=reason):
        answer(archive)
    archive.beat()
    assert answer(archive) == {0: (0, 0, True)}


def test_the_process_of_a_killed_archive_gives_no_answer_although_its_heartbeat_is_new(
    archive: SimulatedArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_recordings, "is_running", lambda pid: False)
    with pytest.raises(CannotAnswerError, match="has ended"):
        answer(archive)


@pytest.mark.parametrize("name", ["archive.catalog", "archive-mark.dat", "driver/cnc.dat"])
def test_a_missing_file_gives_no_answer(archive: SimulatedArchive, tmp_path: Path, name: str) -> None:
    finish(archive.start(STREAM, 0))
    (tmp_path / name).unlink()
    with pytest.raises(CannotAnswerError):
        answer(archive)


@pytest.mark.parametrize("length", [0, 31, 32 + 40])
def test_a_catalog_that_is_cut_off_gives_no_answer(archive: SimulatedArchive, tmp_path: Path, length: int) -> None:
    finish(archive.start(STREAM, 0))
    os.truncate(tmp_path / "archive.catalog", length)
    with pytest.raises(CannotAnswerError):
        answer(archive)


def test_another_archive_on_the_driver_does_not_give_the_position(archive: SimulatedArchive, tmp_path: Path) -> None:
    finish(archive.start(STREAM, 0))
    path = tmp_path / "driver" / "cnc.dat"
    path.write_bytes(path.read_bytes().replace((4711).to_bytes(8, "little"), (4712).to_bytes(8, "little")))
    with pytest.raises(CannotAnswerError, match="no position of recording 0"):
        answer(archive)


def test_a_recording_without_its_counter_is_tried_again(archive: SimulatedArchive) -> None:
    steps = archive.start(STREAM, 96)
    for _ in range(3):  # the entry is complete, and the counter is not allocated
        next(steps)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        next(steps, None)

    (found,) = FileRecordings(archive.address, sleep).of_stream(STREAM)
    assert (found.end, len(pauses)) == (96, 2)  # the counter gets its value after its allocation


def test_a_recording_that_never_gets_its_counter_gives_no_answer(archive: SimulatedArchive) -> None:
    steps = archive.start(STREAM, 0)
    for _ in range(3):
        next(steps)
    pauses: list[float] = []
    with pytest.raises(CannotAnswerError, match=f"no position of recording 0, {ATTEMPTS} times"):
        FileRecordings(archive.address, pauses.append).of_stream(STREAM)
    assert len(pauses) == ATTEMPTS - 1


class Interleaving:
    """Runs steps of the archive between the reads of one call, and keeps each truth since its start."""

    def __init__(self, archive: SimulatedArchive, steps: Iterator[None], schedule: list[int], cuts: list[int]) -> None:
        self._archive = archive
        self._steps = steps
        self._schedule = iter(schedule)
        self._cuts = iter(cuts)
        self.truths = [archive.truth]

    def run(self) -> None:
        for _ in range(next(self._schedule, 0)):
            next(self._steps, None)
            self.truths.append(self._archive.truth)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs steps before and after ``function``."""

        def call(*arguments: Any) -> Any:
            self.run()
            found = function(*arguments)
            self.run()
            return found

        return call

    def inside(self, read: Callable[..., bytes]) -> Callable[..., bytes]:
        """Return a function that reads a file in two parts, and runs steps between them."""

        def call(*arguments: Any) -> bytes:
            self.run()
            cut, before = next(self._cuts, 0), read(*arguments)
            self.run()
            return before[:cut] + read(*arguments)[cut:]

        return call


@st.composite
def histories(draw: st.DrawFn) -> History:
    operation = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3))
    before = [("start", 0), ("record", 0), *draw(st.lists(operation, max_size=8))]
    during, schedule = st.lists(operation, min_size=1, max_size=6), st.lists(st.integers(0, 4), max_size=30)
    cuts = st.lists(st.integers(0, 300).map(lambda number: 4 * number), max_size=ATTEMPTS * 2)
    return before, draw(during), draw(schedule), draw(cuts)


def apply(archive: SimulatedArchive, operations: Operations) -> Iterator[None]:
    for name, number in operations:
        if name == "start":
            if len(archive.truth) < 4:
                yield from archive.start(STREAM, 32 * number)
        elif name == "grow":
            yield from archive.grow()
        elif archive.truth:
            chosen = sorted(archive.truth)[number % len(archive.truth)]
            arguments = (64,) if name == "record" else ()
            yield from getattr(archive, name)(chosen, *arguments)


def check_history(before: Operations, during: Operations, schedule: list[int], cuts: list[int]) -> bool:
    """Return whether the call gave an answer, which must be right."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        archive = SimulatedArchive(Path(folder))
        finish(apply(archive, before))
        assert answer(archive) == archive.truth
        interleaving = Interleaving(archive, apply(archive, during), schedule, cuts)
        patch.setattr(FileRecordings, "_read", interleaving.inside(FileRecordings._read))
        patch.setattr(counters, "_value", interleaving.around(counters._value))
        patch.setattr(counters, "_recording_counter", interleaving.around(counters._recording_counter))
        try:
            found = answer(archive)
        except CannotAnswerError:
            return False
        truths = interleaving.truths
        for recording_id in {key for truth in truths for key in truth} | found.keys():
            assert found.get(recording_id) in [truth.get(recording_id) for truth in truths], (found, truths)
        return True


@settings(max_examples=40, deadline=None)
@given(histories())
def test_an_answer_is_right_at_a_moment_of_the_call(history: History) -> None:
    check_history(*history)


@pytest.mark.full("1,000 histories")
@settings(max_examples=1_000, deadline=None)
@given(histories())
def test_an_answer_is_right_at_a_moment_of_the_call_in_many_histories(history: History) -> None:
    check_history(*history)


@pytest.mark.parametrize("recordings", [2, 3])
@pytest.mark.parametrize("step", range(1, 12))
def test_a_catalog_in_which_entries_are_moving_gives_no_wrong_answer(step: int, recordings: int) -> None:
    """Regression: between two steps of a move the entries seem to end before those that moved."""
    check_history([("start", 0), ("record", 0)] + [("start", 0)] * (recordings - 1), [("shift", 0)], [step], [])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_change_during_the_call_does_not_prevent_the_answer(operation: str) -> None:
    """The second attempt reads files that do not change any more."""
    before = [("start", 0), ("record", 0), ("start", 1)] + ([("stop", 0)] if operation in ("extend", "delete") else [])
    assert check_history(before, [(operation, 0)], [0, 1, 2, 4, 4, 4], [100])


@pytest.mark.parametrize("operation", ["stop", "extend", "purge", "delete", "shift"])
def test_a_catalog_that_changes_inside_a_read_gives_no_wrong_answer(operation: str) -> None:
    """The first part of the bytes is from before the change, at each length, and the rest from after it."""
    before = [("start", 0), ("record", 0), ("start", 1)] + ([("stop", 0)] if operation in ("extend", "delete") else [])
    for cut in range(64, 160, 4):  # the first entry's numbers are there
        assert check_history(before, [(operation, 0)], [0, 9], [cut])
