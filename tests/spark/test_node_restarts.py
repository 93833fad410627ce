"""A restart of an archive is waited out by the planner, the readers and the sink of a query, and by ``receive``."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from aeron_spark import node as nodes
from aeron_spark.cli.rows import receive_rows
from aeron_spark.cli.signals import StopRequest
from aeron_spark.direct.command_rows import DirectSource
from aeron_spark.log_factory import log_of
from aeron_spark.node import NodeHandle
from aeron_spark.options import ReadOptions
from tests.aeron.streams import Stream, close_everything, number, numbered, own_node
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


@contextmanager
def recorded(run_name: str, node: NodeHandle, control: str) -> Iterator[tuple[NodeHandle, dict[str, str]]]:
    """Yield a node with 20 rows in its archive, and the options of a query.

    They have it as the archive of another machine: no call of the query starts its node.
    """
    with own_node(run_name, control=control) as handle:
        stream = Stream(handle)
        stream.record()
        stream.publisher().send(numbered(0, 20))
        yield (
            handle,
            {
                **stream.options, "aeronDir": node.aeron_dir, "archive": f"aeron:udp?endpoint={control}",
                "connectTimeout": "3s", "record": "never",
            },
        )  # fmt: skip


@pytest.mark.sampled
def test_a_restart_of_the_archive_is_waited_out(run_name: str, node: NodeHandle) -> None:
    control = f"127.0.0.1:{free_port()}"
    with recorded(run_name, node, control) as (handle, options):
        query = Query(options, maxRowsPerTrigger=10)
        assert query.run_batch() == list(range(10))
        assert query.plan_batch()
        with restarting(handle, control):
            assert query.read_planned_batch() == list(range(10, 20))
            query.commit()
            assert query.run_batch() is None


class KillingOutput:
    """An output of ``receive`` that kills the node with the first batch, and starts it again while more come."""

    def __init__(self, handle: NodeHandle, control: str, stack: ExitStack) -> None:
        self.numbers: list[int] = []
        self._restart = restarting(handle, control)
        self._stack = stack

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        if not self.numbers:
            self._stack.enter_context(self._restart)
        self.numbers += map(number, batch["value"].to_pylist())

    def close(self, schema: pa.Schema) -> None:
        pass


@pytest.mark.sampled
def test_receive_waits_out_a_restart_of_the_archive(run_name: str, node: NodeHandle) -> None:
    control = f"127.0.0.1:{free_port()}"
    start = {"startingOffsets": "earliest", "maxRowsPerTrigger": "10"}
    with recorded(run_name, node, control) as (handle, options), ExitStack() as stack:
        out = KillingOutput(handle, control, stack)
        source = DirectSource(ReadOptions.parse({**options, **start}, streaming=True), log_of, follow=True)
        assert receive_rows(source, out, 20, StopRequest(0.0)) == (20, False)
        assert out.numbers == list(range(20))


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
        sink.commit(0, sink.stage(0, Killing(handle), schema=schema))
        found = Counter(read_numbers(options))
        assert sorted(found) == list(range(200))
        assert max(found.values()) <= 2
        close_everything()
