"""Rules that make the package easy to read. ``test_architecture.py`` has those about imports.

Each table of exceptions is exact: an exception that is not needed any more is an error, so the tables only get shorter.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from tests.programs import ROOT

PACKAGE: Final = ROOT / "connector" / "aeron_spark"
MIN_LINES: Final = 80
MAX_LINES: Final = 1_000
MAX_PARAMETERS: Final = 7

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

SHORT_MODULES: Final = frozenset(
    {
        "__main__",
        "aeron.checksum",
        "cli.formats",
        "endpoint.owner",
        "facts",
        "protocol.transitions",
        "server.command_server",
        "version",
    }
)
"""Modules of fewer lines, whose importers have no other module in common."""

LONG_SIGNATURES: Final = {
    "cli.bans": "add",
    "cli.bench": "load",
    "cli.connections": "kick",
    "cli.driver_stats": "top",
    "cli.echo": "client server",
    "cli.server": "backup",
    "cli.streams": "create purge",
    "cli.transfer": "receive send",
    "endpoint.links": "__init__",
    "endpoint.peer_calls": "__init__",
    "options.declaration": "option",
    "stream_client.buffered_writer": "__init__",
    "stream_client.reader": "__init__",
    "stream_client.writer": "__init__",
}
"""Functions with more parameters, by module."""

REPEATED_NAMES: Final = {
    "Client": 2,
    "StreamReader": 2,
    "StreamWriter": 2,
    "BufferedWriter": 2,
    "ClientOptions": 2,
    "ServerOptions": 2,
    "State": 2,
    "Event": 2,
    "Send": 2,
    "Ignored": 2,
    "Failure": 2,
}
"""Classes that have their name in several modules, with the number of modules.

Those of ``aio`` are the awaited form of the class without asyncio; those of ``options.keywords`` type the keywords of a
program; ``client_handshake`` and ``server_handshake`` have the same states and actions of two endpoints.
"""

_DURATION: Final = re.compile(r"TIMEOUT|INTERVAL|DELAY|PAUSE|ATTEMPTS|RETRIES|PERIOD_S|GRACE|BACKOFF")
_SILENT_WORDS: Final = {
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "get", "has", "have", "if", "in", "is", "it", "its",
    "of", "on", "or", "return", "that", "the", "this", "to", "whether", "with", "yield",
}  # fmt: skip


@cache
def modules() -> dict[str, tuple[str, ast.Module]]:
    """Return text and syntax tree of each module by its name without the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found[".".join(path.relative_to(PACKAGE).with_suffix("").parts)] = (text, ast.parse(text))
    return found


def definitions() -> Iterator[tuple[str, Definition]]:
    for name, (_, tree) in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, Definition):
                yield name, node


def words(text: str) -> set[str]:
    """Return the words of a text or a name, in lower case and in the singular."""
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)
    return {word.lower().rstrip("s") for word in re.findall(r"[A-Za-z]+", parted)}


def parameters(function: Function) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([one for one in named if one.arg not in {"self", "cls"}])


def repeats_name_and_types(node: Definition) -> bool:
    """Whether a docstring of one line has no word that name, parameters and types do not have."""
    text = ast.get_docstring(node)
    if not text or "\n" in text:
        return False
    own = words(node.name)
    if not isinstance(node, ast.ClassDef):
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            own |= words(one.arg) | (words(ast.unparse(one.annotation)) if one.annotation else set())
        own |= words(ast.unparse(node.returns)) if node.returns else set()
    return words(text) - _SILENT_WORDS <= own


def without_reason(text: str, tree: ast.Module) -> Iterator[str]:
    """Yield the constants of a module that are times or numbers of attempts, and have no comment."""
    lines = text.split("\n")
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if not isinstance(target, ast.Name) or not _DURATION.search(target.id) or not _is_number(node):
            continue
        own = "".join(lines[node.lineno - 1 : node.end_lineno])
        is_documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if "#" not in own and not lines[node.lineno - 2].startswith("#") and not is_documented:
            yield target.id


def skipped_besides_tables(text: str, tree: ast.Module) -> int:
    """Return the number of comments ``fmt: skip`` that do not end a list, dict, tuple or set of several lines."""
    tables = {
        node.end_lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.List | ast.Dict | ast.Tuple | ast.Set) and node.end_lineno != node.lineno
    }
    skipped = [number for number, line in enumerate(text.split("\n"), 1) if line.endswith("# fmt: skip")]
    return sum(number not in tables for number in skipped)


def _is_number(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.AnnAssign) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)


def test_a_module_has_one_subject_of_80_to_1000_lines() -> None:
    lines = {name: len(text.splitlines()) for name, (text, _) in modules().items()}
    assert [name for name, count in lines.items() if count > MAX_LINES] == []
    short = {name for name, count in lines.items() if count < MIN_LINES and not name.endswith("__init__")}
    assert short == SHORT_MODULES


def test_a_function_has_at_most_7_parameters() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, node in definitions():
        if isinstance(node, Function) and parameters(node) > MAX_PARAMETERS:
            found[name].append(node.name)
    assert {name: " ".join(sorted(functions)) for name, functions in found.items()} == LONG_SIGNATURES


def test_a_class_name_stands_once_in_the_package() -> None:
    names = Counter(node.name for _, node in definitions() if isinstance(node, ast.ClassDef))
    assert {name: count for name, count in names.items() if count > 1} == REPEATED_NAMES


def test_no_docstring_repeats_the_name_and_the_types() -> None:
    assert [f"{name}: {node.name}" for name, node in definitions() if repeats_name_and_types(node)] == []


def test_each_timeout_interval_and_number_of_attempts_has_a_reason() -> None:
    assert {name: found for name, one in modules().items() if (found := list(without_reason(*one)))} == {}


def test_the_formatter_skips_only_tables() -> None:
    assert {name: count for name, one in modules().items() if (count := skipped_besides_tables(*one))} == {}


@pytest.mark.parametrize(
    ("source", "skipped"),
    [
        ("KINDS = {\n    1: 2, 3: 4,\n}  # fmt: skip", 0),
        ("for one in (\n    1, 2,\n):  # fmt: skip\n    pass", 0),
        ("call(\n    1, 2,\n)  # fmt: skip", 1),
        ("call([\n    1, 2,\n], 3,\n)  # fmt: skip", 1),
        ("def call(\n    a, b,\n): ...  # fmt: skip", 1),
    ],
)
def test_a_skipped_line_that_is_not_a_table_is_found(source: str, skipped: int) -> None:
    assert skipped_besides_tables(source, ast.parse(source)) == skipped


@pytest.mark.parametrize(
    ("source", "repeats"),
    [
        ('def delete_stream(name: str) -> None:\n    """Delete the stream with a name."""', True),
        ('def delete_stream(name: str) -> None:\n    """Delete the stream; a reader fails then."""', False),
        ('class StreamState:\n    """The state of a stream."""', True),
        ('def of() -> int:\n    """Return it."""', True),
        ("def of() -> int: ...", False),
    ],
)
def test_a_docstring_that_says_nothing_new_is_found(source: str, repeats: bool) -> None:
    (node,) = ast.parse(source).body
    assert isinstance(node, Definition)
    assert repeats_name_and_types(node) is repeats


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("STOP_TIMEOUT_S: Final = 1.0", ["STOP_TIMEOUT_S"]),
        ("STOP_TIMEOUT_S: Final = 1.0  # it takes 10 ms", []),
        ("# it takes 10 ms\nSTOP_TIMEOUT_S: Final = 1.0", []),
        ('STOP_TIMEOUT_S: Final = 1.0\n"""It takes 10 ms."""', []),
        ("WAIT_TIMEOUTS: Final = {}", []),
    ],
)
def test_a_time_without_a_reason_is_found(source: str, found: list[str]) -> None:
    text = f"import x\n{source}"
    assert list(without_reason(text, ast.parse(text))) == found
