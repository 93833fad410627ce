"""Types become columns as docs/sbe.md says, by the settings; the choice of columns and messages is checked."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from aeron_spark.errors import OptionError
from aeron_spark.sbe.description import describe, spark_type
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import (
    DecimalColumns,
    Framing,
    OnMalformed,
    SbeSettings,
    TimeColumns,
    parse_decimals,
    parse_messages,
    parse_mode,
    parse_times,
    settings_of,
)
from aeron_spark.sbe.table import MessageColumns
from tests.sbe_orders import SCHEMA
from tests.unit.sbe.schemas import schema_of, types_of

PRIMITIVES = ("char", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double")


def test_primitive_types_become_the_types_that_hold_all_their_values() -> None:
    types = types_of("", "".join(f'<field name="{name}" id="1" type="{name}"/>' for name in PRIMITIVES))
    assert list(types.values()) == [
        *("string", "int8", "int16", "int32", "int64", "int16", "int32", "int64", "decimal128(20, 0)"),
        *("float", "double"),
    ]


def test_arrays_become_texts_bytes_and_lists() -> None:
    arrays = {
        "text": 'primitiveType="char" length="5"',
        "other": 'primitiveType="char" length="5" characterEncoding="UTF-16"',
        "uuid": 'primitiveType="uint8" length="16"',
        "numbers": 'primitiveType="int32" length="3"',
        "none": 'primitiveType="int8" length="0"',
    }
    types = types_of(
        "".join(f'<type name="{name}" {text}/>' for name, text in arrays.items()),
        "".join(f'<field name="{name}" id="1" type="{name}"/>' for name in arrays),
    )
    assert list(types.values()) == ["string", "binary", "binary", "list<element: int32>", "list<element: int8>"]


DECIMAL = (
    '<composite name="{0}"><type name="mantissa" primitiveType="{1}"/>'
    '<type name="exponent" primitiveType="int8" presence="constant">{2}</type></composite>'
)
FLOATING = (
    '<composite name="f"><type name="mantissa" primitiveType="int64"/><type name="exponent" primitiveType="int8"/>'
    "</composite>"
)


@pytest.mark.parametrize(
    ("primitive", "exponent", "wanted"),
    [
        ("int64", -8, "decimal128(19, 8)"),
        ("int32", -2, "decimal128(10, 2)"),
        ("uint64", 0, "decimal128(20, 0)"),
        ("int64", 3, "decimal128(22, 0)"),
        ("int32", -15, "decimal128(15, 15)"),
        ("int64", 20, "struct<mantissa: int64, exponent: int8>"),
    ],
)
def test_a_decimal_with_a_constant_exponent_is_exact(primitive: str, exponent: int, wanted: str) -> None:
    types = types_of(DECIMAL.format("d", primitive, exponent), '<field name="a" id="1" type="d"/>')
    assert types == {"a": wanted}


def test_a_decimal_with_an_exponent_in_the_message_is_what_the_setting_says() -> None:
    body = '<field name="a" id="1" type="f"/>'
    assert types_of(FLOATING, body) == {"a": "struct<mantissa: int64, exponent: int8>"}
    assert types_of(FLOATING, body, SbeSettings(decimals=DecimalColumns("double"))) == {"a": "double"}
    wanted = SbeSettings(decimals=DecimalColumns("decimal", 30, 9))
    assert types_of(FLOATING, body, wanted) == {"a": "decimal128(30, 9)"}
    assert types_of(DECIMAL.format("f", "int32", -2), body, wanted) == {"a": "decimal128(30, 9)"}


TIME = (
    '<composite name="{0}"><type name="time" primitiveType="uint64"/>'
    '<type name="unit" primitiveType="uint8" presence="constant">{1}</type></composite>'
)


def test_a_time_is_a_timestamp_only_if_its_unit_is_known() -> None:
    types = (
        TIME.format("nanos", 9)
        + TIME.format("wrong", 5)
        + '<type name="us" primitiveType="int64" timeUnit="microsecond"/>'
        '<type name="fix" primitiveType="uint64" semanticType="UTCTimestamp"/>'
        '<type name="day" primitiveType="uint16" semanticType="UTCDateOnly"/>'
        '<type name="old" primitiveType="int64" timeUnit="second" epoch="1900"/>'
    )
    body = "".join(
        f'<field name="{name}" id="1" type="{name}"/>' for name in ("nanos", "wrong", "us", "fix", "day", "old")
    )
    timestamp, time = "timestamp[us, tz=UTC]", "struct<time: decimal128(20, 0), unit: int16>"
    assert list(types_of(types, body).values()) == [
        timestamp,
        time,
        timestamp,
        "decimal128(20, 0)",
        "date32[day]",
        "int64",
    ]
    given = SbeSettings(times=TimeColumns(units=(("fix", 6), ("old", 0))))
    assert list(types_of(types, body, given).values())[3::2] == [timestamp, timestamp]
    none = types_of(types, body, SbeSettings(times=TimeColumns(explicit=False)))
    assert list(none.values()) == [time, time, "int64", "decimal128(20, 0)", "int32", "int64"]
    with pytest.raises(OptionError, match="a unit of time is given for 'day', which is not a 64-bit integer of M"):
        types_of(types, body, SbeSettings(times=TimeColumns(units=(("day", 6),))))


def test_a_semantic_type_that_is_no_point_in_time_makes_a_number() -> None:
    """B3's ``keepAliveInterval`` of 10,000 ms was a TIMESTAMP of 1970."""
    types = (
        '<composite name="DeltaInMillis" semanticType="Int"><type name="time" primitiveType="uint64"/>'
        '<type name="unit" primitiveType="uint8" presence="constant">3</type></composite>'
        + TIME.format("stamp", 3)
        + '<type name="ms" primitiveType="int64" timeUnit="millisecond"/>'
    )
    semantic_types = {
        "a": "Int", "b": "int", "c": "UTCTimeOnly", "d": "LocalMktTime", "e": "UTCTimestamp", "f": "UTCTimeStamp",
        "g": "",
    }  # fmt: skip
    body = '<field name="keepAliveInterval" id="1" type="DeltaInMillis"/>' + "".join(
        f'<field name="{kind}{name}" id="1" type="{kind}" semanticType="{text}"/>'
        for kind in ("stamp", "ms")
        for name, text in semantic_types.items()
    )
    found = types_of(types, body)
    timestamp, number = "timestamp[us, tz=UTC]", "decimal128(20, 0)"
    assert found.pop("keepAliveInterval") == number
    assert [found[f"stamp{name}"] for name in semantic_types] == [number] * 4 + [timestamp] * 3
    assert [found[f"ms{name}"] for name in semantic_types] == ["int64"] * 4 + [timestamp] * 3
    given = types_of(types, body, SbeSettings(times=TimeColumns(units=(("msa", 3),))))
    assert given["msa"] == timestamp


def test_a_valid_value_that_means_null_has_a_remark() -> None:
    types = '<enum name="e" encodingType="uint8"><validValue name="All">255</validValue></enum>'
    (message,) = describe(MessageColumns(schema_of(types, '<field name="to" id="1" type="e"/>'), SbeSettings()))
    assert message.columns[0].remark == "255 means NULL: 'All' is read as NULL, and cannot be written"


def test_enums_and_sets_become_names_or_values() -> None:
    types = (
        '<enum name="e" encodingType="uint8"><validValue name="A">1</validValue></enum>'
        '<set name="s" encodingType="uint16"><choice name="x">0</choice><choice name="y">3</choice></set>'
    )
    body = '<field name="e" id="1" type="e"/><field name="s" id="2" type="s"/>'
    assert types_of(types, body) == {"e": "string", "s": "list<element: string>"}
    assert types_of(types, body, SbeSettings(enums="values", sets="bits")) == {"e": "int16", "s": "int32"}
    assert types_of(types, body, SbeSettings(sets="flags"))["s"] == "struct<x: bool, y: bool>"


def test_groups_become_lists_of_structs_at_any_depth() -> None:
    types = types_of("", '<group name="g" id="1"><field name="a" id="2" type="int8"/><group name="h" id="3"/></group>')
    assert types == {"g": "list<element: struct<a: int8, h: list<element: struct<>>>>"}


def columns(message: str = "Order", **settings: object) -> MessageColumns:
    return MessageColumns(load_schema(SCHEMA), SbeSettings(messages=(message,), **settings))


def test_a_message_is_chosen_by_name_or_id_and_several_become_structs() -> None:
    assert columns().arrow_schema == columns("1").arrow_schema
    assert columns("*").arrow_schema.names == ["message", "Order", "Heartbeat"]
    with pytest.raises(OptionError, match="has no message 'Ordre': it has Order, Heartbeat") as refused:
        columns("Ordre")
    assert refused.value.remedy == "Did you mean 'Order'?"
    with pytest.raises(OptionError, match="has 2 messages, and none is chosen"):
        MessageColumns(load_schema(SCHEMA), SbeSettings())


def test_modes_and_metadata_add_columns() -> None:
    assert columns("Heartbeat", mode=OnMalformed.PERMISSIVE, metadata=True).arrow_schema.names == [
        *("_corrupt_record", "_aeron_templateId", "_aeron_version")
    ]
    assert columns("Heartbeat", framing=Framing.SEQUENCE, metadata=True).arrow_schema.names[-1] == "_aeron_row"
    assert columns("Heartbeat", framing=Framing.CLUSTER, metadata=True).arrow_schema.names[2:] == [
        *("_aeron_leadershipTermId", "_aeron_clusterSessionId", "_aeron_clusterTimestamp")
    ]


def test_a_table_of_chosen_columns_is_shorter_and_picklable() -> None:
    everything = columns().table()
    assert pickle.loads(pickle.dumps(everything)) == everything
    chosen = pa.schema([("note", pa.string()), ("id", pa.int64())])
    table = columns().table(chosen)
    assert table.schema == chosen
    assert len(table.numbers) < len(everything.numbers)


def test_a_struct_can_be_chosen_with_some_of_its_fields() -> None:
    fills = pa.list_(pa.field("element", pa.struct([("quantity", pa.int64())])))
    chosen = pa.schema([("Order", pa.struct([("fills", fills), ("id", pa.int64())]))])
    assert columns("*").table(chosen).schema == chosen


@pytest.mark.parametrize(
    ("chosen", "reason", "remedy"),
    [
        ({"nota": pa.int64()}, "the column 'nota', which the message does not have", "Did you mean 'note'?"),
        ({"id": pa.int32()}, "'id' with the type int32, and the message has it as int64", "cast the column"),
        ({"fills": pa.list_(pa.struct([("q", pa.int64())]))}, "'fills.q', which the message does not have", "describe"),
    ],
)
def test_a_wrong_choice_of_columns_is_refused(chosen: dict[str, pa.DataType], reason: str, remedy: str) -> None:
    with pytest.raises(OptionError) as refused:
        columns().table(pa.schema(list(chosen.items())))
    assert reason in refused.value.what
    assert remedy in refused.value.remedy


def test_names_that_differ_only_by_case_are_refused_for_spark() -> None:
    body = '<group name="g" id="1"><field name="a" id="1" type="int8"/><field name="A" id="2" type="int8"/></group>'
    found = MessageColumns(schema_of("", body), SbeSettings())
    with pytest.raises(OptionError, match=r"the schema has 'g\.a' and 'g\.A', which are one name for Spark"):
        found.check_names()
    columns().check_names()


@pytest.mark.parametrize(
    ("parse", "good", "wrong"),
    [
        (parse_messages, {"A, b": ("A", "b"), "*": ("*",), "7": ("7",)}, ["", "A,,B", "A,A", "*,A", "?!"]),
        (parse_mode, {"permissive": OnMalformed.PERMISSIVE}, ["", "some"]),
        (
            parse_decimals,
            {"decimal(10, 2)": DecimalColumns("decimal", 10, 2)},
            ["decimal(39,1)", "decimal(2,3)", "float"],
        ),
        (
            parse_times,
            {"none": TimeColumns(False), "a:us, b.c:s": TimeColumns(True, (("a", 6), ("b.c", 0)))},
            ["a", "a:x", "a:us,a:s"],
        ),
    ],
)
def test_values_of_options_are_parsed(parse: object, good: dict[str, object], wrong: list[str]) -> None:
    assert callable(parse)
    for text, value in good.items():
        assert parse(text) == value
    for text in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            parse(text)


def test_the_options_of_the_function_are_parsed() -> None:
    found = settings_of("A", {"mode": "PERMISSIVE", "framing": "cluster", "sets": "bits"})
    assert (found.messages, found.mode, found.framing, found.sets) == (
        ("A",),
        OnMalformed.PERMISSIVE,
        Framing.CLUSTER,
        "bits",
    )
    for options in ({"mod": "PERMISSIVE"}, {"enums": "numbers"}):
        with pytest.raises(OptionError):
            settings_of(None, options)


def test_a_description_has_the_types_of_sql_and_remarks() -> None:
    types = FLOATING + '<type name="fix" primitiveType="uint64" semanticType="UTCTimestamp"/>' + TIME.format("nanos", 9)
    body = (
        '<field name="f" id="1" type="f"/><field name="n" id="2" type="nanos"/>'
        '<group name="g" id="3"><field name="at" id="4" type="fix" sinceVersion="2"/></group>'
    )
    (message,) = describe(MessageColumns(schema_of(types, body), SbeSettings()))
    found = {column.name: (column.type, column.since, column.remark) for column in message.columns}
    assert found["f"][0] == "STRUCT"
    assert "sbeDecimals" in found["f"][2]
    assert found["n"] == ("TIMESTAMP", 0, "nanoseconds are cut to microseconds")
    assert found["g"] == ("ARRAY<STRUCT>", 0, "")
    assert found["g.at"] == (
        "DECIMAL(20,0)",
        2,
        "UTCTimestamp without a unit: set the sender's, such as sbeTimes=g.at:ns",
    )
    nested = pa.struct([("a", pa.list_(pa.float64())), ("b", pa.date32())])
    assert spark_type(nested) == "STRUCT<a: ARRAY<DOUBLE>, b: DATE>"
