from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarks.charts import bar_chart
from benchmarks.comparison import Comparison, Program, compare
from benchmarks.groups import comparison_tables, groups_of
from benchmarks.measure import Figure
from benchmarks.samples import summarize
from benchmarks.turns import take_turns

SVG = "{http://www.w3.org/2000/svg}"


class TwoRounds:
    def take_turns(self, cases: Mapping[str, Callable[[], float]], *, warm: int = 1) -> dict[str, list[float]]:
        return take_turns(cases, rounds=2, warm=warm)


def comparison() -> Comparison:
    programs = [
        Program("aeron", lambda: 2.0, "payload=raw", ""),
        Program("kafka tuned", lambda: 4.0, "acks=1", ">= 1.9"),
        Program("ceiling", lambda: 1.0, "one prebuilt batch", ">= 0.95"),
    ]
    return compare(TwoRounds(), "read 180 B", programs, 720.0)


def test_rates_are_the_amount_divided_by_the_seconds() -> None:
    assert comparison().rates == {"aeron": [360.0] * 2, "kafka tuned": [180.0] * 2, "ceiling": [720.0] * 2}


def test_the_connector_is_compared_with_each_other_program() -> None:
    kafka, ceiling = comparison().figures()
    assert (kafka.name, kafka.value, kafka.met) == ("read 180 B, against kafka tuned", 2.0, True)
    assert (ceiling.name, ceiling.value, ceiling.met) == ("read 180 B, against ceiling", 0.5, False)
    assert kafka.settings == {"aeron": "payload=raw", "kafka tuned": "acks=1"}
    assert kafka.detail == "aeron 360 MB/s (360 to 360); kafka tuned 180 MB/s (180 to 180)"


def test_a_figure_warns_of_a_program_that_spreads() -> None:
    (figure,) = Comparison("c", "MB/s", {"a": [10.0, 10.0], "b": [10.0, 20.0]}, {"a": "", "b": ""}).figures()
    assert figure.detail.endswith("the turns of b spread over 67% of their median (10 to 20), more than 20%")


def test_comparisons_of_the_same_programs_make_one_table_with_a_row_for_each() -> None:
    figures = [replace(one, group=f"read of {size}") for size in ("180 B", "60 kB") for one in comparison().figures()]
    title, comparisons, _, settings = comparison_tables(groups_of([*figures, Figure("a detail", 1.0, "s")]))
    assert title == "## Read"
    cells = "360 (360 to 360) | 180 (180 to 180) | 720 (720 to 720)"
    bars = "2 of kafka tuned (>= 1.9, met)<br>0.5 of ceiling (>= 0.95, **missed**)"
    assert comparisons.splitlines() == [
        "| MB/s | aeron | kafka tuned | ceiling | ratios with a bar |",
        "|---|---|---|---|---|",
        f"| [180 B](read-of-180-b.svg) | {cells} | {bars} |",
        f"| [60 kB](read-of-60-kb.svg) | {cells} | {bars} |",
    ]
    assert "| aeron | payload=raw |" in settings


def test_a_table_marks_a_spread_over_20_percent() -> None:
    wide = Comparison("c", "MB/s", {"a": [10.0, 10.0], "b": [10.0, 20.0]}, {"a": "", "b": ""})
    assert r"| [c](c.svg) | 10 (10 to 10) | 15 (10 to 20)\* |" in comparison_tables(groups_of(list(wide.figures())))[1]


def test_a_chart_has_a_bar_for_each_program_in_proportion_to_its_median() -> None:
    image = ElementTree.fromstring(
        bar_chart("read <fast>", "MB/s", {"aeron & co": summarize([300.0]), "kafka": summarize([100.0, 150.0, 150.0])})
    )
    bars = image.findall(f"{SVG}rect")[1:]
    assert [float(bar.attrib["width"]) for bar in bars] == [pytest.approx(400.0), pytest.approx(200.0)]
    texts = [text.text for text in image.findall(f"{SVG}text")]
    assert texts == ["read <fast> (MB/s)", "aeron & co", "300", "kafka", "150"]
    line = image.findall(f"{SVG}line")[1]
    assert float(line.attrib["x2"]) - float(line.attrib["x1"]) == pytest.approx(400.0 / 300 * 50, abs=0.1)
