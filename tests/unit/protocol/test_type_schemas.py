"""Summaries of message types: equivalent types are equal, and each difference has its type and field."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.message_types import TypeSummary, decode_summary, differences, encode_summary, summarise


class Leg(msgspec.Struct):
    """A leg."""

    to: str
    title: int = 0
    next: Leg | None = None


class Other(msgspec.Struct):
    """Another name, and the same bytes."""

    to: str
    title: int = 0
    next: Other | None = None


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


def difference_texts(mine: type, theirs: type) -> list[str]:
    return [str(difference) for difference in differences([summarise(64, mine)], [summarise(64, theirs)])]


def test_names_and_documentation_of_classes_are_not_a_difference() -> None:
    assert difference_texts(Leg, Other) == []
    assert summarise(64, Leg).fields == summarise(64, Other).fields


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ([("to", int), ("title", int, 0)], "type 64 (New.to): the peer's field has another type or default"),
        ([("to", str), ("title", int, 1)], "type 64 (New.title): the peer's field has another type or default"),
        (
            [("to", str), ("title", int)],
            "type 64 (New.title): the peer's field has another type or default, or is not equally required",
        ),
        ([("to", str)], "type 64 (New.title): the field exists only at this endpoint"),
        ([("to", str), ("title", int, 0), ("gate", str, "")], "type 64 (New.gate): the field exists only at the peer"),
    ],
)
def test_a_difference_has_the_name_of_its_field(theirs: list[Any], message: str) -> None:
    mine = msgspec.defstruct("New", [("to", str), ("title", int, 0)])
    (found,) = difference_texts(mine, msgspec.defstruct("Theirs", theirs))
    assert found.startswith(message)


def test_a_difference_in_a_field_without_a_name_has_its_index() -> None:
    class Longer(msgspec.Struct, array_like=True):
        a: int
        b: bytes = b""

    assert difference_texts(Row, Longer) == [
        "type 64 (Row.1): the peer's field has another type or default, or is not equally required"
    ]


def test_a_difference_within_a_nested_type_is_found() -> None:
    inner = msgspec.defstruct("Inner", [("x", int)])
    changed_inner = msgspec.defstruct("Inner", [("x", str)])
    mine = msgspec.defstruct("Outer", [("inner", list[inner])])  # type: ignore[valid-type]
    theirs = msgspec.defstruct("Outer", [("inner", list[changed_inner])])  # type: ignore[valid-type]
    assert len(difference_texts(mine, theirs)) == 1
    assert difference_texts(mine, mine) == []


def test_a_type_of_only_one_endpoint_is_a_difference() -> None:
    found = differences([summarise(64, Leg)], [summarise(65, Row)])
    assert [str(one) for one in found] == [
        "type 64 (Leg): is registered only by this endpoint",
        "type 65 (Row): is registered only by the peer",
    ]


def test_a_struct_and_a_dataclass_with_equal_fields_are_equal() -> None:
    @dataclasses.dataclass
    class Plain:
        to: str
        title: int = 0

    assert difference_texts(Plain, msgspec.defstruct("Plain", [("to", str), ("title", int, 0)])) == []


def test_a_summary_can_be_encoded_and_decoded_and_does_not_depend_on_the_order() -> None:
    both = [summarise(64, Leg), summarise(65, Row)]
    assert encode_summary(both) == encode_summary(both[::-1])
    assert list(decode_summary(encode_summary(both))) == both


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_summary_or_a_format_error(data: bytes) -> None:
    with contextlib.suppress(DataFormatError):
        assert all(isinstance(one, TypeSummary) for one in decode_summary(data))


@pytest.mark.parametrize(
    "data", [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\x91\x93\x01\xa1a" + b"\x81\xa1a" * 9999]
)
def test_extremely_nested_or_large_summaries_are_an_error(data: bytes) -> None:
    with pytest.raises(DataFormatError):
        decode_summary(data)


def test_too_many_types_are_an_error() -> None:
    with pytest.raises(DataFormatError, match="5000 message types, and the limit is 4096"):
        decode_summary(encode_summary(TypeSummary(number, "", {}) for number in range(5000)))
