"""Each run takes a tenth of the tests marked ``sampled``, which its seed chooses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ROOT
from tests.sampling import chosen

NAMES = [f"tests/net/test_{module}.py::test_{number}" for module in "ab" for number in range(15)]


def test_a_tenth_of_each_folder_runs_and_at_least_one() -> None:
    others = ["tests/cli/test_x.py::test_one"]
    running = chosen([*NAMES, *others], "7")
    assert running > set(others)
    assert len(running) == 1 + 3
    assert chosen([*reversed(NAMES), *others], "7") == running  # whatever the order


def test_each_test_runs_with_some_seed() -> None:
    assert set.union(*(set(chosen(NAMES, str(seed))) for seed in range(200))) == set(NAMES)


TESTS = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("number", range(10))
def test_sampled(number: int) -> None: ...

@pytest.mark.sampled
@pytest.mark.full("the reason")
@pytest.mark.parametrize("number", range(10))
def test_full(number: int) -> None: ...

def test_other() -> None: ...
"""


@pytest.mark.slow
@pytest.mark.parametrize(("options", "count"), [((), 11), (("--sample=7",), 2), (("-m", "", "--sample=7"), 3)])
def test_only_a_run_with_a_seed_leaves_tests_out(tmp_path: Path, options: tuple[str, ...], count: int) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests.sampling import *\n\ndef pytest_addoption(parser):\n    add_option(parser)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "setup.cfg"), "--rootdir", str(tmp_path), *options,
         str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert f"{count} passed" in done.stdout, done.stdout
    assert ("sample: 7 (make test SAMPLE=7" in done.stdout) == bool(options)
