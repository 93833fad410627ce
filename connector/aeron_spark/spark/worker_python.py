"""The Python that Spark's workers run: ``PYSPARK_PYTHON`` or else ``python3`` on the PATH, whatever runs the program.

A program that is run as ``venv/bin/python job.py``, without an activated environment, has another Python than its
workers, which then do not have this package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aeron_spark.errors import SetupError

PROBE: Final = (
    "import importlib.util as u, sys; sys.exit(any(u.find_spec(n) is None for n in ('aeron_spark', 'pyspark_aeron')))"
)
LOCAL: Final = re.compile(r"local(\[|$)")  # of masters: every worker runs on this machine
PROBE_TIMEOUT: Final = 60.0  # seconds for a Python to say whether it has the package


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the session's context; None where the session is a client of Spark Connect, whose server has it."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


def use_python_of_this_process(context: SparkContext) -> None:
    """See to it that the workers' Python has this package.

    Where it has not, and all workers run on this machine, they run the Python of this process from now on. Raises
    SetupError where they may run on other machines: this process cannot know which Python is there.
    """
    python = context.pythonExec
    if has_package(python) or context._python_includes:  # Spark sends those files to the workers
        return
    if not LOCAL.match(context.master or ""):
        raise SetupError(
            f"Spark's Python workers run {python!r}, and that Python has no aeron_spark",
            remedy="Set PYSPARK_PYTHON (or spark.pyspark.python) to a Python that has aeron-spark on every host, "
            "before the session starts.",
        )
    context.pythonExec = sys.executable


def has_package(python: str) -> bool:
    """Whether ``python``, a command or a path, is a Python of this machine that finds this package."""
    found = shutil.which(python)
    if found is None:
        return False
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return True
    try:
        done = subprocess.run(
            [found, "-c", PROBE], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
