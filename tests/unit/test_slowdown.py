"""How tests measure that a machine is busy (``tests/waiting.py``)."""

from __future__ import annotations

import pytest

from tests.waiting import slowdown


@pytest.mark.parametrize(("share", "expected"), [(1.0, 1.0), (0.25, 4.0)])
def test_a_computation_takes_longer_if_it_has_a_share_of_a_processor(share: float, expected: float) -> None:
    now = 0.0

    def processor_clock() -> float:
        nonlocal now
        now += 0.001
        return now * share

    assert slowdown(lambda: now, processor_clock) == pytest.approx(expected, rel=0.05)


def test_the_result_for_this_machine_is_at_least_1() -> None:
    assert slowdown() >= 1
