"""The choice of the Python for Spark's workers if the program's environment is not activated."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import SparkContext, SparkFiles

from aeron_spark.errors import SetupError
from aeron_spark.spark.source import use_python_of_this_process
from aeron_spark.spark.worker_python import NEEDED, describe_fault


@pytest.fixture(autouse=True)
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which Spark puts the files that it sends to the workers."""
    folder = tmp_path / "sent"
    folder.mkdir()
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(folder))
    return folder


def write_zip(file: Path, *packages: str) -> str:
    """Write a file with these packages, which are empty; return its name."""
    with zipfile.ZipFile(file, "w") as archive:
        for package in packages:
            archive.writestr(f"{package}/__init__.py", "")
    return file.name


def context(python: str, master: str = "local[2]", files: tuple[str, ...] = ()) -> SparkContext:
    return cast("SparkContext", SimpleNamespace(pythonExec=python, master=master, _python_includes=list(files)))


@pytest.fixture
def without(tmp_path: Path) -> str:
    """A Python that does not have the package."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_a_python_is_run_to_find_out_whether_it_has_the_package(without: str) -> None:
    assert describe_fault(sys.executable) == ""
    assert describe_fault(without).startswith("has no aeron_spark, pyspark_aeron, ")
    assert describe_fault("no-such-python") == "is not on this machine"
    assert describe_fault("false") == "does not report its version and packages"


def python_with(tmp_path: Path, before: str) -> str:
    """Make a Python that runs ``before`` first, and is otherwise the Python of this test."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\nimport sys\n{before}\nexec(sys.argv[2])\n")
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(
    ("before", "fault"),
    [
        ("sys.modules['pyarrow'] = None", r"has no pyarrow"),
        ("sys.modules['jpype'] = None", r"has no jpype"),
        ("sys.version_info = (3, 9, 1)", r"is Python 3\.9, while the program runs 3\."),
    ],
)
def test_a_python_that_has_the_package_but_cannot_run_it_is_replaced(tmp_path: Path, before: str, fault: str) -> None:
    """Regression: only the two packages themselves were checked, so the workers failed."""
    python = python_with(tmp_path, before)
    found = context(python)
    use_python_of_this_process(found)
    assert found.pythonExec == sys.executable
    with pytest.raises(SetupError, match=f"that Python {fault}"):
        use_python_of_this_process(context(python, "yarn"))


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]"])
def test_workers_on_this_machine_run_the_programs_python_if_theirs_lacks_the_package(without: str, master: str) -> None:
    """Regression: the workers ran ``python3`` of the PATH, and Spark did not find the data source."""
    found = context(without, master)
    use_python_of_this_process(found)
    assert found.pythonExec == sys.executable


def test_a_chosen_python_that_has_the_package_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = tmp_path / "chosen"
    chosen.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    found = context(str(chosen))
    use_python_of_this_process(found)
    assert found.pythonExec == str(chosen)


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_on_other_machines_a_python_without_the_package_is_an_error_with_the_remedy(without: str, master: str) -> None:
    """Regression: the error was 200 lines of Java. This process cannot check the Pythons of other machines."""
    with pytest.raises(SetupError, match=r"has no aeron_spark, .*\. Set PYSPARK_PYTHON .* on every host"):
        use_python_of_this_process(context(without, master))


@pytest.mark.parametrize("name", ["io.delta_delta-spark_4.1_2.13-4.4.0.jar", "my_functions.zip", "my_functions.egg"])
def test_files_that_spark_sends_do_not_replace_the_check(without: str, sent: Path, name: str) -> None:
    """Regression: with ``configure_spark_with_delta_pip`` the workers had "No module named aeron_spark"."""
    write_zip(sent / name, "my_functions")
    found = context(without, files=(name,))
    use_python_of_this_process(found)
    assert found.pythonExec == sys.executable
    with pytest.raises(SetupError, match=r"has no aeron_spark, .*\. Set PYSPARK_PYTHON"):
        use_python_of_this_process(context(without, "yarn", (name,)))


def test_on_other_machines_a_package_that_spark_sends_to_the_workers_is_not_checked(without: str, sent: Path) -> None:
    found = context(without, "yarn", (write_zip(sent / "aeron_spark.zip", "aeron_spark"),))
    use_python_of_this_process(found)
    assert found.pythonExec == without


def test_on_this_machine_a_python_can_have_a_package_from_a_file_that_spark_sends(without: str, sent: Path) -> None:
    complete = context(without, files=(write_zip(sent / "all.zip", *NEEDED),))
    use_python_of_this_process(complete)
    assert complete.pythonExec == without
    without_numpy = context(without, files=(write_zip(sent / "some.zip", *(set(NEEDED) - {"numpy"})),))
    use_python_of_this_process(without_numpy)
    assert without_numpy.pythonExec == sys.executable
