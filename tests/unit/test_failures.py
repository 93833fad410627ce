"""The list of failed tests that ``make test`` prints after its last suite (``tests/failures.py``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failures import MAX_LINES
from tests.inner import run_inner

TESTS = """
import pytest

@pytest.fixture
def broken():
    raise OSError("disk full")

def test_passes(): pass
def test_compares(): assert [1] * 30 == [2] * 30
def test_is_not_set_up(broken): pass
"""


def logged(folder: Path, tests: str, *arguments: str) -> list[str]:
    """Run tests in a separate pytest, and return the lines of its failure log."""
    log = folder / "failures"
    run_inner(folder, {"test_given.py": tests}, "-q", f"--failure-log={log}", *arguments)
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["-n", "1"]], ids=["one process", "a worker"])
def test_the_log_names_each_failed_test_with_its_error(tmp_path: Path, arguments: list[str]) -> None:
    lines = logged(tmp_path, TESTS, *arguments)
    assert {line for line in lines if line.startswith("failed")} == {
        "failed (call): test_given.py::test_compares",
        "failed (setup): test_given.py::test_is_not_set_up",
    }
    assert "    OSError: disk full" in lines
    assert any(line.startswith("    assert [1, 1, 1") for line in lines)
    assert len(lines) <= 2 * (1 + MAX_LINES)  # of two failed tests


@pytest.mark.slow
def test_the_log_has_errors_of_collecting(tmp_path: Path) -> None:
    lines = logged(tmp_path, "import a_module_that_does_not_exist")
    assert lines[0] == "failed (collect): test_given.py"
    assert "    ModuleNotFoundError: No module named 'a_module_that_does_not_exist'" in lines


@pytest.mark.slow
def test_without_a_failure_the_log_is_empty(tmp_path: Path) -> None:
    assert logged(tmp_path, "def test_passes(): pass") == []
