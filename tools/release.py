"""Builds what is published: ``python -m tools.release FOLDER`` writes wheel, sdist, SBOM and checksums into FOLDER.

It builds the last commit twice, in two folders, and refuses if a byte differs. It builds the wheel from the sdist,
with the jars that ``make jars`` built: both install without Maven. Then it installs the wheel without and with Spark
in environments of their own: one sends and receives rows, the other runs the README's first example. The SBOM is in
CycloneDX 1.6, made from the environment without Spark, and has the jars in the wheel.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT: Final = Path(__file__).resolve().parents[1]
JARS: Final = Path("connector") / "aeron_spark" / "jars"
BUILD_S: Final = 300.0  # a build takes some seconds
INSTALL_S: Final = 900.0  # pip downloads 400 MB for Spark
RUN_S: Final = 300.0  # Spark's first start on a slow machine takes a minute
ROWS: Final = 100
POM: Final = "{http://maven.apache.org/POM/4.0.0}"
VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
# The libraries inside aeron-all.jar. They have the version of the Aeron release, and no file names that of Agrona.
SHADED: Final = (
    ("agrona", "org.agrona", "Apache-2.0"),
    ("HdrHistogram", "org.hdrhistogram", "BSD-2-Clause OR CC0-1.0"),
)


class ReleaseError(Exception):
    """The release cannot be built; the text says why and what to do."""


def findings(root: Path, changed: str) -> list[str]:
    """Return the reasons that forbid a release of the tree ``root``.

    ``changed`` is the output of ``git status --porcelain``. The version is that of setup.cfg; the other files that have
    it must agree, and the changelog must have its section.
    """
    setup = ConfigParser()
    setup.read(root / "setup.cfg")
    version = setup["metadata"]["version"]
    found = []
    if not VERSION.fullmatch(version):
        found.append(f"setup.cfg has the version {version!r}: give it one such as 1.2.3, or 1.2.3rc1")
    pom = ElementTree.parse(root / "jars" / "pom.xml").getroot().findtext(f"{POM}version")
    if pom != version:
        found.append(f"jars/pom.xml has the version {pom!r}, setup.cfg {version!r}: make them equal")
    if f"\n## [{version}]" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        found.append(f"CHANGELOG.md has no section '## [{version}]': write it")
    if changed:
        found.append("the tree has changes that are not committed: commit them, because a release is the last commit")
    return found


def normalise_sdist(path: Path, epoch: int) -> None:
    """Write the sdist again, with sorted members, one owner and one time: setuptools takes those of the build."""
    with tarfile.open(path) as source:
        members = {member.name: member for member in source.getmembers()}
        files = {name: source.extractfile(member) for name, member in members.items()}
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as target:
            for name in sorted(members):
                member = members[name]
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mtime, member.pax_headers = epoch, {}
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                target.addfile(member, files[name])
    path.write_bytes(gzip.compress(data.getvalue(), mtime=epoch))


def build(folder: Path, epoch: int) -> dict[str, Path]:
    """Build sdist and wheel of the last commit in ``folder``; return them by name."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True, timeout=BUILD_S)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as sources:
        sources.extractall(tree, filter="data")
    shutil.copytree(ROOT / JARS, tree / JARS, dirs_exist_ok=True)
    # the wheel is built from the sdist, which shows that the sdist has all that an installation needs
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist")]
    run(command, tree, BUILD_S, SOURCE_DATE_EPOCH=str(epoch))
    built = {path.name: path for path in (folder / "dist").iterdir()}
    for name, path in built.items():
        if name.endswith(".tar.gz"):
            normalise_sdist(path, epoch)
    return built


def differing(first: Mapping[str, Path], second: Mapping[str, Path]) -> list[str]:
    """Return the names of files that two builds do not have in common, or whose bytes differ."""
    return sorted(
        name
        for name in first.keys() | second.keys()
        if name not in first or name not in second or first[name].read_bytes() != second[name].read_bytes()
    )


def run(command: Sequence[str | Path], folder: Path, timeout_s: float, **environment: str) -> str:
    """Run a command, and return its output. Raises ReleaseError with the end of its output if it fails."""
    inherited = dict(os.environ)
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV"):  # those of the tree that builds the release
        inherited.pop(name, None)
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(words)} failed with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def install(wheel: Path, extra: str, folder: Path) -> Path:
    """Install a wheel into an environment of its own; return the folder of its programs."""
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q")
    run([*pip, "install", "-c", ROOT / "constraints.txt", f"{wheel}{extra}"], folder, INSTALL_S)
    return folder / "bin"


def first_example() -> str:
    """Return the first Python block of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


def own_node(folder: Path) -> dict[str, str]:
    """Return the variables that give the programs of an installation a home and a media driver of their own."""
    folder.mkdir()
    return {"HOME": str(folder), "AERON_SPARK_AERON_DIR": f"/dev/shm/aeron-spark-release-{os.getpid()}-{folder.name}"}


def try_without_spark(programs: Path, folder: Path, version: str) -> None:
    """Send and receive rows with the command of an installation without Spark."""
    node, command = own_node(folder), programs / "aeron-spark"
    said = run([command, "--version"], folder, RUN_S, **node)
    if version not in said:
        raise ReleaseError(f"aeron-spark --version says {said!r}, but the wheel has the version {version}")
    (folder / "rows.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(ROWS)))
    place = ("--channel", "aeron:ipc", "--stream-id", "2001")
    run([command, "send", "rows.jsonl", *place, "--record"], folder, RUN_S, **node)
    received = run([command, "receive", *place, "--json"], folder, RUN_S, **node)
    if received.count('"id"') != ROWS:
        raise ReleaseError(f"{ROWS} rows were sent, and these received: {received[-400:]}")


def try_with_spark(programs: Path, folder: Path) -> None:
    """Run the first example of the README twice."""
    node = own_node(folder)
    (folder / "example.py").write_text(first_example().replace("/tmp/squares", str(folder / "squares")))
    for _ in range(2):
        run([programs / "python", "example.py"], folder, RUN_S, **node)


def jar_components(wheel_jars: Iterable[Path], version: str) -> list[dict[str, Any]]:
    """Return the components of an SBOM for the jars in the wheel, and for the libraries inside aeron-all."""

    def component(name: str, group: str, number: str, licence: str, digest: str = "") -> dict[str, Any]:
        purl = f"pkg:maven/{group}/{name}@{number}"
        found: dict[str, Any] = {"bom-ref": purl, "type": "library", "group": group, "name": name, "version": number}
        if digest:
            found["hashes"] = [{"alg": "SHA-256", "content": digest}]
        return {**found, "licenses": [{"expression": licence}], "purl": purl}

    found = []
    for jar in sorted(wheel_jars):
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()
        if match := re.fullmatch(r"aeron-all-(.+)\.jar", jar.name):
            found.append(component("aeron-all", "io.aeron", match.group(1), "Apache-2.0", digest))
            found += [
                component(name, group, f"in-aeron-all-{match.group(1)}", licence) for name, group, licence in SHADED
            ]
        else:
            found.append(component(jar.stem, "io.aeronspark", version, "Apache-2.0", digest))
    return found


def write_sbom(programs: Path, path: Path, version: str) -> None:
    """Write the SBOM of an installation without Spark, with the jars in it. Raises ReleaseError if it is not valid."""
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--output-reproducible",
        "--of",
        "JSON",
        "--sv",
        "1.6",
    ]
    run([*command, "-o", path, programs / "python"], path.parent, BUILD_S)
    sbom = json.loads(path.read_text(encoding="utf-8"))
    tools = {"pip", "setuptools"}  # of the environment, not of the product
    sbom["components"] = [part for part in sbom["components"] if part["name"] not in tools]
    sbom["components"] += jar_components((ROOT / JARS).rglob("*.jar"), version)
    refs = {part["bom-ref"] for part in sbom["components"]}
    sbom["dependencies"] = [item for item in sbom.get("dependencies", []) if item["ref"] in refs]
    text = json.dumps(sbom, indent=2, sort_keys=True) + "\n"
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise ReleaseError(f"the SBOM is not valid: {problem}")
    path.write_text(text, encoding="utf-8")


def release(target: Path, scratch: Path) -> list[Path]:
    """Build, compare, try and write a release; return its files. Raises ReleaseError."""
    changed = run(["git", "status", "--porcelain"], ROOT, BUILD_S)
    found = findings(ROOT, changed.strip())
    if found:
        raise ReleaseError("not a release yet:\n" + "\n".join(f"* {text}" for text in found))
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    version = setup["metadata"]["version"]
    epoch = int(run(["git", "log", "-1", "--format=%ct"], ROOT, BUILD_S))
    built = build(scratch / "first", epoch)
    if unequal := differing(built, build(scratch / "second", epoch)):
        raise ReleaseError(f"two builds differ in {', '.join(unequal)}: something in them depends on time or place")
    wheel = next(path for name, path in built.items() if name.endswith(".whl"))
    say("built twice, with equal bytes: " + ", ".join(sorted(built)))
    programs = install(wheel, "", scratch / "plain")
    try_without_spark(programs, scratch / "plain-home", version)
    say("without Spark: 100 rows sent and received")
    sbom = scratch / f"aeron_spark-{version}.cdx.json"
    write_sbom(programs, sbom, version)
    try_with_spark(install(wheel, "[spark]", scratch / "spark"), scratch / "spark-home")
    say("with Spark: the first example of the README ran twice")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = [Path(shutil.copy(path, target)) for path in (*built.values(), sbom)]
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files))
    (target / "SHA256SUMS").write_text(sums)
    return [*files, target / "SHA256SUMS"]


def say(text: str) -> None:
    """Print a line at once: the next one can take minutes."""
    print(text, flush=True)


def main() -> int:
    """Build the release; return the exit code."""
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="aeron-spark-release-") as scratch:
        try:
            files = release(target, Path(scratch))
        except ReleaseError as error:
            print(f"release: {error}", file=sys.stderr)
            return 1
    say("\n".join(f"{path.stat().st_size:>12,} {path}" for path in files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
