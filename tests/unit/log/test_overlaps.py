"""Each row of recordings that overlap is given once, whatever made the overlap, and whenever it appears."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.log.overlaps import Overlaps, Wanted, each_once
from tests.unit.log.publications import Archives, Publication, Query, Recording, batch_rows, planner_of


def two_subscriptions(log: Archives) -> list[str]:
    """Record a publication twice from its begin, by ``aeron:ipc`` and by ``aeron:ipc?session-id=X``."""
    one = log.publication()
    log.record(one)
    log.record(one)
    return publish(one, "m0 m1 m2")


def two_finished_recordings(log: Archives) -> list[str]:
    rows = two_subscriptions(log)
    stop(log)
    return rows


def extension_under_a_standing_request(log: Archives) -> list[str]:
    """A publisher comes back and extends its recording, while a standing request records the publisher."""
    one = log.publication()
    first = log.record(one)
    rows = publish(one, "m0 m1")
    one.close()
    again = log.publication(first)
    log.record(again)
    return rows + publish(again, "m2 m3")


def two_extensions_under_a_standing_request(log: Archives) -> list[str]:
    """The catalog has the last session of the first recording only."""
    rows = extension_under_a_standing_request(log)
    stop(log)
    again = log.publication(log.recordings["embedded/0"])
    log.record(again)
    return rows + publish(again, "m4 m5")


def one_in_another(log: Archives) -> list[str]:
    one = log.publication()
    log.record(one)
    rows = publish(one, "m0")
    inner = log.record(one)
    rows += publish(one, "m1 m2")
    one.recordings.remove(inner)
    inner.active = False
    return rows + publish(one, "m3")


def chain_of_three(log: Archives) -> list[str]:
    """Each recording begins in the one before and goes beyond it."""
    one = log.publication()
    rows = []
    for number in range(3):
        log.record(one)
        rows += publish(one, f"a{number} b{number}")
        if number:
            one.recordings.pop(0).active = False
            rows += publish(one, f"c{number}")
    return rows


def start_inside_a_message(log: Archives) -> list[str]:
    one = log.publication()
    log.record(one)
    rows = publish(one, "m0")
    one.send(0x80, "m1")
    log.record(one)
    one.send(0x40, "m1")
    return [*rows, "m1", *publish(one, "m2 m3")]


def end_inside_a_message(log: Archives) -> list[str]:
    """The first recording has stopped inside a message, which the second one has."""
    one = log.publication()
    first = log.record(one)
    log.record(one)
    rows = publish(one, "m0")
    one.send(0x80, "m1")
    one.recordings.remove(first)
    first.active = False
    one.send(0x40, "m1")
    return [*rows, "m1", *publish(one, "m2")]


def two_archives(log: Archives) -> list[str]:
    one = log.publication()
    log.record(one, "embedded/7")
    rows = publish(one, "m0")
    log.record(one, "other/3")
    return rows + publish(one, "m1 m2")


def other_publications_at_the_same_positions(log: Archives) -> list[str]:
    """Programs that choose the initial term id, and one that chooses the session id, too: no row is another one's."""
    rows = []
    for number, session_id in enumerate((5, 5, 6)):
        one = Publication(session_id, 0, clock=log.clock)
        log.record(one)
        rows += publish(one, "same same" if number != 1 else "p q")
        one.close()
    return rows


STATES = [
    two_subscriptions, two_finished_recordings, extension_under_a_standing_request,
    two_extensions_under_a_standing_request, one_in_another, chain_of_three, start_inside_a_message,
    end_inside_a_message, two_archives, other_publications_at_the_same_positions,
]  # fmt: skip


def publish(publication: Publication, rows: str) -> list[str]:
    for row in rows.split():
        publication.publish(row)
    return rows.split()


def stop(log: Archives) -> None:
    for one in log.recordings.values():
        one.active = False


@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("limits", [{}, {"maxBytesPerTrigger": "64"}, {"maxRowsPerTrigger": "1"}])
def test_a_streaming_query_gives_each_row_once(make: Callable[[Archives], list[str]], limits: dict[str, str]) -> None:
    log = Archives()
    rows = make(log)
    query = Query(log, **limits)
    assert sorted(query.batch()) == sorted(rows)
    assert query.batch() == []
    query.restart()
    assert query.batch() == []
    assert query.planner.lag().total_bytes == 0


@pytest.mark.parametrize("make", STATES)
def test_a_batch_query_gives_each_row_once(make: Callable[[Archives], list[str]]) -> None:
    log = Archives()
    rows = make(log)
    assert sorted(batch_rows(log)) == sorted(rows)


@pytest.mark.parametrize("make", STATES)
def test_without_readable_files_the_messages_decide(make: Callable[[Archives], list[str]]) -> None:
    """Regression: Aeron session ids decided, and rows came twice after two extensions."""
    log = Archives(remote=True)
    rows = make(log)
    assert sorted(batch_rows(log)) == sorted(rows) == sorted(Query(log).batch())


@pytest.mark.parametrize("remote", [False, True])
def test_recordings_that_were_extended_by_two_publications_are_refused(remote: bool) -> None:
    log = Archives(remote=remote)
    one = log.publication()
    first, second = log.record(one), log.record(one)
    publish(one, "m0")
    one.close()
    publish(log.publication(first), "m1")
    publish(log.publication(second), "n1")
    with pytest.raises(DataFormatError, match=r"recordings embedded/[01] and embedded/[01] have the same messages"):
        Query(log).batch()
    with pytest.raises(DataFormatError, match="each was extended by another publication"):
        batch_rows(log)


def test_a_query_continues_when_one_of_two_recordings_ends() -> None:
    log = Archives()
    rows = two_subscriptions(log)
    query = Query(log)
    assert query.batch() == rows
    one = log.publication()
    one.recordings = list(log.recordings.values())
    one.position, one.initial_term_id = 3 * 64, one.recordings[0].initial_term_id
    one.session_id = one.recordings[0].session_id
    for key in ("embedded/0", "embedded/1"):
        publish(one, f"x{key}")
        assert query.batch() == [f"x{key}"]
        ended = log.recordings[key]
        if key == "embedded/0":
            one.recordings.remove(ended)
            ended.active = False
    log.recordings.pop("embedded/0")  # read to its end
    publish(one, "last")
    assert query.batch() == ["last"]


def test_what_one_recording_has_may_be_purged_from_the_other() -> None:
    log = Archives()
    rows = two_subscriptions(log)
    query = Query(log, maxRowsPerTrigger="1")
    end = query.plan()
    assert end is not None
    query.commit(end, query.run(end))
    log.recordings["embedded/0"].purged = 128
    query.batch()
    assert sorted(query.rows) == rows


def test_a_checkpoint_of_the_first_recording_alone_skips_the_second_one() -> None:
    log = Archives()
    one = log.publication()
    log.record(one)
    rows = publish(one, "m0 m1 m2")
    query = Query(log)
    query.batch()
    second = log.record(one)
    second.start, second.data = 64, log.recordings["embedded/0"].data[64:]
    rows += publish(one, "m3")
    query.restart()
    query.batch()
    assert query.rows == rows


def test_the_first_positions_of_a_query_are_those_that_want_more() -> None:
    log = Archives()
    one = log.publication()
    log.record(one)
    publish(one, "m0 m1")
    log.record(one)
    publish(one, "m2 m3")
    offsets = '{"embedded/0": 64, "embedded/1": 192}'
    assert sorted(Query(log, startingOffsets=offsets).batch()) == ["m1", "m2", "m3"]
    assert sorted(batch_rows(log, startingOffsets=offsets)) == ["m1", "m2", "m3"]


def test_a_query_from_now_on_gives_each_new_row_once() -> None:
    log = Archives()
    one = log.publication()
    log.record(one)
    publish(one, "m0 m1")
    log.record(one)
    publish(one, "m2")
    query = Query(log, startingOffsets="latest")
    publish(one, "m3 m4")
    assert query.batch() == ["m3", "m4"]


def test_available_now_ends_with_each_row_once() -> None:
    log = Archives()
    one = log.publication()
    log.record(one)
    rows = publish(one, "m0 m1")
    query = Query(log)
    query.planner.prepare_available_now()
    log.record(one)
    publish(one, "m2")
    assert query.batch() == rows


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3)),
        st.tuples(st.just("record"), st.integers(0, 1)),
        st.tuples(st.just("stop"), st.integers(0, 5)),
        st.tuples(st.just("extend"), st.integers(0, 5)),
        st.tuples(st.just("plan"), st.just(0)),
        st.tuples(st.just("run"), st.booleans()),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


class World:
    """A publisher with recordings that start, stop and are extended, and a query that reads meanwhile."""

    def __init__(self, limits: dict[str, str], *, remote: bool) -> None:
        self.log = Archives(remote=remote)
        self.publisher = self.log.publication()
        self.log.record(self.publisher)
        self.query = Query(self.log, **limits)
        self.recorded: list[str] = []
        self.planned: tuple[object, list[str]] | None = None
        self.number = 0

    def do(self, step: str, value: int) -> None:
        getattr(self, f"_{step}")(value)

    def _publish(self, frames: int) -> None:
        row = f"m{self.number}"
        self.number += 1
        if self.publisher.recordings:
            self.recorded.append(row)
        self.publisher.publish(row, frames)

    def _record(self, archive: int) -> None:
        self.log.record(self.publisher, f"other/{len(self.log.recordings)}" if archive else "")

    def _stop(self, number: int) -> None:
        if number < len(self.publisher.recordings):
            self.publisher.recordings.pop(number).active = False

    def _extend(self, number: int) -> None:
        """Start the publisher again; it extends a recording that ends where the publication does."""
        at = self.publisher.position
        found = [one for one in self.log.recordings.values() if one.end == at > one.start]
        if number < len(found):
            self.publisher.close()
            extended: Recording = found[number]
            self.publisher = self.log.publication(extended)

    def _plan(self, _: int) -> None:
        end = None if self.planned else self.query.plan()
        self.planned = None if end is None and not self.planned else self.planned or (end, self.query.run(end))

    def _run(self, fails_first: bool) -> None:
        self._plan(0)
        if self.planned is None:
            return
        end, rows = self.planned
        if fails_first:
            self.query.restart()
        assert self.query.run(end) == rows
        self.query.commit(end, rows)
        self.planned = None

    def _restart(self, _: int) -> None:
        self.query.restart()


@settings(max_examples=25, deadline=None)
@given(STEPS, st.sampled_from([{}, {"maxBytesPerTrigger": "128"}, {"maxRowsPerTrigger": "2"}]), st.booleans())
def test_each_recorded_row_is_given_once_whatever_happens_between_batches(
    steps: list[tuple[str, int]], limits: dict[str, str], remote: bool
) -> None:
    world = World(limits, remote=remote)
    for step, value in steps:
        world.do(step, value)
    world.do("run", False)
    world.query.batch()
    assert sorted(world.query.rows) == sorted(world.recorded)
    assert sorted(batch_rows(world.log)) == sorted(world.recorded)
    assert planner_of(world.log).states()


def test_recordings_of_different_publications_are_not_compared_with_each_other() -> None:
    """Regression: a batch of 1,000 recordings compared half a million pairs."""
    states = [RecordingState(f"embedded/{number}", "", 0, 64, False, 65_536, number) for number in range(100)]
    overlaps = CountingOverlaps(states, cast("Log", object()), lambda *_: [])
    whole = [Wanted(Range(one.key, "", 0, 64, 64, 65_536), one) for one in states]
    assert each_once(whole, overlaps) == [one.range for one in whole]
    assert overlaps.compared == 0


class CountingOverlaps(Overlaps):
    """Counts the pairs that it compares."""

    compared = 0

    def have_same_log(self, one: RecordingState, other: RecordingState) -> bool:
        self.compared += 1
        return super().have_same_log(one, other)
