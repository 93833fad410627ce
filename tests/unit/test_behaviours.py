"""Each required behaviour has an entry and tests that show it, listed in docs/behaviours.md."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.behaviours import BEHAVIOURS, FoundTest, all_tests, group_by_row, markdown, rows_in

PAGE = Path(__file__).parents[2] / "docs" / "behaviours.md"


@cache
def project_tests() -> tuple[FoundTest, ...]:
    """Return the tests of this project; cached, because this parses all its files."""
    return tuple(all_tests())


def test_the_table_has_rows_1_to_100_once() -> None:
    assert [behaviour.row for behaviour in BEHAVIOURS] == list(range(1, 101))


@pytest.mark.slow
def test_every_test_named_by_an_entry_exists_once() -> None:
    names = Counter(test.name for test in project_tests())
    named = [name for behaviour in BEHAVIOURS for name in behaviour.tests]
    assert [name for name in named if names[name] != 1] == []
    assert len(named) == len(set(named)), "two entries name the same test: put the rows into the test's name"


@pytest.mark.slow
def test_no_test_names_a_row_that_is_not_in_the_table() -> None:
    assert [test for test in project_tests() if not all(1 <= row <= 100 for row in rows_in(test.name))] == []


@pytest.mark.slow
def test_every_row_is_shown_by_a_test() -> None:
    shown = group_by_row(iter(project_tests()))
    missing = [f"{one.row}: {one.text}" for one in BEHAVIOURS if not shown[one.row]]
    assert not missing, "no test shows these rows:\n" + "\n".join(missing)


@pytest.mark.slow
def test_the_page_equals_the_generated_page() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(iter(project_tests())), "run: make docs"


def test_rows_are_read_from_names() -> None:
    assert rows_in("test_row_07_done_without_hello") == (7,)
    assert rows_in("test_row_52_an_outage_and_row_57_a_long_one") == (52, 57)
    assert rows_in("test_row_100_the_last") == (100,)
    assert rows_in("test_every_row_is_shown") == ()
    assert rows_in("test_arrow_12_is_no_row") == ()


def test_methods_are_found_and_a_row_without_a_test_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "test_a.py").write_text(
        "class Test:\n    def test_row_01_x(self): ...\n\ndef helper_row_02_x(): ...\n"
    )
    assert list(all_tests(folder)) == [FoundTest("test_row_01_x", "tests/deep/test_a.py")]
    shown = group_by_row(all_tests(folder))
    assert [test.name for test in shown[1]] == ["test_row_01_x"]
    assert not shown[2]
    assert "| 2 | " in markdown(all_tests(folder))
    assert markdown(all_tests(folder)).count("nothing yet") == 99
