from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.measure import Figure
from benchmarks.published import Results

FIGURES = (
    Figure("read", 0.9, "of a peer", ">= 0.85", "5 Mrows/s", {"own": [9.0], "peer": [10.0]}),
    Figure("write", 0.5, "of a peer", ">= 0.7"),
    Figure("shown", 3.0, "s"),
)


def test_the_line_of_a_figure_shows_whether_its_target_is_met() -> None:
    assert report.figure_line(FIGURES[0]) == "read: 0.9 of a peer  (5 Mrows/s)  [target >= 0.85: met]"
    assert report.figure_line(FIGURES[1]).endswith("[target >= 0.7: MISSED]")
    assert report.figure_line(FIGURES[2]) == "shown: 3 s"


def test_the_page_and_the_samples_of_a_run_replace_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, results = tmp_path / "figures.md", tmp_path / "results" / "latest.json"
    monkeypatch.setattr(report, "DOCUMENT", document)
    monkeypatch.setattr(report, "RESULTS", results)
    monkeypatch.setattr(report, "CHARTS", tmp_path / "charts")
    document.write_text("old figures\n")
    report.write_document(Results(({"cores": 2},), FIGURES))
    text = document.read_text()
    assert "old figures" not in text
    assert text.count("| read | 0.9 of a peer | >= 0.85 | met | 5 Mrows/s |") == 1
    assert "| write | 0.5 of a peer | >= 0.7 | **missed** |" in text
    written = json.loads(results.read_text())
    assert written["machines"] == [{"cores": 2}]
    assert [figure["met"] for figure in written["figures"]] == [True, False, None]


def test_charts_of_comparisons_replace_those_of_the_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "CHARTS", tmp_path)
    (tmp_path / "old.svg").write_text("<svg/>")
    (tmp_path / "notes.txt").write_text("not a chart")
    compared = Figure("read, against k", 2.0, "of k", "", "", {"own": [2.0], "k": [1.0]}, "read", "MB/s", {"own": "s"})
    report.write_charts([*FIGURES, compared])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "read.svg"]
    text = report.page(Results(({"cores": 2},), (*FIGURES, compared)))
    assert text.index("## Read") < text.index("## Details") < text.index("| shown | 3 s |")
    assert "machine" not in text


def test_the_page_says_on_which_of_several_machines_a_figure_was_measured() -> None:
    compared = Figure(
        "read, against k", 2.0, "of k", "", "", {"own": [2.0], "k": [1.0]}, "read", "MB/s", {"own": "s"}, machine=2
    )
    text = report.page(Results(({"cores": 2, "java": "17"}, {"cores": 4}), (FIGURES[0], compared)))
    assert "| measured on | machine 1 | machine 2 |\n|---|---|---|\n| cores | 2 | 4 |\n| java | 17 |  |\n" in text
    assert "| [read](read.svg) | 2 (2 to 2) | 1 (1 to 1) |  | 2 |" in text
    assert "| read | 0.9 of a peer | >= 0.85 | met | 5 Mrows/s | 1 |" in text


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = Results(({"cores": 2}, {"cores": 4}), (FIGURES[0], Figure("later", 2.0, "s", machine=2)))
    report.write_json(tmp_path / "results.json", results)
    assert report.read_json(tmp_path / "results.json") == results


def test_the_page_in_the_repository_has_the_published_figures() -> None:
    assert report.DOCUMENT.read_text() == report.page(report.read_json(report.RESULTS))
