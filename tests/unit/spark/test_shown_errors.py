"""Errors leave the data source with few calls, and their text is found in what Spark made of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from aeron_spark.errors import ConnectError, DataLossError
from aeron_spark.spark import error_text
from aeron_spark.spark.shown_errors import short_errors, short_errors_of_rows

LOSS = DataLossError("recording 7 begins at 640, wanted 0", remedy="Set failOnDataLoss=false.")
TEXT = "recording 7 begins at 640, wanted 0. Set failOnDataLoss=false."
SHOWN = f"Traceback (most recent call last):\n  File x\naeron_spark.errors.DataLossError: {TEXT}\n"


def connect() -> None:
    try:
        raise OSError("refused")
    except OSError as error:
        raise ConnectError("no archive answered", remedy="Start it.") from error


def test_an_error_leaves_without_the_calls_and_errors_that_led_to_it() -> None:
    @short_errors
    def plan() -> None:
        connect()

    @short_errors_of_rows
    def read() -> Iterator[int]:
        yield 1
        connect()

    for run in (plan, lambda: list(read())):
        with pytest.raises(ConnectError) as caught:
            run()
        text = "".join(traceback.format_exception(caught.value))
        assert "connect()" not in text.replace("read()", "")
        assert "OSError" not in text
        assert text.endswith("\naeron_spark.errors.ConnectError: no archive answered. Start it.\n")


def test_an_error_that_is_not_of_this_package_keeps_its_calls() -> None:
    @short_errors
    def plan() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        plan()
    assert "raise ZeroDivisionError" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "text",
    [
        f"[PYTHON_DATA_SOURCE_ERROR] Failed: {SHOWN} SQLSTATE: 38000",
        f"[STREAM_FAILED] {SHOWN} SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nLogical Plan:\n+- aeron",
        f"Job aborted: {SHOWN}\n\tat org.apache.spark.api.python.BasePythonRunner\nCaused by: {SHOWN}\n\t... 19 more",
        f"{SHOWN}\nJVM stacktrace:\norg.apache.spark.api.python.PythonException",
        SHOWN,
        f"aeron_spark.errors.ConnectError: no archive answered.\n\n{SHOWN}",
    ],
)
def test_the_text_is_found_in_the_texts_of_spark(text: str) -> None:
    """In the planner, in a streaming query, with calls in Java, and over Spark Connect."""
    assert error_text(RuntimeError(text)) == TEXT


def test_the_text_is_found_in_the_cause() -> None:
    outer = RuntimeError("the job failed")
    outer.__cause__ = RuntimeError(SHOWN)
    assert error_text(outer) == TEXT
    assert error_text(LOSS) == TEXT


def test_another_error_has_no_text() -> None:
    assert error_text(None) is None
    assert error_text(RuntimeError("Traceback (most recent call last):\nValueError: wrong")) is None
