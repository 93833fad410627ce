"""The packages of the Spark source in Java import only packages above them."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.programs import ROOT

SOURCES: Final = ROOT / "jars/spark/src/main/java/io/aeronspark/spark"
# From the package that imports none to the one that may import all.
PACKAGES: Final = ("error", "channel", "option", "plan", "archive", "column", "read")
PURE: Final = PACKAGES[:4]
IMPORT: Final = re.compile(r"import (?:static )?([\w.]+);|\b(io\.aeronspark\.spark\.[\w.]+)")
IO: Final = ("io.aeron.", "org.agrona.", "org.apache.spark.", "java.net.", "java.nio.file.", "java.lang.reflect.")


def violations(package: str, source: str) -> list[str]:
    """Return the imports of a package's source that break a rule."""
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    names = [one or other for one, other in IMPORT.findall(source)]
    own = [name.split(".")[3] for name in names if name.startswith("io.aeronspark.spark.")]
    heavy = [name for name in names if package in PURE and name.startswith(IO)]
    return [name for name in own if name not in allowed] + heavy


@pytest.mark.parametrize("package", PACKAGES)
def test_a_java_package_imports_only_packages_above_it(package: str) -> None:
    found = {
        file.name: violations(package, file.read_text(encoding="utf-8")) for file in SOURCES.glob(f"{package}/*.java")
    }
    assert found
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_all_packages_are_listed() -> None:
    assert {folder.name for folder in SOURCES.iterdir() if folder.is_dir()} == set(PACKAGES)


def test_a_forbidden_import_of_java_is_found() -> None:
    assert violations("error", "import io.aeronspark.spark.option.Bounds;") == ["option"]
    assert violations("plan", "import static io.aeronspark.spark.archive.Replay.of;") == ["archive"]
    assert violations("plan", "x = new io.aeronspark.spark.read.Rows();") == ["read"]
    assert violations("option", "import java.net.InetAddress;") == ["java.net.InetAddress"]
    assert violations("read", "import org.apache.spark.sql.Row;\nimport io.aeronspark.spark.plan.Range;") == []
