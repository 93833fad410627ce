"""Builds the wheel of the package, for tests of its content and of its installation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.programs import ROOT

SOURCES: Final = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
TIMEOUT_S: Final = 120.0


def build_wheel(folder: Path) -> Path:
    """Build the wheel in ``folder``, from a copy of the sources, because a build writes into their folder."""
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "connector", folder / "connector", ignore=ignore)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").glob("*.whl")
    return built
