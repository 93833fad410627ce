"""The response of commit() stays true, in every order of failures, timeouts, restarts and repetitions.

An older copy of the server's store may replace it and lack transactions. A writer that saw them acknowledged is then
refused before it commits another one, until it accepts the loss.
"""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.wire.stream_rpc import CommitTransaction, FinishStage, Request
from tests.unit.stream_client.joined import Copy, Done, Fault, Outage, World

TIMEOUT = 4.0
HISTORIES = 125  # of each of four parts: 500 in all
FULL_HISTORIES = 2_500  # as well: 10,000
SMALL = 60  # bytes of rows that a writer keeps: a larger transaction cannot be staged again

# What a run meets at least, in a thousand histories: else it shows little of what it is about.
LEAST: dict[str, int] = {
    "commit() failed": 300,
    "commit() again after the server had done it": 6,
    "commit() again after the server had not": 40,
    "abort() after a commit was sent": 80,
    "abort() refused, as it is committed": 6,
    "another writer took over one in doubt": 6,
}
faults = st.lists(st.sampled_from([Fault.NONE, Fault.NONE, *Fault]), max_size=6)
away = st.sampled_from([0.5, 3.0, 120.0])


@dataclass
class Rows:
    """What a program knows of one transaction: its rows, each with the partition it was to go to, where it said one."""

    rows: list[tuple[bytes, int | None]] = field(default_factory=list)
    number: int | None = None

    def check(self, stream: list[list[bytes]], *, there: bool) -> None:
        """Each row is in the stream once, in order and in one piece of a partition; or none is there."""
        found = [[value for value in values if value in {row for row, _ in self.rows}] for values in stream]
        if not there:
            assert found == [[], []], f"rows of a transaction that is not committed are in the stream: {found}"
            return
        of_its_own = [row for row, partition in self.rows if partition is None]
        homes = [at for at, values in enumerate(stream) if of_its_own and of_its_own[0] in values]
        assert len(homes) == (1 if of_its_own else 0), f"rows {of_its_own} are in the partitions {homes}"
        for at, values in enumerate(found):
            assert values == [row for row, to in self.rows if to == at or (to is None and at in homes)]
            if values:
                begin = stream[at].index(values[0])
                assert stream[at][begin : begin + len(values)] == values

    def anywhere(self, stream: list[list[bytes]]) -> bool:
        """Whether any of its rows is there."""
        return any(row in values for row, _ in self.rows for values in stream)


class Writing(RuleBasedStateMachine):
    """A program that writes transactions, and what it may rely on."""

    below: Path  # where the folders of the stores are
    met: ClassVar[Counter[str]]  # how often what happened

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        numbers = itertools.count()  # of writers and runs: the same in each repetition of a history
        self.patched.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
        self.world = World(Path(tempfile.mkdtemp(dir=self.below)), self.patched)
        assert self.world.server is not None
        self.world.server.store.create("s", 2, term_bytes=1 << 16)
        self.session = self.world.stream_session()
        self.values = 0
        self.committed: list[Rows] = []  # as commit() said
        self.never: list[Rows] = []  # aborted, refused, or never committed
        self.perhaps: list[Rows] = []  # commit() failed, and the program went on without the answer
        self.current = Rows()
        self.in_doubt = False
        self.named = True
        self.kept = 1 << 20
        self.writer: StreamWriter | None = None
        self.copies: list[tuple[Copy, list[Rows]]] = []  # each with what was committed then
        self.lost: list[Rows] = []  # committed, and missing in a copy that was restored since
        self.acknowledged: list[
            Rows
        ] = []  # committed by the present writer, as far as it has not accepted a loss since
        self.numbers: list[int] = []  # of all that the present writer has committed

    @initialize(named=st.booleans(), kept=st.sampled_from([1 << 20, SMALL]))
    def begin(self, named: bool, kept: int) -> None:
        self.named, self.kept = named, kept
        self.open()

    def open(self) -> None:
        """Make a writer, as a program does that begins."""
        self.acknowledged, self.numbers = [], []
        try:
            self.writer = StreamWriter(
                self.session, "s", writer_id="w" if self.named else None, payload="raw", timeout=TIMEOUT,
                memory_bytes=self.kept,
            )  # fmt: skip
        except AeronSparkError:
            self.writer = None

    @rule(planned=faults, away=away)
    def plan(self, planned: list[Fault], away: float) -> None:
        self.world.downtime_s = away
        self.world.faults.extend(planned)

    @rule(partitions=st.lists(st.sampled_from([None, None, 0, 1]), min_size=1, max_size=2), rows=st.integers(1, 3))
    def write(self, partitions: list[int | None], rows: int) -> None:
        for partition in partitions:
            self.write_once(partition, rows)

    def write_once(self, partition: int | None, rows: int) -> None:
        if self.writer is None:
            return
        values = [b"%06d" % n for n in range(self.values, self.values + rows)]
        self.values += rows
        added = [(value, partition) for value in values]
        try:
            self.writer.write(values, partition=partition)
        except AeronSparkError:
            self.never.append(Rows(added))
        else:
            assert not self.in_doubt, "rows were added to a transaction that may be committed"
            self.current.rows += added

    @rule(
        rows=st.integers(1, 3), at_write=faults, at_commit=faults, away=away,
        then=st.lists(st.sampled_from(["commit", "abort", "write", "wait", "begin_again"]), min_size=1, max_size=4),
    )  # fmt: skip
    def transaction(
        self, rows: int, at_write: list[Fault], at_commit: list[Fault], away: float, then: list[str]
    ) -> None:
        """A transaction with failures in it, and what a program may do after them."""
        self.world.downtime_s = away
        self.expect(at_write)
        self.write_once(None, rows)
        self.expect(at_commit)
        self.commit()
        for action in then:
            if action == "write":
                self.write_once(None, 1)
            elif action == "wait":
                self.world.sleep(away)
            else:
                getattr(self, action)()

    def expect(self, planned: list[Fault]) -> None:
        """Have the next requests fail so, and none after them."""
        self.world.faults.clear()
        self.world.faults.extend(planned)

    @rule()
    def commit(self) -> None:
        if self.writer is None:
            return
        doubt, stream = self.in_doubt, self.world.committed()
        done = stream is not None and self.current.anywhere(stream)
        try:
            number = self.writer.commit()
        except AeronSparkError:
            self.met["commit() failed"] += bool(self.current.rows)
            self.in_doubt = True
            return
        if doubt and stream is not None:
            self.met[f"commit() again after the server had {'done it' if done else 'not'}"] += 1
        if not self.current.rows:
            assert number == -1
            return
        missing = [one.number for one in self.acknowledged if any(one is lost for lost in self.lost)]
        assert not missing, f"transaction {number} was committed, and the writer did not hear that {missing} are lost"
        self.is_committed(number)

    def is_committed(self, number: int) -> None:
        assert self.writer is not None
        assert self.writer.last == number
        assert all(number > one for one in self.numbers), "a number was used twice"
        self.numbers.append(number)
        self.acknowledged.append(self.current)
        self.current.number = number
        self.committed.append(self.current)
        self.current, self.in_doubt = Rows(), False

    @rule()
    def abort(self) -> None:
        if self.writer is None:
            return
        before = self.writer.last
        self.met["abort() after a commit was sent"] += self.in_doubt
        try:
            self.writer.abort()
        except RefusedError:
            if self.writer.last != before:
                self.met["abort() refused, as it is committed"] += 1
                self.is_committed(self.writer.last)
            return
        except AeronSparkError:
            return
        self.never.append(self.current)
        self.current, self.in_doubt = Rows(), False

    @rule()
    def begin_again(self) -> None:
        """The program ends and begins again, with another writer of the same id."""
        if self.writer is not None:
            self.writer.close()
            (self.perhaps if self.in_doubt else self.never).append(self.current)
        self.current, self.in_doubt = Rows(), False
        self.open()
        self.end_doubts()

    def end_doubts(self) -> None:
        """After another writer has taken over, what became of the transactions before it does not change any more."""
        stream = self.world.committed()
        if self.writer is None or not self.named or stream is None:
            return
        for one in self.perhaps:
            self.met["another writer took over one in doubt"] += 1
            (self.committed if one.anywhere(stream) else self.never).append(one)
        self.perhaps = []

    @rule(
        rows=st.integers(1, 3), request=st.sampled_from([CommitTransaction, FinishStage]), done=st.sampled_from(Done),
        then=st.lists(st.sampled_from(["commit", "abort", "begin_again", "wait"]), min_size=1, max_size=3),
    )  # fmt: skip
    def outage(self, rows: int, request: type[Request[Any]], done: Done, then: list[str]) -> None:
        """An outage begins in a commit and is longer than the writer waits; then the program goes on."""
        self.begin_outage(rows, request, done)
        for action in then:
            if action == "wait":
                self.world.sleep(200.0)
            else:
                getattr(self, action)()

    @rule(then=st.sampled_from(["commit", "abort", "begin_again"]), done=st.sampled_from(Done))
    def outage_of_a_calm_server(self, then: str, done: Done) -> None:
        """The same where nothing else fails, so that the program's next step meets what the outage left."""
        self.world.end_faults()
        self.begin_outage(1, CommitTransaction, done)
        getattr(self, then)()

    def begin_outage(self, rows: int, request: type[Request[Any]], done: Done) -> None:
        self.world.downtime_s = 120.0
        self.expect([])
        self.write_once(None, rows)
        self.world.outage = Outage(request, done)
        self.commit()
        self.world.outage = None
        self.world.sleep(self.world.downtime_s)

    @rule()
    def tick(self) -> None:
        """What time brings to a server: stages expire, journals are rewritten."""
        if self.world.server is not None:
            self.world.server.store.tick()

    @rule()
    def copy(self) -> None:
        if self.world.server is None or len(self.copies) == 2:
            return
        self.copies.append((self.world.copy(), list(self.committed)))

    @rule(which=st.integers(0, 1), away=away)
    def restore(self, which: int, away: float) -> None:
        """An operator puts an older copy in the place of the server's store and archive."""
        if not self.copies:
            return
        copied, committed = self.copies[which % len(self.copies)]
        self.world.downtime_s = away
        self.world.restore(copied)
        self.world.end_faults()
        stream = self.world.committed()
        assert stream is not None
        known = [*self.committed, *self.lost]
        there = [one for one in known if one.anywhere(stream)]
        assert all(any(one is other for other in there) for one in committed)
        self.committed, self.lost = there, [one for one in known if not one.anywhere(stream)]

    @rule(
        before=st.integers(0, 1), lost=st.integers(1, 2), opened=st.booleans(), at_next=faults, away=away,
        then=st.lists(st.sampled_from(["commit", "write", "accept_loss", "abort"]), min_size=1, max_size=5),
    )  # fmt: skip
    def lose_transactions(
        self, before: int, lost: int, opened: bool, at_next: list[Fault], away: float, then: list[str]
    ) -> None:
        """Transactions are committed, an older copy is restored, and the program goes on, perhaps with open rows."""
        self.world.end_faults()
        self.commit_some(before)
        self.copies = [*self.copies[:1], (self.world.copy(), list(self.committed))]
        self.commit_some(lost)
        if opened:
            self.write_once(None, 1)
        self.restore(len(self.copies) - 1, away)
        self.expect(at_next)
        for action in then:
            if action == "write":
                self.write_once(None, 1)
            else:
                getattr(self, action)()

    def commit_some(self, transactions: int) -> None:
        for _ in range(transactions):
            self.write_once(None, 1)
            self.commit()

    @rule()
    def accept_loss(self) -> None:
        if self.writer is None:
            return
        try:
            last = self.writer.accept_loss()
        except AeronSparkError:
            return
        assert self.writer.last == last
        self.acknowledged = [one for one in self.acknowledged if not any(one is lost for lost in self.lost)]

    @rule(away=away)
    def kill_server(self, away: float) -> None:
        self.world.downtime_s = away
        self.world.kill()

    @rule(seconds=st.sampled_from([0.5, 5.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.world.sleep(seconds)

    @rule()
    def calm_and_commit(self) -> None:
        """With a server that is there, commit() ends the doubt; it may refuse for good what it has lost."""
        if self.in_doubt:
            self.world.end_faults()
            self.commit()

    @invariant()
    def what_was_said_is_true(self) -> None:
        stream = self.world.committed()
        if stream is None:
            return
        for values in stream:
            assert len(values) == len(set(values)), "a row is in the stream twice"
        for one in self.committed:
            one.check(stream, there=True)
        for one in self.lost:
            one.check(stream, there=False)
        for one in self.never:
            one.check(stream, there=False)
        for one in self.perhaps:
            one.check(stream, there=one.anywhere(stream))
        self.current.check(stream, there=self.in_doubt and self.current.anywhere(stream))

    def teardown(self) -> None:
        try:
            self.world.end_faults()
            self.what_was_said_is_true()
            self.go_on()
        finally:
            self.world.close()
            self.patched.undo()

    def commit_or_hear_why(self) -> None:
        """With a server that is there, a writer that keeps its rows is not stuck: only a takeover ends it."""
        assert self.writer is not None
        try:
            self.writer.commit()
        except RefusedError as error:
            if "is fenced" not in error.what and "not by this writer" not in error.what:
                raise
        else:
            self.current, self.in_doubt = Rows(), False

    def go_on(self) -> None:
        """A writer that keeps all its rows can commit again, unless a request of a writer before it came later."""
        if self.writer is None or self.kept == SMALL:
            return
        if self.in_doubt and not self.lost:
            self.commit_or_hear_why()
        try:
            self.writer.accept_loss()
        except RefusedError as error:
            if "is fenced" in error.what:
                return
            raise
        self.accept_loss()
        self.write_once(None, 1)
        assert self.writer.commit() >= 0


def run(part: int, histories: int, folder: Path) -> None:
    given = settings(
        max_examples=histories, stateful_step_count=8, deadline=None, database=None, derandomize=False,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    met: Counter[str] = Counter()
    machine = seed(part)(type(f"Writing{part}", (Writing,), {"below": folder, "met": met}))
    run_state_machine_as_test(machine, settings=given)
    few = {what: met[what] for what, least in LEAST.items() if met[what] < least * histories // 1_000}
    assert not few, f"{histories} histories met this too seldom: {few}"


@pytest.mark.parametrize("part", range(4))
def test_the_result_of_commit_stays_true_after_every_failure(part: int, tmp_path: Path) -> None:
    run(part, HISTORIES, tmp_path)


@pytest.mark.full("10,000 histories take two minutes; `make test` runs 500 of the same kind")
@pytest.mark.parametrize("part", range(100, 104))
def test_the_result_of_commit_stays_true_after_every_failure_in_many_histories(part: int, tmp_path: Path) -> None:
    run(part, FULL_HISTORIES, tmp_path)
