"""A wait for a future raises errors of this package, never a bare TimeoutError."""

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


def test_the_error_of_a_timeout_has_the_awaited_event_and_the_remedy() -> None:
    with pytest.raises(WaitTimeout, match=r"^waited 0.01 s for the answer. Try again.$") as caught:
        result_within(Future(), 0.01, "the answer", remedy="Try again.")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("error", [WaitTimeout("of the call"), TimeoutError("of a socket"), ValueError("other")])
def test_the_error_of_the_future_is_raised_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        result_within(ended(error=error), 0.0, "the answer")
    assert caught.value is error


def test_the_timeout_class_of_python_3_10_is_caught() -> None:
    class Late(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            raise concurrent.futures.TimeoutError

    with pytest.raises(WaitTimeout):
        result_within(Late(), 0.01, "the answer")


@pytest.mark.parametrize("seconds", [None, 1.0])
def test_a_cancelled_future_raises_an_error_of_this_package(seconds: float | None) -> None:
    future: Future[Any] = Future()
    future.cancel()
    with pytest.raises(UsageError, match=r"^the wait for the answer was cancelled\. ") as caught:
        result_within(future, seconds, "the answer")
    assert caught.value.__suppress_context__


def test_no_module_waits_for_a_future_directly() -> None:
    package = Path(aeron_spark.__file__).parent
    found = set()
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        if ".result(" not in text and ".exception(" not in text:  # parsing takes long
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef) and any(map(_waits, ast.walk(function))):
                found.add(f"{path.relative_to(package).as_posix()} {function.name}")
    assert found == {"waiting.py result_within"}


def _waits(node: ast.AST) -> bool:
    """Whether the call is ``future.result(timeout)``; a call without an argument is for a completed future."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("result", "exception")
        and bool(node.args or node.keywords)
        and "LOG" not in ast.unparse(node.func)
    )
