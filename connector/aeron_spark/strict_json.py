"""Reads JSON that somebody else wrote, and refuses what only Python's parser accepts.

``json.loads`` accepts NaN, Infinity, numbers that no float has (1e999), and single halves of a surrogate pair. Such a
number cannot be compared, and such a text cannot be encoded, logged or printed. Deep nesting exhausts the stack.
"""

from __future__ import annotations

import json
from typing import Any


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
