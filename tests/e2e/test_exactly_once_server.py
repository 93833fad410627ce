"""Exactly once from stream A of a server through Spark to its stream B, while processes are killed: B equals A."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node
from tests.e2e.faulty_server import DROPPED, FATAL, JOURNAL, PUBLISHED, RESPONDED, STAGED
from tests.e2e.processes import SPECULATION, TIMEOUT_S, Cluster, SparkProgram, kill_one_of
from tests.e2e.served import OUTAGE_TIMEOUT_S, ServerProgram, StreamProducer, assert_same_rows
from tests.nodes import kill_node, remove_node
from tests.waiting import poll_until

SOAK_KILLS: Final = int(os.environ.get("SOAK_KILLS", "40"))
WORKER, SPARK, EXECUTOR, SERVER, NODE, CUT = "worker", "spark", "executor", "server", "node", "cut"
SUSPENDED: Final = "suspended"  # the server is suspended with SIGSTOP, and continues later
KILLS: Final = (WORKER, SPARK, NODE, STAGED, PUBLISHED, JOURNAL, RESPONDED, DROPPED)
OUTAGES: Final = (STAGED, PUBLISHED, JOURNAL, RESPONDED, SERVER, SUSPENDED)
SHORT_TIMEOUT_S: Final = 1.0  # of a producer whose calls fail in every outage
SOAK_FAULTS: Final = (*KILLS, EXECUTOR, SERVER, CUT)
CANNOT_CUT: Final = "routes cannot be changed here: `ip route add blackhole` failed"
pytestmark = pytest.mark.full("each test has a server, a producer and a Spark, one a cluster")

CUT_S: Final = 6.0  # longer than the expiry of a link, 4 s, so that both endpoints lose it


class CopyQuery:
    """A query from A to B; the test starts the query and its Spark again if they have ended."""

    def __init__(self, server: ServerProgram, folder: Path, master: str) -> None:
        self.server = server
        self.folder = folder
        self.failures: list[str] = []
        self.executors: set[str] = set()  # with tasks
        self._master = master
        self.spark = SparkProgram(folder / "spark", master)
        self._begin()

    def restart_if_ended(self) -> str:
        """Start the query, and Spark, again if they have ended; return the query's state."""
        if self.spark.process.poll() is not None:
            self.spark.clean_up()
            self.spark = SparkProgram(self.folder / "spark", self._master)
            self._begin()
            return "Spark was started again"
        state = self.spark.request("state", name="q")
        if not state["active"]:
            self.failures.append(str(state["failure"]))
            self._begin()
        return f"{state}; before: {self.failures[-1:]}"

    def close(self) -> None:
        """Stop the query, and end Spark."""
        with contextlib.suppress(AssertionError):
            self.executors |= {task["executor"] for task in self.spark.request("tasks")["tasks"]}
            self.spark.request("stop", name="q")
        self.spark.close()

    def _begin(self) -> None:
        self.spark.request(
            "copy", name="q", source={**self.server.options("a"), "maxRowsPerTrigger": "500"},
            target=self.server.options("b"), checkpoint=str(self.folder / "checkpoint"),
        )  # fmt: skip


@pytest.fixture
def server(aeron_dir: Path, tmp_path: Path) -> Iterator[ServerProgram]:
    node.start(aeron_dir, ipc_term_length="64k", term_length="64k", properties={"aeron.client.liveness.timeout": "5s"})
    program = ServerProgram(aeron_dir, tmp_path / "server")
    yield program
    program.close()
    remove_node(aeron_dir)


def inject(fault: str, copy: CopyQuery, server: ServerProgram, rng: random.Random) -> None:
    """Kill a process with SIGKILL, or inject another fault; start a killed server again."""
    if fault == WORKER:
        kill_one_of([*copy.spark.workers(), *copy.spark.planners()], rng)
    elif fault == EXECUTOR:
        kill_one_of(copy.spark.executors(), rng)
    elif fault == SPARK:
        copy.spark.kill()
    elif fault == SERVER:
        server.kill()
        time.sleep(rng.uniform(0, 2))
        server.start()
    elif fault == NODE:
        kill_node(server.aeron_dir)
    elif fault == CUT:
        server.host.cut()
        time.sleep(CUT_S)
        server.host.heal()
    else:
        server.fault(fault, rng.choice("abb"), copy.restart_if_ended)  # the producer writes to a, the query to b


def interrupt_until_a_call_fails(fault: str, copy: CopyQuery, server: ServerProgram, producer: StreamProducer) -> None:
    """Interrupt the server until a call of the producer has failed; at a point of a commit, this is its commit()."""
    if fault == SERVER:
        server.kill()
        producer.await_failure()
        server.start()
    elif fault == SUSPENDED:
        server.suspend()
        producer.await_failure()
        server.resume()
    else:
        server.fault(fault, "a", copy.restart_if_ended, producer.await_failure)


def check_copy(
    server: ServerProgram,
    folder: Path,
    rng: random.Random,
    faults: list[str],
    master: str = "local[2,4]",
    *,
    outages: bool = False,
) -> CopyQuery:
    """CopyQuery A to B while the faults are injected in a random order; then compare the streams.

    With ``outages`` each fault interrupts the server for longer than the timeout of the producer's calls.
    """
    assert server.host.can_cut or CUT not in faults, CANNOT_CUT
    for stream in ("a", "b"):
        server.create(stream, 2)
    timeout = SHORT_TIMEOUT_S if outages else OUTAGE_TIMEOUT_S
    producer = StreamProducer(server, "a", folder / "ledger", rng.getrandbits(32), timeout)
    try:
        producer.await_more(1)
        copy = CopyQuery(server, folder, master)
        try:
            rng.shuffle(faults)
            for fault in faults:
                producer.await_more(rng.randint(1, 200))
                copy.restart_if_ended()
                time.sleep(rng.uniform(0, 1))
                print(f"{time.monotonic():.1f} s: {fault}", flush=True)
                if outages:
                    interrupt_until_a_call_fails(fault, copy, server, producer)
                else:
                    inject(fault, copy, server, rng)
                copy.restart_if_ended()
            committed = producer.finish()
            if outages:
                assert producer.failures("commit") >= sum(fault in FATAL for fault in faults)
            wanted = server.rows("a")
            assert sum(map(len, wanted.values())) >= committed

            def is_complete() -> bool:
                copy.restart_if_ended()
                return sum(map(len, server.rows("b").values())) >= sum(map(len, wanted.values()))

            poll_until(is_complete, TIMEOUT_S, "the copy of all rows", state=lambda: "; ".join(copy.failures[-2:]))
        finally:
            copy.close()
        assert sorted(one for ids in wanted.values() for one in ids) == list(range(committed))
        assert_same_rows(server.rows("b"), wanted)
        return copy
    finally:
        producer.kill()


def test_a_copy_during_kills_equals_its_source(server: ServerProgram, tmp_path: Path, rng: random.Random) -> None:
    check_copy(server, tmp_path, rng, list(KILLS))


def test_a_copy_of_a_writer_that_repeats_each_failed_commit_equals_its_source(
    server: ServerProgram, tmp_path: Path, rng: random.Random
) -> None:
    """The server is interrupted for longer than commit() waits, in some cases after the commit."""
    check_copy(server, tmp_path, rng, list(OUTAGES), outages=True)


def test_a_copy_with_seconds_of_lost_packets_equals_its_source(
    server: ServerProgram, tmp_path: Path, rng: random.Random
) -> None:
    if not server.host.can_cut:
        pytest.skip(CANNOT_CUT)
    check_copy(server, tmp_path, rng, [CUT])


def test_a_copy_on_two_executors_with_a_kill_of_one_equals_its_source(
    server: ServerProgram, tmp_path: Path, rng: random.Random
) -> None:
    copy = check_copy(server, tmp_path, rng, [EXECUTOR], "local-cluster[2,1,1024]")
    assert len(copy.executors) >= 2  # both had tasks


def test_a_task_that_runs_twice_on_two_hosts_writes_its_rows_once(
    server: ServerProgram, tmp_path: Path, rng: random.Random
) -> None:
    for stream in ("a", "b"):
        server.create(stream, 2)
    producer = StreamProducer(server, "a", tmp_path / "ledger", rng.getrandbits(32))
    try:
        producer.await_more(200)
        producer.finish()
    finally:
        producer.kill()
    wanted, held = server.rows("a"), tmp_path / "held"
    assert all(wanted.values())
    held.touch()
    machines = Cluster(tmp_path)
    try:
        spark = SparkProgram(tmp_path, machines.url, SPECULATION, machines.workers)
        try:
            spark.request(
                "copy", name="q", source=server.options("a"), target=server.options("b"),
                checkpoint=str(tmp_path / "checkpoint"), hold=str(held),
            )  # fmt: skip

            def has_written() -> bool:
                failure = spark.request("state", name="q")["failure"]
                assert failure is None, failure
                return spark.request("state", name="q")["batch"] >= 0

            poll_until(has_written, TIMEOUT_S, "the second attempt to write the rows of the waiting first one")
            assert_same_rows(server.rows("b"), wanted)
            held.unlink()
            spark.request("stop", name="q")
            tasks = spark.request("tasks")["tasks"]
            second = [task for task in tasks if task["speculative"] and task["status"] == "SUCCESS"]
            assert second, "Spark started no task a second time"
            assert len({task["executor"] for task in tasks}) == 2
            assert_same_rows(
                server.rows("b"), wanted
            )  # the first attempt has staged its rows, and B does not have them
        finally:
            spark.close()
    finally:
        machines.close()


@pytest.mark.soak
def test_a_copy_during_many_kills_equals_its_source(server: ServerProgram, tmp_path: Path, rng: random.Random) -> None:
    faults = [SOAK_FAULTS[index % len(SOAK_FAULTS)] for index in range(SOAK_KILLS)]
    check_copy(server, tmp_path, rng, faults, "local-cluster[2,1,1024]")
