"""Fixtures that are shared by more than a module."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]


def test_what_a_package_shares_is_in_a_package() -> None:
    """Without an ``__init__.py`` pytest takes the whole run for the package, and what was started lives on in it."""
    shared = [path for path in TESTS.rglob("conftest.py") if 'scope="package"' in path.read_text()]
    assert shared
    assert [str(path) for path in shared if not path.with_name("__init__.py").exists()] == []
