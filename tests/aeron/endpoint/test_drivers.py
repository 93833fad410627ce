"""A driver that is not ready in time leaks nothing."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from aeron_spark.errors import TransportError, WaitTimeout
from tests.aeron.endpoint import drivers


def test_a_driver_that_is_not_ready_in_time_is_ended(aeron_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "START_TIMEOUT_S", 0.0)
    before = set(psutil.Process().children())
    with pytest.raises(WaitTimeout, match="the media driver in"), drivers.driver(aeron_dir):
        pass
    assert set(psutil.Process().children()) == before
    assert not aeron_dir.exists()


def test_a_driver_that_ends_while_it_starts_is_reported_at_once(aeron_dir: Path) -> None:
    with (
        pytest.raises(TransportError, match="ended with code 1 while it started"),
        drivers.driver(aeron_dir, "--no-such-option"),
    ):
        pass
