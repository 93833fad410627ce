"""The README agrees with the package's files about versions and installation."""

from __future__ import annotations

import ast
import configparser
import json
import re
from typing import Final

import pytest

from aeron_spark.version import NEWEST_SPARK, OLDEST_SPARK, numbers_of
from tests.pages import sections
from tests.programs import ROOT
from tools import matrix
from tools.options_page import options_page

README: Final = (ROOT / "README.md").read_text()
NAMES: Final = {
    "pyspark": "PySpark",
    "delta-spark": "delta-spark",
    "jpype1": "JPype",
    "pyarrow": "PyArrow",
    "cryptography": "cryptography",
}


@pytest.mark.parametrize("package", NAMES)
def test_the_readme_names_the_versions_that_are_tested_together(package: str) -> None:
    """Regression: the supported versions were not in the README."""
    (version,) = re.findall(rf"^{package}==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"{NAMES[package]} {version}" in README


def test_the_readme_names_the_aeron_of_the_package() -> None:
    """Regression: the version of Aeron was not in the README."""
    (version,) = re.findall(r"<aeron\.version>([\d.]+)<", (ROOT / "jars" / "pom.xml").read_text())
    assert f"Aeron {version} (in the" in README


def test_the_extra_delta_requires_a_spark_that_delta_supports() -> None:
    """Regression: installing delta-spark silently replaced PySpark 4.3 by 4.2."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    extra = settings["options.extras_require"]["delta"].split("\n")
    assert "pyspark >=4.0.1, <4.3" in extra
    assert "pip install 'aeron-spark[spark,delta]'" in README


def test_the_first_example_works_without_an_activated_environment() -> None:
    """Regression: the README said that Spark finds the data source by itself."""
    first = re.findall(r"```python\n(from pyspark.*?)```", README, re.DOTALL)[0]
    assert first.index("register(spark)") < first.index('format("aeron")')


def test_the_examples_wait_for_their_queries() -> None:
    """Regression: an example that ran as a program ended at once without a row; tests/e2e executes it, too."""
    for block in (block.code for section in sections("README.md") for block in section.blocks if block.is_python):
        if "writeStream" in block:
            assert "query.awaitTermination()" in [ast.unparse(statement) for statement in ast.parse(block).body]


def test_the_readme_and_the_options_say_when_timestamp_is_null() -> None:
    """Regression: ``timestamp`` is NULL for raw streams without publish times, which was not documented."""
    for text in (README, options_page()):
        assert re.search(r"`timestamp` [^.]*NULL", text)


def test_the_table_of_versions_is_the_one_that_the_matrix_wrote() -> None:
    results = json.loads(matrix.RESULTS.read_text())
    assert f"{matrix.BEGIN}\n{matrix.table(results)}\n{matrix.END}" in README
    assert [matrix.Combination(*(one[name] for name in matrix.Combination._fields)) for one in results] == [
        *matrix.COMBINATIONS
    ]


def test_the_matrix_has_each_supported_spark_and_python() -> None:
    minors = sorted({numbers_of(one.spark)[:2] for one in matrix.COMBINATIONS})
    assert (minors[0], minors[-1], len(minors)) == (OLDEST_SPARK, NEWEST_SPARK, 4)
    assert {one.python for one in matrix.COMBINATIONS} == {"3.10", "3.11", "3.12", "3.13"}
    tested = {name for path in matrix.marked_files() for name in re.findall(r'mark\.matrix\("(.+)"\)', read(path))}
    assert tested == set(matrix.PROMISES)


def read(path: str) -> str:
    return (ROOT / path).read_text()
