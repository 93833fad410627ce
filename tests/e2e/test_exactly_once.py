"""Exactly once from Aeron into Delta, whatever is killed: the table equals what the archive holds, row by row.

A producer of its own publishes all the while, and keeps a ledger of what was acknowledged: that is never missing. Spark
runs in a process of its own. Nothing here looks at how the connector counts: the table is read by its Delta log, the
archive is read from its beginning.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node
from aeron_spark.wire.chunk import decode
from tests.e2e.processes import (
    SPECULATION,
    TIMEOUT_S,
    Cluster,
    Place,
    Producer,
    SparkProgram,
    assert_ledger,
    assert_same,
    forget,
    kill_node,
    kill_one_of,
    read_table,
    rows_in,
)
from tests.e2e.producer import row_of
from tests.waiting import poll_until

pytestmark = [
    pytest.mark.delta,
    pytest.mark.full("a producer, a node and a query a test, a cluster for two: 20 to 170 CPU seconds each"),
]

SMALL: Final = {"maxBytesPerTrigger": "256k"}  # a batch never has much
GAP: Final = 10_000_000  # between the rows of two producers
SOAK: Final = float(os.environ.get("SOAK_SECONDS", "300"))  # for each of the long tests


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProgram]:
    """A Spark that survives its tests: two slots, four attempts a task."""
    program = SparkProgram(
        tmp_path_factory.mktemp("local"), conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "200"}
    )
    yield program
    program.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProgram]:
    """Spark with two executors on two hosts, which starts a slow task a second time on the other one."""
    place = tmp_path_factory.mktemp("cluster")
    machines = Cluster(place)
    try:
        program = SparkProgram(place, machines.url, SPECULATION, machines.workers)
        yield program
        program.close()
    finally:
        machines.close()


@pytest.fixture
def place(aeron_dir: Path, tmp_path: Path) -> Iterator[Place]:
    """A node of the test's own, with small terms: many boundaries in little data."""
    # A machine that stands still for ten seconds is not what these tests are about.
    patient = {"aeron.client.liveness.timeout": "30s", "aeron.publication.unblock.timeout": "40s"}
    node.start(aeron_dir, ipc_term_length="64k", term_length="64k", properties=patient)
    yield Place(aeron_dir, tmp_path)
    forget(aeron_dir)


@contextlib.contextmanager
def producing(place: Place, rng: random.Random, number: int = 0, pause: float = 0.05) -> Iterator[Producer]:
    """Publish while the block lasts."""
    producer = Producer(
        place.aeron_dir, place.folder / f"ledger-{number}", first=number * GAP, seed=rng.getrandbits(32), pause=pause
    )
    try:
        yield producer
    finally:
        if producer.process.poll() is None:
            producer.kill()


def finish(place: Place, spark: SparkProgram, *producers: Producer) -> None:
    """Let the producers end, wait until the query has read everything, stop it, and compare."""
    ledgers = [producer.finish() for producer in producers]
    recorded = place.recorded()
    assert_ledger(recorded, *ledgers)
    wanted = {row_of(value) for value in recorded.values()}
    place.await_rows(spark, lambda rows: rows >= wanted, f"{len(wanted)} rows in the table")
    spark.ask("stop", name="q")
    assert_same(read_table(place.table), recorded)
    assert spark.ask("table", path=str(place.table)) == {"rows": len(recorded), "distinct": len(recorded)}


def more_rows(place: Place, spark: SparkProgram, more: int) -> None:
    """Wait until the table has ``more`` further rows."""
    before = len(rows_in(place.table))
    place.await_rows(spark, lambda rows: len(rows) >= before + more, f"{more} more rows in the table")


def await_busy(busy: Path) -> int:
    """Wait for a worker in the middle of a task; return its process."""
    for left in busy.iterdir():
        left.unlink(missing_ok=True)
    return int(poll_until(lambda: next(busy.iterdir(), None), TIMEOUT_S, "a worker in the middle of a task").name)


def failed_tasks(spark: SparkProgram) -> int:
    """Count the tasks that failed so far."""
    return sum(task["status"] == "FAILED" for task in spark.ask("tasks")["tasks"])


def test_a_query_stopped_and_started_at_random_points_loses_and_repeats_nothing(
    spark: SparkProgram, place: Place, rng: random.Random
) -> None:
    with producing(place, rng) as producer:
        producer.await_acked(1)
        for turn in range(6):
            place.start(spark, options=SMALL, pause=0.05)
            if turn == 0:
                more_rows(place, spark, 1)
            time.sleep(rng.uniform(0, 1.5))  # the point is chance
            spark.ask("stop", name="q")
        place.start(spark, options=SMALL)
        finish(place, spark, producer)


def test_a_failed_first_batch_from_latest_is_repeated_as_it_was(
    spark: SparkProgram, place: Place, rng: random.Random
) -> None:
    with producing(place, rng, pause=0.0) as producer:
        producer.await_acked(1)
        place.table.write_text("a file where the table's directory is to be")
        planned = None
        for attempt in range(20):  # a first batch has rows only where some came while it was planned
            checkpoint = place.folder / f"checkpoint-{attempt}"
            options = {**place.options, "startingOffsets": "latest"}
            query = {"name": "q", "options": options, "table": str(place.table), "checkpoint": str(checkpoint)}
            spark.ask("start", **query)
            poll_until(lambda: spark.ask("state", name="q")["failure"], TIMEOUT_S, "the first batch to fail")
            (planned,) = [json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])]
            if planned.get("origin") and planned["origin"] != planned["recordings"]:
                break
        assert planned is not None
        assert planned["origin"] != planned["recordings"], "no first batch had a row"
        assert not (checkpoint / "commits" / "0").exists()
        producer.await_acked(50)  # a query that began at "latest" now would not see what the first batch had
        place.table.unlink()
        spark.ask("start", **query)
        ledger = producer.finish()
        recorded = {
            at: value
            for at, value in place.recorded().items()
            if at[1] >= planned["origin"].get(f"embedded/{at[0]}", 0)
        }
        wanted = {row_of(value) for value in recorded.values()}
        assert 0 < len(wanted) < len(ledger.acked)
        place.await_rows(spark, lambda rows: rows >= wanted, f"{len(wanted)} rows in the table")
        spark.ask("stop", name="q")
        assert_same(read_table(place.table), recorded)


def test_killed_python_workers_change_nothing(spark: SparkProgram, place: Place, rng: random.Random) -> None:
    failed = failed_tasks(spark)
    busy = place.folder / "busy"
    busy.mkdir()
    with producing(place, rng) as producer:
        producer.await_acked(1)
        place.start(spark, options=SMALL, pause=0.5, busy=str(busy))
        for _ in range(2):
            os.kill(await_busy(busy), signal.SIGKILL)
            more_rows(place, spark, 1)
            assert kill_one_of(spark.workers(), rng)  # at any time: the one that reads, too
            more_rows(place, spark, 1)
        finish(place, spark, producer)
    assert failed_tasks(spark) >= failed + 2


def test_a_killed_planner_ends_the_query_and_a_restart_goes_on(
    spark: SparkProgram, place: Place, rng: random.Random
) -> None:
    with producing(place, rng) as producer:
        producer.await_acked(1)
        place.start(spark, options=SMALL)
        more_rows(place, spark, 1)
        assert kill_one_of(spark.planners(), rng)
        poll_until(lambda: spark.ask("state", name="q")["failure"], TIMEOUT_S, "the query to fail")
        place.start(spark, options=SMALL)
        more_rows(place, spark, 1)
        finish(place, spark, producer)


def test_a_killed_media_driver_and_archive_lose_nothing_that_was_acknowledged(
    spark: SparkProgram, place: Place, rng: random.Random
) -> None:
    with producing(place, rng) as producer:
        producer.await_acked(1)
        place.start(spark, options=SMALL, pause=0.05)
        failures: list[str] = []
        for _ in range(2):
            more_rows(place, spark, 20)
            time.sleep(rng.uniform(0, 0.5))
            kill_node(place.aeron_dir)
            producer.await_acked(100)
            survive(place, spark, failures, 100)
        # None, as a rule: tasks and planner find the next node themselves. If any, it is one of ours, and says why.
        assert all("aeron_spark.errors." in failure for failure in failures), failures
        finish(place, spark, producer)
        assert len({recording for recording, _ in place.recorded()}) == 3  # a new session is a new recording


def survive(place: Place, spark: SparkProgram, failures: list[str], more: int) -> None:
    """Wait for ``more`` rows; a query that failed is started again, as an operator or a supervisor would."""
    wanted = len(rows_in(place.table)) + more

    def there() -> bool:
        failure = spark.ask("state", name="q")["failure"]
        if failure is not None:
            failures.append(failure)
            place.start(spark, options=SMALL, pause=0.05)
        time.sleep(0.1)
        return len(rows_in(place.table)) >= wanted

    poll_until(there, TIMEOUT_S, f"{more} more rows", state=lambda: "\n".join(failures))


def test_killed_producers_leave_nothing_half_and_new_ones_join(
    spark: SparkProgram, place: Place, rng: random.Random
) -> None:
    place.start(spark, options=SMALL)
    ledgers = []
    for number in range(3):
        with producing(place, rng, number, pause=0.005) as producer:
            producer.await_acked(rng.randint(100, 300))
            producer.kill()
            ledgers.append(producer.ledger)
    with producing(place, rng, 3) as producer:
        producer.await_acked(50)
        ledgers.append(producer.finish())
    recorded = place.recorded()
    assert_ledger(recorded, *ledgers)
    wanted = {row_of(value) for value in recorded.values()}
    place.await_rows(spark, lambda rows: rows >= wanted, f"{len(wanted)} rows in the table")
    spark.ask("stop", name="q")
    assert_same(read_table(place.table), recorded)


def test_a_killed_spark_driver_goes_on_where_its_checkpoint_says(place: Place, rng: random.Random) -> None:
    with producing(place, rng) as producer:
        producer.await_acked(1)
        program = SparkProgram(place.folder / "spark")
        try:
            place.start(program, options=SMALL, pause=0.1)
            more_rows(place, program, 20)
            time.sleep(rng.uniform(0, 0.5))
        finally:
            program.kill()
        producer.await_acked(20)
        program = SparkProgram(place.folder / "spark")
        try:
            place.start(program, options=SMALL)
            more_rows(place, program, 1)
            finish(place, program, producer)
        finally:
            program.close()


def test_a_killed_executor_changes_nothing(cluster: SparkProgram, place: Place, rng: random.Random) -> None:
    failed = failed_tasks(cluster)
    busy = place.folder / "busy"
    busy.mkdir()
    with producing(place, rng) as producer:
        producer.await_acked(1)
        place.start(cluster, options=SMALL, pause=0.5, busy=str(busy))
        more_rows(place, cluster, 1)
        executor = cluster.executor_of(await_busy(busy))
        executor.kill()
        more_rows(place, cluster, 50)
        assert not executor.is_running()
        finish(place, cluster, producer)
    assert failed_tasks(cluster) > failed


def test_a_second_attempt_of_a_slow_task_beside_the_first_changes_nothing(
    cluster: SparkProgram, place: Place, rng: random.Random
) -> None:
    held = place.folder / "held"
    held.touch()
    with producing(place, rng, 0) as one, producing(place, rng, 1) as other:
        one.await_acked(100)
        other.await_acked(100)
        poll_until(lambda: len(cluster.executors()) == 2, TIMEOUT_S, "two executors")
        place.start(cluster, options={**SMALL, "minPartitions": "2"}, hold=str(held))
        more_rows(place, cluster, 200)
        held.unlink()
        finish(place, cluster, one, other)
    second = [task for task in cluster.ask("tasks")["tasks"] if task["speculative"] and task["status"] == "SUCCESS"]
    assert second, "Spark started no task a second time"
    attempts = read_table(place.table).column("attempt").to_pylist()
    assert 1 in attempts  # and its rows, not those of the first, are what the table has


def test_repeats_of_a_retried_sink_task_are_dropped_as_documented(spark: SparkProgram, place: Place) -> None:
    """The one sink that repeats is our own direct one; docs/exactly-once.md says what a reader does about it."""
    partitions, rows, go = 2, 3000, place.folder / "go"
    options = {**place.options, "streamId": "1002"}
    spark.ask(
        "publish", name="p", options={**options, "record": "auto", "payload": "arrow"},
        checkpoint=str(place.folder / "publishing"), partitions=partitions, rows=rows, length=500, go=str(go),
    )  # fmt: skip

    def partition_0_went_out() -> bool:
        failure = spark.ask("state", name="p")["failure"]
        assert failure is None, failure
        return any(decode(message).header.partition == 0 for message in place.recorded("1002").values())

    poll_until(partition_0_went_out, TIMEOUT_S, "rows of a task that will fail")
    go.touch()
    poll_until(lambda: spark.ask("state", name="p")["batch"] == 0, TIMEOUT_S, "the task to be tried again")
    spark.ask("stop", name="p")

    written = [tuple(row) for row in spark.ask("batch", options=options)["rows"]]
    everything = list(range(partitions * rows))
    assert len(written) > len(set(written)), "nothing was repeated"
    assert sorted({row[0] for row in written}) == everything
    assert len(set(written)) == len(everything)  # a repeat says of itself which row it is

    read = {**options, "startingOffsets": "earliest", "maxBytesPerTrigger": "512k"}
    spark.ask("distinct", name="q", options=read, table=str(place.table), checkpoint=str(place.checkpoint))
    poll_until(lambda: not spark.ask("state", name="q")["active"], TIMEOUT_S, "the query to end")
    state = spark.ask("state", name="q")
    assert state["failure"] is None, state
    assert state["batch"] > 0  # the repeats came in other batches than what they repeat
    assert sorted(read_table(place.table).column("id").to_pylist()) == everything


@pytest.mark.soak
def test_random_kills_for_minutes_change_nothing(place: Place, rng: random.Random) -> None:
    """All of the above, again and again, in an order that the printed seed gives."""
    program = SparkProgram(place.folder / "spark")
    failures: list[str] = []
    counts: dict[str, int] = {}

    def kill_driver() -> None:
        nonlocal program
        program.kill()
        program = SparkProgram(place.folder / "spark")
        place.start(program, options=SMALL, pause=0.05)

    def restart() -> None:
        if program.ask("state", name="q")["active"]:
            program.ask("stop", name="q")
            place.start(program, options=SMALL, pause=0.05)

    deeds: dict[str, Callable[[], object]] = {
        "worker": lambda: kill_one_of(program.workers(), rng),
        "planner": lambda: kill_one_of(program.planners(), rng),
        "node": lambda: kill_node(place.aeron_dir),
        "driver": kill_driver,
        "restart": restart,
    }
    with contextlib.ExitStack() as stack:
        producers = [stack.enter_context(producing(place, rng, number)) for number in range(2)]
        try:
            for producer in producers:
                producer.await_acked(1)
            place.start(program, options=SMALL, pause=0.05)
            end = time.monotonic() + SOAK
            while time.monotonic() < end:
                name = rng.choice(sorted(deeds))
                print(f"{end - time.monotonic():5.0f} s left: {name}, {len(rows_in(place.table))} rows", flush=True)
                deeds[name]()
                counts[name] = counts.get(name, 0) + 1
                survive(place, program, failures, rng.randint(1, 100))
                time.sleep(rng.uniform(0, 1))
            survive(place, program, failures, 1)
            finish(place, program, *producers)
        finally:
            program.close()
    print(f"{counts}, {len(failures)} failures of the query: {sorted({one[:200] for one in failures})}")
    assert counts
