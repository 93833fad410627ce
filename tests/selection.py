"""Selects the tests of ``make check``: the tests without a JVM that a change can break.

The change is the difference from the trunk: uncommitted changes, new files, and commits that ``origin/main`` lacks. If
there is none, it is the last commit.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tests.import_graph import modules_imported
from tests.programs import ROOT

TRUNK: Final = "origin/main"
UNIT: Final = "tests/unit"
# Folders whose tests run only if the folder or its tests changed, and their tests.
PROGRAMS: Final = {
    "benchmarks": f"{UNIT}/benchmarks",
    "demo": f"{UNIT}/demo",
    "deploy": f"{UNIT}/deploy",
    "spark_jobs": f"{UNIT}/jobs",
}
# These check the files of the whole project, whichever changed.
WHOLE_PROJECT: Final = {
    f"{UNIT}/test_{name}.py"
    for name in (
        "architecture", "counter_types", "exports", "fixtures", "interoperability",
        "page_types", "pages", "promises", "public_names", "readme", "remains", "threads",
    )
}  # fmt: skip
SETTINGS: Final = {"setup.cfg", "constraints.txt"}  # of Python and pytest: all tests depend on them


@dataclass(frozen=True, slots=True)
class Source:
    """A module of Python: its text, and the paths of the modules that it imports."""

    text: str
    imports: frozenset[str] = frozenset()


def select(changed: Iterable[str], sources: Mapping[str, Source]) -> set[str]:
    """Return the test files that a change of the paths can break; all paths are relative to the project's folder.

    A test file depends on the modules that it imports, directly or through other modules. It depends on another file if
    it, or a module of tests that it imports, has the file's name or its folder's name as a text. All tests of a changed
    package run, and those of ``WHOLE_PROJECT`` always.
    """
    changed = set(changed)
    tests = {path for path in sources if _is_test(path)}
    folders = {_tests_of(path) for path in changed}
    of_programs = {path for path in tests if _folder(path) in PROGRAMS.values()}
    others = {path for path in changed if not path.endswith(".py")}
    mention = {path for path, one in sources.items() if path.startswith("tests/") and _mentions(one.text, others)}
    reached = _with_importers((changed & sources.keys()) | mention, sources)
    return {path for path in of_programs if path in changed or _folder(path) in folders} | {
        path
        for path in tests - of_programs
        if changed & SETTINGS or path in reached | WHOLE_PROJECT or _folder(path) in folders
    }


def _is_test(path: str) -> bool:
    return path.startswith(f"{UNIT}/") and PurePosixPath(path).name.startswith("test_")


def _folder(path: str) -> str:
    """Return the folder of a test file: ``tests/unit/wire``, or ``tests/unit`` for a file in it."""
    return "/".join(PurePosixPath(path).parts[:-1][:3])


def _tests_of(path: str) -> str:
    """Return the folder with the tests of a changed file; "" if the file belongs to no such folder."""
    parts = PurePosixPath(path).parts
    if parts[:2] == ("connector", "aeron_spark"):
        return f"{UNIT}/{parts[2]}"
    if path.startswith(f"{UNIT}/") and not _is_test(path):  # what the tests of a folder share
        return _folder(path)
    return PROGRAMS.get(parts[0], "")


def _mentions(text: str, others: set[str]) -> bool:
    paths = [PurePosixPath(path) for path in others]
    return any(path.name in text or (path.parent.name and f'"{path.parent.name}"' in text) for path in paths)


def _with_importers(paths: set[str], sources: Mapping[str, Source]) -> set[str]:
    """Return the paths, and all that import one of them, directly or through others."""
    importers: dict[str, list[str]] = {}
    for path, source in sources.items():
        for imported in source.imports:
            importers.setdefault(imported, []).append(path)
    found, pending = set(paths), list(paths)
    while pending:
        new = set(importers.get(pending.pop(), ())) - found
        found |= new
        pending += new
    return found


def read_sources(root: Path = ROOT) -> dict[str, Source]:
    """Read the modules of the connector and the tools, of the tests without a JVM, and of those that tests share."""
    tests = root / "tests"
    searches = [(root / "connector").rglob, (root / "tools").glob, tests.glob, (root / UNIT).rglob]
    files = [path for search in searches for path in search("*.py")]
    names = {_module_name(path.relative_to(root)): path.relative_to(root).as_posix() for path in files}
    found = {}
    for name, path in names.items():
        text = (root / path).read_text(encoding="utf-8")
        modules = modules_imported(text, name, set(names), is_package=path.endswith("/__init__.py"))
        imports = {names[module] for module in modules}
        if _is_test(path):  # pytest imports these itself
            folders = [parent.as_posix() for parent in PurePosixPath(path).parents]
            imports |= {f"{folder}/conftest.py" for folder in folders} & set(names.values())
        found[path] = Source(text, frozenset(imports))
    return found


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[parts[0] == "connector" : len(parts) - (parts[-1] == "__init__")])


def changed_paths(root: Path = ROOT) -> set[str] | None:
    """Return the paths of the change; None if git does not know them."""

    def git(*arguments: str) -> list[str]:
        command = ["git", "-c", "core.quotePath=false", *arguments]
        return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()

    try:
        (base,) = git("merge-base", "HEAD", TRUNK)
        changed = git("diff", "--name-only", "--no-renames", base)
        changed += git("ls-files", "--others", "--exclude-standard")
        return set(changed or git("diff", "--name-only", "--no-renames", "HEAD~1", "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        return None


def selected_tests(root: Path = ROOT) -> list[str]:
    """Return the arguments for pytest that select the tests of the change, and print what they are."""
    changed = changed_paths(root)
    if changed is None:
        print(f"all tests without a JVM: git does not know what changed since {TRUNK}", flush=True)
        return [UNIT]
    sources = read_sources(root)
    selected = sorted(select(changed, sources))
    count = sum(map(_is_test, sources))
    about = f"{len(selected)} of {count} test files, for {len(changed)} changed files"
    print(f"{about}; `make check ALL=yes` runs all", flush=True)
    return selected
