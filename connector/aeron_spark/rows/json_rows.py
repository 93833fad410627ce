"""Parses JSON to rows: one object, an array of objects, or several of them, for example one on each line.

With a schema, texts become what their column needs: a time in ISO 8601, base64 for bytes, a number for a decimal.
`aeron-spark receive --json` prints rows in the same way, except for durations: these have no text here.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.rows.gathering import Row

Text = str | bytes | bytearray | memoryview
Convert = Callable[[Any], Any]  # returns a value unchanged that it cannot convert: the column's check refuses it

_SPACE: Final = re.compile(r"\s*")
_FRACTION: Final = re.compile(r"\.(\d{1,6})0*(?=\D|$)", re.ASCII)  # of seconds


def rows_of_json(text: Text | Iterable[Text], schema: pa.Schema | None) -> Iterator[Row]:
    """Yield the rows of a text, or of an iterable of lines. Raises DataFormatError for invalid JSON, with the line."""
    lines = [text] if isinstance(text, str | bytes | bytearray | memoryview) else text
    for _, row in numbered_rows_of_json(lines, schema, 1):
        yield row


def numbered_rows_of_json(
    lines: Iterable[Text], schema: pa.Schema | None, first_line: int
) -> Iterator[tuple[int, Row]]:
    """Yield the rows of lines, each with the number of its line. Raises DataFormatError as :func:`rows_of_json`."""
    converts = {} if schema is None else {field.name: one for field in schema if (one := _convert_of(field.type))}
    for line, text in enumerate(lines, first_line):
        if not isinstance(text, str | bytes | bytearray | memoryview):
            raise DataFormatError(
                f"line {line} is a {type(text).__name__}, and not text", remedy="Write dicts with write()."
            )
        for value in _objects_of(_decoded(text, line), line):
            yield line, {name: converts[name](one) if name in converts else one for name, one in value.items()}


def _decoded(text: Text, line: int) -> str:
    try:
        return text if isinstance(text, str) else str(text, "utf-8")
    except UnicodeDecodeError as error:
        raise DataFormatError(f"line {line} is not UTF-8: {error}", remedy="Write JSON in UTF-8.") from None


def _objects_of(text: str, first_line: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text that begins in the line ``first_line``."""
    at = _end_of_space(text, 0)
    while at < len(text):
        begin = at
        try:
            value, at = _DECODER.raw_decode(text, at)
        except ValueError as error:
            position = error.pos if isinstance(error, json.JSONDecodeError) else begin
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise _syntax_error(text, position, first_line, reason) from None
        except RecursionError:
            raise _syntax_error(text, begin, first_line, "it has too many levels") from None
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise _syntax_error(text, begin, first_line, f"it has a {type(one).__name__}, expected an object")
            yield one
        at = _end_of_space(text, at)


def _end_of_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _syntax_error(text: str, at: int, first_line: int, reason: str) -> DataFormatError:
    return DataFormatError(
        f"line {first_line + text.count(chr(10), 0, at)} is not JSON of rows: {reason}",
        remedy="Write one object, an array of objects, or one object on each line.",
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has the name {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


class _Number(float):
    """A number with a point, with its text: a decimal needs all its digits."""

    text: str

    def __new__(cls, text: str) -> _Number:
        found = super().__new__(cls, text)
        if math.isinf(found):
            raise ValueError(f"{text} is out of the range of a 64-bit float")
        found.text = text
        return found


_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # as Spark writes them
_Number.__name__ = "float"  # the name in an error about a value
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_Number)


def _convert_of(kind: Any) -> Convert | None:
    """Return the conversion of a column's values; None if JSON has the column's type."""
    types = pa.types
    for matches, convert in (
        (types.is_timestamp, _datetime), (types.is_date, _date), (types.is_time, _time),
        (types.is_floating, _float), (types.is_decimal, _decimal), (types.is_binary, _bytes),
        (types.is_large_binary, _bytes), (types.is_binary_view, _bytes), (types.is_fixed_size_binary, _bytes),
    ):  # fmt: skip
        if matches(kind):
            return convert
    if types.is_struct(kind):
        return _struct({field.name: one for field in kind if (one := _convert_of(field.type))})
    if types.is_map(kind):
        return _map(_convert_of(kind.item_type))
    element = getattr(kind, "value_type", None)  # of a list
    convert_element = None if element is None else _convert_of(element)
    return None if convert_element is None else _list(convert_element)


def _struct(converts: dict[str, Convert]) -> Convert | None:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: converts[name](one) if name in converts else one for name, one in value.items()}

    return convert if converts else None


def _map(convert_item: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        # `receive --json` prints a map as a list of pairs
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list) or not all(isinstance(one, list | tuple) and len(one) == 2 for one in pairs):
            return value
        return [(name, one if convert_item is None else convert_item(one)) for name, one in pairs]

    return convert


def _list(convert_element: Convert) -> Convert:
    def convert(value: Any) -> Any:
        return [convert_element(one) for one in value] if isinstance(value, list) else value

    return convert


def _float(value: Any) -> Any:
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _datetime(value: Any) -> Any:
    return _parsed(value, datetime.fromisoformat)


def _date(value: Any) -> Any:
    return _parsed(value, date.fromisoformat)


def _time(value: Any) -> Any:
    return _parsed(value, time.fromisoformat)


def _parsed(value: Any, parse: Callable[[str], Any]) -> Any:
    """Parse a text of ISO 8601 as Python 3.10 can: with 6 digits of a second and without Z."""
    if isinstance(value, str):
        text = _FRACTION.sub(
            lambda found: f".{found[1]:0<6}", value.removesuffix("Z") + ("+00:00" * value.endswith("Z"))
        )
        if not re.search(r"\.\d{7}", text):  # Python would cut the digits that it does not have
            with suppress(ValueError):
                return parse(text)
    return value


def _decimal(value: Any) -> Any:
    if isinstance(value, str | _Number):
        with suppress(InvalidOperation):
            return Decimal(value.text if isinstance(value, _Number) else value)
    return value


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        with suppress(binascii.Error, ValueError):
            return b64decode(value, validate=True)
    return value
