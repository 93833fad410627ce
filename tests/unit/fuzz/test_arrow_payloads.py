"""Damaged Arrow payloads and schemas are refused, and end no process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import SEED
from tests.programs import ROOT, python_environ

TIMEOUT_S: Final = 1_800  # of a soak; the process neither waits nor listens


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_damaged_arrow_bytes_are_refused(tmp_path: Path, count: int) -> None:
    last = tmp_path / "last"
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.fuzz.arrow_decoders", os.environ.get(SEED, "1"), str(count), str(last)],
        cwd=ROOT, env=python_environ(), capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    print(done.stdout)
    data = last.read_bytes()
    input_ = data[4 : 4 + int.from_bytes(data[:4], "little")]
    assert done.returncode >= 0, f"ended by signal {-done.returncode} after the input {input_.hex()}\n{done.stdout}"
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
