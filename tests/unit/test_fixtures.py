"""Rules for shared fixtures and for the output of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.inner import run_inner

TESTS: Final = Path(__file__).resolve().parents[1]


def test_a_fixture_of_package_scope_is_in_a_package() -> None:
    """Without an ``__init__.py``, pytest keeps the fixture until the end of the whole run."""
    shared = [path for path in TESTS.rglob("conftest.py") if 'scope="package"' in path.read_text()]
    assert shared
    assert [str(path) for path in shared if not path.with_name("__init__.py").exists()] == []


@pytest.mark.slow
def test_a_quiet_run_prints_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a random order could not be repeated, because `make test` runs tests/unit with -q."""
    monkeypatch.delenv("AERON_SPARK_SEED", raising=False)
    done = run_inner(tmp_path, {"test_inner.py": "def test_a(): pass"}, "-q", "-p", "randomly", "--randomly-seed=17")
    assert done.code == 0
    assert "\nseed: 1 (AERON_SPARK_SEED sets it)\n" in done.text
    assert "\nrandom order: 17 (make test ORDER=random ARGS=--randomly-seed=17)\n" in done.text
