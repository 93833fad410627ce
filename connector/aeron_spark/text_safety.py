"""Escapes text that a peer chose, before the server logs or prints it, and compares it with known names.

Such text may contain line ends, terminal sequences and characters that reverse the order of a line. So every character
that is not printable becomes ``\\uXXXX``. That includes all controls of bidirectional text (class Cf of Unicode).
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Callable, Iterable
from typing import Final

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
