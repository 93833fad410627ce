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
from aeron_spark.transport.waiting import wait_for
from tests.e2e.processes import PATIENCE, SparkProgram, forget, kill_node, kill_one_of
from tests.e2e.served import ServerProgram, StreamProducer, same

KILLS: Final = 6
SOAK_KILLS: Final = int(os.environ.get("SOAK_KILLS", "40"))
VICTIMS: Final = ("worker", "spark", "server", "node")


class Copy:
    """A query from A to B that is started again whenever it has ended, in a Spark that is, too."""

    def __init__(self, server: ServerProgram, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.failures: list[str] = []
        self.spark = SparkProgram(folder / "spark")
        self._begin()

    def look(self) -> None:
        """Start the query again where something has ended it."""
        if self.spark.process.poll() is not None:
            self.spark.kill_quietly()
            self.spark = SparkProgram(self.folder / "spark")
            self._begin()
            return
        state = self.spark.ask("state", name="q")
        if not state["active"]:
            self.failures.append(str(state["failure"]))
            self._begin()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(AssertionError):
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
    """kill -9 of one of them; what nobody else starts again is started here."""
    if victim == "worker":
        kill_one_of([*copy.spark.workers(), *copy.spark.planners()], rng)
    elif victim == "spark":
        copy.spark.kill()
    elif victim == "server":
        server.kill()
        time.sleep(rng.uniform(0, 2))
        server.start()
    else:
        kill_node(server.aeron_dir)


def survived(server: ServerProgram, folder: Path, rng: random.Random, kills: int) -> Copy:
    """Copy A to B while ``kills`` things are killed; then compare."""
    for stream in ("a", "b"):
        server.create(stream, 2)
    producer = StreamProducer(server, "a", folder / "ledger", rng.getrandbits(32))
    try:
        producer.await_more(1)
        copy = Copy(server, folder)
        try:
            victims = [VICTIMS[index % len(VICTIMS)] for index in range(kills)]
            rng.shuffle(victims)
            for victim in victims:
                producer.await_more(rng.randint(1, 200))
                copy.look()
                time.sleep(rng.uniform(0, 1))
                print(f"kill -9: {victim}", flush=True)
                kill(victim, copy, server, rng)
                copy.look()
            committed = producer.finish()
            wanted = server.rows("a")
            assert sum(map(len, wanted.values())) >= committed

            def whole() -> bool:
                copy.look()
                return sum(map(len, server.rows("b").values())) >= sum(map(len, wanted.values()))

            wait_for(whole, PATIENCE, "everything to be copied", state=lambda: "; ".join(copy.failures[-2:]))
        finally:
            copy.close()
        assert sorted(one for ids in wanted.values() for one in ids) == list(range(committed))
        same(server.rows("b"), wanted)
        return copy
    finally:
        producer.kill()


def test_a_copy_under_kills_equals_its_source(server: ServerProgram, tmp_path: Path, rng: random.Random) -> None:
    survived(server, tmp_path, rng, KILLS)


@pytest.mark.soak
def test_a_copy_under_many_kills_equals_its_source(server: ServerProgram, tmp_path: Path, rng: random.Random) -> None:
    survived(server, tmp_path, rng, SOAK_KILLS)
