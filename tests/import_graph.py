"""Reads which modules a module imports, from its source."""

from __future__ import annotations

import ast


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


def modules_imported(source: str, module: str, modules: set[str], *, is_package: bool = False) -> set[str]:
    """Return those of ``modules`` that a module imports, also inside functions and under TYPE_CHECKING."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            continue
        names = named_by(node, package)
        if isinstance(node, ast.ImportFrom):
            names = [name for source in names for name in (source, *(f"{source}.{one.name}" for one in node.names))]
        found |= modules & set(names)
    # a module may import the __init__ of its package, which imports the module
    return {name for name in found if name != module and not module.startswith(f"{name}.")}
