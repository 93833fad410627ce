"""Gathers a program's rows, or those of JSON, to record batches: a batch of one row would cost more than the row.

With a schema, texts become what their column needs: a time in ISO 8601, base64 for bytes, a number for a decimal.
`aeron-spark receive --json` prints rows in the same way, except for durations: these have no text here.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.rows.values import (
    NAME,
    USE_BATCH,
    Check,
    ValueProblem,
    check_known,
    check_of,
    is_name,
    merged,
    plain,
    type_of,
)

MAX_ROWS: Final = 1 << 16  # of a batch
MAX_BYTES: Final = 8 << 20  # of a batch, as _size_of estimates it
VALUE_BYTES: Final = 8  # of a number or a time

MISSING: Final = ValueProblem("it is missing, and not nullable", "Give a value.")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowMark:
    """The gathered rows at one moment, for :meth:`GatheredRows.restore`."""

    rows: list[Any]
    count: int
    bytes: int
    types: dict[str, pa.DataType]
    schema: pa.Schema | None


class GatheredRows:
    """Rows that wait for their record batch. Without a ``schema``, the rows of the first batch tell it.

    ``max_rows`` and ``max_bytes`` bound a batch; a larger row is a batch by itself. After each call of :meth:`add` and
    :meth:`complete` the caller takes the complete batches, or returns to the state before the call.
    """

    def __init__(self, schema: pa.Schema | None, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self._batches: list[pa.RecordBatch] = []  # complete ones
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._schema: pa.Schema | None = None
        self._columns: _Columns | None = None
        self._types: dict[str, pa.DataType] = {}  # of the columns so far, while the schema is not known
        self._rows: list[Any] = []  # tuples of checked values; dicts while the schema is not known
        self._bytes = 0
        self.schema = schema

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows; None until it is known."""
        return self._schema

    @schema.setter
    def schema(self, schema: pa.Schema | None) -> None:
        if schema is not self._schema:
            self._schema, self._columns = schema, None

    def __len__(self) -> int:
        """The number of rows that are in no complete batch."""
        return len(self._rows)

    def mark(self) -> RowMark:
        """Return the present state. It costs the same for any number of rows."""
        return RowMark(self._rows, len(self._rows), self._bytes, self._types, self._schema)

    def restore(self, mark: RowMark) -> None:
        """Return to the state of ``mark``, without the rows that were added after it and without complete batches."""
        self._rows, self._bytes, self._types, self.schema = mark.rows, mark.bytes, mark.types, mark.schema
        del self._rows[mark.count :]
        self._batches = []

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, all or none. Raises DataFormatError that names row and column of a value that cannot be stored.

        The first row has the number 0. An error of the iterable is raised unchanged; then no row is added either.
        """
        mark, number = self.mark(), 0
        try:
            for row in rows:
                if not isinstance(row, Mapping):
                    raise DataFormatError(
                        f"row {number} is a {type(row).__name__}, and not a dict",
                        remedy="Write each row as a dict, for example dict(row).",
                    )
                self._add(row, number)
                number += 1
        except BaseException:
            self.restore(mark)
            raise

    def complete(self) -> None:
        """Make a batch of the rows that are in none. Raises DataFormatError if the rows do not tell the schema."""
        if not self._rows:
            return
        rows = self._rows
        if self._schema is None:
            schema = self._schema_of_types()
            columns = _Columns(schema)
            rows = [columns.check(row, number) for number, row in enumerate(rows)]
            self.schema, self._columns = schema, columns
        self._batches.append(self._known_columns().batch(rows))
        self._rows, self._bytes, self._types = [], 0, {}  # a mark keeps the list of before

    def take_batches(self) -> list[pa.RecordBatch]:
        """Return the complete batches, and forget them."""
        taken, self._batches = self._batches, []
        return taken

    def clear(self) -> None:
        """Drop all rows."""
        self._batches, self._rows, self._bytes, self._types = [], [], 0, {}

    def _add(self, row: Row, number: int) -> None:
        size = _size_of(row)
        if self._rows and (len(self._rows) >= self._max_rows or self._bytes + size > self._max_bytes):
            self.complete()
        if self._schema is None:
            self._types = _merged_types(self._types, row, number)
            self._rows.append(_copied(row))  # a program may use the dict again
        else:
            self._rows.append(self._known_columns().check(row, number))
        self._bytes += size

    def _known_columns(self) -> _Columns:
        if self._columns is None:
            assert self._schema is not None
            self._columns = _Columns(self._schema)
        return self._columns

    def _schema_of_types(self) -> pa.Schema:
        last = len(self._rows) - 1
        for name, kind in self._types.items():
            try:
                check_known(kind)
            except ValueProblem as problem:
                raise row_error(f"rows 0 to {last}" if last else "row 0", name, problem) from None
        if not self._types:
            raise DataFormatError("the rows have no columns", remedy="Write dicts with at least one name.")
        return pa.schema(list(self._types.items()))


class _Columns:
    """The columns of a schema, with their checks."""

    def __init__(self, schema: pa.Schema) -> None:
        """Raises DataFormatError for a schema that rows of Python values cannot have."""
        self._schema = schema
        self._names = frozenset(schema.names)
        if len(self._names) < len(schema.names):
            raise DataFormatError("the schema has two columns with one name", remedy=USE_BATCH)
        if not self._names:
            raise DataFormatError("the schema has no columns", remedy="Give at least one column.")
        self._checks: list[tuple[str, Check]] = [(field.name, check_of(field)) for field in schema]

    def check(self, row: Row, number: int) -> tuple[Any, ...]:
        """Return the checked values of a row, in the order of the columns. Raises DataFormatError."""
        if not row.keys() <= self._names:
            raise self._unknown_column(row, number)
        found = []
        for name, check in self._checks:
            try:
                found.append(check(row.get(name)))
            except ValueProblem as problem:
                found_problem = problem if name in row else MISSING
                raise row_error(f"row {number}", name, found_problem) from None
        return tuple(found)

    def batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        """Return the batch of checked rows."""
        arrays: list[pa.Array[Any]] = []
        for field, values in zip(self._schema, zip(*rows, strict=True), strict=True):
            try:
                array: Any = pa.array(values, field.type)
            except (pa.ArrowException, OverflowError) as error:  # for example, values of more than 2 GiB
                raise DataFormatError(f"the column {field.name!r} is not stored: {error}", remedy=USE_BATCH) from error
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _unknown_column(self, row: Row, number: int) -> DataFormatError:
        unknown = next(name for name in row if name not in self._names)
        return DataFormatError(
            f"row {number} has a column {unknown!r}, which is not in the schema",
            remedy=remedy_of_unknown(self._schema),
        )


def remedy_of_unknown(schema: pa.Schema) -> str:
    """Return the remedy for a column that the schema does not have."""
    return (
        f"Its columns are {', '.join(schema.names)}. To add a nullable column to the stream, make the writer with "
        "schema= and evolve_schema=True."
    )


def row_error(rows: str, column: str, problem: ValueProblem) -> DataFormatError:
    """Return the error about a value; ``rows`` is for example "row 3"."""
    return DataFormatError(f"{rows}, column {column + problem.place!r}: {problem.reason}", remedy=problem.remedy)


def _merged_types(types: dict[str, pa.DataType], row: Row, number: int) -> dict[str, pa.DataType]:
    """Return the types of the columns with those of one more row; the given ones stay unchanged."""
    found = types
    for name, value in row.items():
        if not is_name(name):
            raise DataFormatError(
                f"row {number} has a column {name!r}, whose name is not {NAME}",
                remedy="Write a dict with names as keys.",
            )
        known = found.get(name)
        try:
            kind = type_of(value) if known is None else merged(known, type_of(value))
        except ValueProblem as problem:
            raise row_error(f"row {number}", name, problem) from None
        if kind is not known:
            found = {**found, name: kind}
    return found


def _copied(value: Any) -> Any:
    """Return a copy of a row's dicts, lists and arrays. The row's types are known."""
    if isinstance(value, Mapping):
        return {name: _copied(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(one) for one in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    found = plain(value)  # an array of numpy becomes a list
    return value if found is value else _copied(found)


def _size_of(value: Any) -> int:
    """Return about how many bytes a value has in a batch."""
    if isinstance(value, str | bytes | bytearray):
        return VALUE_BYTES + len(value)
    if isinstance(value, Mapping):
        return sum(map(_size_of, value.values()))
    if isinstance(value, list | tuple):
        return VALUE_BYTES + sum(map(_size_of, value))
    return getattr(value, "nbytes", VALUE_BYTES)  # of a memoryview or an array


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
