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
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.stream_client import staging
from aeron_spark.stream_client.staging import MAX_INLINE_BYTES, PART_BYTES, InlineRoom
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.stream_client.writer import _Phase as TransactionPhase
from aeron_spark.wire.stream_requests import CommitTransaction, FinishStage, InlinePart, Request
from tests.stream_requests import create_request
from tests.unit.stream_client.faults import Done, Fault, Outage
from tests.unit.stream_client.histories import run_histories
from tests.unit.stream_client.joined import Copy, World

TIMEOUT_S = 4.0
HISTORIES = 125  # of each of two parts: 250 in all
FULL_HISTORIES = 2_500  # of each of four: 10,000
# Bytes of a commit request for rows: for all of them, for one or two of each part, and for none.
ROOM_BYTES = [MAX_INLINE_BYTES, PART_BYTES + 60, 0]
SMALL = 60  # bytes of rows that a writer keeps in memory: it cannot stage a larger transaction again

# The least number of these events in a thousand histories: with fewer, the test shows little. Hypothesis also draws
# from the constants of imported modules, so that a part has other histories in another process. These numbers are
# half of the fewest seen.
MIN_COUNTS: dict[str, int] = {
    "commit() failed": 150,
    "commit() repeated after the server had committed": 6,
    "commit() repeated after the server had not committed": 15,
    "abort() after a commit was sent": 40,
    "abort() refused because it is committed": 6,
    "commit() failed before it was sent": 6,
    "another writer fenced one in doubt": 6,
    "a new writer got the token of the last transaction": 24,
    "commit() sent the rows in its request": 50,
    "commit() sent the rows in its request and failed": 24,
}
faults = st.lists(st.sampled_from([Fault.NONE, Fault.NONE, *Fault]), max_size=6)
downtimes = st.sampled_from([0.5, 3.0, 120.0])


@dataclass
class Rows:
    """One transaction, as its program knows it: its rows, each with the partition that the program chose, if any."""

    rows: list[tuple[bytes, int | None]] = field(default_factory=list)
    number: int | None = None

    @property
    def token(self) -> str:
        """The position of the program after these rows; "" without rows."""
        return f"after row {self.rows[-1][0].decode()}" if self.rows else ""

    def check(self, stream: list[list[bytes]], *, committed: bool) -> None:
        """Check that each row is in the stream once, in order, with no other row between; or that none is there."""
        found = [[value for value in values if value in {row for row, _ in self.rows}] for values in stream]
        if not committed:
            assert found == [[], []], f"rows of a transaction that is not committed are in the stream: {found}"
            return
        unassigned = [row for row, partition in self.rows if partition is None]
        partitions_of_unassigned = [at for at, values in enumerate(stream) if unassigned and unassigned[0] in values]
        assert len(partitions_of_unassigned) == (1 if unassigned else 0), (
            f"rows {unassigned} are in the partitions {partitions_of_unassigned}"
        )
        for at, values in enumerate(found):
            assert values == [
                row for row, to in self.rows if to == at or (to is None and at in partitions_of_unassigned)
            ]
            if values:
                begin = stream[at].index(values[0])
                assert stream[at][begin : begin + len(values)] == values

    def is_in(self, stream: list[list[bytes]]) -> bool:
        """Whether any of its rows is in the stream."""
        return any(row in values for row, _ in self.rows for values in stream)


class WritingProgram(RuleBasedStateMachine):
    """A program that writes transactions, and checks the guarantees of its writer."""

    below: Path  # the folders of the stores are below it
    counts: ClassVar[Counter[str]]  # of what happened in all histories

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        numbers = itertools.count()  # of writers and runs: the same in each repetition of a history
        self.patched.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
        self.world = World(Path(tempfile.mkdtemp(dir=self.below)), self.patched)
        assert self.world.server is not None
        self.world.server.store.create(create_request("s", 2, segment_bytes=1 << 16))
        self.session = self.world.stream_session()
        self.value_count = 0
        self.committed: list[Rows] = []  # by the responses of commit()
        self.absent: list[Rows] = []  # aborted, refused, or never committed
        self.unknown: list[Rows] = []  # commit() failed, and the program continued without the outcome
        self.current = Rows()
        self.in_doubt = False
        self.has_id = True
        self.memory_bytes = 1 << 20
        self.writer: StreamWriter | None = None
        self.copies: list[tuple[Copy, list[Rows]]] = []  # each with the transactions that were committed then
        self.lost: list[Rows] = []  # committed, and missing in a copy that was restored later
        # committed by the present writer, without those whose loss it has accepted
        self.acknowledged: list[Rows] = []
        self.numbers: list[int] = []  # of all transactions that the present writer has committed

    @initialize(
        has_id=st.booleans(), memory_bytes=st.sampled_from([1 << 20, SMALL]), room_bytes=st.sampled_from(ROOM_BYTES)
    )  # fmt: skip
    def begin(self, has_id: bool, memory_bytes: int, room_bytes: int) -> None:
        self.has_id, self.memory_bytes = has_id, memory_bytes
        self.patched.setattr(staging, "InlineRoom", lambda: InlineRoom(room_bytes))
        self.open()

    def open(self) -> None:
        """Open a writer, as a program does at its start."""
        self.acknowledged, self.numbers = [], []
        try:
            self.writer = StreamWriter(
                self.session, "s", writer_id="w" if self.has_id else None, payload="raw", timeout=TIMEOUT_S,
                memory_bytes=self.memory_bytes,
            )  # fmt: skip
        except AeronSparkError:
            self.writer = None

    @rule(planned=faults, downtime_s=downtimes)
    def plan(self, planned: list[Fault], downtime_s: float) -> None:
        self.world.downtime_s = downtime_s
        self.world.faults.extend(planned)

    @rule(
        partitions=st.lists(st.sampled_from([None, None, 0, 1]), min_size=1, max_size=2), rows=st.integers(1, 3),
        as_dicts=st.booleans(),
    )  # fmt: skip
    def write(self, partitions: list[int | None], rows: int, as_dicts: bool) -> None:
        for partition in partitions:
            self.write_once(partition, rows, as_dicts)

    def write_once(self, partition: int | None, rows: int, as_dicts: bool = False) -> None:
        """Write rows; those that are ``as_dicts`` wait in the writer until its next commit, or until other rows."""
        if self.writer is None:
            return
        values = [b"%06d" % n for n in range(self.value_count, self.value_count + rows)]
        self.value_count += rows
        added = [(value, partition) for value in values]
        try:
            self.writer.write([{"value": value} for value in values] if as_dicts else values, partition=partition)
        except AeronSparkError:
            self.absent.append(Rows(added))
        else:
            assert not self.in_doubt, "rows were added to a transaction that may be committed"
            self.current.rows += added

    @rule(
        rows=st.integers(1, 3), at_write=faults, at_commit=faults, downtime_s=downtimes,
        then=st.lists(st.sampled_from(["commit", "abort", "write", "wait", "restart"]), min_size=1, max_size=4),
        as_dicts=st.booleans(),
    )  # fmt: skip
    def transaction(
        self, rows: int, at_write: list[Fault], at_commit: list[Fault], downtime_s: float, then: list[str],
        as_dicts: bool,
    ) -> None:  # fmt: skip
        """A transaction with failures, and the actions of a program after them."""
        self.world.downtime_s = downtime_s
        self.plan_faults(at_write)
        self.write_once(None, rows, as_dicts)
        self.plan_faults(at_commit)
        self.commit()
        for action in then:
            if action == "write":
                self.write_once(None, 1)
            elif action == "wait":
                self.world.sleep(downtime_s)
            else:
                getattr(self, action)()

    def plan_faults(self, planned: list[Fault]) -> None:
        """Let the next requests fail in this way, and no later ones."""
        self.world.faults.clear()
        self.world.faults.extend(planned)

    @rule()
    def commit(self) -> None:
        if self.writer is None:
            return
        doubt, stream, sent = self.in_doubt, self.world.committed(), len(self.world.sent_requests)
        done = stream is not None and self.current.is_in(stream)
        try:
            number = self.writer.commit("" if doubt else self.current.token)
        except AeronSparkError:
            self.counts["commit() failed"] += bool(self.current.rows)
            self.counts["commit() sent the rows in its request and failed"] += self.has_sent_rows(sent)
            if self.writer._open is None or self.writer._open.phase is TransactionPhase.OPEN:
                self.counts["commit() failed before it was sent"] += 1
            else:
                self.in_doubt = True
            return
        self.counts["commit() sent the rows in its request"] += self.has_sent_rows(sent)
        if doubt and stream is not None:
            self.counts[f"commit() repeated after the server had {'' if done else 'not '}committed"] += 1
        if not self.current.rows:
            assert number == -1
            return
        missing = [one.number for one in self.acknowledged if any(one is lost for lost in self.lost)]
        assert not missing, f"transaction {number} was committed, and the writer got no error for the lost {missing}"
        self.note_commit(number)

    def has_sent_rows(self, since: int) -> bool:
        """Whether a request after the first ``since`` ones committed rows that it carried itself."""
        return any(
            isinstance(request, CommitTransaction) and any(isinstance(part, InlinePart) for part in request.parts)
            for request, _, _ in self.world.sent_requests[since:]
        )

    def note_commit(self, number: int) -> None:
        assert self.writer is not None
        assert (self.writer.last, self.writer.last_token) == (number, self.current.token)
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
        self.counts["abort() after a commit was sent"] += self.in_doubt
        try:
            self.writer.abort()
        except RefusedError:
            if self.writer.last != before:
                self.counts["abort() refused because it is committed"] += 1
                self.note_commit(self.writer.last)
            return
        except AeronSparkError:
            return
        self.absent.append(self.current)
        self.current, self.in_doubt = Rows(), False

    @rule()
    def restart(self) -> None:
        """The program ends and starts again, with another writer of the same id."""
        if self.writer is not None:
            self.writer.close()
            (self.unknown if self.in_doubt else self.absent).append(self.current)
        self.current, self.in_doubt = Rows(), False
        self.open()
        self.settle_unknown()
        self.check_last_token()

    def settle_unknown(self) -> None:
        """Note the outcome of transactions in doubt: it is final after another writer has fenced their writer."""
        stream = self.world.committed()
        if self.writer is None or not self.has_id or stream is None:
            return
        for one in self.unknown:
            self.counts["another writer fenced one in doubt"] += 1
            (self.committed if one.is_in(stream) else self.absent).append(one)
        self.unknown = []

    def check_last_token(self) -> None:
        """A program that starts again learns after which row it must continue."""
        stream = self.world.committed()
        if self.writer is None or not self.has_id or stream is None:
            return
        in_doubt = [self.current] if self.in_doubt else []  # committed, too, if its rows are in the stream
        there = [one for one in (*self.committed, *in_doubt) if one.is_in(stream)]
        newest = max(there, key=lambda one: one.rows[-1][0], default=Rows())
        assert self.writer.last_token == newest.token
        self.counts["a new writer got the token of the last transaction"] += bool(newest.token)

    @rule(
        rows=st.integers(1, 3), request=st.sampled_from([CommitTransaction, FinishStage]), done=st.sampled_from(Done),
        then=st.lists(st.sampled_from(["commit", "abort", "restart", "wait"]), min_size=1, max_size=3),
    )  # fmt: skip
    def outage(self, rows: int, request: type[Request[Any]], done: Done, then: list[str]) -> None:
        """An outage begins in a commit and is longer than the writer waits; then the program continues."""
        self.begin_outage(rows, request, done)
        for action in then:
            if action == "wait":
                self.world.sleep(200.0)
            else:
                getattr(self, action)()

    @rule(then=st.sampled_from(["commit", "abort", "restart"]), done=st.sampled_from(Done))
    def outage_without_other_faults(self, then: str, done: Done) -> None:
        """The same without other faults, so that the program's next step meets the state after the outage."""
        self.world.end_faults()
        self.begin_outage(1, CommitTransaction, done)
        getattr(self, then)()

    def begin_outage(self, rows: int, request: type[Request[Any]], done: Done) -> None:
        self.world.downtime_s = 120.0
        self.plan_faults([])
        self.write_once(None, rows)
        self.world.outage = Outage(request, done)
        self.commit()
        self.world.outage = None
        self.world.sleep(self.world.downtime_s)

    @rule()
    def tick(self) -> None:
        """Let the store expire stages and rewrite journals."""
        if self.world.server is not None:
            self.world.server.store.tick()

    @rule()
    def copy(self) -> None:
        if self.world.server is None or len(self.copies) == 2:
            return
        self.copies.append((self.world.copy(), list(self.committed)))

    @rule(which=st.integers(0, 1), downtime_s=downtimes)
    def restore(self, which: int, downtime_s: float) -> None:
        """An operator replaces the server's store and archive by an older copy."""
        if not self.copies:
            return
        copied, committed = self.copies[which % len(self.copies)]
        self.world.downtime_s = downtime_s
        self.world.restore(copied)
        self.world.end_faults()
        stream = self.world.committed()
        assert stream is not None
        known = [*self.committed, *self.lost]
        there = [one for one in known if one.is_in(stream)]
        assert all(any(one is other for other in there) for one in committed)
        self.committed, self.lost = there, [one for one in known if not one.is_in(stream)]

    @rule(
        before=st.integers(0, 1), lost=st.integers(1, 2), opened=st.booleans(), at_next=faults, downtime_s=downtimes,
        then=st.lists(st.sampled_from(["commit", "write", "accept_loss", "abort"]), min_size=1, max_size=5),
    )  # fmt: skip
    def lose_transactions(
        self, before: int, lost: int, opened: bool, at_next: list[Fault], downtime_s: float, then: list[str]
    ) -> None:
        """Transactions are committed, an older copy is restored, and the program continues, perhaps with open rows."""
        self.world.end_faults()
        self.commit_some(before)
        self.copies = [*self.copies[:1], (self.world.copy(), list(self.committed))]
        self.commit_some(lost)
        if opened:
            self.write_once(None, 1)
        self.restore(len(self.copies) - 1, downtime_s)
        self.plan_faults(at_next)
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
        self.check_last_token()
        self.acknowledged = [one for one in self.acknowledged if not any(one is lost for lost in self.lost)]

    @rule(downtime_s=downtimes)
    def kill_server(self, downtime_s: float) -> None:
        self.world.downtime_s = downtime_s
        self.world.kill()

    @rule(seconds=st.sampled_from([0.5, 5.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.world.sleep(seconds)

    @rule()
    def commit_without_faults(self) -> None:
        """While the server runs, commit() ends the doubt; it may refuse rows that it has lost, and always will."""
        if self.in_doubt:
            self.world.end_faults()
            self.commit()

    @invariant()
    def responses_are_true(self) -> None:
        stream = self.world.committed()
        if stream is None:
            return
        for values in stream:
            assert len(values) == len(set(values)), "a row is in the stream twice"
        for one in self.committed:
            one.check(stream, committed=True)
        for one in self.lost:
            one.check(stream, committed=False)
        for one in self.absent:
            one.check(stream, committed=False)
        for one in self.unknown:
            one.check(stream, committed=one.is_in(stream))
        self.current.check(stream, committed=self.in_doubt and self.current.is_in(stream))

    def teardown(self) -> None:
        try:
            self.world.end_faults()
            self.responses_are_true()
            self.commit_again()
        finally:
            self.world.close()
            self.patched.undo()

    def commit_or_be_fenced(self) -> None:
        """While the server runs, a writer that keeps its rows can commit, unless another writer has fenced it."""
        assert self.writer is not None
        try:
            self.writer.commit()
        except RefusedError as error:
            if "is fenced" not in error.what and "not by this writer" not in error.what:
                raise
        else:
            self.committed += [self.current] if self.current.rows else []
            self.current, self.in_doubt = Rows(), False

    def commit_again(self) -> None:
        """A writer that keeps all its rows can commit again, unless a request of a writer before it came later."""
        if self.writer is None or self.memory_bytes == SMALL:
            return
        if self.in_doubt and not self.lost:
            self.commit_or_be_fenced()
        try:
            self.writer.accept_loss()
        except RefusedError as error:
            if "is fenced" in error.what:
                return
            raise
        self.accept_loss()
        self.write_once(None, 1)
        assert self.writer.commit() >= 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_the_result_of_commit_stays_true_after_every_failure(part: int, tmp_path: Path) -> None:
    run_histories(WritingProgram, part, HISTORIES, tmp_path, MIN_COUNTS)


@pytest.mark.full("10,000 histories take two minutes; `make test` runs 250 of the same kind")
@pytest.mark.parametrize("part", range(100, 104))
def test_the_result_of_commit_stays_true_after_every_failure_in_many_histories(part: int, tmp_path: Path) -> None:
    run_histories(WritingProgram, part, FULL_HISTORIES, tmp_path, MIN_COUNTS)
