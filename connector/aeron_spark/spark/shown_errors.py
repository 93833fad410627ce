"""Errors of this package as Spark shows them.

Spark puts the traceback of an error into its own error, and writes its own text before and after it. An error of this
package says what happened and what to do, so it leaves the package without the calls that led to it and without the
errors of libraries: its text is then the last line of the traceback, and the traceback has a few lines. The calls are
in the log of the Python process, at level DEBUG.

    where the error occurs              what Spark writes after the text
    schema, options, planning, SQL      the line `` SQLSTATE: 38000``
    a task that reads or writes         nothing; Spark's log has the calls in Java
    a streaming query                   the state and the plan of the query, 15 lines or more
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from aeron_spark.errors import AeronSparkError

LOG: Final = logging.getLogger("aeron_spark.spark")

_P = ParamSpec("_P")
_R = TypeVar("_R")

# The last line of a traceback, and lines of the error's own text after it. Spark's text follows, or calls in Java.
_SHOWN: Final = re.compile(
    r"^(?:Caused by: )?aeron_spark\.errors\.\w+: (.+?)\s*(?=^ ?SQLSTATE: |^\s+at |^=== |^\s*$|^JVM stacktrace:|\Z)",
    re.MULTILINE | re.DOTALL,
)


def short_errors(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the method; an error of this package leaves it without the calls and errors that led to it."""

    @wraps(method)
    def call(*args: _P.args, **named: _P.kwargs) -> _R:
        try:
            return method(*args, **named)
        except AeronSparkError as error:
            raise _shortened(error) from None

    return call


def short_errors_of_rows(method: Callable[_P, Iterator[_R]]) -> Callable[_P, Iterator[_R]]:
    """Return the generator; an error of this package leaves it as with :func:`short_errors`."""

    @wraps(method)
    def rows(*args: _P.args, **named: _P.kwargs) -> Iterator[_R]:
        try:
            yield from method(*args, **named)
        except AeronSparkError as error:
            raise _shortened(error) from None

    return rows


def _shortened(error: AeronSparkError) -> AeronSparkError:
    LOG.debug("%s", error, exc_info=error)
    return error.with_traceback(None)


def error_text(error: BaseException | None) -> str | None:
    """Return the text of this package's error in an error of Spark: what happened, and what to do.

    ``error`` is an exception that Spark raised, or that ``StreamingQuery.exception()`` of a failed query returned, also
    over Spark Connect. Returns None for None, and for an error that is not of this package.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, AeronSparkError):
            return str(error)
        found = _SHOWN.findall(str(error))
        if found:
            return str(found[-1])
        error = error.__cause__ or getattr(error, "_cause", None)
    return None
