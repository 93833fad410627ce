"""Threads of one process that connect for the first time at once, in fresh processes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aeron_spark

ROOT = Path(__file__).parents[3]
SECONDS = 300.0


def run(command: str, count: int) -> None:
    """Run the program in a new process, and check that each of its threads succeeded."""
    program = [sys.executable, "-X", "faulthandler", "-m", "tests.unit.client.first_connections", command, str(count)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, str(count)), done.stderr[-4000:]


@pytest.mark.slow
def test_a_hundred_clients_of_one_process_connect_for_the_first_time_at_once() -> None:
    run("connections", 100)


@pytest.mark.slow
def test_two_hundred_connections_register_and_receive_a_message_class_at_once() -> None:
    run("messages", 200)


@pytest.mark.full("ten processes of 200 clients take 90 CPU seconds; the shorter forms meet the same moments")
@pytest.mark.parametrize("repetition", range(10))
def test_two_hundred_clients_of_one_process_connect_for_the_first_time_at_once(repetition: int) -> None:
    run("connections", 200)


@pytest.mark.slow
def test_no_function_makes_msgspec_analyse_a_class_at_its_first_use() -> None:
    package = Path(aeron_spark.__file__).parent
    found = set()
    for path in sorted(package.rglob("*.py")):
        module, text = path.relative_to(package).as_posix(), path.read_text()
        # parsing all modules takes seconds
        for function in ast.walk(ast.parse(text)) if re.search(r"\bmsg(spec|pack)\b", text) else ():
            if isinstance(function, ast.FunctionDef) and any(map(_builds, ast.walk(function))):
                found.add(f"{module} {function.name}")
    assert found == ALLOWED, "make a Decoder at the module's level instead"


# the first takes a lock; the others decode classes that it has analysed, or built-in types
ALLOWED = {
    "protocol/message_types.py _read",
    "protocol/message_types.py _unpack",
    "protocol/message_types.py fault_of_type",
}


def _builds(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    decodes = name.endswith(".decode") and any(keyword.arg == "type" for keyword in node.keywords)
    return name.startswith(("msgspec.", "msgpack.")) and (decodes or name.endswith((".Decoder", ".convert")))
