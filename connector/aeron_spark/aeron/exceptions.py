"""Foreign exceptions stop here: what Java throws becomes an error of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jpype

from aeron_spark.errors import AeronSparkError, ConnectError, TransportError


def describe(error: Any) -> str:
    """Return ``ShortClass: message`` of a Java throwable; Aeron prefixes its messages with their category."""
    name = type(error).__name__.rpartition(".")[2]
    message = str(error.getMessage())
    for category in ("ERROR - ", "FATAL - ", "WARN - "):
        message = message.removeprefix(category)
    return f"{name}: {message}"


def archive_error_code(error: BaseException | None) -> int | None:
    """Return the code of an ArchiveException that caused ``error``, or None."""
    while error is not None:
        if type(error).__name__.endswith("ArchiveException"):
            return int(error.errorCode())  # type: ignore[attr-defined]
        error = error.__cause__
    return None


@contextmanager
def java_errors(doing: str) -> Iterator[None]:
    """Turn a Java exception inside the block into TransportError (ConnectError for time-outs), saying what was done."""
    try:
        yield
    except AeronSparkError:
        raise
    except jpype.JException as error:
        text = f"{doing} failed: {describe(error)}"
        if "Timeout" in type(error).__name__:
            raise ConnectError(text, remedy="See 'aeron-spark doctor'.") from error
        raise TransportError(text) from error
