"""Prints figures of the structure of the package, for one or more revisions: ``python -m tools.structure OLD NEW``.

Without an argument it reads the files of this folder. A revision is a name that git knows. Each figure is a count.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "connector/aeron_spark"
PAGE: Final = "docs/architecture.md"
MOST_PARAMETERS: Final = 7
_PRAGMA: Final = re.compile(r"#\s*(type: ignore|noqa|fmt: |pragma)")
_MODULE: Final = re.compile(r"`([a-z_]+/[a-z_]+)`|\b([a-z_]+/[a-z_]+)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the package: its dotted name without the package, its text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether the module is the ``__init__`` of a folder."""
        return self.name.endswith("__init__")


def figures(files: Mapping[str, str]) -> dict[str, int]:
    """Return the figures by name. ``files`` are texts by path from the project's folder."""
    modules = [_module(path, text) for path, text in sorted(files.items()) if path.endswith(".py")]
    own = [one for one in modules if not one.is_package]
    classes = Counter(node.name for one in modules for node in ast.walk(one.tree) if isinstance(node, ast.ClassDef))
    functions = [node for one in modules for node in ast.walk(one.tree) if isinstance(node, Function)]
    importers = _importers(modules)
    walks = {f"modules that the page names in walk {number}": count for number, count in _walks(files.get(PAGE, ""))}
    return {
        "lines": sum(len(one.text.splitlines()) for one in modules),
        "modules without __init__": len(own),
        "modules with one importer": sum(len(importers[one.name]) == 1 for one in own),
        "modules of less than 80 lines": sum(len(one.text.splitlines()) < 80 for one in own),
        "classes": classes.total(),
        "class names that occur twice": sum(count > 1 for count in classes.values()),
        "event, effect and action classes": _records_of_machines(modules),
        "protocols and abstract classes": sum(_is_abstract(node) for one in modules for node in ast.walk(one.tree)),
        "methods that only pass a call on": sum(map(_passes_on, functions)),
        f"functions with more than {MOST_PARAMETERS} parameters": sum(
            _parameters(one) > MOST_PARAMETERS for one in functions
        ),
        "comments": sum(_comments(one.text) for one in modules),
        **walks,
    }


def _module(path: str, text: str) -> Module:
    name = ".".join(PurePosixPath(path).relative_to(PACKAGE).with_suffix("").parts)
    return Module(name, text, ast.parse(text))


def _importers(modules: list[Module]) -> dict[str, set[str]]:
    """Return the modules that import each module, by its name."""
    names = {one.name for one in modules}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one in modules:
        for node in ast.walk(one.tree):
            for target in _targets(node):
                if target in names and target != one.name:
                    found[target].add(one.name)
    return found


def _targets(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aeron_spark"):
        base = (node.module or "").removeprefix("aeron_spark").lstrip(".")
        yield base
        yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (alias.name.removeprefix("aeron_spark.") for alias in node.names)


def _records_of_machines(modules: list[Module]) -> int:
    """Count the classes by which a state machine and its runner tell each other what happened."""
    return sum(
        isinstance(node, ast.ClassDef)
        for one in modules
        if one.name.startswith("protocol.") and one.name.endswith(("_events", "_effects", "_handshake", "_machine"))
        for node in one.tree.body
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(line) for line in node.decorator_list)
    )


def _is_abstract(node: ast.AST) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    bases = {ast.unparse(base).split("[")[0] for base in node.bases}
    return bool(bases & {"Protocol", "ABC", "abc.ABC", "typing.Protocol"})


def _passes_on(function: Function) -> bool:
    """Whether a method only calls a method of the same name of an attribute, with its own arguments."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    call = body[0].value
    call = call.value if isinstance(call, ast.Await) else call
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    same_name = call.func.attr.strip("_") == function.name.strip("_")
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    own = {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    given = [one.value if isinstance(one, ast.Starred) else one for one in arguments]
    return same_name and all(isinstance(one, ast.Name) and one.id in own | {"args", "kwargs"} for one in given)


def _parameters(function: Function) -> int:
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def _comments(text: str) -> int:
    """Count the comments of a module. Comments on consecutive lines are one, and pragmas are none."""
    lines = [
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not _PRAGMA.match(token.string)
    ]
    return sum(line - 1 not in lines for line in lines)


def _walks(page: str) -> Iterator[tuple[str, int]]:
    for section in page.split("\n## Walk ")[1:]:
        named = {one for found in _MODULE.findall(section.split("\n## ")[0]) for one in found if one}
        yield section[0], len(named)


def read_folder(root: Path = ROOT) -> dict[str, str]:
    """Return the files of a folder that the figures are about, by their paths in it."""
    paths = [*(root / PACKAGE).rglob("*.py"), root / PAGE]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def read_revision(revision: str) -> dict[str, str]:
    """Return the same files of a revision. Raises CalledProcessError if git does not know it."""
    command = ["git", "-C", str(ROOT), "archive", revision, PACKAGE, PAGE]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        names = [name for name in files.getnames() if name.endswith((".py", ".md"))]
        return {name: _text(files, name) for name in names}


def _text(files: tarfile.TarFile, name: str) -> str:
    file = files.extractfile(name)
    assert file is not None, f"{name} is no file"
    return file.read().decode()


def table(columns: Mapping[str, Mapping[str, int]]) -> str:
    """Return the figures as a table of Markdown, with a column for each revision."""
    rows = dict.fromkeys(name for column in columns.values() for name in column)
    lines = [f"| figure | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in rows:
        cells = (f"{column[name]:,}" if name in column else "-" for column in columns.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    read = {revision: read_revision(revision) for revision in sys.argv[1:]} or {"now": read_folder()}
    print(table({name: figures(files) for name, files in read.items()}))
