"""A Python value is stored so that a reader gets an equal value, or it is refused."""

from __future__ import annotations

import enum
import math
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from aeron_spark.errors import DataFormatError
from aeron_spark.rows.values import ValueProblem, check_of

UTC = timezone.utc
CET = timezone(timedelta(hours=1))
NOON = datetime(2026, 3, 1, 12, 30, 15, 123456, UTC)


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


def stored(value: Any, kind: pa.DataType, *, nullable: bool = True) -> Any:
    """Return the value as a reader gets it."""
    check = check_of(pa.field("x", kind, nullable))
    array: Any = pa.array([check(value)], kind)
    return array.to_pylist()[0]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, pa.bool_()),
        (-128, pa.int8()),
        (2**64 - 1, pa.uint64()),
        (1.5, pa.float16()),
        (-math.inf, pa.float32()),
        (2**53, pa.float64()),
        (Decimal("1.20"), pa.decimal128(5, 2)),
        (Decimal("-1E+3"), pa.decimal256(60, 1)),
        (7, pa.decimal128(3, 2)),
        ("é", pa.string()),
        ("é", pa.large_string()),
        ("é", pa.string_view()),
        ("é", pa.dictionary(pa.int8(), pa.string())),
        (b"\0", pa.binary()),
        (b"\0", pa.large_binary()),
        (b"\0", pa.binary_view()),
        (b"ab", pa.binary(2)),
        (date(1, 1, 1), pa.date32()),
        (date(9999, 12, 31), pa.date64()),
        (time(23, 59, 59), pa.time32("s")),
        (time(23, 59, 59, 999999), pa.time64("us")),
        (NOON, pa.timestamp("us", "UTC")),
        (NOON, pa.timestamp("us", "Europe/Berlin")),
        (NOON.replace(microsecond=7000, tzinfo=CET), pa.timestamp("ms", "UTC")),
        (NOON.replace(tzinfo=None), pa.timestamp("us")),
        (NOON.replace(tzinfo=None, microsecond=0), pa.timestamp("s")),
        (datetime.min, pa.timestamp("us")),
        (datetime.max.replace(tzinfo=UTC), pa.timestamp("us", "UTC")),
        (timedelta(days=-3, microseconds=1), pa.duration("us")),
        (timedelta(seconds=3), pa.duration("s")),
        ([1, None], pa.list_(pa.int64())),
        ([], pa.large_list(pa.int64())),
        ([1, 2], pa.list_(pa.int64(), 2)),
        ([[NOON]], pa.list_(pa.list_view(pa.timestamp("us", "UTC")))),
        ({"a": 1, "b": None}, pa.struct([("a", pa.int8()), ("b", pa.string())])),
        ([("k", NOON), ("l", None)], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        (None, pa.null()),
    ],
    ids=str,
)
def test_a_value_that_passes_is_stored_unchanged(value: Any, kind: pa.DataType) -> None:
    assert stored(value, kind) == value
    assert stored(None, kind) is None


def test_equal_forms_of_a_value_are_stored() -> None:
    assert stored({"k": 1}, pa.map_(pa.string(), pa.int64())) == [("k", 1)]
    assert stored({"a": 1}, pa.struct([("a", pa.int64()), ("b", pa.int64())])) == {"a": 1, "b": None}
    assert stored((1, 2), pa.list_(pa.int64())) == [1, 2]
    for value in (bytearray(b"ab"), memoryview(b"ab")):
        assert stored(value, pa.binary()) == b"ab"
    found = stored(math.nan, pa.float64())
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (1, pa.bool_(), "1 is a int, expected a bool"),
        (True, pa.int64(), "True is a bool, expected an int"),
        (1.0, pa.int64(), "1.0 is a float, expected an int"),
        (128, pa.int8(), "128 is out of the range of int8, -128 to 127"),
        (-1, pa.uint8(), "-1 is out of the range of uint8, 0 to 255"),
        (2**53 + 1, pa.float64(), "would lose digits as double"),
        (2**24 + 1, pa.float32(), "would lose digits as float"),
        (1e39, pa.float32(), "out of the range of float"),
        (7e4, pa.float16(), "out of the range of halffloat"),
        (False, pa.float64(), "expected a float"),
        (Decimal("1.5"), pa.float64(), "expected a float"),
        (Decimal("1.123"), pa.decimal128(5, 2), "does not fit decimal128"),
        (Decimal("1234"), pa.decimal128(5, 2), "does not fit decimal128"),
        (Decimal("NaN"), pa.decimal128(5, 2), "does not fit decimal128"),
        (Decimal("sNaN"), pa.decimal128(5, 2), "does not fit decimal128"),
        (Decimal("Infinity"), pa.decimal128(5, 2), "does not fit decimal128"),
        (1.5, pa.decimal128(5, 2), "expected a Decimal or an int"),
        (b"x", pa.string(), "expected a str"),
        ("\ud800", pa.string(), "not valid Unicode"),
        ("x", pa.binary(), "expected bytes"),
        (b"abc", pa.binary(2), "it has 3 bytes"),
        (NOON, pa.date32(), "expected a date"),
        (time(1, 2, 3, 4), pa.time32("ms"), "is not a whole number of milliseconds"),
        (time(1, tzinfo=UTC), pa.time32("s"), "has a zone, and time32"),
        (NOON, pa.timestamp("ms", "UTC"), "is not a whole number of milliseconds"),
        (NOON.replace(tzinfo=None), pa.timestamp("us", "UTC"), "has no zone, and timestamp.* needs one"),
        (NOON, pa.timestamp("us"), "has a zone, and timestamp.* has none"),
        (datetime(1600, 1, 1, tzinfo=UTC), pa.timestamp("ns", "UTC"), "out of the range of timestamp"),
        (datetime.min.replace(tzinfo=CET), pa.timestamp("us", "UTC"), "out of the range of the years 1 to 9999"),
        (date(2026, 1, 1), pa.timestamp("us", "UTC"), "expected a datetime with a zone"),
        (timedelta(microseconds=1), pa.duration("ms"), "is not a whole number of milliseconds"),
        (timedelta.max, pa.duration("us"), "out of the range of duration"),
        (3, pa.duration("us"), "expected a timedelta"),
        ("ab", pa.list_(pa.string()), "expected a list"),
        ({1}, pa.list_(pa.int64()), "expected a list"),
        ([1], pa.list_(pa.int64(), 2), "it has 1 elements"),
        ({"z": 1}, pa.struct([("a", pa.int64())]), "the struct has no field 'z'"),
        ([1], pa.struct([("a", pa.int64())]), "expected a dict"),
        ([("k",)], pa.map_(pa.string(), pa.int64()), "expected a dict or a list of pairs"),
        ([("k", 1), ("k", 2)], pa.map_(pa.string(), pa.int64()), "the map has a key twice"),
        (Colour.RED, pa.string(), "is an enum"),
        (Level.LOW, pa.int64(), "is an enum"),
        (0, pa.null(), "the column has only nulls"),
    ],
    ids=str,
)
def test_a_value_that_would_be_stored_changed_is_refused(value: Any, kind: pa.DataType, reason: str) -> None:
    with pytest.raises(ValueProblem, match=reason) as refused:
        stored(value, kind)
    assert refused.value.remedy


def test_a_null_is_refused_by_a_column_that_is_not_nullable() -> None:
    with pytest.raises(ValueProblem, match="it is null, and not nullable"):
        stored(None, pa.int64(), nullable=False)


def test_the_place_of_a_nested_value_is_named() -> None:
    legs = pa.list_(pa.struct([("codes", pa.map_(pa.string(), pa.list_(pa.field("one", pa.int8(), False))))]))
    with pytest.raises(ValueProblem) as refused:
        stored([None, {"codes": {"IATA": [1, None]}}], legs)
    assert refused.value.place == "[1].codes['IATA'][1]"


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.month_day_nano_interval()),
        pa.struct([("a", pa.int64()), ("a", pa.int64())]),
        pa.struct([("u", pa.uuid())]),
        pa.map_(pa.string(), pa.uuid()),
        pa.map_(pa.uuid(), pa.string()),
    ],
    ids=str,
)
def test_a_type_that_only_pyarrow_can_write_is_refused_for_the_whole_column(kind: pa.DataType) -> None:
    with pytest.raises(DataFormatError, match=r"the column .x. is .* rows of Python values cannot have") as refused:
        check_of(pa.field("x", kind))
    assert "pyarrow RecordBatch" in refused.value.remedy


# Each strategy makes values of one type, and values near it that the type may refuse.
instants = st.datetimes(timezones=st.sampled_from([UTC, CET, timezone(timedelta(hours=-11))]))
SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans() | st.integers(0, 1)),
    (pa.int8(), st.integers(-200, 200) | st.booleans()),
    (pa.uint32(), st.integers(-1, 2**33)),
    (pa.int64(), st.integers(-(2**64), 2**64) | st.floats()),
    (pa.float64(), st.floats(allow_nan=False) | st.integers(-(2**60), 2**60)),
    (pa.float32(), st.floats(allow_nan=False, width=32) | st.integers(-(2**30), 2**30)),
    (pa.decimal128(9, 3), st.decimals(-(10**7), 10**7, places=4) | st.integers(-(10**7), 10**7)),
    (pa.string(), st.text(st.characters())),
    (pa.binary(), st.binary() | st.text()),
    (pa.date32(), st.dates() | st.datetimes()),
    (pa.time64("us"), st.times()),
    (pa.time32("ms"), st.times()),
    (pa.timestamp("us", "UTC"), instants | st.datetimes()),
    (pa.timestamp("ms", "UTC"), instants),
    (pa.timestamp("us"), st.datetimes() | instants),
    (pa.duration("us"), st.timedeltas()),
    (pa.duration("s"), st.timedeltas(timedelta(days=-9), timedelta(days=9))),
]
scalars = st.sampled_from(SCALARS)


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, Any]:
    """A type, and a value that it has or refuses."""
    shape = draw(st.sampled_from(["scalar", "list", "struct", "map"])) if depth else "scalar"
    if shape == "list":
        kind, value = draw(typed_values(depth - 1))
        return pa.list_(kind), [value] * draw(st.integers(0, 3)) + draw(st.sampled_from([[], [None]]))
    if shape == "struct":
        members = [draw(typed_values(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
        return pa.struct([(f"f{n}", kind) for n, (kind, _) in enumerate(members)]), {
            f"f{n}": value for n, (_, value) in enumerate(members)
        }
    if shape == "map":
        kind, value = draw(typed_values(depth - 1))
        return pa.map_(pa.string(), kind), [(name, value) for name in draw(st.lists(st.text("ab"), unique=True))]
    kind, values = draw(scalars)
    return kind, draw(values | st.none())


@given(typed_values())
@settings(max_examples=150, deadline=None)
def test_a_value_is_stored_equal_or_refused(typed: tuple[pa.DataType, Any]) -> None:
    kind, value = typed
    try:
        found = stored(value, kind)
    except ValueProblem:
        return
    assert found == value
    assert _types(found) == _types(value)


def _types(value: Any) -> Any:
    """Return the types in a value: 1 == True == 1.0, but they are not the same."""
    match value:
        case dict():
            return {name: _types(one) for name, one in value.items()}
        case list() | tuple():
            return [_types(one) for one in value]
        case bool() | datetime() | str() | bytes() | None:
            return type(value)
        case _:
            return "other"


def test_an_unknown_object_is_refused() -> None:
    with pytest.raises(ValueProblem, match="is a UUID, expected a str"):
        stored(uuid.UUID(int=1), pa.string())
