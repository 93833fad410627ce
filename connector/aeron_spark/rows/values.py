"""Checks Python values against Arrow types, and infers types. A reader gets a value equal to the one that passed.

PyArrow alone would store some values changed: it cuts 1.5 to 1 for an integer column, drops the fields of a dict that
a struct does not have, and takes a datetime without a zone as UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import Enum
from typing import Any, Final, cast

import pyarrow as pa

from aeron_spark.errors import DataFormatError

Check = Callable[[Any], Any]  # takes a value, returns what PyArrow stores; raises ValueProblem

EPOCH: Final = datetime(1970, 1, 1)
EPOCH_UTC: Final = EPOCH.replace(tzinfo=timezone.utc)
MICROSECOND: Final = timedelta(microseconds=1)
MIN_MICROS: Final = (datetime.min - EPOCH) // MICROSECOND
MAX_MICROS: Final = (datetime.max - EPOCH) // MICROSECOND
DAY_MILLIS: Final = 86_400_000
INT64: Final = range(-(2**63), 2**63)
NANOS_OF_UNIT: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
UNIT_NAMES: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
MAX_TEXT: Final = 60  # characters of a value in an error

ADD_ZONE: Final = "Give it a zone: value.replace(tzinfo=timezone.utc), or a Z at the end of a text."
USE_BATCH: Final = "Write a pyarrow RecordBatch or Table."


class ValueProblem(Exception):
    """A value that cannot be stored: the reason, the remedy, and the place inside the column's value."""

    def __init__(self, reason: str, remedy: str, place: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.place = place

    def inside(self, place: str) -> ValueProblem:
        """Return the problem as one of the value around it; ``place`` is for example ``[2]``."""
        return ValueProblem(self.reason, self.remedy, place + self.place)


def text_of(value: object) -> str:
    """Return a short text of a value for an error."""
    text = repr(_unwrapped(value))
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _unwrapped(value: Any) -> Any:
    """Return a value without numpy's wrapper."""
    return value.tolist() if type(value).__module__ == "numpy" else value


def is_missing(value: object) -> bool:
    """Whether a value stands for null: None, and pandas's ``NA`` and ``NaT``."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def plain(value: Any) -> Any:
    """Return a value without numpy's wrapper. Raises ValueProblem for an enum."""
    if isinstance(value, Enum):
        raise ValueProblem(f"{value!r} is an enum", "Write its .value or its .name.")
    kind = type(value).__name__
    if kind in ("datetime64", "timedelta64"):
        raise ValueProblem(
            f"numpy.{kind} has no zone and no fixed unit", "Write a datetime with a zone, or a timedelta."
        )
    return _unwrapped(value)


def check_of(field: pa.Field[Any]) -> Check:
    """Return the check of a column's values. Raises DataFormatError for a type that only PyArrow can write."""
    check = _of_type(field.type)
    if check is None:
        raise DataFormatError(
            f"the column {field.name!r} is {field.type}, which rows of Python values cannot have", remedy=USE_BATCH
        )
    return _with_nulls(check, field.nullable)


def _with_nulls(check: Check, is_nullable: bool) -> Check:
    def checked(value: Any) -> Any:
        if is_missing(value):
            if is_nullable:
                return None
            raise ValueProblem("it is null, and not nullable", "Give a value.")
        return check(value)

    return checked


def _of_type(kind: pa.DataType) -> Check | None:
    """Return the check of values that are not null; None for an unsupported type."""
    for matches, make in _SCALARS:
        if matches(kind):
            return make(kind)
    if pa.types.is_dictionary(kind):
        return _of_type(kind.value_type)
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if any(matches(kind) for matches in _LISTS):
        return _list(kind)
    return None


def _wrong_type(value: object, wanted: str) -> ValueProblem:
    kind = type(_unwrapped(value)).__name__
    return ValueProblem(f"{text_of(value)} is a {kind}, expected {wanted}", "Convert it.")


def _out_of_range(value: object, kind: object) -> ValueProblem:
    return ValueProblem(f"{text_of(value)} is out of the range of {kind}", "Write a smaller number, or correct it.")


def _null(_: pa.DataType) -> Check:
    def check(value: Any) -> Any:
        raise ValueProblem(f"{text_of(value)} is a value, and the column has only nulls", "Write None.")

    return check


def _boolean(_: pa.DataType) -> Check:
    def check(value: Any) -> Any:
        found = value if type(value) is bool else plain(value)
        if type(found) is not bool:
            raise _wrong_type(value, "a bool")
        return found

    return check


def _integer(kind: pa.DataType) -> Check:
    is_signed = pa.types.is_signed_integer(kind)
    span = 2**kind.bit_width
    low, high = (-span // 2, span // 2 - 1) if is_signed else (0, span - 1)

    def check(value: Any) -> Any:
        found = value if type(value) is int else plain(value)
        if isinstance(found, bool) or not isinstance(found, int):
            raise _wrong_type(value, "an int")
        if not low <= found <= high:
            raise ValueProblem(
                f"{text_of(found)} is out of the range of {kind}, {low} to {high}", "Write a number in this range."
            )
        return found

    return check


def _float(kind: pa.DataType) -> Check:
    largest, exact = {
        16: (65_504.0, 2**11),
        32: (3.4028234663852886e38, 2**24),
        64: (math.inf, 2**53),
    }[kind.bit_width]

    def check(value: Any) -> Any:
        found = value if type(value) is float else plain(value)
        if isinstance(found, float):
            if abs(found) > largest and math.isfinite(found):
                raise _out_of_range(value, kind)
            return found
        if isinstance(found, bool) or not isinstance(found, int):
            raise _wrong_type(value, "a float")
        if abs(found) > exact:
            raise ValueProblem(f"{text_of(found)} would lose digits as {kind}", "Write it as a float.")
        return float(found)

    return check


def _decimal(kind: Any) -> Check:
    unit = Decimal(1).scaleb(-kind.scale)
    # Raises Inexact for digits after the point that the type does not have, and InvalidOperation for too many digits.
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])

    def check(value: Any) -> Any:
        found = value if type(value) is Decimal else plain(value)
        if isinstance(found, bool) or not isinstance(found, int | Decimal):
            raise _wrong_type(value, "a Decimal or an int")
        try:
            result = Decimal(found).quantize(unit, context=context)
        except (Inexact, InvalidOperation):
            result = Decimal("NaN")
        if not result.is_finite():
            raise ValueProblem(
                f"{text_of(found)} does not fit {kind}: {kind.precision} digits, {kind.scale} of them after the point",
                "Round it, or correct it.",
            )
        return result

    return check


def _string(_: pa.DataType) -> Check:
    def check(value: Any) -> Any:
        found = value if type(value) is str else plain(value)
        if not isinstance(found, str):
            raise _wrong_type(value, "a str")
        if not found.isascii():
            try:
                found.encode()
            except UnicodeEncodeError:
                raise ValueProblem(f"{text_of(value)} is not valid Unicode", "Write it as bytes.") from None
        return found

    return check


def _binary(kind: pa.DataType) -> Check:
    length = kind.byte_width if pa.types.is_fixed_size_binary(kind) else None

    def check(value: Any) -> Any:
        found = value if type(value) is bytes else plain(value)
        if not isinstance(found, bytes | bytearray | memoryview):
            raise _wrong_type(value, "bytes")
        found = bytes(found)  # a program may change a bytearray before the row is stored
        if length is not None and len(found) != length:
            raise ValueProblem(f"it has {len(found)} bytes, and {kind} has {length}", "Write that number of bytes.")
        return found

    return check


def _date(kind: pa.DataType) -> Check:
    factor = DAY_MILLIS if pa.types.is_date64(kind) else 1
    first = EPOCH.toordinal()

    def check(value: Any) -> Any:
        value = plain(value)
        if isinstance(value, datetime) or not isinstance(value, date):
            raise _wrong_type(value, "a date")
        return (value.toordinal() - first) * factor

    return check


def _time(kind: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, time):
            raise _wrong_type(value, "a time")
        if value.tzinfo is not None:
            raise ValueProblem(f"{value} has a zone, and {kind} has none", "Write a time without a zone.")
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return _in_units(value, micros * 1000, kind)

    return check


def _timestamp(kind: Any) -> Check:
    has_zone = kind.tz is not None

    def check(value: Any) -> Any:
        value = plain(value)
        if not isinstance(value, datetime):
            raise _wrong_type(value, "a datetime with a zone" if has_zone else "a datetime without a zone")
        if value.utcoffset() is None and has_zone:
            raise ValueProblem(f"{value} has no zone, and {kind} needs one", ADD_ZONE)
        if value.utcoffset() is not None and not has_zone:
            raise ValueProblem(
                f"{value} has a zone, and {kind} has none", "Write it without a zone: value.replace(tzinfo=None)."
            )
        micros = (value - (EPOCH_UTC if has_zone else EPOCH)) // MICROSECOND
        if not MIN_MICROS <= micros <= MAX_MICROS:
            raise _out_of_range(value, "the years 1 to 9999 in UTC")
        return _in_units(value, micros * 1000 + getattr(value, "nanosecond", 0), kind)

    return check


def _duration(kind: Any) -> Check:
    def check(value: Any) -> Any:
        value = plain(value)
        if not isinstance(value, timedelta):
            raise _wrong_type(value, "a timedelta")
        return _in_units(value, value // MICROSECOND * 1000 + getattr(value, "nanoseconds", 0), kind)

    return check


def _in_units(value: object, nanos: int, kind: Any) -> int:
    count, rest = divmod(nanos, NANOS_OF_UNIT[kind.unit])
    if rest:
        raise ValueProblem(f"{value} is not a whole number of {UNIT_NAMES[kind.unit]}, as {kind} needs", "Round it.")
    if count not in INT64:
        raise _out_of_range(value, kind)
    return count


def _list(kind: Any) -> Check | None:
    length = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    element = _of_type(kind.value_type)
    if element is None:
        return None
    item = _with_nulls(element, kind.value_field.nullable)

    def check(value: Any) -> Any:
        found = value if type(value) is list else plain(value)
        if not isinstance(found, list | tuple):
            raise _wrong_type(value, "a list")
        if length is not None and len(found) != length:
            raise ValueProblem(
                f"it has {len(found)} elements, and {kind} has {length}", "Write that number of elements."
            )
        return _each(item, found)

    return check


def _each(check: Check, values: list[Any] | tuple[Any, ...]) -> list[Any]:
    found: list[Any] = []
    try:
        for value in values:
            found.append(check(value))
    except ValueProblem as problem:
        raise problem.inside(f"[{len(found)}]") from None
    return found


def _struct(kind: pa.StructType) -> Check | None:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    inner = [_of_type(field.type) for field in fields]
    if any(check is None for check in inner) or len({field.name for field in fields}) < len(fields):
        return None
    checks = {
        field.name: _with_nulls(cast("Check", one), field.nullable) for field, one in zip(fields, inner, strict=True)
    }

    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong_type(value, "a dict")
        unknown = [name for name in value if name not in checks]
        if unknown:
            raise ValueProblem(
                f"the struct has no field {unknown[0]!r}", f"Its fields are {', '.join(checks) or 'none'}."
            )
        found = {}
        for name, one in checks.items():
            try:
                found[name] = one(value.get(name))
            except ValueProblem as problem:
                raise problem.inside(f".{name}") from None
        return found

    return check


def _map(kind: Any) -> Check | None:
    key, item = _of_type(kind.key_type), _of_type(kind.item_type)
    if key is None or item is None:
        return None
    check_key, check_item = _with_nulls(key, False), _with_nulls(item, kind.item_field.nullable)

    def check(value: Any) -> Any:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list | tuple) or not all(isinstance(one, tuple) and len(one) == 2 for one in pairs):
            raise _wrong_type(value, "a dict or a list of pairs")
        found = []
        for name, one in pairs:
            try:
                found.append((check_key(name), check_item(one)))
            except ValueProblem as problem:
                raise problem.inside(f"[{text_of(name)}]") from None
        if len({repr(name) for name, _ in found}) < len(found):
            raise ValueProblem("the map has a key twice", "Give each key one value.")
        return found

    return check


_LISTS: Final = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
    pa.types.is_large_list_view,
)  # fmt: skip
_SCALARS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Check]], ...]] = (
    (pa.types.is_null, _null),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _string),
    (pa.types.is_large_string, _string),
    (pa.types.is_string_view, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_binary_view, _binary),
    (pa.types.is_fixed_size_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_time, _time),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_duration, _duration),
)


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
