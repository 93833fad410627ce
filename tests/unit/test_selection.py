"""Which tests ``make check`` runs after a change (``tests/selection.py``)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.selection import WHOLE_PROJECT, Source, changed_paths, read_sources, select

ALWAYS = "tests/unit/test_architecture.py"
SOURCES = {
    "connector/aeron_spark/errors.py": Source(""),
    "connector/aeron_spark/wire/chunks.py": Source("", frozenset({"connector/aeron_spark/errors.py"})),
    "connector/aeron_spark/log/api.py": Source("", frozenset({"connector/aeron_spark/wire/chunks.py"})),
    "tests/conftest.py": Source(""),
    "tests/frames.py": Source('ROOT / "tests" / "golden"', frozenset({"connector/aeron_spark/wire/chunks.py"})),
    ALWAYS: Source(""),
    "tests/unit/log/test_api.py": Source(
        "", frozenset({"connector/aeron_spark/log/api.py", "tests/unit/log/logs.py", "tests/conftest.py"})
    ),
    "tests/unit/log/logs.py": Source(""),
    "tests/unit/sbe/test_types.py": Source('"options.md"', frozenset({"tests/conftest.py"})),
    "tests/unit/wire/test_chunk.py": Source(
        "", frozenset({"connector/aeron_spark/wire/chunks.py", "tests/conftest.py"})
    ),
    "tests/unit/wire/test_golden.py": Source("", frozenset({"tests/frames.py", "tests/conftest.py"})),
    "tests/unit/demo/test_pacing.py": Source("", frozenset({"connector/aeron_spark/errors.py"})),
}
LOG, SBE = "tests/unit/log/test_api.py", "tests/unit/sbe/test_types.py"
CHUNK, GOLDEN, DEMO = (
    "tests/unit/wire/test_chunk.py",
    "tests/unit/wire/test_golden.py",
    "tests/unit/demo/test_pacing.py",
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param("connector/aeron_spark/log/api.py", {LOG}, id="a module that no other one imports"),
        pytest.param("connector/aeron_spark/wire/chunks.py", {LOG, CHUNK, GOLDEN}, id="a module and its importers"),
        pytest.param("connector/aeron_spark/wire/new.py", {CHUNK, GOLDEN}, id="all tests of the package"),
        pytest.param("connector/aeron_spark/errors.py", {LOG, CHUNK, GOLDEN}, id="importers of importers"),
        pytest.param("tests/unit/sbe/test_types.py", {SBE}, id="a test"),
        pytest.param("tests/unit/log/logs.py", {LOG}, id="a module that tests of a folder share"),
        pytest.param("tests/unit/log/deleted.py", {LOG}, id="such a module, deleted"),
        pytest.param("tests/frames.py", {GOLDEN}, id="a module that all tests share"),
        pytest.param("tests/conftest.py", {LOG, SBE, CHUNK, GOLDEN}, id="what all tests use"),
        pytest.param("setup.cfg", {LOG, SBE, CHUNK, GOLDEN}, id="settings of pytest"),
        pytest.param("docs/options.md", {SBE}, id="a page that a test reads"),
        pytest.param("tests/golden/frame.bin", {GOLDEN}, id="a file in a folder that a test reads"),
        pytest.param("demo/pacing.py", {DEMO}, id="a program"),
        pytest.param("tests/unit/demo/test_pacing.py", {DEMO}, id="a test of a program"),
        pytest.param("tests/aeron/test_segments.py", set(), id="a test with a JVM"),
        pytest.param("README", set(), id="a file that no test reads"),
    ],
)
def test_a_change_selects_the_tests_that_it_can_break(changed: str, expected: set[str]) -> None:
    assert select([changed], SOURCES) == {ALWAYS} | expected


def test_several_changes_select_the_tests_of_each() -> None:
    changed = ["connector/aeron_spark/log/api.py", "demo/pacing.py"]
    assert select(changed, SOURCES) == {ALWAYS, LOG, DEMO}


@pytest.mark.slow
def test_the_tests_of_this_project_are_selected_by_their_imports() -> None:
    sources = read_sources()
    assert sources.keys() >= WHOLE_PROJECT
    selected = select(["connector/aeron_spark/streams/space.py"], sources)
    assert selected >= WHOLE_PROJECT
    assert "tests/unit/test_suites.py" not in selected
    assert not any(path.startswith("tests/unit/endpoint/") for path in selected)
    assert "tests/unit/streams/test_retention.py" in selected
    assert any(path.startswith("tests/unit/server/") for path in selected)
    assert not any(path.startswith("tests/unit/wire/") for path in selected)
    assert select(["connector/aeron_spark/errors.py"], sources) == select(["setup.cfg"], sources)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a trunk that has one file."""
    trunk, clone = tmp_path / "trunk", tmp_path / "clone"
    git(tmp_path, "init", "-q", "-b", "main", str(trunk))
    commit(trunk, "first")
    commit(trunk, "second")
    git(tmp_path, "clone", "-q", str(trunk), str(clone))
    return clone


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True)


def commit(folder: Path, name: str) -> None:
    (folder / name).touch()
    git(folder, "add", name)
    git(folder, "commit", "-q", "-m", name)


def test_the_change_is_what_the_trunk_lacks(clone: Path) -> None:
    assert changed_paths(clone) == {"second"}  # the last commit, because nothing is new
    (clone / "new").touch()
    (clone / "first").write_text("text")
    assert changed_paths(clone) == {"new", "first"}
    commit(clone, "third")
    commit(clone.parent / "trunk", "fourth")  # not a change of the clone
    git(clone, "fetch", "-q")
    assert changed_paths(clone) == {"new", "first", "third"}


def test_without_a_trunk_the_change_is_not_known(clone: Path, tmp_path: Path) -> None:
    git(clone, "remote", "remove", "origin")
    assert changed_paths(clone) is None
    (tmp_path / "plain").mkdir()
    assert changed_paths(tmp_path / "plain") is None
