from __future__ import annotations

import pytest

from benchmarks.samples import Summary, median_ratio, spread_warning, summarize


def test_a_summary_has_the_median_the_extremes_and_the_spread() -> None:
    summary = summarize([10.0, 12.0, 9.0, 11.0, 10.0])
    assert summary == Summary(median=10.0, least=9.0, most=12.0)
    assert summary.spread == pytest.approx(0.3)


@pytest.mark.parametrize(("most", "is_steady"), [(12.0, True), (12.1, False)])
def test_samples_are_steady_up_to_a_spread_of_20_percent(most: float, is_steady: bool) -> None:
    assert summarize([10.0, 10.0, most]).is_steady is is_steady


def test_a_warning_names_the_program_and_its_spread() -> None:
    assert spread_warning("kafka", [10.0, 10.0, 11.0]) == ""
    assert spread_warning("kafka", [10.0, 8.0, 12.0]) == (
        "the turns of kafka spread over 40% of their median (8 to 12), more than 20%"
    )


@pytest.mark.parametrize("samples", [[], [1.0, 0.0]])
def test_a_summary_without_samples_or_of_no_time_is_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="samples above 0"):
        summarize(samples)


def test_a_ratio_divides_two_medians() -> None:
    assert median_ratio([1.0, 2.0, 300.0], [4.0, 4.0, 0.1]) == pytest.approx(0.5)
