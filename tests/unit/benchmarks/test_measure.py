from __future__ import annotations

import pytest

from benchmarks.measure import Figure, machine, ratio, take_turns


def test_cases_take_turns_and_the_warm_ones_do_not_count() -> None:
    order: list[str] = []

    def case(name: str) -> float:
        order.append(name)
        return float(len(order))

    taken = take_turns({"a": lambda: case("a"), "b": lambda: case("b")}, rounds=2, warm=1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert taken == {"a": [4.0, 5.0], "b": [3.0, 6.0]}


def test_a_ratio_is_one_of_medians() -> None:
    assert ratio([1.0, 2.0, 300.0], [4.0, 4.0, 0.1]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        (0.85, ">= 0.85", True),
        (0.84, ">= 0.85", False),
        (1.25, "<= 1.25", True),
        (1.3, "<= 1.25", False),
        (9, "", None),
    ],
)
def test_a_target_is_met_or_missed(value: float, target: str, met: bool | None) -> None:
    assert Figure("f", value, "s", target).met is met


def test_the_machine_says_what_it_is() -> None:
    found = machine()
    assert found["cores"] >= 1
    assert found["pyspark"]
