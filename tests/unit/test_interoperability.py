"""docs/interoperability.md names the versions with which `make test-peers` tests."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.programs import ROOT

PAGE: Final = (ROOT / "docs" / "interoperability.md").read_text()


@pytest.mark.parametrize(
    ("file", "pattern", "row"),
    [
        ("tests/peers/go/go.mod", r"github.com/lirm/aeron-go (v\S+)", "Publisher in Go"),
        ("tests/peers/rust/Cargo.toml", r'rusteron-client = \{ version = "=([\d.]+)"', "Publisher in Rust"),
        ("jars/pom.xml", r"<aeron\.version>([\d.]+)<", "Subscriber in Java"),
        ("jars/pom.xml", r"<aeron\.version>([\d.]+)<", "Aeron's C media driver"),
    ],
)
def test_the_page_names_the_versions_that_the_tests_build(file: str, pattern: str, row: str) -> None:
    (version,) = re.findall(pattern, (ROOT / file).read_text())
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {row}")]
    assert re.search(rf"(?<![\d.]){re.escape(version)}(?![\d.])", line)


@pytest.mark.parametrize(("compiler", "name"), [("go", "Go"), ("rust", "Rust")])
def test_the_page_names_the_compilers_that_the_build_requires(compiler: str, name: str) -> None:
    (version,) = re.findall(rf"{compiler}\) is_at_least ([\d.]+)", (ROOT / ".ci" / "require").read_text())
    assert f"{name} {version} or newer" in PAGE
