"""Finding C3: queries that read or write through a server notice that the server was restored from an older copy."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aeron_spark.errors import DataLossError, RefusedError
from aeron_spark.log.query import DataLossWarning
from aeron_spark.node import NodeHandle
from tests.aeron.stream_store.rows import forget_marks
from tests.spark.simulated_engine import Query, Sink, make_numbered_batch, read_numbers
from tests.spark.stream_server import StreamServer, find_free_address, run_server


class Machine:
    """A server that is stopped, copied by hand, and restored; each use of it starts it for as long as that takes."""

    def __init__(self, node: NodeHandle, folder: Path) -> None:
        self._node = node
        self._folder = folder
        self._streams = folder / "streams"
        self._address = find_free_address()

    @contextmanager
    def running(self) -> Iterator[StreamServer]:
        """Run the server."""
        with run_server(
            self._node, self._folder, address=self._address, ipc=False, streams_dir=str(self._streams)
        ) as server:
            yield server

    def use(self, sink: Sink | None, *batches: int) -> Sink:
        """Write these micro-batches, 10 rows each; a new sink's are those of a new query."""
        with self.running() as server:
            if sink is None:
                server.endpoint.streams.create("copied", 1)
                sink = Sink(server.options("copied"))
            for batch in batches:
                sink.write(batch, [make_numbered_batch(10 * batch, 10 * batch + 10)])
        return sink

    def rows(self, sink: Sink) -> list[int]:
        """Return what the stream holds."""
        with self.running():
            return sorted(read_numbers(sink.options))

    def copy(self) -> None:
        shutil.copytree(self._streams, self._folder / "copy")

    def restore(self) -> None:
        shutil.rmtree(self._streams)
        shutil.copytree(self._folder / "copy", self._streams)
        forget_marks(self._node.archive_dir)


def test_a_query_whose_server_was_restored_fails_until_the_gap_is_accepted(node: NodeHandle, tmp_path: Path) -> None:
    machine = Machine(node, tmp_path)
    sink = machine.use(None, 0, 1)
    machine.copy()
    machine.use(sink, 2, 3)
    machine.restore()
    for _ in range(2):  # in the same run, and after a restart
        with pytest.raises(RefusedError, match=r"micro-batch 4 of query .* does not follow 1, the last of") as caught:
            machine.use(sink, 4)
        assert caught.value.reason == "diverged"
        sink.restart()
    assert machine.rows(sink) == list(range(20))
    sink.restart(acceptGap="true")
    machine.use(sink, 4, 5)
    with pytest.raises(RefusedError, match=r"micro-batch 7 of query .* does not follow 5"):
        machine.use(sink, 7)
    assert machine.rows(sink) == [*range(20), *range(40, 60)]


def test_a_query_that_goes_on_from_a_checkpoint_of_the_copys_time_is_unharmed(node: NodeHandle, tmp_path: Path) -> None:
    machine = Machine(node, tmp_path)
    sink = machine.use(None, 0, 1)
    machine.copy()
    machine.use(sink, 2, 3)
    machine.restore()
    sink.restart()
    machine.use(sink, 1, 2, 3, 4)  # micro-batch 1 is a repeat
    assert machine.rows(sink) == list(range(50))


def test_a_query_that_reads_a_restored_server_fails_or_goes_on_where_the_copy_ended(
    node: NodeHandle, tmp_path: Path
) -> None:
    machine = Machine(node, tmp_path)
    sink = machine.use(None, 0, 1)
    machine.copy()
    with machine.running():
        early, late = (Query(sink.options) for _ in range(2))
        assert list(early.run_batches()) == list(late.run_batches()) == [list(range(20))]
    machine.use(sink, 2, 3)
    with machine.running():
        assert list(late.run_batches()) == [list(range(20, 40))]
        assert late.plan_batch() is False
        planned = late.planned_ends[-1]
    machine.restore()
    other = Sink(sink.options)
    machine.use(other, 0)
    with machine.running():
        for _ in range(2):
            with pytest.raises(
                DataLossError, match="partition 0 of stream 'copied' diverged: the query is at"
            ) as caught:
                late.plan_batch()
            assert caught.value.reason == "diverged"
            late.restart()
        assert late.planned_ends[-1] == planned
        assert list(early.run_batches()) == [list(range(10))]  # it was not beyond the copy
        late.restart(failOnDataLoss="false")
        with pytest.warns(DataLossWarning, match="diverged"):
            assert list(late.run_batches()) == [list(range(10))]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert late.plan_batch() is False
