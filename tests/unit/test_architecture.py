"""The shape of the code, read from its imports: which rule broke, and where.

Dependencies point one way:
``cli → spark → log_factory → pool → client, server, echo → direct, stream_client, streams → connection, log → node →
aeron, options, keys → wire, protocol, transport → waiting, process_cache, disk → errors, version``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
CONNECTOR: Final = ROOT / "connector"
MEASURED: Final = ("connector", "spark_jobs", "demo", "benchmarks", "tests")

MODULE_LINES: Final = 600
FUNCTION_LINES: Final = 60
NAMES_OF_NOTHING: Final = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}

# A part imports only from rows above its own, and from itself. Parts of one row know nothing of each other.
LAYERS: Final = (
    {"errors", "version"},
    {"waiting", "process_cache", "disk"},
    {"wire", "protocol", "transport"},
    {"options", "keys", "aeron"},
    {"node"},
    {"connection", "log"},
    {"direct", "stream_client", "streams"},
    {"client", "server", "echo"},
    {"pool"},
    {"log_factory"},
    {"spark"},
    {"cli"},
    {"__main__"},
)
RANK: Final = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

HOMES: Final = {
    "jpype": {"aeron"},
    "pyspark": {"spark"},
    "py4j": {"spark"},
    "delta": {"spark"},
    "cryptography": {"protocol"},
    "msgspec": {"protocol", "streams", "wire"},
    "click": {"cli"},
    "rich": {"cli"},
}

# No clock, no entropy, no I/O of its own: they are arguments, so that every test can choose them.
PURE: Final = {
    *("wire", "protocol", "log.epochs", "log.losses", "log.offsets", "log.planning"),
    *("streams.journal_records", "streams.ledger", "streams.model", "streams.retention", "streams.schema_changes"),
    *("streams.time_index",),
}
IMPURE_MODULES: Final = {"asyncio", "os", "random", "secrets", "socket", "subprocess", "threading", "time"}


class Import:
    """One import: the module it names, its line, and whether it waits until a function runs."""

    def __init__(self, module: str, line: int, *, lazy: bool) -> None:
        self.module = module
        self.line = line
        self.lazy = lazy


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """Yield the imports of a module of ``package``: absolute, relative, in functions, by name through importlib."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, lazy = pending.pop()
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            # what stands under TYPE_CHECKING never runs, but it is a dependency all the same
            typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and child in node.body
            pending.append((child, inside or typing_only))
        for module in _named_by(node, package):
            yield Import(module, getattr(node, "lineno", 0), lazy=lazy)


def _named_by(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            source = ".".join([*base, *([module] if module else [])])
            # `from aeron_spark import wire` names a part, `from aeron_spark.wire import Frame` does not
            return [f"{source}.{alias.name}" for alias in names] if source == "aeron_spark" else [source]
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            return [module]
    return []


def part_of(module: str) -> str:
    """``aeron_spark.wire.chunk`` -> ``wire``; the package's own ``__init__`` -> the empty string."""
    return [*module.split("."), ""][1]


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return what is wrong with one module of the connector, each with the rule it breaks."""
    tree = ast.parse(source)
    package = module if is_package else module.rpartition(".")[0]
    found = []
    for item in imports_of(tree, package):
        broken = _broken_rule(item, module)
        if broken:
            found.append(f"{module}:{item.line}: imports {item.module}, but {broken}")
    return sorted(found)


def _broken_rule(item: Import, module: str) -> str:
    target = item.module.split(".")[0]
    part = part_of(module)
    if module.split(".")[0] == "pyspark_aeron" or part == "":
        return _broken_entrance_rule(item, module)
    if part not in RANK:
        return f"{part!r} has no place in the layers: give it one in LAYERS"
    if target == "pyspark_aeron":
        return "pyspark_aeron is for Spark alone"
    if target in HOMES and part not in HOMES[target]:
        return f"{target} is imported by {' and '.join(sorted(HOMES[target]))} only"
    if target in IMPURE_MODULES and any(f"{module}.".startswith(f"aeron_spark.{pure}.") for pure in PURE):
        return "this part has no clock, no entropy and no I/O of its own"
    other = part_of(item.module) if target == "aeron_spark" else part
    if other in {"", part} or other.startswith("__"):
        return ""
    if other not in RANK:
        return f"{other!r} has no place in the layers: give it one in LAYERS"
    if RANK[other] >= RANK[part]:
        below = [name for row in LAYERS[: RANK[part]] for name in sorted(row)]
        return f"{part} may know only {', '.join(below) or 'nothing'}"
    return ""


def _broken_entrance_rule(item: Import, module: str) -> str:
    """The two packages everybody imports load nothing heavy until they are asked for it."""
    target, _, rest = item.module.partition(".")
    if item.lazy:
        return ""
    if target in HOMES or target == "pyarrow":
        return f"importing {module} must load nothing heavy"
    if target == "aeron_spark" and rest.split(".")[0] not in {"", "errors"}:
        return f"importing {module} loads errors at most: import the rest inside __getattr__"
    return ""


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or over others (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return found


def modules_imported(source: str, module: str, modules: set[str], *, is_package: bool = False) -> set[str]:
    """Return the modules of the connector that one imports, also inside functions and for type checkers only."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = _named_by(node, package)
        if isinstance(node, ast.ImportFrom):
            names = [name for source in names for name in (source, *(f"{source}.{one.name}" for one in node.names))]
        found |= modules & set(names)
    # a module of a package may need the package's own __init__, which imports it
    return {name for name in found if name != module and not module.startswith(f"{name}.")}


def oversized(source: str, name: str) -> list[str]:
    """Return the module and the functions of it that are longer than one can hold in mind."""
    found = []
    lines = len(source.splitlines())
    if lines > MODULE_LINES:
        found.append(f"{name}: {lines} lines, but a module has at most {MODULE_LINES}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                found.append(
                    f"{name}:{node.lineno}: {node.name} has {length} lines, but a function has at most {FUNCTION_LINES}"
                )
    return found


def connector_modules() -> list[Path]:
    return sorted(CONNECTOR.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(CONNECTOR).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", connector_modules(), ids=module_name)
def test_dependencies_point_one_way(path: Path) -> None:
    broken = violations(path.read_text(), module_name(path), is_package=path.name == "__init__.py")
    assert not broken, "\n".join(broken)


def test_the_page_has_the_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (`[^|]+`) \|", page, re.MULTILINE)
    listed = {part.strip(" `"): int(number) for number, parts in rows for part in parts.split(",")}
    assert listed == {part: rank for part, rank in RANK.items() if part != "__main__"}


def test_the_page_names_a_test_of_each_walk() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    walks = (ROOT / "tests" / "spark" / "test_walks.py").read_text()
    named = re.findall(r"Step through it: `(test_walk_\d\w+)`", page)
    assert [name for name in named if f"def {name}(" in walks] == re.findall(
        r"^def (test_walk\w+)", walks, re.MULTILINE
    )
    assert len(named) == page.count("\n## Walk ")


def test_modules_do_not_import_each_other() -> None:
    paths = {module_name(path): path for path in connector_modules()}
    imports = {
        name: modules_imported(path.read_text(), name, set(paths), is_package=path.name == "__init__.py")
        for name, path in paths.items()
    }
    assert imports["aeron_spark.log.planning"] >= {"aeron_spark.log.api", "aeron_spark.log.offsets"}
    assert circles(imports) == []


def test_a_planted_circle_is_caught() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_modules_and_functions_are_short() -> None:
    paths = [path for folder in MEASURED for path in sorted((ROOT / folder).rglob("*.py"))]
    assert Path(__file__).resolve() in paths
    found = [line for path in paths for line in oversized(path.read_text(), str(path.relative_to(ROOT)))]
    assert not found, "\n".join(found)


def test_files_are_named_after_a_role() -> None:
    unnamed = [str(path) for path in connector_modules() if {path.stem, path.parent.name} & NAMES_OF_NOTHING]
    assert not unnamed


def test_an_allowed_import_is_allowed() -> None:
    source = """
        import struct
        from aeron_spark.errors import DataFormatError
        from . import groups
    """
    assert violations(dedent(source), "aeron_spark.wire.chunk") == []


@pytest.mark.parametrize(
    ("module", "planted", "rule"),
    [
        ("aeron_spark.wire.chunk", "import aeron_spark.aeron.client", "wire may know only errors"),
        ("aeron_spark.wire.chunk", "from aeron_spark import transport", "wire may know only errors"),
        ("aeron_spark.wire.chunk", "from ..transport.channel import ChannelUri", "wire may know only errors"),
        ("aeron_spark.wire.chunk", "from .. import protocol", "wire may know only errors"),
        ("aeron_spark.wire.chunk", "import time", "no clock"),
        ("aeron_spark.log.planning", "from time import monotonic", "no clock"),
        ("aeron_spark.aeron.client", "from aeron_spark.options import read", "aeron may know only"),
        ("aeron_spark.log.api", "from aeron_spark.spark import source", "log may know only"),
        ("aeron_spark.streams.ledger", "import os", "no clock"),
        ("aeron_spark.streams.journal", "from aeron_spark.server import server", "streams may know only"),
        ("aeron_spark.node.keeper", "def run():\n    import jpype", "jpype is imported by aeron only"),
        ("aeron_spark.cli.main", "from pyspark.sql import SparkSession", "pyspark is imported by spark only"),
        (
            "aeron_spark.cli.keys",
            "import importlib\nimportlib.import_module('cryptography')",
            "cryptography is imported by",
        ),
        ("aeron_spark.log.api", "from rich.progress import Progress", "rich is imported by cli only"),
        ("aeron_spark.surprise", "import struct", "'surprise' has no place"),
        ("aeron_spark.spark.source", "import pyspark_aeron", "for Spark alone"),
        ("pyspark_aeron", "from aeron_spark.spark.source import AeronDataSource", "loads errors at most"),
        ("pyspark_aeron", "import pyspark", "nothing heavy"),
        ("aeron_spark", "import pyarrow", "nothing heavy"),
    ],
)
def test_a_planted_violation_is_caught(module: str, planted: str, rule: str) -> None:
    (found,) = [line for line in violations(planted, module) if "importlib," not in line]
    assert rule in found
    assert found.startswith(f"{module}:")


def test_what_waits_for_a_call_is_not_loaded_by_an_entrance() -> None:
    source = """
        def __getattr__(name):
            from aeron_spark.spark.source import AeronDataSource
    """
    assert violations(dedent(source), "pyspark_aeron", is_package=True) == []


def test_what_is_too_long_is_caught() -> None:
    longest = "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)
    assert oversized(longest, "m") == []
    (found,) = oversized(longest + "    x = 1\n", "m")
    assert found == f"m:1: f has {FUNCTION_LINES + 1} lines, but a function has at most {FUNCTION_LINES}"
    assert oversized("x = 1\n" * MODULE_LINES, "m") == []
    assert "a module has at most" in oversized("x = 1\n" * (MODULE_LINES + 1), "m")[0]
