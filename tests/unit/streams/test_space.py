"""A reader sees exactly the transactions from the earliest one on, whatever fails, ends or is purged.

The store, its ledger and its journal are the product's own; the archive is in memory, and can kill the server between
any two of its operations. Time is virtual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_spark.errors import OptionError, StillWorking, TransportError, UsageError
from aeron_spark.server import backups as backups_module
from aeron_spark.server.backups import Backups
from aeron_spark.streams import store as store_module
from aeron_spark.streams.definition import Definition, deleted_stream, rename_files
from aeron_spark.streams.model import StreamCut
from aeron_spark.streams.retention import AgeClock
from aeron_spark.streams.space import EMPTY_S
from aeron_spark.streams.time_index import SECOND_NS
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_requests import PurgedPartition
from tests.ending import LONG_TIMEOUT_S
from tests.stream_requests import create_request
from tests.unit.streams.simulated_store import PARTITIONS, SEGMENT, Killed, Site


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def test_a_deleted_stream_whose_files_stay_for_a_minute_is_reported_once(site: Site) -> None:
    site.commit({0: [100]})
    hold = site.store.holds.hold("backup", 600)
    site.store.delete("s")
    with pytest.raises(OptionError):
        site.store.get("s")
    site.pass_time(60)
    assert site.problems.pending == []
    site.pass_time(60)
    assert site.problems.pending == [("s", "its files are in use for a backup")]
    hold.release()
    site.archive.fails = {"delete"}
    for _ in range(70):
        site.clock.now += 1
        assert len(site.store.tick()) == 1
    assert len(site.problems.pending) == 1
    site.archive.fails = set()
    site.tick()
    assert (site.archive.kept, sorted(path.name for path in site.folder.iterdir())) == ({}, ["lock"])


def test_a_stream_is_unreadable_at_its_deletion_although_a_commit_goes_on(site: Site) -> None:
    site.commit({0: [100] * 3})
    stream = site.stream
    wait = stream.when_beyond([1 << 40] * PARTITIONS)
    with stream._lock_writing():  # a commit goes on
        stream.refuse_calls(deleted_stream("s"))
        with pytest.raises(UsageError, match="stream 's' was deleted"):
            stream.states()
        with pytest.raises(UsageError, match="stream 's' was deleted"):
            wait.result(0)
    stream.close()
    stream.close()
    with pytest.raises(UsageError, match="stream 's' was deleted"):
        stream.last_committed("w")


@pytest.fixture
def backups(site: Site) -> Backups:
    """The backups of a server with the store of ``site``."""
    events: Any = SimpleNamespace(report=lambda name, **fields: None)
    return Backups(lambda: site.store, lambda: {"archive_dir": "/archive"}, events)


def test_a_backup_that_begins_during_a_rename_has_the_renamed_stream(
    site: Site, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is closed while its files are renamed; the backup waits until it is open again."""
    site.commit({0: [100]})
    with ThreadPoolExecutor(1) as pool:
        begun: list[Future[list[Any]]] = []

        def rename_during_the_begin(folder: Path, definition: Definition) -> None:
            backup = pool.submit(lambda: list(backups.begin({"directory": "/backup"})))
            begun.append(backup)
            wait_for(lambda: site.store.holds.holder or backup.done(), LONG_TIMEOUT_S, "the begin of the backup")
            rename_files(folder, definition)

        monkeypatch.setattr(store_module, "rename_files", rename_during_the_begin)
        site.store.rename("s", "renamed")
        _, cut = begun[0].result(LONG_TIMEOUT_S)
    assert StreamCut.from_json(cut) == site.store.get("renamed").cut()


def test_a_backup_waits_for_a_deletion_and_does_not_have_the_stream(
    site: Site, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.store.create(create_request("other", 1))
    with ThreadPoolExecutor(1) as pool, site.stream._lock_writing():  # the deletion waits for this commit
        stream = site.stream
        deleted = pool.submit(site.store.delete, "s")
        wait_for(lambda: stream._closed is not None, LONG_TIMEOUT_S, "the begin of the deletion")
        with monkeypatch.context() as patch:
            patch.setattr(backups_module, "CHANGE_TIMEOUT_S", 0.0)
            with pytest.raises(StillWorking, match="waited 0 s for the change of a stream"):
                list(backups.begin({"directory": "/backup"}))
    deleted.result(LONG_TIMEOUT_S)
    _, cut = backups.begin({"directory": "/backup"})
    assert StreamCut.from_json(cut).definition.name == "other"


def test_a_renamed_stream_deletes_the_recordings_that_it_has_left_before(site: Site) -> None:
    site.commit({0: [100], 1: [100]})
    hold = site.store.holds.hold("backup", 600)
    site.stream.purge(before_position=1 << 40)
    assert len(site.archive.kept) == 2 * PARTITIONS, "the backup holds the recordings that the partitions have left"
    hold.release()
    site.store.rename("s", "renamed")
    site.tick()
    assert sorted(site.archive.kept) == [state.recording.recording_id for state in site.store.get("renamed").states()]


def test_a_purge_waits_for_a_commit_as_long_as_its_caller_wants(site: Site) -> None:
    with site.stream._lock_writing(), pytest.raises(StillWorking, match="waited 0 s for another commit") as error:
        site.stream.purge(before_position=1, seconds=0.0)
    assert error.value.remedy == "Repeat the request."


DAY_S = 86_400.0


@pytest.mark.parametrize("ahead_s", [2 * DAY_S, 120.0], ids=["2 days", "2 minutes"])
def test_a_clock_that_goes_ahead_and_back_deletes_nothing(ahead_s: float) -> None:
    retention_s = ahead_s / 2
    site = Site(retention_s=retention_s)
    try:
        site.commit({0: [100]})
        site.pass_time(retention_s / 4, retention_s / 8)
        site.clock.wall_ahead_s = ahead_s
        for _ in range(3):
            site.clock.now += 1
            (error,) = site.store.tick()
            assert f"went {ahead_s / 60:.0f} minutes ahead in one step" in str(error)
            assert len(site.readable(0)) == 1
        site.commit({0: [100]})
        site.clock.wall_ahead_s = 0.0
        site.pass_time(retention_s / 4, retention_s / 8)
        assert len(site.readable(0)) == 2
        site.pass_time(retention_s, retention_s / 8)  # the age of the first row counts without the step
        assert len(site.readable(0)) == 1
    finally:
        site.close()


def test_a_clock_that_stays_ahead_delays_retention_by_its_step(site: Site) -> None:
    ages, ahead_s = AgeClock(site.clock, site.clock.wall_ns), 30 * DAY_S
    before_ns = ages.now_ns()
    site.clock.wall_ahead_s = 59.0
    assert (ages.now_ns() - before_ns, ages.ahead_s) == (59 * SECOND_NS, 0.0)  # NTP may correct so much
    site.clock.wall_ahead_s = ahead_s
    site.clock.now += 1_000.0
    assert (ages.now_ns() - before_ns) / SECOND_NS == pytest.approx(1_059.0)
    assert ages.ahead_s == pytest.approx(ahead_s - 59.0)
    site.clock.wall_ahead_s = -500.0  # a step back counts
    assert ages.now_ns() - before_ns == 500 * SECOND_NS
    site.clock.wall_ahead_s = -499.0
    assert (ages.now_ns() - before_ns, ages.ahead_s) == (501 * SECOND_NS, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("each_hour", "values"), [(1, 16), (4, 1)], ids=["a segment an hour", "a part of a segment"])
def test_a_slow_stream_holds_at_most_one_segment_a_partition_too_much(each_hour: int, values: int) -> None:
    """1 MB an hour with 7 days, in small: 64 KiB an hour, with segments that are shorter in the same proportion."""
    week = 7 * 86_400.0
    site = Site(retention_s=week)
    try:
        for _ in range(8 * 24 * each_hour):
            site.commit({partition: [4_000] * values for partition in range(PARTITIONS)})
            site.pass_time(3_600 / each_hour, step=900)
            late_ns = site.clock.wall_ns() - int((week * 1.002 + 2) * SECOND_NS)
            for partition, state in enumerate(site.stream.states()):
                readable = [row for row in site.rows[partition] if row.begin >= state.start]
                assert readable[0].time_ns >= late_ns
                assert site.rows[partition][-1] is readable[-1]
                assert site.disk_bytes(partition) < state.end - state.start + 2 * SEGMENT  # the first and the last one
        assert site.stream.states()[0].start > 0
        site.clock.now += week
        site.pass_time(1_300, step=600)
        assert [state.end - state.start for state in site.stream.states()] == [0] * PARTITIONS
        assert site.disk_bytes() == 0, "a silent stream holds nothing"
        starts = {kept.described.start_position for kept in site.archive.kept.values()}
        assert starts == {state.end for state in site.stream.states()}
    finally:
        site.close()


class Spaces(RuleBasedStateMachine):
    """Commits, purges, leases, holds, housekeeping, restarts and kills."""

    counts: ClassVar[Counter[str]] = Counter()

    @initialize(
        retention_bytes=st.sampled_from([0, 1, 3_000, 3 * SEGMENT]),
        retention_s=st.sampled_from([0.0, 5.0, 100.0, 4_000.0]),
    )
    def create(self, retention_bytes: int, retention_s: float) -> None:
        self.site = Site(retention_bytes, retention_s)
        self.fingerprints = [state.recording.identity for state in self.site.stream.states()]
        self.starts = [0] * PARTITIONS
        self.purged = [0] * PARTITIONS  # no request and no retention allowed starts beyond these
        self.leases: dict[str, tuple[list[int], float]] = {}  # by reader: positions, and the end
        self.hold: Any = None

    def teardown(self) -> None:
        if hasattr(self, "site"):
            self.site.close()

    # What may happen

    @rule(
        sizes=st.lists(st.lists(st.integers(0, 8_000), max_size=5), min_size=PARTITIONS, max_size=PARTITIONS).filter(
            any
        )
    )
    def commit(self, sizes: list[list[int]]) -> None:
        self.site.clock.now += 0.001
        self.site.commit({partition: one for partition, one in enumerate(sizes) if one})

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0, 31.0, 120.0, 3_700.0]))
    def wait(self, seconds: float) -> None:
        self.site.clock.now += seconds

    @rule()
    def keep_house(self) -> None:
        self.expect_retention()
        self.site.tick()
        self.check_retention()

    @rule(partition=st.sampled_from([None, 0, 1]), part=st.floats(0, 1.2))
    def purge(self, partition: int | None, part: float) -> None:
        self.site.clock.now += 0.001
        ends = [state.end for state in self.site.stream.states()]
        position = int(part * max(ends))
        self.expect_purge(partition, position)
        before = self.site.held_bytes()
        report = self.site.stream.purge(partition=partition, before_position=position)
        self.check_report(report, before)
        for one in report:
            if not self.live_leases():
                wanted = [row.begin for row in self.site.rows[one.number] if row.end > position]
                assert one.start >= max([*wanted[:1], self.starts[one.number]] if wanted else [ends[one.number]])

    @rule(back=st.sampled_from([0.0, 1.0, 100.0]))
    def purge_by_time(self, back: float) -> None:
        before_ns = self.site.clock.wall_ns() - int(back * SECOND_NS)
        for partition, rows in enumerate(self.site.rows):
            kept = [row.begin for row in rows if row.time_ns >= before_ns]
            self.expect_purge(partition, kept[0] if kept else 1 << 60)
        before = self.site.held_bytes()
        self.check_report(self.site.stream.purge(before_time_ns=before_ns), before)

    @rule(reader=st.sampled_from(["desk-7", "desk-8"]), parts=st.tuples(st.floats(0, 1), st.floats(0, 1)))
    def lease(self, reader: str, parts: tuple[float, float]) -> None:
        states = self.site.stream.states()
        positions = [
            int(state.start + part * (state.end - state.start)) for state, part in zip(states, parts, strict=True)
        ]
        self.site.stream.lease(reader, dict(enumerate(positions)), 60.0)
        self.leases[reader] = positions, self.site.clock.now + 60.0

    @rule(reader=st.sampled_from(["desk-7", "desk-8"]))
    def end_lease(self, reader: str) -> None:
        self.site.stream.lease(reader, {}, 0)
        self.leases.pop(reader, None)

    @rule(seconds=st.sampled_from([10.0, 3_600.0]))
    def hold_deletions(self, seconds: float) -> None:
        self.hold = self.site.store.holds.hold("backup", seconds)

    @rule()
    def release(self) -> None:
        if self.hold is not None:
            self.hold.release()

    @rule()
    def restart(self) -> None:
        self.site.kill()
        self.reopen()

    @rule(
        steps=st.integers(0, 25), doing=st.sampled_from(["commit", "keep house", "purge"]), size=st.integers(0, 8_000)
    )
    def kill_during(self, steps: int, doing: str, size: int) -> None:
        self.site.archive.deadly = steps
        try:
            if doing == "commit":
                self.site.commit({0: [size], 1: [size] * 3})
            elif doing == "keep house":
                self.expect_retention()
                self.site.store.tick()
            else:
                for partition in range(PARTITIONS):
                    self.expect_purge(partition, 1 << 60)
                self.site.stream.purge(before_position=1 << 60)
        except Killed:
            self.counts[f"killed during {doing}"] += 1
        self.site.kill()
        self.reopen()

    @rule(method=st.sampled_from(["opened", "delete", "purge_segments"]))
    def fail_once(self, method: str) -> None:
        """Do the housekeeping while the archive refuses an operation; the next one does what it left."""
        self.expect_retention()
        self.site.archive.fails = {method}
        for error in self.site.store.tick():
            assert isinstance(error, TransportError)
            self.counts[f"{method} failed"] += 1
        self.site.archive.fails = set()

    def reopen(self) -> None:
        self.leases.clear()
        self.hold = None
        self.site.open()
        self.counts["restarts"] += 1

    # What is allowed

    def live_leases(self) -> list[list[int]]:
        return [positions for positions, end in self.leases.values() if end > self.site.clock.now]

    def expect_purge(self, partition: int | None, position: int) -> None:
        for index in range(PARTITIONS):
            if partition in (None, index):
                self.purged[index] = max(self.purged[index], min(position, self.site.stream.states()[index].end))

    def retained(self, partition: int, now_ns: int) -> int:
        """Return the exact start by the retention, computed from all transactions."""
        rows, site = self.site.rows[partition], self.site
        end = rows[-1].end if rows else 0
        start = 0
        if site.retention_bytes and end > site.retention_bytes:
            start = next((row.begin for row in rows if row.begin >= end - site.retention_bytes), rows[-1].begin)
        if site.retention_s:
            oldest = now_ns - int(site.retention_s * SECOND_NS)
            start = max(start, next((row.begin for row in rows if row.time_ns >= oldest), end))
        return start

    def expect_retention(self) -> None:
        now_ns = self.site.clock.wall_ns()
        self.purged = [max(self.purged[one], self.retained(one, now_ns)) for one in range(PARTITIONS)]

    def check_retention(self) -> None:
        """After the housekeeping, rows beyond the retention are unreadable, and files follow."""
        site = self.site
        late_ns = site.clock.wall_ns() - int((site.retention_s * 0.002 + 1) * SECOND_NS)
        for partition, state in enumerate(site.stream.states()):
            if not self.live_leases():
                assert state.start >= self.retained(partition, late_ns) or site.retention_bytes
                excess = state.end - state.start - site.retention_bytes * 1.002
                rows = site.rows[partition]
                first = next((row for row in rows if row.begin == state.start), None)
                if site.retention_bytes and first is not None and first is not rows[-1]:
                    assert excess < first.end - first.begin
            if not site.store.holds.holder:
                assert site.disk_bytes(partition) <= state.end - state.start + 2 * SEGMENT
        if not site.store.holds.holder:
            assigned = {state.recording.recording_id for state in site.stream.states()}
            assert set(site.archive.kept) == assigned, "a recording remains that no partition has"

    def check_report(self, report: list[PurgedPartition], before: list[int]) -> None:
        """The numbers of a purge are those of the disk."""
        for one in report:
            state = self.site.stream.states()[one.number]
            assert (one.before, one.start) == (self.starts[one.number], state.start)
            for held in one.held:
                assert held.bytes > 0
                self.counts[f"held by {held.why}"] += 1
                if held.why == "hold":
                    assert (held.holder, self.site.store.holds.holder) == ("backup", "backup")
                if held.why == "lease":
                    assert held.reader in self.leases
        for one, now in zip(report, [self.site.held_bytes()[one.number] for one in report], strict=True):
            assert before[one.number] - now == one.freed_bytes
            unreadable = now - (self.site.stream.states()[one.number].end - one.start)
            assert unreadable == sum(held.bytes for held in one.held if held.why != "lease")

    # What always holds

    @invariant()
    def a_reader_sees_exactly_the_transactions_from_the_earliest_one_on(self) -> None:
        if not hasattr(self, "site"):
            return
        for partition, state in enumerate(self.site.stream.states()):
            rows = self.site.rows[partition]
            begins = [row.begin for row in rows]
            assert state.start in begins or state.start == state.end, "the start is no transaction's"
            assert state.start >= self.starts[partition], "the start has moved back"
            assert state.recording.identity == self.fingerprints[partition], "the partition has another identity"
            expected = [value for row in rows if row.begin >= state.start for value in row.values]
            assert self.site.readable(partition) == expected
            assert state.start <= self.purged[partition], "rows are unreadable that nothing allowed to delete"
            self.starts[partition] = state.start

    @precondition(lambda self: hasattr(self, "site") and not self.site.store.holds.holder)
    @rule()
    def a_partition_without_rows_needs_no_space(self) -> None:
        self.expect_retention()
        self.site.tick()
        self.site.clock.now += EMPTY_S
        self.expect_retention()
        self.site.tick()
        for partition, state in enumerate(self.site.stream.states()):
            if state.start == state.end and not self.site.store.holds.holder:
                before = self.site.disk_bytes(partition)
                self.site.clock.now += EMPTY_S
                self.expect_retention()
                self.site.tick()
                assert self.site.disk_bytes(partition) == 0 or self.site.store.holds.holder
                self.counts["empty"] += before > 0


@pytest.mark.slow
class TestSpaces(Spaces.TestCase):
    """Many short histories."""

    settings = settings(
        max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


@pytest.mark.full("2,000 long histories take ten minutes; `make test` runs 40 of the same kind")
class TestManySpaces(Spaces.TestCase):
    """Many long histories."""

    settings = settings(
        max_examples=2_000, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
