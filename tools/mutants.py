"""Changes single places of modules, and counts the changes that the tests without a JVM notice.

``python -m tools.mutants SEED COUNT PATH...`` makes COUNT mutants of the modules PATH, one after the other, in a copy
of the project: a comparison is turned, a condition negated, or a statement left out. It runs the tests that import the
module, and those of its folder. It prints a line for each mutant, and the number that a test noticed. Equal seeds make
equal mutants of equal modules.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.selection import Source, read_sources

ROOT: Final = Path(__file__).resolve().parents[1]
COPIED: Final = ("connector", "tests", "tools", "benchmarks", "demo", "deploy", "docs", "setup.cfg", "pyproject.toml")
TESTS_TIMEOUT_S: Final = 600.0  # ten times what the slowest folder takes; a mutant may wait for ever
TURNED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip

Change = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a module that can be changed: its line, what is done to it, and the function that does it."""

    line: int
    text: str
    change: Change


def places(tree: ast.Module) -> Iterator[Place]:
    """Yield the places of a module, in the order of the syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(node)
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
            yield Place(node.lineno, f"turn {ast.unparse(node)}", _turn(node))
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare):
            yield Place(node.lineno, f"negate {ast.unparse(node.test)}", _negate(node))


def mutant(text: str, number: float) -> tuple[str, Place] | None:
    """Return the text with one place changed, chosen by a number from 0 up to 1, and the place; None if it has none."""
    tree = ast.parse(text)
    found = list(places(tree))
    if not found:
        return None
    place = found[int(number * len(found))]
    place.change()
    return ast.unparse(ast.fix_missing_locations(tree)), place


def _statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Place]:
    for node in ast.walk(function):
        body: list[ast.stmt] = getattr(node, "body", []) if isinstance(node, ast.stmt) else []
        for index, statement in enumerate(body):
            is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Await)
            if is_call or isinstance(statement, ast.Assign | ast.AugAssign | ast.Delete | ast.Raise):
                yield Place(statement.lineno, f"leave out {ast.unparse(statement)}", _leave_out(body, index))


def _turn(node: ast.Compare) -> Change:
    def change() -> None:
        node.ops[0] = TURNED[type(node.ops[0])]()

    return change


def _negate(node: ast.If | ast.While | ast.IfExp) -> Change:
    def change() -> None:
        node.test = ast.UnaryOp(ast.Not(), node.test)

    return change


def _leave_out(body: list[ast.stmt], index: int) -> Change:
    def change() -> None:
        body[index] = ast.Pass()

    return change


def covering_tests(sources: Mapping[str, Source], path: str) -> list[str]:
    """Return the test files that import a module or the package that exports its names, and those of its folder.

    ``sources`` are those of the project, to which ``path`` is relative.
    """
    folder = f"tests/unit/{Path(path).parts[2]}/"
    exporting = {name for name, one in sources.items() if name.endswith("/__init__.py") and path in one.imports}
    return sorted(
        name
        for name, one in sources.items()
        if name.startswith("tests/unit/") and Path(name).name.startswith("test_")
        if one.imports & {path, *exporting} or name.startswith(folder)
    )


def fails(project: Path, tests: Sequence[str]) -> bool:
    """Whether a test fails, or takes too long, in a copy of the project."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--cpu-limit=0", *tests]
    command += ["-m", "not soak and not full and not peers and not slow", "--hypothesis-profile=quick"]
    environment = {**os.environ, "PYTHONPATH": f"{project / 'connector'}:{project}"}
    try:
        done = subprocess.run(
            command, cwd=project, env=environment, timeout=TESTS_TIMEOUT_S, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def copied(folder: Path) -> Path:
    """Copy what the tests without a JVM need of the project."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def main(seed: int, count: int, paths: Sequence[str]) -> None:
    """Make the mutants, and print each with its outcome."""
    chosen = random.Random(seed)
    noticed = made = 0
    sources = read_sources(ROOT)  # once: to parse the project takes seconds
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        project = copied(Path(name))
        if fails(project, sorted({test for path in paths for test in covering_tests(sources, path)})):
            sys.exit("a test fails without a mutant; run the tests of these modules to see which one")
        for _ in range(count):
            path = chosen.choice(paths)
            text = (ROOT / path).read_text(encoding="utf-8")
            changed = mutant(text, chosen.random())
            if changed is None:
                continue
            made += 1
            (project / path).write_text(changed[0], encoding="utf-8")
            found = fails(project, covering_tests(sources, path))
            (project / path).write_text(text, encoding="utf-8")
            noticed += found
            outcome = "noticed" if found else "SURVIVED"
            print(f"{outcome} {path}:{changed[1].line}: {changed[1].text[:90]}", flush=True)
    print(f"{noticed} of {made} mutants were noticed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
