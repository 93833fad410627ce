from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from benchmarks.measure import Figure
from benchmarks.published import Results

FIRST: Final = {"cores": 2, "load before": 0.1}
OTHER: Final = {"cores": 4, "load before": 0.2}


def detail(name: str, value: float = 1.0, machine: int = 1) -> Figure:
    return Figure(name, value, "s", machine=machine)


def compared(peer: str, value: float = 1.0, machine: int = 1) -> Figure:
    return Figure(f"read, against {peer}", value, f"of {peer}", group="read", rate_unit="MB/s", machine=machine)


PUBLISHED: Final = Results((FIRST,), (compared("k"), compared("l"), detail("a"), detail("b")))


def test_a_later_run_on_the_same_machine_replaces_its_figures() -> None:
    later = {**FIRST, "load before": 0.3}
    results = PUBLISHED.updated(later, [detail("a", 2.0)])
    assert results == Results((later,), (compared("k"), compared("l"), detail("a", 2.0), detail("b")))


def test_figures_of_another_machine_name_it() -> None:
    results = PUBLISHED.updated(OTHER, [detail("b", 2.0)])
    assert results == Results((FIRST, OTHER), (compared("k"), compared("l"), detail("a"), detail("b", 2.0, machine=2)))


def test_a_machine_without_figures_is_forgotten() -> None:
    ran = [replace(figure, value=2.0) for figure in PUBLISHED.figures]
    assert PUBLISHED.updated(OTHER, ran) == Results((OTHER,), tuple(ran))


def test_a_comparison_never_has_figures_of_two_runs() -> None:
    results = PUBLISHED.updated(OTHER, [compared("k", 2.0)])
    assert [(figure.name, figure.machine) for figure in results.figures] == [("read, against k", 2), ("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("ran", "names"),
    [
        (["new"], ["read, against k", "read, against l", "a", "b", "new"]),
        (["a", "new", "newer"], ["read, against k", "read, against l", "a", "new", "newer", "b"]),
        (["new", "a"], ["read, against k", "read, against l", "a", "b", "new"]),
    ],
)
def test_a_new_figure_stands_after_the_one_before_it_in_its_run(ran: list[str], names: list[str]) -> None:
    results = PUBLISHED.updated(FIRST, [detail(name) for name in ran])
    assert [figure.name for figure in results.figures] == names
