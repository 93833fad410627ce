"""Reads which modules a module imports, from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def named_by(node: ast.AST, package: str) -> list[str]:
    """Return the modules that an import statement, or a call of importlib, names in a module of ``package``."""
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


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the statements of a module at any depth, without their expressions, which are most of its nodes."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            children = getattr(node, field, None)
            if isinstance(children, list):
                pending += children


def _imports(source: str) -> Iterator[ast.AST]:
    """Yield the import statements, and the calls that may import.

    Expressions are only looked at where such a call can be.
    """
    tree = ast.parse(source)
    if "import_module" in source or "__import__" in source:
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom | ast.Call))
        return
    yield from (node for node in statements(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def modules_imported(source: str, module: str, modules: set[str], *, is_package: bool = False) -> set[str]:
    """Return those of ``modules`` that a module imports, also inside functions and under TYPE_CHECKING."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for node in _imports(source):
        names = named_by(node, package)
        if isinstance(node, ast.ImportFrom):
            names = [name for source in names for name in (source, *(f"{source}.{one.name}" for one in node.names))]
        found |= modules & set(names)
    # a module may import the __init__ of its package, which imports the module
    return {name for name in found if name != module and not module.startswith(f"{name}.")}
