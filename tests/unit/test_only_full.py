"""docs/tests.md lists the tests that only `make test-full` runs, with the reasons in their marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.only_full import HEAD, reasons_in, replaced, table

PAGE = Path(__file__).parents[2] / "docs" / "tests.md"


def test_the_page_has_the_table_of_the_marks() -> None:
    """Regression: the table was not generated, and files and reasons were missing in it."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == replaced(page, table()), "run: make docs"


def test_reasons_are_read_from_all_marks_without_repetition() -> None:
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
    with pytest.raises(ValueError, match="malformed node"):  # a reason that is not a literal cannot be listed
        reasons_in("import pytest\npytest.mark.full(REASON)")


def test_only_the_table_is_replaced() -> None:
    assert replaced(f"a\n\n{HEAD}| old | old |\n\nb\n", f"{HEAD}| new | new |\n") == f"a\n\n{HEAD}| new | new |\n\nb\n"
    with pytest.raises(ValueError, match="no table"):
        replaced("a\n", HEAD)
