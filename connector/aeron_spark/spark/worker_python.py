"""Makes Spark's workers run a Python that has this package.

Workers run ``PYSPARK_PYTHON``, or ``python3`` on the PATH, independent of the program's Python. A program that runs as
``venv/bin/python job.py``, without an activated environment, has another Python than its workers, which may lack this
package or its requirements, or have a version that Spark refuses.
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
LOCAL: Final = re.compile(r"local(\[|$)")  # a master whose workers run on this machine
PROBE_TIMEOUT_S: Final = 60.0


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the session's context, or None for a client of Spark Connect, whose server has it."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


def use_python_of_this_process(context: SparkContext) -> None:
    """Make the workers use the Python of this process if theirs cannot run this package.

    Raises SetupError if workers may run on other machines, because this process does not know their Pythons.
    """
    python = context.pythonExec
    if context._python_includes:  # Spark sends these files to the workers
        return
    fault = describe_fault(python)
    if not fault:
        return
    if not LOCAL.match(context.master or ""):
        raise SetupError(
            f"Spark's Python workers run {python!r}, and that Python {fault}",
            remedy="Set PYSPARK_PYTHON (or spark.pyspark.python) to a Python of this program's version that has "
            "aeron-spark on every host, before the session starts.",
        )
    context.pythonExec = sys.executable


def describe_fault(python: str) -> str:
    """Return the reason for which ``python``, a command or a path, cannot run workers, or an empty text.

    It needs this package, the package's requirements, and the minor version of this process, which Spark requires.
    """
    found = shutil.which(python)
    if found is None:
        return "is not on this machine"
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return ""
    try:
        done = subprocess.run(
            [found, "-c", PROBE], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
        )
        version, missing = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        return "cannot be run"
    except ValueError:  # not a Python, or one that does not start
        return "does not report its version and packages"
    own_version = sys.version_info[:2]
    reasons = [f"has no {', '.join(missing)}"] if missing else []
    if tuple(version) != own_version:
        reasons.append(f"is Python {_version(version)}, while the program runs {_version(own_version)}")
    return " and ".join(reasons)


def _version(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)
