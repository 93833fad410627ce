"""Runs pytest within a test, with the settings and plugins of this project."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.programs import ROOT


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a run of pytest."""

    code: int
    text: str


def run_inner(folder: Path, files: Mapping[str, str], *arguments: str) -> Outcome:
    """Write ``files`` into ``folder``, and run their tests with the arguments."""
    settings = (ROOT / "setup.cfg").read_text().partition("[tool:pytest]")[2]
    (folder / "pytest.ini").write_text(f"[pytest]{settings}")
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    for name, text in files.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, "."],
        cwd=folder, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'connector'}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout + done.stderr)
