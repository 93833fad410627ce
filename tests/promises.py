"""The promises of the product, each with the tests that show it.

``tests/promises.txt`` has them, by the page that makes them::

    # exactly-once
    ## Reading: exactly once
    A sentence that a user could say, and could be wrong.
        name_of_a_test
        the_start_of_some_tests_*

A name lacks ``test_``, and may have ``*`` and ``?``. ``full:`` before a name says that no test of ``make test`` shows
the promise. ``python -m tests.promises > docs/promises.md`` writes the page, and
``tests/unit/test_promises.py`` compares it. ``python -m tests.promises compare OLD NEW`` (revisions of git, or folders)
fails if a promise has no test any more, or fewer tests that use only public names.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.programs import ROOT

TABLE: Final = "tests/promises.txt"
# The modules that programs import. A test that imports other modules of the package, or uses a private
# attribute, is internal.
PUBLIC: Final = frozenset(
    {
        "aeron_spark", "aeron_spark.aio", "aeron_spark.errors", "aeron_spark.node", "aeron_spark.spark",
        "pyspark_aeron",
    }
)  # fmt: skip
# `make test` runs a tenth of the sampled ones, and none of the others.
RARE: Final = ("full", "peers", "sampled", "soak")
_HEAD: Final = """\
# Promises, and the tests that show them

`tests/promises.txt` has each promise of the pages in one sentence, with the names of its tests; `make docs` counts them
here. `product` is README.md and what several pages say. The behaviours of the endpoint have the numbers that the names
of their tests have; two public systems, dorkbox Network and the Echo programs of the aeron-guide, show which of them an
endpoint over Aeron needs.

| page | section | promises | tests | of these with public names only | promises only of `make test-full` |
|---|---|---|---|---|---|
"""
_FULL: Final = "full:"


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise of a section of a page, and the patterns of the names of its tests.

    ``is_rare``: the table says that only rare runs show it.
    """

    page: str
    section: str
    text: str
    tests: tuple[str, ...] = ()
    is_rare: bool = False


@dataclass(frozen=True, slots=True)
class FoundTest:
    """A test function: its name without ``test_``, and its file relative to the repository.

    ``mark`` is a mark of RARE, or "".
    """

    name: str
    path: str
    mark: str = ""
    is_public: bool = False


def parse(text: str) -> list[Promise]:
    """Return the promises of a table. Raises ValueError with the number of a wrong line."""
    promises: list[Promise] = []
    page = section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("# "):
            page, section = line[2:], ""
        elif line.startswith("    ") and promises:
            last, name = promises[-1], line.strip()
            tests = (*last.tests, name.removeprefix(_FULL).strip())
            promises[-1] = replace(last, tests=tests, is_rare=last.is_rare or name.startswith(_FULL))
        elif line and not line.startswith(" ") and page:
            promises.append(Promise(page, section, line))
        elif line:
            raise ValueError(f"line {number} is neither a heading, a promise nor a test: {line}")
    return promises


def find_tests(root: Path) -> Iterator[FoundTest]:
    """Yield the tests below ``root/tests``."""
    for path in sorted((root / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        scopes: list[ast.Module | ast.ClassDef] = [tree, *(one for one in tree.body if isinstance(one, ast.ClassDef))]
        functions = [
            (node, scope)
            for scope in scopes
            for node in scope.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        ]
        if functions:
            is_public = _is_public(tree)
            of_module = [node.value for node in tree.body if isinstance(node, ast.Assign) and _is_pytestmark(node)]
            for node, scope in functions:
                of_class = scope.decorator_list if isinstance(scope, ast.ClassDef) else []
                marks = {name for one in (*of_module, *of_class, *node.decorator_list) for name in _marks(one)}
                mark = next((one for one in RARE if one in marks), "")
                name = node.name.removeprefix("test_")
                yield FoundTest(name, path.relative_to(root).as_posix(), mark, is_public)


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def _marks(node: ast.expr) -> Iterator[str]:
    """Yield the marks that a decorator or a ``pytestmark`` applies to the whole test, not to some of its arguments."""
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for element in elements:
                yield from _marks(element)
        case ast.Call(func=ast.Attribute() as function):
            yield from _marks(function)
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="pytest"), attr="mark"), attr=name):
            yield name


def _is_public(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                parts = [f"{module}.{alias.name}" for alias in names]
                modules = (
                    parts if module == "aeron_spark" and all(alias.name.islower() for alias in names) else [module]
                )
            case ast.Attribute(value=value, attr=name) if name.startswith("_") and not name.endswith("__"):
                if not (isinstance(value, ast.Name) and value.id in ("self", "cls")):
                    return False
                continue
            case _:
                continue
        if any(one.split(".")[0] in ("aeron_spark", "pyspark_aeron") and one not in PUBLIC for one in modules):
            return False
    return True


def shown_by(promises: Iterable[Promise], tests: Iterable[FoundTest]) -> dict[Promise, dict[str, list[FoundTest]]]:
    """Return the tests of each promise, by pattern."""
    by_name: dict[str, list[FoundTest]] = defaultdict(list)
    for test in tests:
        by_name[test.name].append(test)

    def found(pattern: str) -> list[FoundTest]:
        if not set("*?") & set(pattern):
            return by_name.get(pattern, [])
        return [test for name, tests in by_name.items() if fnmatchcase(name, pattern) for test in tests]

    return {promise: {pattern: found(pattern) for pattern in promise.tests} for promise in promises}


def problems(shown: Mapping[Promise, Mapping[str, Sequence[FoundTest]]]) -> list[str]:
    """Return what is wrong: repeated promises, patterns without a test, and promises that no run of make test shows."""
    found, seen = [], set()
    for promise, tests in shown.items():
        if promise.text in seen:
            found.append(f"stands twice: {promise.text}")
        seen.add(promise.text)
        unknown = [f"no test has the name {pattern}: {promise.text}" for pattern, some in tests.items() if not some]
        found += unknown
        marks = {test.mark for some in tests.values() for test in some}
        if not unknown and bool(marks & {"", "sampled"}) == promise.is_rare:
            found.append(f"{'a' if promise.is_rare else 'no'} test of make test shows: {promise.text}")
    return found


def markdown(shown: Mapping[Promise, Mapping[str, Sequence[FoundTest]]]) -> str:
    """Return the text of ``docs/promises.md``."""
    sections: dict[tuple[str, str], list[Promise]] = {}
    for promise in shown:
        sections.setdefault((promise.page, promise.section), []).append(promise)
    rows = []
    for (page, section), promises in sections.items():
        tests = {test for promise in promises for some in shown[promise].values() for test in some}
        public, rare = sum(test.is_public for test in tests), sum(promise.is_rare for promise in promises)
        rows.append(f"| {page} | {section} | {len(promises)} | {len(tests)} | {public} | {rare} |\n")
    return _HEAD + "".join(rows)


def losses(
    old: Mapping[Promise, Mapping[str, Sequence[FoundTest]]], new: Mapping[Promise, Mapping[str, Sequence[FoundTest]]]
) -> list[str]:
    """Return the promises that vanished, that have no test any more, or fewer tests of public names."""
    before, after = {one.text: tests for one, tests in old.items()}, {one.text: tests for one, tests in new.items()}
    found = []
    for text, tests in before.items():
        if text not in after:
            found.append(f"no promise any more: {text}")
        elif not any(after[text].values()):
            found.append(f"no test any more: {text}")
        elif (less := _public(after[text])) < (more := _public(tests)):
            found.append(f"{less} instead of {more} tests of public names: {text}")
    return found


def _public(tests: Mapping[str, Sequence[FoundTest]]) -> int:
    return len({test for some in tests.values() for test in some if test.is_public})


def read(root: Path, default: Iterable[Promise] = ()) -> dict[Promise, dict[str, list[FoundTest]]]:
    """Return the promises of a tree with their tests; ``default`` are those of a tree without a table."""
    table = root / TABLE
    promises = parse(table.read_text(encoding="utf-8")) if table.exists() else default
    return shown_by(promises, find_tests(root))


def read_revision(revision: str, default: Iterable[Promise] = ()) -> dict[Promise, dict[str, list[FoundTest]]]:
    """Return the promises of a folder, or of a revision of this repository, as :func:`read` does."""
    if Path(revision).is_dir():
        return read(Path(revision), default)
    packed = subprocess.run(["git", "archive", revision, "tests"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        return read(Path(folder), default)


def main(arguments: Sequence[str]) -> int:
    """Print the page; or compare two trees, and return 1 if a promise lost tests."""
    match arguments:
        case []:
            sys.stdout.write(markdown(read(ROOT)))
            return 0
        case ["compare", old, new]:
            after = read_revision(new)
            lost = losses(read_revision(old, after), after)
            print("\n".join(lost) or "each promise has as many tests of public names as before")
            return 1 if lost else 0
    print("usage: python -m tests.promises [compare OLD NEW]", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
