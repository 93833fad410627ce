"""A release is refused if its versions contradict each other, and two builds of one tree are equal."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.programs import ROOT
from tools.release import differing, findings, first_example, jar_components, normalise_sdist

FILES = ("setup.cfg", "CHANGELOG.md", "jars/pom.xml")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of the project that have its version."""
    (tmp_path / "jars").mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_versions_of_this_project_agree(tree: Path) -> None:
    assert findings(tree, "") == []


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("setup.cfg", "version = 0.1.0", "version = next", "setup.cfg has the version 'next'"),
        ("jars/pom.xml", "<version>0.1.0<", "<version>0.2.0<", "jars/pom.xml has the version '0.2.0'"),
        ("CHANGELOG.md", "## [0.1.0]", "## [0.0.9]", "CHANGELOG.md has no section '## [0.1.0]'"),
    ],
)
def test_a_version_that_contradicts_another_is_refused(tree: Path, name: str, old: str, new: str, reason: str) -> None:
    text = (tree / name).read_text(encoding="utf-8")
    assert old in text
    (tree / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    assert any(finding.startswith(reason) for finding in findings(tree, ""))


def test_a_change_that_is_not_committed_is_refused(tree: Path) -> None:
    (finding,) = findings(tree, " M setup.cfg")
    assert finding.startswith("the tree has changes that are not committed")


def write_sdist(path: Path, names: list[str], mtime: int) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(f"aeron_spark-0.1.0/{name}")
            member.size, member.mtime, member.uid, member.uname = len(name), mtime, mtime % 1000, "somebody"
            archive.addfile(member, io.BytesIO(name.encode()))


def test_two_sdists_of_equal_files_become_equal(tmp_path: Path) -> None:
    first, second = tmp_path / "first.tar.gz", tmp_path / "second.tar.gz"
    write_sdist(first, ["a.py", "b.py"], 1_700_000_000)
    write_sdist(second, ["b.py", "a.py"], 1_700_000_999)
    os.utime(second, (0, 0))
    assert differing({"x": first}, {"x": second}) == ["x"]
    normalise_sdist(first, 1_600_000_000)
    normalise_sdist(second, 1_600_000_000)
    assert differing({"x": first}, {"x": second}) == []
    with tarfile.open(first) as archive:
        assert [(m.name, m.mtime, m.uid, m.uname) for m in archive] == [
            ("aeron_spark-0.1.0/a.py", 1_600_000_000, 0, ""),
            ("aeron_spark-0.1.0/b.py", 1_600_000_000, 0, ""),
        ]
        assert archive.extractfile("aeron_spark-0.1.0/b.py").read() == b"b.py"  # type: ignore[union-attr]


def test_a_file_that_only_one_build_has_is_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    assert differing({"x": path, "y": path}, {"x": path}) == ["y"]


def test_the_parts_of_a_wheel_have_versions_checksums_and_licences(tmp_path: Path) -> None:
    jars = [tmp_path / "aeron-all-1.51.0.jar", tmp_path / "aeron-spark-helper.jar"]
    for jar in jars:
        jar.write_bytes(b"")
    parts = {part["purl"]: part for part in jar_components(jars, "0.1.0")}
    assert set(parts) == {
        "pkg:maven/io.aeron/aeron-all@1.51.0",
        "pkg:maven/org.agrona/agrona@in-aeron-all-1.51.0",
        "pkg:maven/org.hdrhistogram/HdrHistogram@in-aeron-all-1.51.0",
        "pkg:maven/io.aeronspark/aeron-spark-helper@0.1.0",
    }
    assert all(part["licenses"] for part in parts.values())
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert parts["pkg:maven/io.aeron/aeron-all@1.51.0"]["hashes"] == [{"alg": "SHA-256", "content": empty}]


def test_the_first_example_of_the_readme_is_the_one_that_a_release_runs() -> None:
    assert "register(spark)" in first_example()
    assert "/tmp/squares" in first_example()
