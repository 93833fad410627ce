"""Typed values: any value can be encoded and decoded, and any other bytes are an error."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import msgpack

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.protocol.message_types import MAX_BYTES, MESSAGE_SHAPE, BuiltIn, Encoded, ShapeLimits, Types


class Flight(msgspec.Struct):
    number: str
    delay: int = 0
    via: list[str] = []


@dataclasses.dataclass
class Gate:
    terminal: int
    label: str


class Tree(msgspec.Struct):
    child: Tree | None = None


class Holder(msgspec.Struct):
    anything: Any


class Strict(msgspec.Struct):
    even: int

    def __post_init__(self) -> None:
        if self.even % 2:
            raise RuntimeError("odd")


def types_with(shape: ShapeLimits = MESSAGE_SHAPE, max_bytes: int = MAX_BYTES) -> Types:
    types = Types(shape=shape, max_bytes=max_bytes)
    for type_id, cls in enumerate((Flight, Gate, Tree, Holder, Strict), start=64):
        types.register(cls, type_id)
    return types


TYPES = types_with()
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.datetimes(timezones=st.just(timezone.utc))
    | st.builds(Flight, st.text(), st.integers(-9, 9), st.lists(st.text()))
    | st.builds(Gate, st.integers(0, 99), st.text())
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.binary(), inner),
    max_leaves=20,
)


def equal_with_types(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal_with_types, one, other))  # type: ignore[arg-type]
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal_with_types(one[key], other[key]) for key in one)  # type: ignore[attr-defined,index]
    return one == other


@pytest.mark.slow
@given(VALUES)
def test_every_value_can_be_encoded_and_decoded_with_its_type(value: object) -> None:
    encoded = TYPES.encode(value)
    assert equal_with_types(TYPES.decode(bytes(encoded)), value)
    assert equal_with_types(TYPES.decode_body(encoded.type_id, encoded.body), value)
    assert len(bytes(encoded)) == encoded.size


@given(st.binary(max_size=300))
@example(b"")
@example(b"\x00\x40\x81\xa5child")
@example(b"\x00\x07" + b"\x91" * 250)
def test_arbitrary_bytes_are_a_value_or_a_format_error(data: bytes) -> None:
    for candidate in (data, *(type_id.to_bytes(2, "big") + data for type_id in (*BuiltIn, 64, 65, 66, 67, 68))):
        try:
            value = TYPES.decode(candidate)
        except DataFormatError:
            continue
        assert TYPES.encode(value).type_id == int.from_bytes(candidate[:2], "big")


@given(VALUES, st.data())
def test_changed_and_truncated_messages_are_a_value_or_a_format_error(value: object, data: st.DataObject) -> None:
    whole = bytearray(bytes(TYPES.encode(value)))
    assert equal_with_types(TYPES.decode(bytes(whole)), value)
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for candidate in (whole, whole[: data.draw(st.integers(0, len(whole)))]):
        with contextlib.suppress(DataFormatError):
            TYPES.decode(candidate)


def test_nan_and_infinity_are_floats() -> None:
    assert math.isnan(TYPES.decode(bytes(TYPES.encode(math.nan))))  # type: ignore[arg-type]
    assert TYPES.decode(bytes(TYPES.encode(-math.inf))) == -math.inf


def test_values_are_encoded_as_these_bytes() -> None:
    assert bytes(TYPES.encode(None)).hex() == "0001c0"
    assert bytes(TYPES.encode(True)).hex() == "0002c3"
    assert bytes(TYPES.encode(-1)).hex() == "0003ff"
    assert bytes(TYPES.encode("é")).hex() == "0005c3a9"
    assert bytes(TYPES.encode(b"\x01\x02")).hex() == "00060102"
    assert bytes(TYPES.encode([1, (2,)])).hex() == "00079201d5019102"
    assert bytes(TYPES.encode({"a": 1})).hex() == "000981a16101"
    assert bytes(TYPES.encode(UUID(int=1))).hex() == "000bd802" + "0" * 31 + "1"
    assert bytes(TYPES.encode(Decimal("1.5"))).hex() == "000cc70303312e35"
    assert bytes(TYPES.encode(Gate(1, "x"))).hex() == "004182a87465726d696e616c01a56c6162656ca178"
    assert bytes(TYPES.encode([Gate(1, "x")])).hex().startswith("000791c7")


def test_a_body_of_bytes_is_not_copied() -> None:
    body = b"x" * 1000
    assert TYPES.encode(body).body is body
    view = memoryview(bytearray(100))[10:50]
    encoded = TYPES.encode(view)
    assert isinstance(encoded.body, memoryview)
    assert encoded.body.obj is view.obj
    assert encoded == Encoded(BuiltIn.BYTES, view)


def test_a_datetime_keeps_its_instant_but_not_its_zone() -> None:
    when = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    decoded = TYPES.decode(bytes(TYPES.encode(when)))
    assert decoded == when
    assert isinstance(decoded, datetime)
    assert decoded.utcoffset() == timedelta(0)


def test_an_unknown_type_id_is_an_error_with_the_registered_ids() -> None:
    with pytest.raises(DataFormatError, match="type id 999, which is not registered; registered are 64 \\(Flight\\)"):
        TYPES.decode(b"\x03\xe7\xc0")
    inner = msgpack.encode([msgpack.Ext(5, b"\x03\xe7\xc0")])
    with pytest.raises(DataFormatError, match="type id 999"):
        TYPES.decode(b"\x00\x07" + inner)


def test_a_body_of_another_built_in_type_is_an_error() -> None:
    with pytest.raises(DataFormatError, match="not of type int"):
        TYPES.decode(b"\x00\x03\xa1a")
    with pytest.raises(DataFormatError, match="not of type bool"):
        TYPES.decode(b"\x00\x02\x01")


@pytest.mark.parametrize("prefix", [b"\x91", b"\x81\xa1a", b"\xd5\x01"])
@pytest.mark.parametrize("type_id", [BuiltIn.LIST, BuiltIn.DICT, 66, 67])
def test_extremely_nested_bytes_are_a_format_error(prefix: bytes, type_id: int) -> None:
    with pytest.raises(DataFormatError):
        TYPES.decode(type_id.to_bytes(2, "big") + prefix * 100_000)


def test_extremely_nested_bytes_of_a_registered_type_are_a_format_error() -> None:
    with pytest.raises(DataFormatError, match="deeper than 64"):
        TYPES.decode(b"\x00\x42" + b"\x81\xa5child" * 100_000 + b"\x80")
    with pytest.raises(DataFormatError, match="deeper than 64"):
        TYPES.decode(b"\x00\x42" + b"\x81\xa1z" + b"\x91" * 100_000)


def test_encoding_and_decoding_limit_the_size_and_the_number_of_entries() -> None:
    narrow = types_with(shape=ShapeLimits(depth=64, items=10), max_bytes=100)
    assert narrow.decode(bytes(narrow.encode([0] * 9))) == [0] * 9
    with pytest.raises(OptionError, match="more than 10 entries"):
        narrow.encode([0] * 10)
    with pytest.raises(DataFormatError, match="more than 10 entries"):
        narrow.decode(bytes(TYPES.encode([0] * 10)))
    with pytest.raises(OptionError, match="limit is 100"):
        narrow.encode(b"x" * 99)
    with pytest.raises(DataFormatError, match="limit is 100"):
        narrow.decode(bytes(TYPES.encode({"a": "x" * 200})))


class Words(str): ...


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "its type object is not one of"),
        ([{"a": {1, 2}}], "its type set is not one of"),
        (Words("x"), "its type Words is not one of"),
        ({1: 2}, "a dict has the key 1"),
        (2**64, "exceeds 64 bits"),
        ([-(2**63) - 1], "exceeds 64 bits"),
        ("\ud800", "surrogates"),
        (["\ud800"], "surrogates"),
        (Decimal("1" * 600), "a Decimal has 600"),
        (Holder(object()), "its type object is not one of"),
        (test_nan_and_infinity_are_floats, "its type function is not one of"),
        (Flight(number=7), "number|str"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_cannot_be_sent_is_an_error_that_names_it(value: object, message: str) -> None:
    if isinstance(value, Flight):
        # msgspec does not check the types of fields when it encodes; the receiver does
        with pytest.raises(DataFormatError, match="Expected `str`"):
            TYPES.decode(bytes(TYPES.encode(value)))
        return
    with pytest.raises(OptionError, match=message) as caught:
        TYPES.encode(value)
    assert caught.value.remedy


def test_a_value_that_contains_itself_is_an_error() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(OptionError, match="nested too deep"):
        TYPES.encode(loop)


def test_an_exception_of_a_registered_class_is_a_format_error() -> None:
    assert TYPES.decode(b"\x00\x44\x81\xa4even\x02") == Strict(2)
    with pytest.raises(DataFormatError, match="odd"):
        TYPES.decode(b"\x00\x44\x81\xa4even\x01")


@pytest.mark.parametrize(
    ("cls", "type_id", "message"),
    [
        (int, 70, "only msgspec.Struct classes and dataclasses"),
        ("Flight", 70, "it is not a class"),
        (Flight, 70, "already registered with the type id 64"),
        (msgspec.defstruct("New", [("a", int)]), 64, "Flight is already registered"),
        (msgspec.defstruct("New", [("a", int)]), 63, "not a number from 64"),
        (msgspec.defstruct("New", [("a", int)]), 65536, "not a number from 64"),
        (msgspec.defstruct("New", [("a", int)]), True, "not a number from 64"),
        (msgspec.defstruct("New", [("a", dict[int, str])]), 70, "whose hashes a peer cannot predict"),
        (msgspec.defstruct("New", [("a", list[set[tuple[int, int]]])]), 70, "whose hashes a peer cannot predict"),
        (msgspec.defstruct("New", [("a", object.__class__)]), 70, "type"),
        (msgspec.defstruct("New", [("a", Types)]), 70, "type"),
    ],
)
def test_an_unsuitable_class_is_an_error_and_is_not_registered(cls: Any, type_id: int, message: str) -> None:
    types = types_with()
    before = types.summary()
    with pytest.raises(OptionError, match=message):
        types.register(cls, type_id)
    assert types.summary() == before


def test_encoded_values_do_not_name_a_class() -> None:
    # an encoded object of a registered class has its type id and its fields, and no name of a class or module
    assert b"Gate" not in bytes(TYPES.encode([Gate(1, "x")]))
    assert b"test_typed" not in bytes(TYPES.encode([Gate(1, "x")]))
