"""Checks the structure of the code by its imports and sizes.

A part may import only the parts to the right of it:
``cli → jobs → spark → log_factory → pool, aio → client, server, echo → backup → direct, stream_client, streams →
connection, log → node → aeron, options, keys → wire, protocol, transport, sbe → waiting, files and other small modules
→ errors, version``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

from tests.import_graph import modules_imported, named_by, statements
from tests.programs import CONNECTOR, ROOT

MEASURED: Final = ("connector", "spark_jobs", "demo", "benchmarks", "tools", "tests")

MODULE_LINES: Final = 1000
FUNCTION_LINES: Final = 60
VAGUE_NAMES: Final = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}

# A part imports only parts of rows above its own, and itself. Parts of one row do not import each other.
LAYERS: Final = (
    {"errors", "version"},
    {
        *("waiting", "process", "reused_threads", "facts", "files", "texts", "unix_sockets"),
    },
    {"rows", "wire", "protocol", "transport", "sbe"},
    {"options", "keys", "aeron"},
    {"node"},
    {"endpoint", "log"},
    {"direct", "stream_client", "streams"},
    {"backup"},
    {"client", "server", "echo"},
    {"pool", "aio"},
    {"log_factory"},
    {"spark"},
    {"jobs"},
    {"cli"},
    {"__main__"},
)
RANK: Final = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

HOMES: Final = {
    "jpype": {"aeron"},
    "pyspark": {"jobs", "spark"},
    "py4j": {"spark"},
    "delta": {"spark"},
    "cryptography": {"protocol"},
    "msgspec": {"backup", "protocol", "streams", "wire"},
    "click": {"cli"},
    "rich": {"cli"},
}

# Modules without a clock, entropy and I/O: these are arguments, which tests can choose.
PURE: Final = {
    *("facts", "texts", "rows", "wire", "protocol", "aeron.archive_catalog", "backup.frames", "backup.manifest"),
    *("sbe.columns", "sbe.encoding", "sbe.field_values", "sbe.model", "sbe.schema", "sbe.settings", "sbe.table"),
    *("log.epochs", "log.losses", "log.offsets", "log.overlaps", "log.planning"),
    *("streams.journal_records", "streams.ledger", "streams.model", "streams.reader_leases", "streams.retention"),
    *("streams.schema_changes", "streams.time_index", "streams.writers", "server.event_table"),
}
IMPURE_MODULES: Final = {"asyncio", "os", "random", "secrets", "socket", "subprocess", "threading", "time"}


class Import:
    """An import: its module, its line, and whether it happens only when a function runs."""

    def __init__(self, module: str, line: int, *, lazy: bool) -> None:
        self.module = module
        self.line = line
        self.lazy = lazy


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """Yield the imports of a module in ``package``: absolute, relative, inside functions, and through importlib."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, lazy = pending.pop()
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            # an import under TYPE_CHECKING never runs, but it is a dependency
            typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and child in node.body
            pending.append((child, inside or typing_only))
        for module in named_by(node, package):
            yield Import(module, getattr(node, "lineno", 0), lazy=lazy)


def part_of(module: str) -> str:
    """Return the part of a module: ``wire`` for ``aeron_spark.wire.chunks``, "" for the package's ``__init__``."""
    return [*module.split("."), ""][1]


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return the imports of a module that break a rule, each with the rule."""
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
        return _broken_rule_of_light_packages(item, module)
    if part not in RANK:
        return f"{part!r} is missing in the layers: add it to LAYERS"
    if target == "pyspark_aeron":
        return "pyspark_aeron is for Spark alone"
    if target in HOMES and part not in HOMES[target]:
        return f"{target} is imported by {' and '.join(sorted(HOMES[target]))} only"
    if target in IMPURE_MODULES and any(f"{module}.".startswith(f"aeron_spark.{pure}.") for pure in PURE):
        return "this module must have no clock, no entropy and no I/O"
    other = part_of(item.module) if target == "aeron_spark" else part
    if other in {"", part} or other.startswith("__"):
        return ""
    if other not in RANK:
        return f"{other!r} is missing in the layers: add it to LAYERS"
    if RANK[other] >= RANK[part]:
        below = [name for row in LAYERS[: RANK[part]] for name in sorted(row)]
        return f"{part} may import only {', '.join(below) or 'nothing'}"
    return ""


def _broken_rule_of_light_packages(item: Import, module: str) -> str:
    """Return the rule that an import in ``aeron_spark/__init__`` or ``pyspark_aeron`` breaks.

    Programs and Spark import these two modules before they use the package, so their import loads nothing heavy.
    """
    target, _, rest = item.module.partition(".")
    if item.lazy:
        return ""
    if target in HOMES or target == "pyarrow":
        return f"importing {module} must load nothing heavy"
    if target == "aeron_spark" and rest.split(".")[0] not in {"", "errors"}:
        return f"importing {module} loads errors at most: import the rest inside __getattr__"
    return ""


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or indirectly (Tarjan's algorithm)."""
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


def oversized(source: str, name: str) -> list[str]:
    """Return errors for a module, and its functions, that are too long."""
    found = []
    lines = len(source.splitlines())
    if lines > MODULE_LINES:
        found.append(f"{name}: {lines} lines, but a module has at most {MODULE_LINES}")
    for node in functions(ast.parse(source)):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES:
            found.append(
                f"{name}:{node.lineno}: {node.name} has {length} lines, but a function has at most {FUNCTION_LINES}"
            )
    return found


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a module."""
    yield from (node for node in statements(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def connector_modules() -> list[Path]:
    jobs = CONNECTOR / "aeron_spark" / "jobs"  # a link to spark_jobs, which rglob does not follow
    return sorted([*CONNECTOR.rglob("*.py"), *jobs.glob("*.py")])


def module_name(path: Path) -> str:
    parts = path.relative_to(CONNECTOR).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", connector_modules(), ids=module_name)
def test_a_module_imports_only_modules_below_it(path: Path) -> None:
    broken = violations(path.read_text(), module_name(path), is_package=path.name == "__init__.py")
    assert not broken, "\n".join(broken)


def test_the_page_has_the_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (`[^|]+`) \|", page, re.MULTILINE)
    listed = {part.strip(" `"): int(number) for number, parts in rows for part in parts.split(",")}
    assert listed == {part: rank for part, rank in RANK.items() if part != "__main__"}


def test_each_pure_part_exists() -> None:
    """A rule for a module that has another name by now would hold for nothing."""
    names = {module_name(path).removeprefix("aeron_spark.").removesuffix(".__init__") for path in connector_modules()}
    assert PURE - names == set()


def test_the_page_names_only_modules_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"(?<![\w/.-])([a-z_]+/[a-z_0-9]+)(?![\w/.-])", page))
    of_packages = {name for name in named if (CONNECTOR / "aeron_spark" / name.split("/")[0]).is_dir()}
    assert len(of_packages) > 50
    assert [name for name in sorted(of_packages) if not (CONNECTOR / "aeron_spark" / f"{name}.py").exists()] == []


def test_the_page_names_a_test_of_each_walk() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    walks = (ROOT / "tests" / "spark" / "test_walks.py").read_text()
    named = re.findall(r"Step through it: `(test_walk_\d\w+)`", page)
    assert [name for name in named if f"def {name}(" in walks] == re.findall(
        r"^def (test_walk\w+)", walks, re.MULTILINE
    )
    assert len(named) == page.count("\n## Walk ")


@pytest.mark.slow
def test_modules_do_not_import_each_other() -> None:
    paths = {module_name(path): path for path in connector_modules()}
    imports = {
        name: modules_imported(path.read_text(), name, set(paths), is_package=path.name == "__init__.py")
        for name, path in paths.items()
    }
    assert imports["aeron_spark.log.planning"] >= {"aeron_spark.log.api", "aeron_spark.log.offsets"}
    assert circles(imports) == []


def test_a_circle_of_imports_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.slow
def test_modules_and_functions_are_short() -> None:
    paths = [path for folder in MEASURED for path in sorted((ROOT / folder).rglob("*.py"))]
    assert Path(__file__).resolve() in paths
    found = [line for path in paths for line in oversized(path.read_text(), str(path.relative_to(ROOT)))]
    assert not found, "\n".join(found)


def test_no_file_has_a_vague_name() -> None:
    unnamed = [str(path) for path in connector_modules() if {path.stem, path.parent.name} & VAGUE_NAMES]
    assert not unnamed


def test_an_allowed_import_is_no_violation() -> None:
    source = """
        import struct
        from aeron_spark.errors import DataFormatError
        from . import groups
    """
    assert violations(dedent(source), "aeron_spark.wire.chunks") == []


@pytest.mark.parametrize(
    ("module", "source", "rule"),
    [
        ("aeron_spark.wire.chunks", "import aeron_spark.aeron.client", "wire may import only errors"),
        ("aeron_spark.wire.chunks", "from aeron_spark import transport", "wire may import only errors"),
        ("aeron_spark.wire.chunks", "from ..transport.channel import ChannelUri", "wire may import only errors"),
        ("aeron_spark.wire.chunks", "from .. import protocol", "wire may import only errors"),
        ("aeron_spark.wire.chunks", "import time", "no clock"),
        ("aeron_spark.log.planning", "from time import monotonic", "no clock"),
        ("aeron_spark.aeron.client", "from aeron_spark.options import read", "aeron may import only"),
        ("aeron_spark.log.api", "from aeron_spark.spark import source", "log may import only"),
        ("aeron_spark.streams.ledger", "import os", "no clock"),
        ("aeron_spark.streams.journal", "from aeron_spark.server import server", "streams may import only"),
        ("aeron_spark.node.keeper", "def run():\n    import jpype", "jpype is imported by aeron only"),
        ("aeron_spark.cli.main", "from pyspark.sql import SparkSession", "pyspark is imported by jobs and spark only"),
        (
            "aeron_spark.cli.keys",
            "import importlib\nimportlib.import_module('cryptography')",
            "cryptography is imported by",
        ),
        ("aeron_spark.log.api", "from rich.progress import Progress", "rich is imported by cli only"),
        ("aeron_spark.unlisted", "import struct", "'unlisted' is missing in the layers"),
        ("aeron_spark.spark.source", "import pyspark_aeron", "for Spark alone"),
        ("pyspark_aeron", "from aeron_spark.spark.source import AeronDataSource", "loads errors at most"),
        ("pyspark_aeron", "import pyspark", "nothing heavy"),
        ("aeron_spark", "import pyarrow", "nothing heavy"),
    ],
)
def test_a_forbidden_import_is_a_violation(module: str, source: str, rule: str) -> None:
    (found,) = [line for line in violations(source, module) if "importlib," not in line]
    assert rule in found
    assert found.startswith(f"{module}:")


def test_pyspark_aeron_may_import_the_data_source_inside_a_function() -> None:
    source = """
        def __getattr__(name):
            from aeron_spark.spark.source import AeronDataSource
    """
    assert violations(dedent(source), "pyspark_aeron", is_package=True) == []


def test_modules_and_functions_that_are_too_long_are_found() -> None:
    longest = "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)
    assert oversized(longest, "m") == []
    (found,) = oversized(longest + "    x = 1\n", "m")
    assert found == f"m:1: f has {FUNCTION_LINES + 1} lines, but a function has at most {FUNCTION_LINES}"
    assert oversized("x = 1\n" * MODULE_LINES, "m") == []
    assert "a module has at most" in oversized("x = 1\n" * (MODULE_LINES + 1), "m")[0]
