"""The Java, the PySpark, the workers' Python and the jars that Spark would use on this machine. Starts no Spark."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from aeron_spark.aeron.jvm import MINIMUM_JAVA
from aeron_spark.spark.worker_python import fault_of, find_python
from aeron_spark.version import NEWEST_SPARK, OLDEST_SPARK, dotted, numbers_of, package_version

JAVA_TIMEOUT_S: Final = 60.0  # a Java on a network drive starts slowly
INSTALL_JAVA: Final = "apt-get install openjdk-17-jre-headless"

Verdict = Literal["ok", "warning", "broken"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check."""

    subject: str
    verdict: Verdict
    what: str
    remedy: str = ""


def examine_spark(environ: Mapping[str, str] = os.environ) -> Iterator[Diagnosis]:
    """Yield the findings about a Spark that a program of this Python starts. One says so if there is none."""
    release, client = _release("pyspark"), _release("pyspark-client")
    if release is None:
        what = f"{sys.executable} has no PySpark, which only programs with Spark need"
        yield _version_finding(client) if client else Diagnosis("spark", "ok", what)
        return
    yield _version_finding(release)
    home = environ.get("SPARK_HOME")
    if home:
        yield _spark_home(Path(home), release)
    yield _java(environ)
    defaults = read_defaults(environ)
    yield from _pythons(environ, defaults)
    yield from _jars(defaults)


def _release(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _version_finding(release: str) -> Diagnosis:
    newest, found = dotted(NEWEST_SPARK), numbers_of(release)[:2]
    if found < OLDEST_SPARK:
        needed = dotted(OLDEST_SPARK)
        what = f"PySpark {release} is too old: aeron-spark needs {needed} or newer"
        remedy = f"{sys.executable} -m pip install 'pyspark>={needed}'"
        return Diagnosis("spark", "broken", what, remedy)
    if found > NEWEST_SPARK:
        what = f"PySpark {release} is newer than {newest}, the newest one with which aeron-spark was tested"
        return Diagnosis("spark", "warning", what, f"If a query fails, install PySpark {newest}.")
    return Diagnosis("spark", "ok", f"PySpark {release}")


def _spark_home(home: Path, release: str) -> Diagnosis:
    """Return whether SPARK_HOME, whose Java classes PySpark uses, has the version of PySpark."""
    remedy = "Unset SPARK_HOME, so that PySpark uses its own classes, or let it name a Spark of PySpark's version."
    jars = sorted((home / "jars").glob("spark-core_*.jar"))
    if not jars:
        return Diagnosis("spark home", "broken", f"SPARK_HOME is {home}, which has no Spark in jars/", remedy)
    found = jars[0].stem.partition("-")[2].rpartition("-")[2]
    if numbers_of(found)[:2] != numbers_of(release)[:2]:
        what = f"SPARK_HOME is {home} with Spark {found}, and PySpark is {release}"
        return Diagnosis("spark home", "broken", what, remedy)
    return Diagnosis("spark home", "ok", f"SPARK_HOME is {home} with Spark {found}")


def _java(environ: Mapping[str, str]) -> Diagnosis:
    """Return whether Spark finds its Java: that of JAVA_HOME if it is set, also if it is wrong, else that of PATH."""
    home = environ.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH"))
    origin = f"JAVA_HOME is {home}" if home else "java on the PATH"
    if path is None:
        what = "Spark finds no Java: JAVA_HOME is not set, and no java is on the PATH"
        return Diagnosis("spark java", "broken", what, f"{INSTALL_JAVA}, or set JAVA_HOME")
    remedy = f"Set JAVA_HOME to the folder of a Java {MINIMUM_JAVA} or newer"
    remedy += ", or unset it to use that of the PATH." if home else f" ({INSTALL_JAVA})."
    try:
        done = subprocess.run(
            [path, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Diagnosis("spark java", "broken", f"{origin}, and Spark cannot run {path}: {error}", remedy)
    match = re.search(rb'version "(?:1\.)?(\d+)', done.stderr)
    if match is None:
        return Diagnosis("spark java", "broken", f"{origin}, and {path} -version prints no version", remedy)
    version = int(match[1])
    if version < MINIMUM_JAVA:
        what = f"{origin}: Java {version}, and Spark needs Java {MINIMUM_JAVA} or newer"
        return Diagnosis("spark java", "broken", what, remedy)
    return Diagnosis("spark java", "ok", f"{origin}: Java {version}")


def read_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Spark's file ``spark-defaults.conf``, or none if there is no such file."""
    folder = environ.get("SPARK_CONF_DIR")
    if not folder:
        home = environ.get("SPARK_HOME") or _pyspark_folder()
        if home is None:
            return {}
        folder = os.path.join(home, "conf")
    try:
        text = Path(folder, "spark-defaults.conf").read_text(errors="replace")
    except OSError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"\s*[=\s]\s*", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _pyspark_folder() -> str | None:
    """Return the folder of PySpark, without an import."""
    found = importlib.util.find_spec("pyspark")
    return None if found is None or found.origin is None else os.path.dirname(found.origin)


def _pythons(environ: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Yield whether the Pythons that Spark runs have this package. Without a setting, it is python3 of the PATH."""
    named = {
        f"{name} in spark-defaults.conf": defaults[name]
        for name in ("spark.pyspark.python", "spark.pyspark.driver.python")
        if name in defaults
    }
    named |= {name: environ[name] for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if environ.get(name)}
    has_worker = any(name.startswith(("spark.pyspark.python", "PYSPARK_PYTHON")) for name in named)
    for name, python in named.items():
        if "driver" in name.lower() and not os.path.basename(python).startswith("python"):
            continue  # a program such as jupyter, which runs its own Python
        yield _python(f"{name} is {python}", python, "broken")
    if not has_worker:
        yield _python("the workers' Python is python3 of the PATH (PYSPARK_PYTHON is not set)", "python3", "warning")


def _python(what: str, python: str, verdict: Verdict) -> Diagnosis:
    found = find_python(python)
    fault = found if isinstance(found, str) else fault_of(found)
    if fault:
        remedy = f"Set PYSPARK_PYTHON={sys.executable}, or activate this environment."
        if verdict == "warning":
            remedy += " aeron_spark.spark.register(spark) does the same for workers of this machine."
        return Diagnosis("spark python", verdict, f"{what}, and that Python {fault}", remedy)
    if not isinstance(found, str) and found.release not in (None, package_version()):
        what = f"{what}, and that Python has aeron-spark {found.release}, while this is {package_version()}"
        remedy = f"{python} -m pip install aeron-spark=={package_version()}"
        return Diagnosis("spark python", "broken", what, remedy)
    return Diagnosis("spark python", "ok", f"{what}, and it has aeron-spark")


def _jars(defaults: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Yield the files of ``spark.jars`` that do not exist on this machine."""
    names = [name.strip() for name in defaults.get("spark.jars", "").split(",") if name.strip()]
    local = [name.removeprefix("file://").removeprefix("file:") for name in names]
    missing = [name for name in local if "://" not in name and not os.path.exists(name)]
    for name in missing:
        what = f"spark.jars in spark-defaults.conf names {name}, which does not exist"
        yield Diagnosis("spark jars", "broken", what, "Correct the path, or remove it: Spark does not start with it.")
    if names and not missing:
        yield Diagnosis("spark jars", "ok", f"the {len(names)} files of spark.jars exist")
