"""Durations on the command line, for commands that do not load the options of the connector."""

from __future__ import annotations

from aeron_spark.errors import OptionError
from aeron_spark.texts import NANOS, parse_duration_ns


def duration_seconds(flag: str, text: str) -> float:
    """Return a duration such as 1h in seconds. Raises OptionError, with the flag, for another text."""
    try:
        return parse_duration_ns(text) / NANOS
    except ValueError as error:
        raise OptionError(f"{flag} is {text!r}, expected {error}", remedy=f"For example {flag} 1h.") from None
