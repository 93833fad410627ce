"""The node process without a JVM."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.node import keeper
from aeron_spark.node.settings import parse_settings


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[keeper.NodeProcess]:
    """Return a node process that has acquired its lock, and whose record cannot be removed."""
    paths = node.local_node_paths(tmp_path / "driver", environ={"AERON_SPARK_DATA_HOME": str(tmp_path)})
    paths.record.mkdir(parents=True)
    process = keeper.NodeProcess(paths, parse_settings({}, 1), "")
    assert process._alive.try_acquire()
    yield process
    process._alive.release()
    process._stop.close()


def test_a_signal_stops_a_node_whose_record_cannot_be_removed(stopped: keeper.NodeProcess) -> None:
    """Regression: the handler raised an error of the disk, and the stop request was lost."""
    stopped._on_signal(signal.SIGTERM, None)
    assert stopped._stop.number == signal.SIGTERM
    assert stopped._stop.wait(0.0)


def test_a_node_in_use_returns_free_pages(stopped: keeper.NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[bool] = []
    updates = iter(range(100))

    def update_state() -> bool:
        if next(updates, None) is None:
            stopped._on_signal(signal.SIGTERM, None)
        return True  # it is used

    monkeypatch.setattr("aeron_spark.process.return_free_pages", lambda: returned.append(True))
    monkeypatch.setattr("aeron_spark.process.RETURN_INTERVAL_S", 0.005)
    monkeypatch.setattr(keeper, "POLL_INTERVAL_S", 0.001)
    monkeypatch.setattr(stopped, "_check_health", lambda: None)
    monkeypatch.setattr(stopped, "_close_ended_clients", lambda: None)
    monkeypatch.setattr(stopped, "_update_state", update_state)
    stopped._serve()
    assert 1 < len(returned) <= 50


def test_a_node_goes_on_when_its_files_cannot_be_written(
    stopped: keeper.NodeProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = iter([OSError(28, "No space left on device"), OSError(28, "No space left on device"), True])

    def update_state() -> bool:
        outcome = next(outcomes, None)
        if outcome is None:
            stopped._on_signal(signal.SIGTERM, None)
        if isinstance(outcome, OSError):
            raise outcome
        return True

    monkeypatch.setattr(keeper, "POLL_INTERVAL_S", 0.001)
    monkeypatch.setattr(stopped, "_check_health", lambda: None)
    monkeypatch.setattr(stopped, "_close_ended_clients", lambda: None)
    monkeypatch.setattr(stopped, "_update_state", update_state)
    stopped._serve()
    assert stopped._stop.number == signal.SIGTERM
    assert capsys.readouterr().out.count("the node goes on, and tries again: [Errno 28]") == 1


def test_a_ready_node_has_no_stage_of_its_start(stopped: keeper.NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the record was written first, and a process that found it still saw the last stage."""
    paths = stopped._node
    paths.record.rmdir()
    seen: list[bool] = []
    monkeypatch.setattr(stopped, "_handle_signals", lambda: None)
    monkeypatch.setattr(stopped, "_start", lambda: stopped._write_stage("starting the media driver"))
    monkeypatch.setattr(stopped, "_update_state", lambda: True)
    monkeypatch.setattr(stopped, "_record", lambda: None)
    monkeypatch.setattr(stopped, "_serve", lambda: None)
    monkeypatch.setattr(
        "aeron_spark.node.state_files.write_record", lambda path, record: seen.append(paths.progress.exists())
    )
    stopped.run()
    assert seen == [False]
