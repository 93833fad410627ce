"""A media driver in the directory that this package did not start is used, but never stopped or deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.aeron.client import AeronClient
from aeron_spark.errors import OptionError, UsageError
from aeron_spark.node.state_files import driver_liveness
from tests.programs import start_foreign_driver


@pytest.fixture
def foreign_pid(own_dir: Path) -> Iterator[int]:
    """Yield the process id of a plain media driver in ``own_dir``."""
    process = start_foreign_driver(own_dir)
    deadline = time.monotonic() + 30
    while driver_liveness(own_dir) is None:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield process.pid
    process.terminate()
    process.wait(timeout=30)


def test_a_driver_that_the_package_did_not_start_can_be_used(own_dir: Path, foreign_pid: int) -> None:
    with node.ensure(own_dir) as handle:
        assert handle.foreign
        assert handle.pid == foreign_pid
        assert (handle.archive_dir, handle.settings) == ("", None)
        client = AeronClient(handle.aeron_dir)
        client.close()
    found = node.status(own_dir)
    assert (found.state, found.pid, found.settings) == ("foreign", foreign_pid, None)


def test_a_driver_that_the_package_did_not_start_is_never_stopped(own_dir: Path, foreign_pid: int) -> None:
    for force in (False, True):
        with pytest.raises(UsageError, match=f"process {foreign_pid}.* was not started by aeron-spark"):
            node.stop(own_dir, force=force, timeout=0.2)
    assert node.status(own_dir).state == "foreign"
    # afterwards the fixture `own_dir` also tries a forced stop
    with pytest.raises(OptionError, match=r"max_replays cannot be set.*Omit the settings"):
        node.ensure(own_dir, max_replays=3)
