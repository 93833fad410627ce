r"""Texts of users and of peers: numbers, sizes and durations; text to escape; JSON to read strictly.

A parser of a number, a size or a duration raises ``ValueError`` with the expected value.

Text that a peer chose may contain line ends, terminal sequences and characters that reverse the order of a line. So
every character that is not printable becomes ``\uXXXX``. That includes all controls of bidirectional text (class Cf of
Unicode).

``json.loads`` accepts NaN, Infinity, numbers that no float has (1e999), and single halves of a surrogate pair. Such a
number cannot be compared, and such a text cannot be encoded, logged or printed. Deep nesting exhausts the stack.
"""

from __future__ import annotations

import difflib
import heapq
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from fractions import Fraction
from typing import Any, Final

NANOS: Final = 1_000_000_000  # nanoseconds in a second
INT64_MAX: Final = 2**63 - 1

_WHOLE: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_DURATION: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*(ns|us|ms|s|min|m|h|d)?", re.ASCII)
_DURATION_UNITS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": NANOS,
    "m": 60 * NANOS,
    "min": 60 * NANOS,
    "h": 3_600 * NANOS,
    "d": 86_400 * NANOS,
}
_SIZE: Final = re.compile(r"(\d{1,18})\s*(?:([kmgt])(?:i?b)?|b)?", re.ASCII)
_SIZE_UNITS: Final[Mapping[str, int]] = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_whole(text: str, low: int, high: int) -> int:
    """Parse a whole number from ``low`` to ``high``."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"a whole number {_bounds(low, high)}")
    number = int(text)
    if not low <= number <= high:
        raise ValueError(f"a whole number {_bounds(low, high)}")
    return number


def _bounds(low: int, high: int) -> str:
    return f"of at least {low}" if high == INT64_MAX else f"from {low} to {high}"


def parse_size(text: str, low: int, high: int) -> int:
    """Parse bytes: ``512KiB``, ``64MiB``, ``1GiB``, also ``64m``, ``64mb`` (powers of 1024), or a plain number."""
    match = _SIZE.fullmatch(text.lower())
    if match is None:
        raise ValueError("a size in bytes such as 512KiB, 64MiB, 1GiB or 1048576")
    number = int(match[1]) * _SIZE_UNITS[match[2] or ""]
    if not low <= number <= high:
        raise ValueError(f"a size {_bounds(low, high)} bytes")
    return number


def parse_duration_ns(text: str) -> int:
    """Parse a duration above zero into nanoseconds: ``100ms``, ``30s``, ``15min``, ``1h``, or plain seconds."""
    match = _DURATION.fullmatch(text.lower())
    nanos = int(Fraction(match[1]) * _DURATION_UNITS[match[2] or "s"]) if match else 0
    if not 0 < nanos <= INT64_MAX:
        raise ValueError("a duration above zero such as 100ms, 30s, 15min or 1h")
    return nanos


def parse_duration_or_zero_ns(text: str) -> int:
    """Parse a duration into nanoseconds, or 0."""
    if re.fullmatch(r"0+(?:\.0+)?\s*(?:ns|us|ms|s|min|m|h|d)?", text.lower()):
        return 0
    try:
        return parse_duration_ns(text)
    except ValueError:
        raise ValueError("a duration such as 100ms, 30s, 15min or 1h, or 0") from None


def format_size(number: int) -> str:
    """Format a number of bytes in the largest unit that divides it: ``1184``, ``128KiB``."""
    unit = next((unit for unit in ("t", "g", "m", "k") if number and number % _SIZE_UNITS[unit] == 0), "")
    return f"{number // _SIZE_UNITS[unit]}{unit and unit.upper() + 'iB'}"


def rounded_size(count: int) -> str:
    """Return a number of bytes with a binary unit and one digit, such as ``1.5 MiB``."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def format_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as ISO text in UTC, such as ``2026-03-01T09:30:00.000Z``."""
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def format_seconds(seconds: float) -> str:
    """Format seconds in the largest unit of which they are a multiple: ``100ms``, ``2min``."""
    nanos = round(seconds * NANOS)
    unit = next(unit for unit in ("h", "min", "s", "ms", "us", "ns") if nanos % _DURATION_UNITS[unit] == 0)
    return f"{nanos // _DURATION_UNITS[unit]}{unit}"


MAX_TEXT_CHARACTERS: Final = 128  # of the escaped text, without quotation marks
_CUT: Final = "…"
_COMPARED_NAMES: Final = 32
_COMPARED_CHARACTERS: Final = 64


def escape_text(text: str, max_characters: int = MAX_TEXT_CHARACTERS) -> str:
    """Return the text on one line, each character that is not printable as ``\\uXXXX``, and a backslash as two.

    A result of more than ``max_characters`` is cut between two characters of the text, and ends in ``…``.
    """
    return _join(text, _escape, max_characters)


def quote_text(text: str, max_characters: int = MAX_TEXT_CHARACTERS) -> str:
    """Return the text in quotation marks, escaped and cut as by ``escape_text``. The result is a string of JSON."""
    return f'"{_join(text, _escape_quoted, max_characters)}"'


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to ``name``, or "" if none is.

    A peer may choose the name, and the cost of a comparison is quadratic in the lengths. So only the
    beginning of the names is compared, of those 32 that have nearly the same characters.
    """
    start = name[:_COMPARED_CHARACTERS]
    letters = set(start)

    def difference(one: str) -> int:
        return len(letters.symmetric_difference(one[:_COMPARED_CHARACTERS])) + abs(len(one) - len(name))

    found = {one[:_COMPARED_CHARACTERS]: one for one in heapq.nsmallest(_COMPARED_NAMES, known, key=difference)}
    close = difflib.get_close_matches(start, found, n=1)
    return found[close[0]] if close else ""


def _join(text: str, escape: Callable[[str], str], max_characters: int) -> str:
    # a text that a peer chose may be long: only what can be shown is escaped
    parts = [escape(character) for character in text[: max_characters + 1]]
    if sum(map(len, parts)) <= max_characters:
        return "".join(parts)
    room = max_characters - len(_CUT)
    shown = 0
    while len(parts[shown]) <= room:
        room -= len(parts[shown])
        shown += 1
    return "".join(parts[:shown]) + _CUT


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")  # as JSON: two escapes for a character above U+FFFF
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _escape_quoted(character: str) -> str:
    return '\\"' if character == '"' else _escape(character)


def parse_json(text: str) -> Any:
    """Return the value of a text. Raises ValueError for other texts."""
    try:
        value: Any = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    check_json(value)
    return value


def check_json(value: object) -> None:
    """Raise ValueError for a value that has no JSON, such as NaN, or a text with half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair") from None
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"it is not a value of JSON: {error}") from None
