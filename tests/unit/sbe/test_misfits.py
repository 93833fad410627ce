"""A value that a field of an SBE message cannot hold is refused with its row, its column and a remedy."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.sbe import encoding as encoder_module
from aeron_spark.sbe.encoding import SbeEncoder, encode_plan, row_of
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import settings_of
from aeron_spark.sbe.table import MessageColumns
from tests.sbe_orders import SCHEMA as ORDERS
from tests.sbe_orders import encode_order, order_rows
from tests.sbe_reference import Reference
from tests.unit.sbe.schemas import schema_text

DATA: Final = """<composite name="text"><type name="length" primitiveType="uint8"/>
<type name="varData" primitiveType="uint8" length="0" characterEncoding="{}"/></composite>"""
ENUM: Final = """<enum name="Side" encodingType="uint8"><validValue name="BUY">1</validValue>
<validValue name="SELL">2</validValue></enum>"""
SET: Final = (
    """<set name="Flags" encodingType="uint8"><choice name="dark">0</choice><choice name="lit">7</choice></set>"""
)
DECIMAL: Final = """<composite name="price"><type name="mantissa" primitiveType="int32"/>
<type name="exponent" primitiveType="int8" presence="constant">{}</type></composite>"""
FLOATING: Final = """<composite name="price"><type name="mantissa" primitiveType="int32"/>
<type name="exponent" primitiveType="int8"/></composite>"""


def encode(
    types: str, kind: str, values: list[Any], *, options: dict[str, str] | None = None, given: Any = None,
    attributes: str = "",
) -> list[Any]:  # fmt: skip
    """Return the values of the field ``x`` that the reference decoder finds in the messages of ``values``.

    ``types`` may define a type named ``kind``. ``given``: the type of the rows' column, if it is not the field's.
    """
    return encode_body(types, f'<field name="x" id="1" type="{kind}" {attributes}/>', values, options, given)


def encode_body(
    types: str, body: str, values: list[Any], options: dict[str, str] | None = None, given: Any = None
) -> list[Any]:
    text = schema_text(types, body)
    columns = MessageColumns(load_schema(text), settings_of(None, options or {}))
    kind = given or columns.arrow_schema.field("x").type
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], ["x"])
    encoder = SbeEncoder(encode_plan(columns, batch.schema), row_of("a test"))
    reference = Reference(text)
    return [reference.decode(one)["body"]["x"] for array in encoder.encode(batch) for one in array.to_pylist()]


def named(kind: str, attributes: str) -> str:
    return f'<type name="T" primitiveType="{kind}" {attributes}/>'


WRONG: Final = [
    pytest.param(named("int32", ""), "T", [1, None], {}, None, "row 1 .*it is NULL", "coalesce", id="null"),
    pytest.param(named("uint8", ""), "T", [0, 255, 256], {}, None, "row 2 .*'x': 256: .*0 to 255", "", id="too large"),
    pytest.param(named("uint8", ""), "T", [-1], {}, pa.int64(), "-1: the field holds 0 to 255", "", id="negative"),
    pytest.param(
        named("uint64", ""),
        "T",
        [Decimal(1 << 64)],
        {},
        pa.decimal128(20, 0),
        "0 to 18446744073709551615",
        "",
        id="u64",
    ),
    pytest.param(
        named("int64", ""), "T", [Decimal(1 << 63)], {}, pa.decimal128(20, 0), "the field holds -9", "", id="i64"
    ),
    pytest.param(
        named("int8", 'presence="optional"'),
        "T",
        [None, -128],
        {},
        None,
        "row 1 .*has -128 for NULL",
        "",
        id="means null",
    ),
    pytest.param(
        named("double", 'presence="optional"'),
        "T",
        [1.0, float("nan")],
        {},
        None,
        "row 1 .*has nan for NULL",
        "",
        id="NaN",
    ),
    pytest.param(
        named("char", 'length="3"'), "T", ["abc", "abcd"], {}, None, "row 1 .*3 bytes of US-ASCII", "", id="text"
    ),
    pytest.param(named("char", 'length="3"'), "T", ["é"], {}, None, "US-ASCII lacks", "", id="encoding"),
    pytest.param(named("char", 'length="3"'), "T", ["abc", "", "\0a"], {}, None, "row 2 .*first NUL", "", id="NUL"),
    pytest.param(named("char", ""), "T", ["ab"], {}, None, "holds one byte", "", id="character"),
    pytest.param(
        named("uint8", 'length="3"'), "T", [b"abc", b"ab"], {}, None, "row 1 .*exactly 3 bytes", "", id="bytes"
    ),
    pytest.param(
        named("int16", 'length="2"'), "T", [[1, 2], [1]], {}, None, "row 1 .*exactly 2 elements", "", id="elements"
    ),
    pytest.param(
        named("int16", 'length="2"'), "T", [[1, 2], None], {}, None, "row 1 .*it is NULL", "", id="null array"
    ),
    pytest.param(
        named("uint16", 'length="2"'),
        "T",
        [[1, 2], [3, -1]],
        {},
        pa.list_(pa.int32()),
        "row 1 .*-1: ",
        "",
        id="element",
    ),
    pytest.param(ENUM, "Side", ["BUY", "SEL"], {}, None, "row 1 .*'SEL': .*no such value", "mean 'SELL'", id="enum"),
    pytest.param(
        SET, "Flags", [["lit"], ["lit", "x"]], {}, None, "row 1 .*'x': .*no such choice", "dark, lit", id="set"
    ),
    pytest.param(SET, "Flags", [[None]], {}, None, "it is NULL", "", id="null choice"),
    pytest.param(SET, "Flags", [{"dark": None, "lit": True}], {"sets": "flags"}, None, "a flag is NULL", "", id="flag"),
    pytest.param(DECIMAL.format(-2), "price", [Decimal("21474836.48")], {}, None, "the field holds", "", id="mantissa"),
    pytest.param(
        DECIMAL.format(-2),
        "price",
        [Decimal("1.25"), Decimal("1.255")],
        {},
        pa.decimal128(10, 3),
        r"row 1 .*1\.255.*decimal128\(10, 2\)",
        "Round",
        id="digits",
    ),
    pytest.param(DECIMAL.format(2), "price", [Decimal(250)], {}, None, "multiples of 100", "", id="zeros"),
    pytest.param(
        FLOATING,
        "price",
        [Decimal("99999.99999")],
        {"decimals": "decimal(10,5)"},
        None,
        "the field holds",
        "",
        id="floating",
    ),
    pytest.param(
        named("int64", 'timeUnit="millisecond"'),
        "T",
        [datetime(2026, 1, 1, 0, 0, 0, 1, timezone.utc)],
        {},
        None,
        "multiples of 1000 microseconds",
        "date_trunc",
        id="milliseconds",
    ),
    pytest.param(
        named("int64", 'timeUnit="nanosecond"'),
        "T",
        [datetime(2300, 1, 1, tzinfo=timezone.utc)],
        {},
        None,
        "to 9223372036854775807 nanoseconds",
        "that the field can hold",
        id="nanoseconds",
    ),
    pytest.param(
        named("uint64", 'timeUnit="nanosecond"'),
        "T",
        [datetime(2554, 1, 1, tzinfo=timezone.utc), datetime(2600, 1, 1, tzinfo=timezone.utc)],
        {},
        None,
        "row 1 .* 0 to 18446744073709551615 nanoseconds",
        "",
        id="unsigned nanoseconds",
    ),
    pytest.param(
        named("uint64", 'timeUnit="nanosecond"'),
        "T",
        [datetime(1969, 12, 31, tzinfo=timezone.utc)],
        {},
        None,
        "row 0 .* 0 to 18446744073709551615 nanoseconds",
        "",
        id="nanoseconds before 1970",
    ),
    pytest.param(
        named("uint64", 'timeUnit="second"'),
        "T",
        [datetime(1969, 1, 1, tzinfo=timezone.utc)],
        {},
        None,
        "holds 0 to",
        "",
        id="before 1970",
    ),
    pytest.param(
        named("uint16", 'semanticType="UTCDateOnly"'), "T", [date(1969, 12, 31)], {}, None, "0 to", "", id="date"
    ),
    pytest.param(
        '<type name="T" primitiveType="int8" presence="constant">7</type>',
        "T",
        [7, None, 8],
        {},
        None,
        "row 2 .*the constant 7",
        "drop the column",
        id="constant",
    ),
]


@pytest.mark.parametrize(("types", "kind", "values", "options", "given", "what", "remedy"), WRONG)
def test_a_value_that_its_field_cannot_hold_is_refused(
    types: str, kind: str, values: list[Any], options: dict[str, str], given: Any, what: str, remedy: str
) -> None:
    with pytest.raises(DataFormatError, match=what) as refused:
        encode(types, kind, values, options=options, given=given)
    assert "of a test, column 'x" in str(refused.value)
    assert refused.value.remedy
    assert remedy in refused.value.remedy


RIGHT: Final = [
    pytest.param(named("uint8", ""), "T", [0, 255], {}, pa.int64(), [0, 255], id="wider column"),
    pytest.param(
        named("uint64", ""), "T", [Decimal((1 << 64) - 1), Decimal(0)], {}, None, [(1 << 64) - 1, 0], id="u64"
    ),
    pytest.param(named("uint64", ""), "T", [5], {}, pa.int64(), [5], id="u64 of bigint"),
    pytest.param(named("uint64", ""), "T", [(1 << 64) - 1], {}, pa.uint64(), [(1 << 64) - 1], id="u64 of Arrow"),
    pytest.param(
        named("uint64", 'presence="optional"'), "T", [None, Decimal(1)], {}, None, [None, 1], id="optional u64"
    ),
    pytest.param(
        named("int64", 'presence="optional" nullValue="5"'), "T", [None, -1], {}, None, [None, -1], id="own null"
    ),
    pytest.param(named("float", ""), "T", [float("nan"), 0.5], {}, None, ["nan", 0.5], id="required NaN"),
    pytest.param(
        named("char", 'length="3"'), "T", ["", "ab", "abc"], {}, pa.large_string(), ["", "ab", "abc"], id="text"
    ),
    pytest.param(
        named("char", 'length="3" characterEncoding="ISO-8859-1"'), "T", ["é", "aé"], {}, None, ["é", "aé"], id="latin"
    ),
    pytest.param(
        named("char", 'length="3" presence="optional"'), "T", [None, "a"], {}, None, ["", "a"], id="null text"
    ),
    pytest.param(
        named("int16", 'length="2" presence="optional"'),
        "T",
        [[1, None], None],
        {},
        None,
        [[1, None], [None, None]],
        id="null elements",
    ),
    pytest.param(ENUM, "Side", ["SELL", None], {}, None, ["SELL", None], id="enum"),
    pytest.param(ENUM, "Side", [2, 9], {"enums": "values"}, None, ["SELL", {"unknown": 9}], id="enum's numbers"),
    pytest.param(
        SET,
        "Flags",
        [["lit", "dark"], []],
        {},
        None,
        [{"bits": 129, "choices": ["dark", "lit"]}, {"bits": 0, "choices": []}],
        id="set",
    ),
    pytest.param(SET, "Flags", [2], {"sets": "bits"}, None, [{"bits": 2, "choices": []}], id="bits"),
    pytest.param(
        SET,
        "Flags",
        [{"dark": False, "lit": True}],
        {"sets": "flags"},
        None,
        [{"bits": 128, "choices": ["lit"]}],
        id="flags",
    ),
    pytest.param(
        DECIMAL.format(-2),
        "price",
        [Decimal("-1.5")],
        {},
        pa.decimal128(5, 1),
        [{"mantissa": -150, "exponent": -2}],
        id="fewer digits",
    ),
    pytest.param(DECIMAL.format(2), "price", [Decimal(-300)], {}, None, [{"mantissa": -3, "exponent": 2}], id="zeros"),
    pytest.param(
        FLOATING,
        "price",
        [Decimal("1.25")],
        {"decimals": "decimal(10,5)"},
        None,
        [{"mantissa": 125000, "exponent": -5}],
        id="floating",
    ),
    pytest.param(
        named("int64", 'timeUnit="nanosecond"'),
        "T",
        [datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc)],
        {},
        pa.timestamp("us", "Europe/Berlin"),
        [-1000],
        id="nanoseconds",
    ),
    pytest.param(
        named("uint64", 'timeUnit="nanosecond"'),
        "T",
        [datetime(2373, 9, 7, 17, 59, 56, 906_653, timezone.utc)],
        {},
        None,
        [12_739_053_596_906_653_000],
        id="unsigned nanoseconds",
    ),
    pytest.param(named("uint16", 'semanticType="UTCDateOnly"'), "T", [date(1970, 1, 3)], {}, None, [2], id="date"),
    pytest.param(
        '<type name="T" primitiveType="int8" presence="constant">7</type>',
        "T",
        [7, None],
        {},
        None,
        [7, 7],
        id="constant",
    ),
]


@pytest.mark.parametrize(("types", "kind", "values", "options", "given", "wanted"), RIGHT)
def test_a_value_is_written_as_the_field_has_it(
    types: str, kind: str, values: list[Any], options: dict[str, str], given: Any, wanted: list[Any]
) -> None:
    found = encode(types, kind, values, options=options, given=given)
    assert ["nan" if one != one else one for one in found] == wanted


def order_columns() -> MessageColumns:
    return MessageColumns(load_schema(ORDERS), settings_of("Order", {}))


def order_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=order_columns().arrow_schema)


def test_messages_have_the_bytes_that_an_encoder_by_hand_makes() -> None:
    columns = order_columns()
    encoder = SbeEncoder(encode_plan(columns, columns.arrow_schema), row_of("a test"))
    batch = order_batch(order_rows(5))
    (first,), (second,) = encoder.encode(batch.slice(0, 2)), encoder.encode(batch.slice(2))  # a slice has an offset
    assert [*first.to_pylist(), *second.to_pylist()] == [encode_order(number) for number in range(5)]
    assert encoder.rows == 5


def test_large_batches_become_several_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "MAX_BYTES", 200)
    columns = order_columns()
    encoder = SbeEncoder(encode_plan(columns, columns.arrow_schema), row_of("a test"))
    arrays = list(encoder.encode(order_batch(order_rows(9))))
    assert len(arrays) > 1
    assert [one for array in arrays for one in array.to_pylist()] == [encode_order(number) for number in range(9)]
    rows = order_rows(12)
    rows[7]["fills"] = [{"quantity": 1}, {"quantity": -1}]
    with pytest.raises(DataFormatError, match=r"row 16 of a test, column 'fills\.quantity': -1"):
        list(encoder.encode(order_batch(rows)))


def test_the_size_of_groups_and_data_is_checked() -> None:
    columns = order_columns()
    plan = encode_plan(columns, columns.arrow_schema)
    rows = order_rows(3)
    rows[1]["fills"] = [{"quantity": 1}] * 255
    with pytest.raises(DataFormatError, match=r"row 1 .*'fills': it has 255 entries, .* at most 254"):
        list(SbeEncoder(plan, row_of("a test")).encode(order_batch(rows)))
    rows = order_rows(3)
    rows[2]["note"] = "ü" * 128
    with pytest.raises(DataFormatError, match=r"row 2 .*'note': it has 256 bytes"):
        list(SbeEncoder(plan, row_of("a test")).encode(order_batch(rows)))
    rows = order_rows(2)
    rows[1]["fills"] = [{"quantity": 1}, None]
    with pytest.raises(DataFormatError, match=r"row 1 .*'fills': an entry is NULL"):
        list(SbeEncoder(plan, row_of("a test")).encode(order_batch(rows)))


def test_long_texts_and_missing_parts_are_written() -> None:
    long = "x" * 200
    rows = [{**row, "note": text} for row, text in zip(order_rows(4), ["", long, "a", None], strict=True)]
    batch = order_batch(rows).select(["note", "symbol", "side", "price", "id", "desk"])  # no group
    encoder = SbeEncoder(encode_plan(order_columns(), batch.schema), row_of("a test"))
    bodies = [Reference(ORDERS).decode(one)["body"] for array in encoder.encode(batch) for one in array.to_pylist()]
    assert [(body["note"], body["fills"]) for body in bodies] == [("", []), (long, []), ("a", []), ("", [])]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"price": pa.float64()}, r"'price' is double, .* has it as decimal128\(19, 4\)"),
        ({"id": pa.string()}, "'id' is string"),
        ({"fills": pa.list_(pa.struct([("quantty", pa.int64())]))}, r"'fills\.quantty', which .*does not have"),
        ({"fills": pa.list_(pa.struct([]))}, r"no column 'fills\.quantity'"),
        ({"id": None}, "no column 'id'"),
        ({"noted": pa.string()}, "'noted', which .*does not have"),
    ],
)
def test_columns_that_the_message_cannot_have_are_refused(change: dict[str, Any], what: str) -> None:
    types = {field.name: field.type for field in order_columns().arrow_schema} | change
    given = pa.schema([(name, kind) for name, kind in types.items() if kind is not None])
    with pytest.raises(OptionError, match=what) as refused:
        encode_plan(order_columns(), given)
    assert refused.value.remedy


def test_one_message_type_is_written() -> None:
    columns = MessageColumns(load_schema(ORDERS), settings_of("Order,Heartbeat", {}))
    with pytest.raises(OptionError, match="one message type"):
        encode_plan(columns, columns.arrow_schema)


def test_a_double_has_no_exponent() -> None:
    text = schema_text(FLOATING, '<field name="x" id="1" type="price"/>')
    columns = MessageColumns(load_schema(text), settings_of(None, {"decimals": "double"}))
    with pytest.raises(OptionError, match="sbeDecimals=double cannot be written"):
        encode_plan(columns, columns.arrow_schema)


@pytest.mark.parametrize(
    "encoding", ["UTF-8", "windows-1252", "GB18030", "GBK", "Shift_JIS", "EUC-JP", "EUC-KR", "Big5"]
)
def test_data_are_written_in_the_encoding_of_the_schema(encoding: str) -> None:
    text = {"windows-1252": "€", "EUC-KR": "한국"}.get(encoding, "日本")
    body = '<data name="x" id="1" type="text"/>'
    assert encode_body(DATA.format(encoding), body, ["a", text, ""]) == ["a", text, ""]


def test_a_double_is_not_rounded_to_a_float() -> None:
    columns = MessageColumns(
        load_schema(schema_text("", '<field name="x" id="1" type="float"/>')), settings_of(None, {})
    )
    with pytest.raises(OptionError, match=r"'x' is double, .* has it as float") as refused:
        encode_plan(columns, pa.schema([("x", pa.float64())]))
    assert "Cast it" in refused.value.remedy
