"""A server that starts while its node is stopped waits until the node's media driver answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from aeron_spark import node
from aeron_spark.aeron.counters import DriverLiveness
from aeron_spark.errors import ConnectError, WaitTimeout
from aeron_spark.facts import Bus
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.server import server_node
from aeron_spark.server.server_node import ServerNode
from tests.ports import free_ports


class Node:
    """A node that other programs have started; each call of ``ensure`` or of a heartbeat is one step of time.

    ``stopped``: the steps during which its process is stopped. After ``no_heartbeat`` of them, ``ensure`` fails.
    """

    def __init__(self, folder: Path, stopped: int, no_heartbeat: int = 1_000_000) -> None:
        self.aeron_dir = str(folder / "node")
        self.archive_dir = str(folder / "archive")
        self.is_started_here = False
        self.foreign = False
        self.pid = 77
        self.ended: set[int] = set()
        self.steps = 0
        self._stopped = stopped
        self._no_heartbeat = no_heartbeat

    def ensure(self, *arguments: object, **settings: object) -> Node:
        self.steps += 1
        if self._no_heartbeat <= self.steps <= self._stopped:
            raise ConnectError("the media driver has no heartbeat, but its process 77 exists")
        return self

    def liveness(self, aeron_dir: Path, now: float) -> DriverLiveness:
        self.steps += 1
        return DriverLiveness(self.pid, 0.0, now - 1_000.0 - max(0, self.steps - self._stopped))

    def close(self) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, aeron_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerNode]:
    monkeypatch.setattr(server_node, "ANSWER_POLL_S", 0.0)
    one = ServerNode(
        LiveOptions(ServerOptions.parse(f"127.0.0.1:{free_ports()[0]}", {"aeronDir": str(aeron_dir)})), Bus()
    )
    yield one
    one.close()


def use(monkeypatch: pytest.MonkeyPatch, running: Node) -> Node:
    monkeypatch.setattr(node, "ensure", running.ensure)
    monkeypatch.setattr(server_node, "driver_liveness", running.liveness)
    monkeypatch.setattr(server_node, "has_ended", running.ended.__contains__)
    return running


def test_it_does_not_wait_for_a_node_that_runs(
    server: ServerNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = use(monkeypatch, Node(tmp_path, stopped=0))
    server.start()
    assert running.steps == 3  # one call of ensure, and two heartbeats


@pytest.mark.parametrize("no_heartbeat", [1, 1_000_000])
def test_it_waits_while_its_node_is_stopped(
    server: ServerNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_heartbeat: int
) -> None:
    """The node is stopped for less, or for more, than Aeron's timeout of a driver."""
    running = use(monkeypatch, Node(tmp_path, stopped=50, no_heartbeat=no_heartbeat))
    server.start()
    assert running.steps > 50


def test_it_says_that_it_waits(
    server: ServerNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_node, "SILENT_AFTER_S", -1.0)
    monkeypatch.setattr(server_node, "STEADY_S", 0.0)
    monkeypatch.setattr(node, "status", lambda aeron_dir: SimpleNamespace(runs=True))
    running = use(monkeypatch, Node(tmp_path, stopped=50))
    server.start()
    expected = f"the media driver in {running.aeron_dir} does not answer; the server waits for it"
    assert [record.getMessage() for record in caplog.records] == [expected]


def test_it_starts_another_node_if_the_stopped_one_ends_after_it_continued(
    server: ServerNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with a node that was stopped for 15 s: its archive had lost its media driver."""
    monkeypatch.setattr(server_node, "SILENT_AFTER_S", -1.0)
    monkeypatch.setattr(server_node, "STEADY_S", 0.0)
    continued, fresh = Node(tmp_path, stopped=5), Node(tmp_path, stopped=0)
    fresh.is_started_here, fresh.pid = True, 78
    use(monkeypatch, continued)

    def ending(aeron_dir: str) -> SimpleNamespace:
        monkeypatch.setattr(node, "ensure", fresh.ensure)
        continued.ended.add(77)
        return SimpleNamespace(runs=False)

    monkeypatch.setattr(node, "status", ending)
    server.start()
    assert server.is_started_here


def test_it_waits_as_long_as_a_node_may_take_to_start(
    server: ServerNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Node(tmp_path, stopped=1_000_000))
    monkeypatch.setattr(node, "START_TIMEOUT", 0.02)
    with pytest.raises(WaitTimeout, match=r"waited 0\.02 s for the media driver in .* to answer.*kill -CONT"):
        server.start()


def test_it_starts_another_node_if_the_stopped_one_is_killed(
    server: ServerNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, fresh = Node(tmp_path, stopped=1_000_000), Node(tmp_path, stopped=0)
    fresh.is_started_here, fresh.pid = True, 78
    use(monkeypatch, stopped)

    def killed(aeron_dir: Path, now: float) -> DriverLiveness:
        monkeypatch.setattr(node, "ensure", fresh.ensure)
        stopped.ended.add(77)
        return DriverLiveness(77, 0.0, -1_000.0)

    monkeypatch.setattr(server_node, "driver_liveness", killed)
    server.start()
    assert server.is_started_here
