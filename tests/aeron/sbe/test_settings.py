"""The settings for decimals, times, enums and sets give the values that docs/sbe.md says, or malformed messages."""

from __future__ import annotations

import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from aeron_spark.aeron.sbe_decoder import SbeDecoder
from aeron_spark.errors import DataFormatError
from aeron_spark.sbe.settings import DecimalColumns, OnMalformed, SbeSettings, TimeColumns
from aeron_spark.sbe.table import MessageColumns
from tests.aeron.sbe.decoding import decode_rows
from tests.unit.sbe.schemas import schema_of

FLOATING: Final = (
    '<composite name="f"><type name="mantissa" primitiveType="int64" presence="optional"/>'
    '<type name="exponent" primitiveType="int8"/></composite>'
)
NULL: Final = -(2**63)


def values(types: str, kind: str, blocks: list[bytes], settings: SbeSettings | None = None) -> list[Any]:
    """Return the values of a field of one type in messages with these blocks."""
    schema = schema_of(types, f'<field name="v" id="1" type="{kind}"/>')
    messages = [struct.pack("<HHHH", len(block), 1, 1, 3) + block for block in blocks]
    table = MessageColumns(schema, settings or SbeSettings()).table()
    return [row["v"] for row in decode_rows(table, messages)]


def floating(*pairs: tuple[int, int]) -> list[bytes]:
    return [struct.pack("<qb", mantissa, exponent) for mantissa, exponent in pairs]


def test_decimals_become_one_type_exactly() -> None:
    settings = SbeSettings(decimals=DecimalColumns("decimal", 10, 2))
    pairs = floating((12345, -2), (-5, 0), (7, 3), (1200, -4), (0, 100), (0, -128), (NULL, 5), (99999999, 0), (1, 7))
    assert values(FLOATING, "f", pairs, settings) == [
        *(Decimal("123.45"), Decimal("-5.00"), Decimal("7000.00"), Decimal("0.12"), Decimal("0.00"), Decimal("0.00")),
        *(None, Decimal("99999999.00"), Decimal("10000000.00")),
    ]


@pytest.mark.parametrize("pair", [(12345, -3), (1, 8), (10**8, 0), (1, 127), (1, -128), (2**63 - 1, 0)])
def test_a_decimal_that_does_not_fit_makes_the_message_malformed(pair: tuple[int, int]) -> None:
    settings = SbeSettings(decimals=DecimalColumns("decimal", 10, 2))
    with pytest.raises(DataFormatError, match="the value of 'v' does not fit the type of its column"):
        values(FLOATING, "f", floating(pair), settings)
    kept = SbeSettings(decimals=settings.decimals, mode=OnMalformed.PERMISSIVE)
    assert values(FLOATING, "f", floating(pair, (1, 0)), kept) == [None, Decimal("1.00")]


def test_decimals_become_doubles_rounded_once() -> None:
    pairs = [(12345, -2), (1, -1), (NULL, 0), (2**63 - 1, -3), (3, 22), (-7, -128), (1, 127)]
    found = values(FLOATING, "f", floating(*pairs), SbeSettings(decimals=DecimalColumns("double")))
    wanted = [None if mantissa == NULL else float(Decimal(mantissa).scaleb(exponent)) for mantissa, exponent in pairs]
    assert found == wanted


@pytest.mark.parametrize(
    ("primitive", "code", "exponent", "raw", "wanted"),
    [
        ("int32", "<i", -4, -1, Decimal("-0.0001")),
        ("uint64", "<Q", 0, 2**64 - 2, Decimal(2**64 - 2)),
        ("uint64", "<Q", 2, 2**64 - 2, Decimal((2**64 - 2) * 100)),
        ("int64", "<q", 3, -(2**63), Decimal(-(2**63) * 1000)),
    ],
)
def test_a_constant_exponent_is_exact(primitive: str, code: str, exponent: int, raw: int, wanted: Decimal) -> None:
    types = (
        f'<composite name="d"><type name="mantissa" primitiveType="{primitive}"/>'
        f'<type name="exponent" primitiveType="int8" presence="constant">{exponent}</type></composite>'
    )
    assert values(types, "d", [struct.pack(code, raw)]) == [wanted]
    scaled = SbeSettings(decimals=DecimalColumns("decimal", 38, 4))
    assert values(types, "d", [struct.pack(code, raw)], scaled) == [wanted.quantize(Decimal("1.0000"))]


def time_type(unit: str, primitive: str = "int64") -> str:
    return f'<type name="t" primitiveType="{primitive}" timeUnit="{unit}"/>'


@pytest.mark.parametrize(
    ("unit", "raw", "microsecond"),
    [
        ("second", 1, 1_000_000),
        ("millisecond", -1, -1_000),
        ("microsecond", 7, 7),
        ("nanosecond", 1_999, 1),
        ("nanosecond", -1, -1),
    ],
)
def test_times_are_in_microseconds_and_nanoseconds_are_cut(unit: str, raw: int, microsecond: int) -> None:
    (found,) = values(time_type(unit), "t", [struct.pack("<q", raw)])
    since = found - datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds == microsecond


@pytest.mark.parametrize(
    ("unit", "primitive", "raw"),
    [
        ("second", "int64", 2**62),
        ("millisecond", "int64", -(2**62)),
        ("second", "uint64", 2**63),
        ("microsecond", "uint64", 2**63),
    ],
)
def test_a_time_that_does_not_fit_makes_the_message_malformed(unit: str, primitive: str, raw: int) -> None:
    code = "<Q" if primitive == "uint64" else "<q"
    with pytest.raises(DataFormatError, match="does not fit"):
        values(time_type(unit, primitive), "t", [struct.pack(code, raw)])
    assert values(time_type(unit, primitive), "t", [struct.pack(code, raw)], SbeSettings(times=TimeColumns(False)))


def test_the_largest_unsigned_nanosecond_is_a_time() -> None:
    (found,) = values(time_type("nanosecond", "uint64"), "t", [struct.pack("<Q", 2**64 - 1)])
    assert found.year == 2554


def test_a_date_counts_days() -> None:
    types = '<type name="d" primitiveType="uint16" semanticType="UTCDateOnly"/>'
    assert values(types, "d", [struct.pack("<H", 20_000)]) == [date(2024, 10, 4)]


ENUM: Final = '<enum name="e" encodingType="{0}"><validValue name="A">{1}</validValue></enum>'


def test_enums_are_names_or_values_and_an_unknown_one_is_its_text() -> None:
    codes, raw = ENUM.format("uint8", 1), [b"\x01", b"\x07", b"\xff"]
    assert values(codes, "e", raw) == ["A", "7", None]
    assert values(codes, "e", raw, SbeSettings(enums="values")) == [1, 7, None]
    letters, raw = ENUM.format("char", "x"), [b"x", b"y", b"\0"]
    assert values(letters, "e", raw) == ["A", "y", None]
    assert values(letters, "e", raw, SbeSettings(enums="values")) == ["x", "y", None]
    signed = ENUM.format("int32", -5)
    assert values(signed, "e", [struct.pack("<i", -5), struct.pack("<i", -6)]) == ["A", "-6"]


def test_sets_are_names_bits_or_flags() -> None:
    types = '<set name="s" encodingType="uint64"><choice name="low">0</choice><choice name="high">63</choice></set>'
    raw = [struct.pack("<Q", 1 | 1 << 63 | 1 << 40), struct.pack("<Q", 0)]
    assert values(types, "s", raw) == [["low", "high", "40"], []]
    assert values(types, "s", raw, SbeSettings(sets="bits")) == [Decimal(1 | 1 << 63 | 1 << 40), Decimal(0)]
    assert values(types, "s", raw, SbeSettings(sets="flags")) == [
        {"low": True, "high": True},
        {"low": False, "high": False},
    ]


def test_a_null_value_of_a_float_is_a_number_or_any_nan() -> None:
    given = '<type name="n" primitiveType="double" presence="optional" nullValue="0"/>'
    found = values(given, "n", [struct.pack("<d", value) for value in (0.0, -0.0, 1.5, float("nan"))])
    assert found[:3] == [None, None, 1.5]
    assert found[3] != found[3]
    plain = '<type name="n" primitiveType="float" presence="optional"/>'
    assert values(plain, "n", [b"\x01\x00\xc0\x7f", b"\x00\x00\xc0\xff", b"\x00\x00\x80\x7f"]) == [
        None,
        None,
        float("inf"),
    ]


def test_texts_of_other_encodings_are_decoded() -> None:
    types = '<type name="t" primitiveType="char" length="6" characterEncoding="GB18030"/>'
    assert values(types, "t", ["中文".encode("gb18030").ljust(6, b"\0")]) == ["中文"]


def test_long_values_are_decoded_in_several_batches() -> None:
    """A batch of the decoder has at most 4 MiB of messages: its own memory, for the elements of arrays, is small."""
    schema = schema_of('<type name="a" primitiveType="uint16" length="1000"/>', '<field name="v" id="1" type="a"/>')
    block = struct.pack("<1000H", *range(1000))
    messages = pa.array([struct.pack("<HHHH", len(block), 1, 1, 3) + block] * 5_000, pa.binary())
    decoder = SbeDecoder(MessageColumns(schema, SbeSettings()).table())
    found = list(decoder.decode(messages, str))
    assert [batch.rows for batch in found] == [2_089, 2_089, 822]
    for batch in found:
        (column,) = batch.columns
        assert column[-1].as_py() == list(range(1000))
        assert len(column.values) == 1000 * batch.rows
    assert found[1].sources[0].as_py() == 2_089
