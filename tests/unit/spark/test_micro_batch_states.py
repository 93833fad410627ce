"""A query's micro-batches are in the stream once, completely and in order, after every order of failures.

The program is Spark's driver with its tasks: it repeats tasks, runs some of them twice, commits, aborts after an error,
and starts again with the micro-batch that its checkpoint names. Requests of earlier attempts and runs arrive late. The
server is killed, or replaced by an older copy. Then a query whose checkpoint is newer is refused.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.spark.writer import WrittenRows
from aeron_spark.wire.stream_requests import CommitTransaction, OpenStage, Request
from tests.stream_requests import create_request
from tests.unit.spark.query_runs import Run, batches
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.histories import run_histories
from tests.unit.stream_client.joined import World

TASKS = (0, 1)
ATTEMPTS = 2  # of a task; then the query fails
HISTORIES = 50  # of each of two parts
FULL_HISTORIES = 2_500

# The least number of these events in a thousand histories: with fewer, the test shows little. Hypothesis makes other
# histories when other modules are loaded; these are at most a third of the least numbers that were seen.
MIN_COUNTS: dict[str, int] = {
    "one request staged a task": 200,
    "a task was repeated": 60,
    "a commit failed": 20,
    "a commit found its micro-batch committed": 20,
    "a late request arrived": 60,
    "an earlier run tried to commit": 20,
    "a restored server refused a newer checkpoint": 100,
}
faults = st.lists(st.sampled_from([Fault.NONE, Fault.NONE, *Fault]), max_size=6)
downtimes = st.sampled_from([0.5, 3.0, 120.0])


class Query(RuleBasedStateMachine):
    """A query whose micro-batch ``next_batch`` is the first one that its checkpoint does not have as committed."""

    below: Path  # the folders of the stores are below it
    counts: ClassVar[Counter[str]]  # of what happened in all histories

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        self.world = World(Path(tempfile.mkdtemp(dir=self.below)), self.patched)
        self.world.server.store.create(create_request("s", 2, segment_bytes=1 << 16))
        self.limit = self.world.server.store.get("s").definition.max_message_bytes
        self.next_batch = 0
        self.runs = 0
        self.earlier: list[tuple[Run, list[WrittenRows]]] = []  # micro-batches of earlier runs

    @initialize(knows_limit=st.booleans())
    def start(self, knows_limit: bool = True) -> None:
        """Start the query, perhaps in processes that have written to the stream before."""
        self.runs += 1
        self.run = Run(self.world, self.patched, f"run-{self.runs}")
        if knows_limit:
            self.run.session.message_limits["s"] = self.limit

    @rule(
        at_tasks=faults, at_commit=faults, downtime_s=downtimes, runs_twice=st.booleans(), is_noted=st.booleans(),
    )  # fmt: skip
    def micro_batch(
        self, at_tasks: list[Fault], at_commit: list[Fault], downtime_s: float, runs_twice: bool, is_noted: bool
    ) -> None:
        """Run a micro-batch. Unless ``is_noted``, Spark dies before its checkpoint has it as committed."""
        self.world.downtime_s = downtime_s
        self.plan_faults(at_tasks)
        messages: list[WrittenRows] = []
        try:
            for task in TASKS:
                if runs_twice:
                    with suppress(AeronSparkError):
                        self.run.run_task(self.next_batch, task)
                messages.append(self.attempt(task))
            self.plan_faults(at_commit)
            self.commit(messages)
        except AeronSparkError:
            self.plan_faults([])
            self.run.writer.abort(self.run.transaction(self.next_batch), self.run.writer.servers[0])
            self.remember(messages)
            self.start()
            return
        if is_noted:
            self.next_batch += 1
        else:
            self.remember(messages)
            self.start()

    def remember(self, messages: list[WrittenRows]) -> None:
        """Keep a micro-batch, if all its tasks were staged, for a later commit of this run."""
        if len(messages) == len(TASKS):
            self.earlier = [*self.earlier[-2:], (self.run, messages)]

    def plan_faults(self, planned: list[Fault]) -> None:
        """Let the next requests fail in this way, and no later ones."""
        self.world.faults.clear()
        self.world.faults.extend(planned)

    def attempt(self, task: int) -> WrittenRows:
        """Run a task, and again after an error, as Spark does."""
        for _ in range(ATTEMPTS - 1):
            with suppress(AeronSparkError):
                return self.run_task(task)
            self.counts["a task was repeated"] += 1
        return self.run_task(task)

    def run_task(self, task: int) -> WrittenRows:
        sent = len(self.world.sent_requests)
        written = self.run.run_task(self.next_batch, task)
        self.counts["one request staged a task"] += bool(written.parts) and self.has_sent_rows(sent)
        return written

    def has_sent_rows(self, since: int) -> bool:
        """Whether a request after the first ``since`` ones carried the rows of a task."""
        return any(isinstance(one, OpenStage) and one.items for one, _, _ in self.world.sent_requests[since:])

    def commit(self, messages: list[WrittenRows]) -> None:
        before = self.committed()
        try:
            self.run.commit(messages)
        except AeronSparkError:
            self.counts["a commit failed"] += 1
            raise
        self.counts["a commit found its micro-batch committed"] += before == self.next_batch + 1
        assert self.committed() in (None, self.next_batch + 1), "commit() returned without the micro-batch"

    @precondition(lambda self: self.world.sent_requests and self.world.server is not None)
    @rule(which=st.integers(0, 30), is_commit=st.booleans())
    def arrive_late(self, which: int, is_commit: bool) -> None:
        """A request of any attempt and run arrives again."""

        def is_chosen(request: Request[Any]) -> bool:
            if is_commit:
                return isinstance(request, CommitTransaction)
            return isinstance(request, OpenStage) and bool(request.items)  # one over a bulk link opens no stage later

        sent = [one for one, _, _ in self.world.sent_requests if is_chosen(one)]
        if not sent:
            return
        self.world.end_faults()
        self.counts["a late request arrived"] += 1
        with suppress(AeronSparkError):
            self.run.session.call(sent[-1 - which % len(sent)])

    @precondition(lambda self: self.earlier)
    @rule(which=st.integers(0, 2))
    def commit_of_an_earlier_run(self, which: int) -> None:
        """A driver that was taken for dead commits its micro-batch."""
        self.world.end_faults()
        run, messages = self.earlier[which % len(self.earlier)]
        self.counts["an earlier run tried to commit"] += 1
        with suppress(AeronSparkError):
            run.commit(messages)

    @precondition(lambda self: self.world.server is not None)
    @rule(newer=st.integers(0, 2), staged=st.booleans())
    def restore(self, newer: int, staged: bool) -> None:
        """Replace the store by a copy from before ``newer`` micro-batches, perhaps between tasks and their commit.

        A newer checkpoint is refused; then its copy of the same time is restored.
        """
        self.world.end_faults()
        copied, next_batch = self.world.copy(), self.next_batch
        self.start()
        for _ in range(newer):
            self.run.write(self.next_batch)
            self.next_batch += 1
        messages = [self.run.run_task(self.next_batch, task) for task in TASKS] if staged else []
        self.world.restore(copied)
        self.world.end_faults()
        last = self.committed()
        assert last is not None
        assert last in (next_batch, next_batch + 1)
        if last < self.next_batch:
            self.refuse(messages)
        self.next_batch = next_batch
        self.start()

    def refuse(self, messages: list[WrittenRows]) -> None:
        """Check that the server refuses a micro-batch that does not follow its last one."""
        before = self.committed()
        with pytest.raises(RefusedError):
            self.run.commit(messages or [self.run.run_task(self.next_batch, task) for task in TASKS])
        assert self.committed() == before
        self.counts["a restored server refused a newer checkpoint"] += 1

    @rule(downtime_s=downtimes)
    def kill_server(self, downtime_s: float) -> None:
        self.world.downtime_s = downtime_s
        self.world.kill()

    @rule()
    def tick(self) -> None:
        """Let the store expire stages and rewrite journals."""
        if self.world.server is not None:
            self.world.server.store.tick()

    def committed(self) -> int | None:
        """Return the number of micro-batches in the stream, after checking its rows; None without a server."""
        stream = self.world.committed()
        if stream is None:
            return None
        number = len(stream[0])
        assert stream == batches(*range(number)), "a micro-batch is there in part, twice, or in another order"
        return number

    @invariant()
    def micro_batches_are_complete(self) -> None:
        number = self.committed()
        assert number in (None, self.next_batch, self.next_batch + 1)

    def teardown(self) -> None:
        """While the server runs without faults, the query goes on."""
        try:
            self.world.end_faults()
            self.world.kill()  # a journal that could not be written takes records again after a restart
            self.world.end_faults()
            self.start()
            for _ in range(2):
                self.run.write(self.next_batch)
                self.next_batch += 1
            assert self.committed() == self.next_batch
        finally:
            self.world.close()
            self.patched.undo()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_each_micro_batch_is_written_once_after_every_failure(part: int, tmp_path: Path) -> None:
    run_histories(Query, part, HISTORIES, tmp_path, MIN_COUNTS)


@pytest.mark.full("5,000 histories take three minutes or more; `make test` runs 100 of the same kind")
@pytest.mark.parametrize("part", range(100, 102))
def test_each_micro_batch_is_written_once_after_every_failure_in_many_histories(part: int, tmp_path: Path) -> None:
    run_histories(Query, part, FULL_HISTORIES, tmp_path, MIN_COUNTS)
