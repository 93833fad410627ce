"""The Python that Spark's workers run: ``PYSPARK_PYTHON`` or else ``python3`` on the PATH, whatever runs the program.

A program that is run as ``venv/bin/python job.py``, without an activated environment, has another Python than its
workers, which then may lack this package or what it needs, or be of a version that Spark refuses.
"""

from __future__ import annotations

import json
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

NEEDED: Final = ("aeron_spark", "pyspark_aeron", "cryptography", "jpype", "msgspec", "numpy", "pyarrow")
PROBE: Final = (
    "import importlib.util as u, json, sys; "
    f"print(json.dumps([sys.version_info[:2], [n for n in {NEEDED!r} if u.find_spec(n) is None]]))"
)
LOCAL: Final = re.compile(r"local(\[|$)")  # of masters: every worker runs on this machine
PROBE_TIMEOUT: Final = 60.0  # seconds for a Python to say what it has


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the session's context; None where the session is a client of Spark Connect, whose server has it."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


def use_python_of_this_process(context: SparkContext) -> None:
    """See to it that the workers' Python can run this package.

    Where it cannot, and all workers run on this machine, they run the Python of this process from now on. Raises
    SetupError where they may run on other machines: this process cannot know which Python is there.
    """
    python = context.pythonExec
    if context._python_includes:  # Spark sends those files to the workers
        return
    lacking = what_is_missing(python)
    if not lacking:
        return
    if not LOCAL.match(context.master or ""):
        raise SetupError(
            f"Spark's Python workers run {python!r}, and that Python {lacking}",
            remedy="Set PYSPARK_PYTHON (or spark.pyspark.python) to a Python of this program's version that has "
            "aeron-spark on every host, before the session starts.",
        )
    context.pythonExec = sys.executable


def what_is_missing(python: str) -> str:
    """Say why ``python``, a command or a path on this machine, cannot be the workers'; empty where it can.

    It needs this package, what this package needs, and the minor version of this process: Spark refuses another one.
    """
    found = shutil.which(python)
    if found is None:
        return "is not on this machine"
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return ""
    try:
        done = subprocess.run(
            [found, "-c", PROBE], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT, check=False
        )
        version, missing = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        return "cannot be run"
    except ValueError:  # it is no Python, or one that does not start
        return "cannot be asked what it has"
    here = sys.version_info[:2]
    reasons = [f"has no {', '.join(missing)}"] if missing else []
    if tuple(version) != here:
        reasons.append(f"is Python {_version(version)}, while the program runs {_version(here)}")
    return " and ".join(reasons)


def _version(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)
