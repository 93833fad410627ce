"""Infers the Arrow type of a column from Python values. A guess that later values could contradict is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from aeron_spark.rows.values import ADD_ZONE, INT64, Check, ValueProblem, check_of, is_missing, plain, text_of

GIVE_SCHEMA: Final = "Give the columns with schema=, a pyarrow.Schema."
NAME: Final = "a str of valid Unicode"
UNKNOWN: Final = pa.null()  # of a null, and of the elements of an empty list
_TYPES: Final[tuple[tuple[type, pa.DataType], ...]] = (  # a subclass is before its base class
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
    (bytes, pa.binary()),
    (bytearray, pa.binary()),
    (memoryview, pa.binary()),
    (datetime, pa.timestamp("us", "UTC")),
    (date, pa.date32()),
    (time, pa.time64("us")),
    (timedelta, pa.duration("us")),
)
_CHECKED_TYPES: Final[tuple[tuple[type, pa.DataType, Check], ...]] = tuple(
    (kind, found, check_of(pa.field("", found))) for kind, found in _TYPES
)


def type_of(value: Any) -> pa.DataType:
    """Return the type of a column that can have the value.

    Raises ValueProblem if the value does not tell the type, and if that type cannot store the value unchanged.
    """
    if is_missing(value):
        return UNKNOWN
    value = plain(value)
    if isinstance(value, list | tuple):
        return pa.list_(_type_of_elements(value))
    if isinstance(value, Mapping):
        return _type_of_struct(value)
    if isinstance(value, Decimal):
        raise ValueProblem(f"{value!r} does not tell the digits that the column needs", GIVE_SCHEMA)
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise ValueProblem(f"the datetime {value} has no zone", f"{ADD_ZONE} {GIVE_SCHEMA}")
    if isinstance(value, int) and value not in INT64:
        raise ValueProblem(f"{text_of(value)} is out of the range of int64", GIVE_SCHEMA)
    for kind, found, check in _CHECKED_TYPES:
        if isinstance(value, kind):
            check(value)
            return found
    raise ValueProblem(
        f"{text_of(value)} is a {type(value).__name__}, which a column cannot have", "Convert it, for example to a str."
    )


def is_name(name: object) -> bool:
    """Whether a column or a field can have this name."""
    return isinstance(name, str) and (name.isascii() or name == name.encode(errors="ignore").decode())


def _type_of_elements(values: list[Any] | tuple[Any, ...]) -> pa.DataType:
    found: pa.DataType = UNKNOWN
    for index, value in enumerate(values):
        try:
            found = merged(found, type_of(value))
        except ValueProblem as problem:
            raise problem.inside(f"[{index}]") from None
    return found


def _type_of_struct(value: Mapping[Any, Any]) -> pa.DataType:
    fields = []
    for name, one in value.items():
        if not is_name(name):
            raise ValueProblem(f"the name {name!r} of a field is not {NAME}", "Write a dict with names as keys.")
        try:
            fields.append(pa.field(name, type_of(one)))
        except ValueProblem as problem:
            raise problem.inside(f".{name}") from None
    return pa.struct(fields)


def merged(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the type that has the values of both. Raises ValueProblem for different types."""
    if second is first or second.equals(UNKNOWN) or first.equals(second):
        return first
    if first.equals(UNKNOWN):
        return second
    if isinstance(first, pa.ListType) and isinstance(second, pa.ListType):
        return pa.list_(merged(first.value_type, second.value_type))
    if isinstance(first, pa.StructType) and isinstance(second, pa.StructType):
        fields = {field.name: field.type for field in first}
        for field in second:
            try:
                fields[field.name] = merged(fields.get(field.name, UNKNOWN), field.type)
            except ValueProblem as problem:
                raise problem.inside(f".{field.name}") from None
        return pa.struct(list(fields.items()))
    raise ValueProblem(f"it is {second}, after {first} in earlier rows", f"Write one type. {GIVE_SCHEMA}")


def check_known(kind: pa.DataType) -> None:
    """Raise ValueProblem if values did not tell the type, or a part of it."""
    if kind.equals(UNKNOWN):
        raise ValueProblem("all its values are null", GIVE_SCHEMA)
    if isinstance(kind, pa.ListType):
        try:
            check_known(kind.value_type)
        except ValueProblem as problem:
            raise problem.inside("[]") from None
    if isinstance(kind, pa.StructType):
        if not kind.num_fields:
            raise ValueProblem("all its dicts are empty", GIVE_SCHEMA)
        for field in kind:
            try:
                check_known(field.type)
            except ValueProblem as problem:
                raise problem.inside(f".{field.name}") from None
