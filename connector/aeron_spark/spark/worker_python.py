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
from collections.abc import Sequence
from importlib.machinery import PathFinder
from typing import Final

from pyspark import SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aeron_spark.errors import SetupError

NEEDED: Final = ("aeron_spark", "pyspark_aeron", "cryptography", "jpype", "msgspec", "numpy", "pyarrow")
PROBE: Final = (
    "import importlib.util as u, json, sys; sys.path[1:1] = sys.argv[1:]; "
    f"print(json.dumps([sys.version_info[:2], [n for n in {NEEDED!r} if u.find_spec(n) is None]]))"
)
LOCAL: Final = re.compile(r"local(\[|$)")  # a master whose workers run on this machine
PROBE_TIMEOUT_S: Final = 60.0  # a Python on a network drive starts slowly


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the session's context, or None for a client of Spark Connect, whose server has it."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


def use_python_of_this_process(context: SparkContext) -> None:
    """Make the workers use the Python of this process if theirs cannot run this package.

    Raises SetupError if workers may run on other machines, because this process does not know their Pythons. If Spark
    sends this package to them, their Pythons are not checked.
    """
    python, sent = context.pythonExec, _sent_paths(context)
    is_local = LOCAL.match(context.master or "")
    if not is_local and PathFinder.find_spec("aeron_spark", sent):
        return
    fault = describe_fault(python, sent)
    if not fault:
        return
    if not is_local:
        raise SetupError(
            f"Spark's Python workers run {python!r}, and that Python {fault}",
            remedy="Set PYSPARK_PYTHON (or spark.pyspark.python) to a Python of this program's version that has "
            "aeron-spark on every host, before the session starts.",
        )
    context.pythonExec = sys.executable


def _sent_paths(context: SparkContext) -> list[str]:
    """Return the paths that Spark adds to those of a worker: the folder of all files that it sends, and each zip file.

    Jars are among the zip files with ``spark.jars.packages``.
    """
    root = SparkFiles.getRootDirectory()
    return [root, *(os.path.join(root, name) for name in context._python_includes or ())]


def describe_fault(python: str, sent: Sequence[str] = ()) -> str:
    """Return the reason for which ``python``, a command or a path, cannot run workers, or an empty text.

    ``sent`` are the paths that Spark adds to those of the workers. ``python`` needs this package, the package's
    requirements, and the minor version of this process, which Spark requires.
    """
    found = shutil.which(python)
    if found is None:
        return "is not on this machine"
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return ""
    try:
        done = subprocess.run(
            [found, "-c", PROBE, *sent], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT_S,
            check=False,
        )  # fmt: skip
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
