"""Finding C10: no bare TimeoutError leaves a wait for a future."""

from __future__ import annotations

import ast
import concurrent.futures
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import aeron_spark
from aeron_spark.errors import UsageError, WaitTimeout
from aeron_spark.waiting import result_within


def ended(value: object = None, error: Exception | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
    return future


def test_the_result_is_returned() -> None:
    assert result_within(ended(7), 1.0, "the answer") == 7
    assert result_within(ended(7), None, "the answer") == 7
    assert result_within(ended(7), -1.0, "the answer") == 7


def test_finding_c10_a_time_that_is_over_names_the_wait_and_the_remedy() -> None:
    with pytest.raises(WaitTimeout, match=r"^waited 0.01 s for the answer. Try again.$") as caught:
        result_within(Future(), 0.01, "the answer", remedy="Try again.")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("error", [WaitTimeout("of the call"), TimeoutError("of a socket"), ValueError("other")])
def test_an_error_that_the_future_was_given_is_raised_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        result_within(ended(error=error), 0.0, "the answer")
    assert caught.value is error


def test_a_class_of_time_outs_of_another_python_is_caught() -> None:
    class Late(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            raise concurrent.futures.TimeoutError

    with pytest.raises(WaitTimeout):
        result_within(Late(), 0.01, "the answer")


@pytest.mark.parametrize("seconds", [None, 1.0])
def test_finding_c10_a_future_that_was_cancelled_gives_an_error_of_this_package(seconds: float | None) -> None:
    future: Future[Any] = Future()
    future.cancel()
    with pytest.raises(UsageError, match=r"^the wait for the answer was cancelled\. ") as caught:
        result_within(future, seconds, "the answer")
    assert caught.value.__suppress_context__


def test_finding_c10_no_module_waits_for_a_future_in_another_way() -> None:
    package = Path(aeron_spark.__file__).parent
    found = set()
    for path in sorted(package.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and any(map(_waits, ast.walk(function))):
                found.add(f"{path.relative_to(package).as_posix()} {function.name}")
    assert found == {"waiting.py result_within"}


def _waits(node: ast.AST) -> bool:
    """Whether it is ``future.result(timeout)``; without an argument it is for a future that has ended."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("result", "exception")
        and bool(node.args or node.keywords)
        and "LOG" not in ast.unparse(node.func)
    )
