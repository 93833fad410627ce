from __future__ import annotations

import pytest

from benchmarks.measure import Figure, describe_machine, median_ratio, take_turns


def test_cases_take_turns_and_warm_turns_do_not_count() -> None:
    order: list[str] = []

    def case(name: str) -> float:
        order.append(name)
        return float(len(order))

    samples = take_turns({"a": lambda: case("a"), "b": lambda: case("b")}, rounds=2, warm=1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert samples == {"a": [4.0, 5.0], "b": [3.0, 6.0]}


def test_a_ratio_divides_two_medians() -> None:
    assert median_ratio([1.0, 2.0, 300.0], [4.0, 4.0, 0.1]) == pytest.approx(0.5)


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


def test_the_machine_is_described_with_its_cores_and_versions() -> None:
    machine = describe_machine()
    assert machine["cores"] >= 1
    assert machine["pyspark"]
