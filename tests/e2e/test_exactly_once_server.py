"""Exactly once from Aeron through Spark to Aeron, through a server, whatever is killed: stream B equals stream A."""

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
from tests.e2e.faulty_server import ANSWERED, DROPPED, FATAL, JOURNAL, PUBLISHED, STAGED
from tests.e2e.processes import SPECULATION, TIMEOUT_S, Cluster, SparkProgram, forget, kill_node, kill_one_of
from tests.e2e.served import OUTAGE_TIMEOUT_S, ServerProgram, StreamProducer, same
from tests.waiting import poll_until

SOAK_KILLS: Final = int(os.environ.get("SOAK_KILLS", "40"))
WORKER, SPARK, EXECUTOR, SERVER, NODE, CUT = "worker", "spark", "executor", "server", "node", "cut"
SUSPENDED: Final = "suspended"  # the server is stopped with SIGSTOP, and goes on later
KILLS: Final = (WORKER, SPARK, NODE, STAGED, PUBLISHED, JOURNAL, ANSWERED, DROPPED)
OUTAGES: Final = (STAGED, PUBLISHED, JOURNAL, ANSWERED, SERVER, SUSPENDED)
SHORT_TIMEOUT_S: Final = 1.0  # of a producer whose calls fail in every outage
SOAK: Final = (*KILLS, EXECUTOR, SERVER, CUT)
CANNOT_CUT: Final = "routes cannot be changed here: `ip route add blackhole` failed"
pytestmark = pytest.mark.full("a server, a producer and a Spark a test, a cluster for one")

CUT_SECONDS: Final = 6.0  # longer than the expiry of a connection, 4 s, so that both sides take the other for gone


class Copy:
    """A query from A to B that is started again whenever it has ended, in a Spark that is, too."""

    def __init__(self, server: ServerProgram, folder: Path, master: str) -> None:
        self.server = server
        self.folder = folder
        self.failures: list[str] = []
        self.executors: set[str] = set()  # that had tasks
        self._master = master
        self.spark = SparkProgram(folder / "spark", master)
        self._begin()

    def look(self) -> str:
        """Start the query again where something has ended it; return how it is."""
        if self.spark.process.poll() is not None:
            self.spark.kill_quietly()
            self.spark = SparkProgram(self.folder / "spark", self._master)
            self._begin()
            return "Spark was started again"
        state = self.spark.ask("state", name="q")
        if not state["active"]:
            self.failures.append(str(state["failure"]))
            self._begin()
        return f"{state}; before: {self.failures[-1:]}"

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(AssertionError):
            self.executors |= {task["executor"] for task in self.spark.ask("tasks")["tasks"]}
            self.spark.ask("stop", name="q")
        self.spark.close()

    def _begin(self) -> None:
        self.spark.ask(
            "copy", name="q", source={**self.server.options("a"), "maxRowsPerTrigger": "500"},
            target=self.server.options("b"), checkpoint=str(self.folder / "checkpoint"),
        )  # fmt: skip


@pytest.fixture
def server(aeron_dir: Path, tmp_path: Path) -> Iterator[ServerProgram]:
    node.start(aeron_dir, ipc_term_length="64k", term_length="64k", properties={"aeron.client.liveness.timeout": "5s"})
    program = ServerProgram(aeron_dir, tmp_path / "server")
    yield program
    program.close()
    forget(aeron_dir)


def kill(victim: str, copy: Copy, server: ServerProgram, rng: random.Random) -> None:
    """kill -9 of one of them, or a fault at a point; a killed server is started again here."""
    if victim == WORKER:
        kill_one_of([*copy.spark.workers(), *copy.spark.planners()], rng)
    elif victim == EXECUTOR:
        kill_one_of(copy.spark.executors(), rng)
    elif victim == SPARK:
        copy.spark.kill()
    elif victim == SERVER:
        server.kill()
        time.sleep(rng.uniform(0, 2))
        server.start()
    elif victim == NODE:
        kill_node(server.aeron_dir)
    elif victim == CUT:
        server.host.cut()
        time.sleep(CUT_SECONDS)
        server.host.heal()
    else:
        server.fault(victim, rng.choice("abb"), copy.look)  # a is the plain client's, b the query's


def outlast(victim: str, copy: Copy, server: ServerProgram, producer: StreamProducer) -> None:
    """Take the server away until a call of the producer has failed; at a point of a commit, that is its commit()."""
    if victim == SERVER:
        server.kill()
        producer.await_failure()
        server.start()
    elif victim == SUSPENDED:
        server.suspend()
        producer.await_failure()
        server.resume()
    else:
        server.fault(victim, "a", copy.look, producer.await_failure)


def survived(
    server: ServerProgram,
    folder: Path,
    rng: random.Random,
    victims: list[str],
    master: str = "local[2,4]",
    *,
    outages: bool = False,
) -> Copy:
    """Copy A to B while these are killed, in a random order; then compare.

    With ``outages`` each of them takes the server away for longer than the producer's calls wait.
    """
    assert server.host.may_cut or CUT not in victims, CANNOT_CUT
    for stream in ("a", "b"):
        server.create(stream, 2)
    timeout = SHORT_TIMEOUT_S if outages else OUTAGE_TIMEOUT_S
    producer = StreamProducer(server, "a", folder / "ledger", rng.getrandbits(32), timeout)
    try:
        producer.await_more(1)
        copy = Copy(server, folder, master)
        try:
            rng.shuffle(victims)
            for victim in victims:
                producer.await_more(rng.randint(1, 200))
                copy.look()
                time.sleep(rng.uniform(0, 1))
                print(f"{time.monotonic():.1f} s: {victim}", flush=True)
                if outages:
                    outlast(victim, copy, server, producer)
                else:
                    kill(victim, copy, server, rng)
                copy.look()
            committed = producer.finish()
            if outages:
                assert producer.failures("commit") >= sum(victim in FATAL for victim in victims)
            wanted = server.rows("a")
            assert sum(map(len, wanted.values())) >= committed

            def whole() -> bool:
                copy.look()
                return sum(map(len, server.rows("b").values())) >= sum(map(len, wanted.values()))

            poll_until(whole, TIMEOUT_S, "everything to be copied", state=lambda: "; ".join(copy.failures[-2:]))
        finally:
            copy.close()
        assert sorted(one for ids in wanted.values() for one in ids) == list(range(committed))
        same(server.rows("b"), wanted)
        return copy
    finally:
        producer.kill()


def test_a_copy_under_kills_equals_its_source(server: ServerProgram, tmp_path: Path, rng: random.Random) -> None:
    survived(server, tmp_path, rng, list(KILLS))


def test_a_copy_of_a_writer_that_repeats_each_failed_commit_equals_its_source(
    server: ServerProgram, tmp_path: Path, rng: random.Random
) -> None:
    """Finding C1, end to end: the server is away for longer than commit() waits, also where the commit is done."""
    survived(server, tmp_path, rng, list(OUTAGES), outages=True)


def test_a_copy_whose_packets_are_lost_for_seconds_equals_its_source(
    server: ServerProgram, tmp_path: Path, rng: random.Random
) -> None:
    if not server.host.may_cut:
        pytest.skip(CANNOT_CUT)
    survived(server, tmp_path, rng, [CUT])


def test_a_copy_on_two_executors_one_of_which_is_killed_equals_its_source(
    server: ServerProgram, tmp_path: Path, rng: random.Random
) -> None:
    copy = survived(server, tmp_path, rng, [EXECUTOR], "local-cluster[2,1,1024]")
    assert len(copy.executors) >= 2  # which had tasks


def test_a_task_that_a_cluster_of_two_hosts_runs_twice_writes_once(
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
            spark.ask(
                "copy", name="q", source=server.options("a"), target=server.options("b"),
                checkpoint=str(tmp_path / "checkpoint"), hold=str(held),
            )  # fmt: skip

            def whole() -> bool:
                failure = spark.ask("state", name="q")["failure"]
                assert failure is None, failure
                return spark.ask("state", name="q")["batch"] >= 0

            poll_until(whole, TIMEOUT_S, "the second attempt to write what the first one holds back")
            same(server.rows("b"), wanted)
            held.unlink()
            spark.ask("stop", name="q")
            tasks = spark.ask("tasks")["tasks"]
            second = [task for task in tasks if task["speculative"] and task["status"] == "SUCCESS"]
            assert second, "Spark started no task a second time"
            assert len({task["executor"] for task in tasks}) == 2
            same(server.rows("b"), wanted)  # the first attempt has staged its rows, and they are not there
        finally:
            spark.close()
    finally:
        machines.close()


@pytest.mark.soak
def test_a_copy_under_many_kills_equals_its_source(server: ServerProgram, tmp_path: Path, rng: random.Random) -> None:
    victims = [SOAK[index % len(SOAK)] for index in range(SOAK_KILLS)]
    survived(server, tmp_path, rng, victims, "local-cluster[2,1,1024]")
