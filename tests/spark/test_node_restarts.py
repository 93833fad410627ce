"""A restart of an archive under a running query is waited out by its planner, its readers and its sink."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from aeron_spark import node as nodes
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, close_everything, numbered, own_node
from tests.ports import free_port
from tests.spark.simulated_engine import Query, Sink, make_numbered_batch, read_numbers


@contextmanager
def restarting(handle: NodeHandle, control: str) -> Iterator[None]:
    """Kill the node, and start it again in a thread while the block runs; it ends with the block."""
    os.kill(handle.pid, signal.SIGKILL)
    os.waitpid(handle.pid, 0)
    started: list[NodeHandle] = []
    thread = threading.Thread(target=lambda: started.append(nodes.ensure(handle.aeron_dir, control=control)))
    thread.start()
    try:
        yield
    finally:
        thread.join()
        for one in started:
            one.close()


@pytest.mark.sampled
def test_a_restart_of_the_archive_is_waited_out(run_name: str, node: NodeHandle) -> None:
    control = f"127.0.0.1:{free_port()}"
    with own_node(run_name, control=control) as handle:
        stream = Stream(handle)
        stream.record()
        stream.publisher().send(numbered(0, 20))
        # The archive of another machine: no call of the query starts its node.
        options = {
            **stream.options, "aeronDir": node.aeron_dir, "archive": f"aeron:udp?endpoint={control}",
            "connectTimeout": "3s", "record": "never",
        }  # fmt: skip
        query = Query(options, maxRowsPerTrigger=10)
        assert query.run_batch() == list(range(10))
        assert query.plan_batch()
        with restarting(handle, control):
            assert query.read_planned_batch() == list(range(10, 20))
            query.commit()
            assert query.run_batch() is None


@dataclass(frozen=True)
class Killing:
    """Two batches of numbered rows; the node is killed between them. The sink starts it again."""

    handle: NodeHandle

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield make_numbered_batch(0, 100)
        os.kill(self.handle.pid, signal.SIGKILL)
        os.waitpid(self.handle.pid, 0)
        yield make_numbered_batch(100, 200)


@pytest.mark.sampled
def test_a_restart_of_the_node_in_a_task_of_the_sink_is_waited_out(run_name: str) -> None:
    """At least once: those rows of the first batch that were recorded before the restart are there twice."""
    schema = from_arrow_schema(make_numbered_batch(0, 1).schema)
    with own_node(run_name) as handle:
        options = Stream(handle).options
        sink = Sink(options, record="auto", ack="archive")
        sink.commit(0, sink.stage(0, Killing(handle), schema=schema))  # type: ignore[arg-type]
        found = Counter(read_numbers(options))
        assert sorted(found) == list(range(200))
        assert max(found.values()) <= 2
        close_everything()
