"""A media driver in the directory that this package did not start is used, but never stopped or deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.aeron.client import Client
from aeron_spark.errors import OptionError, UsageError
from aeron_spark.node.liveness import driver_liveness
from tests.aeron.node.programs import foreign_driver


@pytest.fixture
def foreign(own: Path) -> Iterator[int]:
    """Yield the process id of a plain media driver in ``own``."""
    process = foreign_driver(own)
    deadline = time.monotonic() + 30
    while driver_liveness(own) is None:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield process.pid
    process.terminate()
    process.wait(timeout=30)


def test_a_foreign_driver_can_be_used(own: Path, foreign: int) -> None:
    with node.ensure(own) as handle:
        assert handle.foreign
        assert handle.pid == foreign
        assert (handle.archive_dir, handle.settings) == ("", None)
        client = Client(handle.aeron_dir)
        client.close()
    found = node.status(own)
    assert (found.state, found.pid, found.settings) == ("foreign", foreign, None)


def test_a_foreign_driver_is_never_stopped(own: Path, foreign: int) -> None:
    for force in (False, True):
        with pytest.raises(UsageError, match=f"process {foreign}.* was not started by aeron-spark"):
            node.stop(own, force=force, timeout=0.2)
    assert node.status(own).state == "foreign"
    # the fixture `own` ends with a forced stop
    with pytest.raises(OptionError, match=r"max_replays cannot be set.*Omit the settings"):
        node.ensure(own, max_replays=3)
