"""docs/threads.md lists exactly the threads and locks that the code makes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from tests.programs import ROOT

PACKAGE: Final = ROOT / "connector" / "aeron_spark"
PAGE: Final = ROOT / "docs" / "threads.md"
KINDS: Final = {
    "threading.Thread": "thread",
    "ReusedThread": "thread",
    "submit": "thread",  # of reused_threads
    "ThreadPoolExecutor": "pool",
    "threading.Lock": "lock",
    "threading.RLock": "lock",
    "threading.Condition": "condition",
    "ProcessLock": "process lock",
    "loop.executor": "pool",
    "self.executor": "pool",
    "loop.condition": "condition",
    "owner.loop.condition": "condition",
}
MAKERS: Final = ("executor", "condition")  # methods of ``Loop`` that make one for their callers
Site = tuple[str, str, str]  # module, class or function or "module", kind


def sites(source: str, module: str) -> set[tuple[Site, str]]:
    """Return the places where a module makes threads and locks, each with its attribute or variable."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (kind := KINDS.get(ast.unparse(node.func))) is not None:
            above = list(_above(node, parents))
            if any(isinstance(one, ast.FunctionDef) and one.name in MAKERS for one in above):
                continue
            # a lock inside the call of a condition is part of the condition
            if not any(isinstance(one, ast.Call) and ast.unparse(one.func) in KINDS for one in above):
                found.add(((module, _owner(above), kind), _target(above, node)))
    return found


def _above(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while node in parents:
        node = parents[node]
        yield node


def _owner(above: list[ast.AST]) -> str:
    classes = [one.name for one in above if isinstance(one, ast.ClassDef)]
    functions = [one.name for one in above if isinstance(one, ast.FunctionDef)]
    return (classes or functions[-1:] or ["module"])[0]


def _target(above: list[ast.AST], node: ast.Call) -> str:
    for one in above:
        if isinstance(one, ast.Assign):
            return ast.unparse(one.targets[0])
        if isinstance(one, ast.AnnAssign):
            return ast.unparse(one.target)
    return ast.unparse(node)


def listed(page: str) -> Counter[Site]:
    """Return the rows of the page's two tables."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return Counter(
        (row[0].strip("`"), row[1].strip("`"), row[2]) for row in rows if len(row) == 5 and row[2] in KINDS.values()
    )


@pytest.mark.slow
def test_the_page_has_every_thread_and_lock_of_the_code() -> None:
    made: Counter[Site] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        made.update(site for site, _ in sites(path.read_text(), module))
    assert listed(PAGE.read_text()) == made


def test_sites_finds_threads_and_locks() -> None:
    source = """
class Queue:
    def __init__(self):
        self._lock = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        threading.Thread(target=self._run).start()

    def renew(self):
        self._lock = threading.Lock()

def run():
    ThreadPoolExecutor(4)

LOCK = ProcessLock()

class Loop:
    def condition(self, lock):
        return threading.Condition(lock)

def wait(loop):
    return loop.condition()
"""
    assert {site for site, _ in sites(source, "a/b")} == {
        ("a/b", "Queue", "lock"),
        ("a/b", "Queue", "condition"),
        ("a/b", "Queue", "thread"),
        ("a/b", "run", "pool"),
        ("a/b", "module", "process lock"),
        ("a/b", "wait", "condition"),
    }
    assert len(sites(source, "a/b")) == 6  # the lock of ``renew`` replaces the first one
