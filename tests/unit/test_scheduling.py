"""Which tests run side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.scheduling import scope_of

TESTS: Final = Path(__file__).resolve().parents[1]


def test_tests_with_spark_are_one_scope_and_every_other_module_is_its_own() -> None:
    names = ["tests/e2e/test_demo.py::test_a", "tests/spark/test_sink.py::test_b[1::2]"]
    assert {scope_of(name) for name in names} == {"Spark"}
    assert scope_of("tests/net/test_nat.py::test_c[1::2]") == "tests/net/test_nat.py"


def test_no_other_tests_with_a_jvm_have_a_session_of_spark() -> None:
    others = [path for suite in ("aeron", "net", "cli") for path in (TESTS / suite).rglob("*.py")]
    assert len(others) > 50
    assert [str(path) for path in others if "SparkSession" in path.read_text()] == []
