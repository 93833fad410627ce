"""docs/tests.md has every test file with tests that only `make test-full` runs, and the reasons in their marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.only_full import HEAD, reasons_in, replaced, table

PAGE = Path(__file__).parents[2] / "docs" / "tests.md"


def test_the_page_has_the_table_of_the_marks() -> None:
    """Finding: the table was written by hand, and files and reasons were missing in it."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == replaced(page, table()), "run: make docs"


def test_reasons_are_read_wherever_a_mark_stands_and_each_once() -> None:
    source = """
import pytest
more = pytest.mark.full("of a " "case")
@pytest.mark.full(
    "of a function"
)
def test_a(): ...
class Test:
    @pytest.mark.full("of a case")
    def test_b(self): ...
@pytest.mark.delta
@pytest.mark.full(*arguments)
def test_c(): ...
"""
    assert reasons_in(source) == ["of a case", "of a function"]
    with pytest.raises(ValueError, match="malformed node"):  # a reason that is no text cannot be listed
        reasons_in("import pytest\npytest.mark.full(REASON)")


def test_the_table_alone_is_replaced() -> None:
    assert replaced(f"a\n\n{HEAD}| old | old |\n\nb\n", f"{HEAD}| new | new |\n") == f"a\n\n{HEAD}| new | new |\n\nb\n"
    with pytest.raises(ValueError, match="no table"):
        replaced("a\n", HEAD)
