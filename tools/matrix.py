"""Runs the promises marked `matrix` with each version of Spark, Python and Java, and writes the table of the results.

    python -m tools.matrix                run all combinations, then write docs/versions.json and the table of README.md
    python -m tools.matrix 4.1.4 3.10     run the combinations with one of these versions, and keep the other results
    python -m tools.matrix --table        write the table of README.md again

A version that is not on this machine is named in the table. The environments are in ``.matrix``, for the next run.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".matrix"
RESULTS: Final = ROOT / "docs" / "versions.json"
README: Final = ROOT / "README.md"
BEGIN, END = "<!-- written by `make test-matrix` -->\n", "<!-- end of the table -->\n"
PROMISES: Final = (
    *("read", "write", "stream", "restart", "kill", "AvailableNow", "limits", "Delta", "SBE", "Connect", "aeron-jvm"),
)
DELTA: Final = {"4.0": "4.4.0", "4.1": "4.4.0", "4.2": "4.4.0"}  # by Spark; Maven has no jars for 4.3 yet
TIMEOUT_S: Final = 900  # of the tests of one combination
PINNED_ELSEWHERE: Final = re.compile(r"(pyspark|delta-spark|mypy|pyarrow-stubs)==")


class Combination(NamedTuple):
    """Versions that run together; ``client`` is that of pyspark-client, with a server of Spark Connect of ``spark``."""

    spark: str
    python: str
    java: str
    client: str = ""


COMBINATIONS: Final = (
    Combination("4.0.5", "3.10", "17"),
    Combination("4.1.4", "3.11", "17"),
    Combination("4.2.0", "3.12", "17"),
    Combination("4.3.0", "3.13", "17"),
    Combination("4.3.0", "3.13", "21"),
    Combination("4.3.0", "3.13", "25"),
    Combination("4.2.0", "3.12", "17", client="4.2.0"),
)


def find_python(version: str) -> str | None:
    """Return a Python of this version: of the PATH, or of pyenv."""
    found = [shutil.which(f"python{version}")]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
        found += sorted(map(str, Path(root, "versions").glob(f"{version}.*/bin/python")))
    usable = "import ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] != sys.argv[1])"
    for path in found:
        if path and not subprocess.run([path, "-c", usable, version], capture_output=True, check=False).returncode:
            return path
    return None


@functools.cache
def find_java(version: str) -> str | None:
    """Return the home of a Java of this version: of JAVA_HOME, of the PATH, or below the folder of Linux systems."""
    homes = [os.environ.get("JAVA_HOME"), *sorted(map(str, Path("/usr/lib/jvm").glob("*")))]
    path = shutil.which("java")
    homes.append(None if path is None else str(Path(path).resolve().parents[1]))
    for home in homes:
        java = Path(home or "", "bin", "java")
        if home and java.is_file():
            text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
            if re.search(rf'version "{version}\b', text):
                return home
    return None


def missing(one: Combination) -> str:
    """Return what this machine lacks for a combination, or nothing."""
    if find_python(one.python) is None:
        return f"no Python {one.python} on this machine"
    return "" if find_java(one.java) else f"no Java {one.java} on this machine"


def environment(package: str, release: str, python: str) -> Path:
    """Return the Python of an environment with this package, and make it if it is not there or out of date."""
    folder = FOLDER / f"{package}-{release}-py{python}"
    ready = folder / ".ready"
    sources = (ROOT / "setup.cfg", ROOT / "constraints.txt")
    if ready.exists() and all(path.stat().st_mtime < ready.stat().st_mtime for path in sources):
        return folder / "bin" / "python"
    print(f"matrix: installing {package} {release} for Python {python}", flush=True)
    found = find_python(python)
    assert found is not None
    subprocess.run([found, "-m", "venv", folder], check=True)
    lines = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(line for line in lines if not PINNED_ELSEWHERE.match(line)))
    pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check", "-q", "install", "-c", str(constraints)]
    subprocess.run([*pip, "setuptools<81", "wheel"], check=True)
    extra = "" if package == "pyspark-client" else "[connect]"
    own = "." if package == "pyspark-client" else ".[test]"
    subprocess.run([*pip, f"{package}{extra}=={release}", "pandas<3", "-e", own], check=True, cwd=ROOT)
    ready.touch()
    return folder / "bin" / "python"


def delta_jars(spark: str) -> Path | None:
    """Return the folder with Delta's jars for a Spark, and fetch them if they are not there; None if there are none."""
    minor = spark.rpartition(".")[0]
    version = DELTA.get(minor)
    if version is None:
        return None
    folder = FOLDER / f"delta-{version}-spark-{minor}"
    if not folder.exists():
        new = folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        settings = [f"-Ddelta.jars={new}", f"-Ddelta.version={version}", f"-Ddelta.spark.version={minor}"]
        pom = ["mvn", "-q", "-B", "-ntp", "-f", "jars/pom.xml", "-P", "delta", "generate-resources"]
        subprocess.run([*pom, *settings], check=True, cwd=ROOT)
        subprocess.run([".ci/verify-jars", new], check=True, cwd=ROOT)
        new.rename(folder)
    return folder


def marked_files() -> list[str]:
    """Return the test files that have a promise of the matrix."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if "pytest.mark.matrix(" in path.read_text()]


def run(one: Combination) -> dict[str, str]:
    """Run the tests of a combination, and return the outcome of each promise: yes, no, or what it lacks."""
    python = environment("pyspark", one.spark, one.python)
    delta = delta_jars(one.spark)
    java = find_java(one.java)
    assert java is not None
    env = {**os.environ, "JAVA_HOME": java, "PATH": f"{python.parent}:{java}/bin:{os.environ['PATH']}"}
    env |= {"MATRIX_DELTA": "" if delta is None else str(delta), "PYSPARK_PYTHON": str(python)}
    marks, chosen = "matrix" if delta else "matrix and not delta", marked_files()
    if one.client:
        env["MATRIX_CLIENT_PYTHON"] = str(environment("pyspark-client", one.client, one.python))
        chosen = ["tests/spark/test_matrix.py", "-k", "connect"]
    report = FOLDER / "report.xml"
    report.unlink(missing_ok=True)
    # older libraries give warnings that are not of this project
    command = [str(python), "-m", "pytest", "-q", "-W", "default", "-m", marks, "--cpu-limit=0"]
    command += [f"--junitxml={report}", *chosen]
    with subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True) as tests:
        try:
            tests.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(tests.pid, 9)
    outcomes = dict(read_report(report.read_text() if report.exists() else ""))
    lacks = {} if delta or one.client else {"Delta": "no jars yet"}
    expected = ("Connect",) if one.client else PROMISES
    return {name: lacks.get(name) or outcomes.get(name, "no") for name in expected}


def read_report(text: str) -> Iterator[tuple[str, str]]:
    """Yield the promises of a report of JUnit's form, with their outcomes; a promise with a failed test is broken."""
    broken: set[str] = set()
    for case in ElementTree.fromstring(text).iter("testcase") if text else ():
        properties = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
        promise = properties.get("promise", "")
        if case.find("failure") is not None or case.find("error") is not None:
            broken.add(promise)
        yield promise, "no" if promise in broken else properties.get("outcome", "yes")


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of results in Markdown, with what was not tried below it."""
    tried = [one for one in results if "missing" not in one]
    lines = [f"| Spark | Python | Java | {' | '.join(PROMISES)} |", "|---" * (len(PROMISES) + 3) + "|"]
    for one in tried:
        spark = f"{one['spark']}, `pyspark-client`" if one["client"] else one["spark"]
        cells = [one["promises"].get(name, "") for name in PROMISES]
        lines.append(f"| {spark} | {one['python']} | {one['java']} | {' | '.join(cells)} |")
    left = []
    for entry in results:
        if "missing" in entry:
            client = f", `pyspark-client` {entry['client']}" if entry["client"] else ""
            left.append(
                f"Spark {entry['spark']}{client}, Python {entry['python']}, Java {entry['java']} ({entry['missing']})"
            )
    text = "\n".join(lines) + "\n"
    return text if not left else f"{text}\nNot tried: {'; '.join(left)}.\n"


def write_table() -> None:
    """Write the table of docs/versions.json between the markers of README.md."""
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{table(json.loads(RESULTS.read_text()))}\n{END}{rest.partition(END)[2]}")


def main(chosen: Sequence[str]) -> int:
    """Run the combinations, and write the results; return 1 if a promise is broken."""
    if chosen == ["--table"]:
        write_table()
        return 0
    FOLDER.mkdir(exist_ok=True)
    old = {tuple(one[name] for name in Combination._fields): one for one in json.loads(RESULTS.read_text())}
    results = []
    for one in COMBINATIONS:
        if chosen and not set(chosen) & set(one):
            results += [old[one]] if one in old else []
            continue
        begun, absent = time.monotonic(), missing(one)
        print(f"matrix: {one}" + (f": left out, {absent}" if absent else ""), flush=True)
        results.append(one._asdict() | ({"missing": absent} if absent else {"promises": run(one)}))
        print(f"matrix: {results[-1]} in {time.monotonic() - begun:.0f} s", flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write_table()
    return int(any("no" in one.get("promises", {}).values() for one in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
