from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.etree import ElementTree

import pytest

from benchmarks.charts import bar_chart
from benchmarks.comparison import Comparison, Program, compare
from benchmarks.groups import groups_of
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


def test_the_figures_of_a_comparison_make_one_section_with_all_programs() -> None:
    others = Figure("a detail", 1.0, "s")
    (group,) = groups_of([*comparison().figures(), others])
    section = group.section("performance")
    assert section.startswith("### Read 180 B\n\n![read 180 B, in MB/s](performance/read-180-b.svg)\n")
    assert "| aeron | 360 | 360 to 360 | 0% | payload=raw |" in section
    assert "| kafka tuned | 2 | >= 1.9 | met |" in section
    assert "| ceiling | 0.5 | >= 0.95 | **missed** |" in section
    assert list(group.summaries) == ["aeron", "kafka tuned", "ceiling"]


def test_a_section_marks_a_spread_over_20_percent() -> None:
    wide = Comparison("c", "MB/s", {"a": [10.0, 10.0], "b": [10.0, 20.0]}, {"a": "", "b": ""})
    (group,) = groups_of(list(wide.figures()))
    assert "| b | 15 | 10 to 20 | 67% **over 20 %** |  |" in group.section("performance")


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
