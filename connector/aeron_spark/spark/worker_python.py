"""A check of a Python that Spark's workers run: has it this package? It imports no PySpark.

Workers run ``PYSPARK_PYTHON``, or ``python3`` on the PATH, independent of the program's Python. A program that runs as
``venv/bin/python job.py``, without an activated environment, has another Python than its workers, which may lack this
package or its requirements, or have a version that Spark refuses.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

NEEDED: Final = ("aeron_spark", "pyspark_aeron", "cryptography", "jpype", "msgspec", "numpy", "pyarrow")
PROBE: Final = f"""
import importlib.metadata as m, importlib.util as u, json, sys
sys.path[1:1] = sys.argv[1:]
try:
    release = m.version("aeron-spark")
except m.PackageNotFoundError:
    release = None
print(json.dumps([sys.version_info[:2], [n for n in {NEEDED!r} if u.find_spec(n) is None], release]))
"""
PROBE_TIMEOUT_S: Final = 60.0  # a Python on a network drive starts slowly


class FoundPython(NamedTuple):
    """A Python: its version, the packages that it lacks, and the release of aeron-spark that is installed in it."""

    version: tuple[int, int]
    missing: tuple[str, ...] = ()
    release: str | None = None


def find_python(python: str, sent: Sequence[str] = ()) -> FoundPython | str:
    """Run ``python``, a command or a path, and return what it has; a text if it cannot run.

    ``sent`` are the paths that Spark adds to those of the workers.
    """
    found = shutil.which(python)
    if found is None:
        return "is not on this machine"
    try:
        done = subprocess.run(
            [found, "-c", PROBE, *sent],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
        version, missing, release = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        return "cannot be run"
    except ValueError:  # not a Python, or one that does not start
        return "does not report its version and packages"
    return FoundPython(tuple(version), tuple(missing), release)


def describe_fault(python: str, sent: Sequence[str] = ()) -> str:
    """Return the reason for which ``python`` cannot run workers, or an empty text; ``sent`` as for ``find_python``.

    ``python`` needs this package, the package's requirements, and the minor version of this process, which Spark
    requires.
    """
    path = shutil.which(python)
    if path is not None and os.path.abspath(path) == os.path.abspath(sys.executable):
        return ""
    found = find_python(python, sent)
    return found if isinstance(found, str) else fault_of(found)


def fault_of(found: FoundPython) -> str:
    """Return the reason for which a Python cannot run workers, or an empty text."""
    own_version = sys.version_info[:2]
    reasons = [f"has no {', '.join(found.missing)}"] if found.missing else []
    if found.version != own_version:
        reasons.append(f"is Python {_version(found.version)}, while the program runs {_version(own_version)}")
    return " and ".join(reasons)


def _version(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)
