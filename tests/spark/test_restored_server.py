"""Queries on the server route detect that the server was restored from an older copy of its store."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aeron_spark import node as nodes
from aeron_spark.errors import DataLossError, RefusedError
from aeron_spark.log.query import DataLossWarning
from aeron_spark.node import NodeHandle
from tests.aeron.stream_store.rows import remove_marks
from tests.cli.conftest import run_program
from tests.ports import free_address
from tests.spark.simulated_engine import Query, Sink, make_numbered_batch, read_numbers
from tests.spark.stream_server import StreamServer, run_server
from tests.stream_requests import create_request


class RestorableServer:
    """A server whose store a test copies and restores, as an operator does. It runs only while it is used."""

    def __init__(self, node: NodeHandle, folder: Path) -> None:
        self._node = node
        self._folder = folder
        self._streams = folder / "streams"
        self._address = free_address()

    @contextmanager
    def running(self) -> Iterator[StreamServer]:
        """Run the server while the block lasts."""
        with run_server(
            self._node, self._folder, address=self._address, ipc="never", streams_dir=str(self._streams)
        ) as server:
            yield server

    def write(self, sink: Sink | None, *batches: int) -> Sink:
        """Write micro-batches of 10 rows with a sink; without one, create the stream and the sink of a new query."""
        with self.running() as server:
            if sink is None:
                server.endpoint.streams.create(create_request("copied", 1))
                sink = Sink(server.options("copied"))
            for batch in batches:
                sink.write(batch, [make_numbered_batch(10 * batch, 10 * batch + 10)])
        return sink

    def read(self, sink: Sink) -> list[int]:
        """Return the numbers in the stream."""
        with self.running():
            return sorted(read_numbers(sink.options))

    def copy(self) -> None:
        shutil.copytree(self._streams, self._folder / "copy")

    def restore(self) -> None:
        shutil.rmtree(self._streams)
        shutil.copytree(self._folder / "copy", self._streams)
        remove_marks(self._node.archive_dir)


class BackedUpServer(RestorableServer):
    """The same with 'server backup' and 'server restore': the restored server has another node."""

    def __init__(self, node: NodeHandle, folder: Path, own_dir: Path) -> None:
        super().__init__(node, folder)
        self._own_dir = own_dir

    def copy(self) -> None:
        with self.running():
            self._run("backup", "--streams-dir", str(self._streams))

    def restore(self) -> None:
        archive_dir = nodes.local_node_paths(self._own_dir).archive_dir
        self._streams = self._folder / "restored"
        self._run("restore", "--streams-dir", str(self._streams), "--archive-dir", str(archive_dir))
        self._node = nodes.ensure(self._own_dir, term_length="1m", ipc_term_length="1m")

    def _run(self, command: str, *options: str) -> None:
        done = run_program("server", command, str(self._folder / "backup"), *options)
        assert done.code == 0, done.err


@pytest.fixture(
    params=["the store copied", pytest.param("by server restore", marks=pytest.mark.full("each starts another node"))]
)
def restorable(request: pytest.FixtureRequest, node: NodeHandle, tmp_path: Path, own_dir: Path) -> RestorableServer:
    if request.param == "the store copied":
        return RestorableServer(node, tmp_path)
    return BackedUpServer(node, tmp_path, own_dir)


def test_a_writing_query_fails_after_a_restore_until_its_user_accepts_the_gap(restorable: RestorableServer) -> None:
    sink = restorable.write(None, 0, 1)
    restorable.copy()
    restorable.write(sink, 2, 3)
    restorable.restore()
    for _ in range(2):  # in the same run and after a restart
        with pytest.raises(RefusedError, match=r"micro-batch 4 of query .* does not follow 1, the last of") as caught:
            restorable.write(sink, 4)
        assert caught.value.reason == "diverged"
        sink.restart()
    assert restorable.read(sink) == list(range(20))
    sink.restart(acceptGap="true")
    restorable.write(sink, 4, 5)
    with pytest.raises(RefusedError, match=r"micro-batch 7 of query .* does not follow 5"):
        restorable.write(sink, 7)
    assert restorable.read(sink) == [*range(20), *range(40, 60)]


def test_a_writing_query_continues_after_a_restore_from_a_checkpoint_of_the_same_time(
    restorable: RestorableServer,
) -> None:
    sink = restorable.write(None, 0, 1)
    restorable.copy()
    restorable.write(sink, 2, 3)
    restorable.restore()
    sink.restart()
    restorable.write(sink, 1, 2, 3, 4)  # micro-batch 1 is a repeat
    assert restorable.read(sink) == list(range(50))


def test_a_reading_query_behind_the_copy_continues_after_a_restore_and_one_beyond_it_fails(
    restorable: RestorableServer,
) -> None:
    sink = restorable.write(None, 0, 1)
    restorable.copy()
    with restorable.running():
        early, late = (Query(sink.options) for _ in range(2))
        assert list(early.run_batches()) == list(late.run_batches()) == [list(range(20))]
    restorable.write(sink, 2, 3)
    with restorable.running():
        assert list(late.run_batches()) == [list(range(20, 40))]
        assert late.plan_batch() is False
        planned = late.planned_ends[-1]
    restorable.restore()
    other = Sink(sink.options)
    restorable.write(other, 0)
    with restorable.running():
        for _ in range(2):
            with pytest.raises(
                DataLossError, match="partition 0 of stream 'copied' diverged: the query is at"
            ) as caught:
                late.plan_batch()
            assert caught.value.reason == "diverged"
            late.restart()
        assert late.planned_ends[-1] == planned
        assert list(early.run_batches()) == [list(range(10))]  # its position is within the copy
        late.restart(failOnDataLoss="false")
        with pytest.warns(DataLossWarning, match="diverged"):
            assert list(late.run_batches()) == [list(range(10))]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert late.plan_batch() is False
