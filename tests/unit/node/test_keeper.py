"""The node process, as far as it goes without a JVM."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.node import keeper
from aeron_spark.node.settings import parse_settings


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[keeper.Keeper]:
    """A keeper that has taken its lock, and whose record cannot be removed."""
    places = node.paths_here(tmp_path / "driver", environ={"AERON_SPARK_DATA_HOME": str(tmp_path)})
    places.record.mkdir(parents=True)
    made = keeper.Keeper(places, parse_settings({}, 1), "")
    assert made._alive.try_acquire()
    yield made
    made._alive.release()
    made._stop.close()


def test_finding_c11_a_signal_stops_a_node_whose_record_cannot_be_removed(stopped: keeper.Keeper) -> None:
    """Finding C11: an error of the disk was raised in the middle of anything, and the request to stop was lost."""
    stopped._on_signal(signal.SIGTERM, None)
    assert stopped._stop.number == signal.SIGTERM
    assert stopped._stop.wait(0.0)
