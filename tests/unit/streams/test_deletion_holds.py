"""Tests of holds on deletions: each lasts until it is released, or until its deadline."""

from __future__ import annotations

import math

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.streams.store_parts import MAX_HOLD_S, DeletionHolds
from tests.unit.streams.simulated_store import Clock


def test_deletions_are_held_until_the_last_hold_is_released() -> None:
    holds = DeletionHolds(Clock())
    assert holds.holder == ""
    with holds.hold("backup", 60):
        second = holds.hold("backup of desk-7", 60)
        assert holds.holder == "backup"
    assert holds.holder == "backup of desk-7"
    second.release()
    second.release()
    assert holds.holder == ""


def test_a_hold_ends_at_its_deadline_unless_it_is_renewed() -> None:
    clock = Clock()
    holds = DeletionHolds(clock)
    hold = holds.hold("backup", 60)
    clock.now += 59
    hold.renew(60)
    clock.now += 59
    assert holds.holder == "backup"
    clock.now += 1
    assert holds.holder == ""
    hold.renew(1)
    assert holds.holder == "backup"


@pytest.mark.parametrize("seconds", [0, -1, MAX_HOLD_S + 1, math.inf, math.nan])
def test_a_hold_without_a_deadline_is_refused(seconds: float) -> None:
    holds = DeletionHolds(Clock())
    with pytest.raises(OptionError, match="a hold of deletions"):
        holds.hold("backup", seconds)
    assert holds.holder == ""
