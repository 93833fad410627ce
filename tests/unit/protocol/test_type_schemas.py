"""Schema summaries: equal for what means the same, and every difference named by type and field."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.type_schemas import TypeSummary, decode_summary, differences, encode_summary, summarise


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


def names(mine: type, theirs: type) -> list[str]:
    return [str(one) for one in differences([summarise(64, mine)], [summarise(64, theirs)])]


def test_names_and_documentation_are_no_difference() -> None:
    assert names(Leg, Other) == []
    assert summarise(64, Leg).fields == summarise(64, Other).fields


@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        ([("to", int), ("title", int, 0)], "type 64 (New.to): the field has another type"),
        ([("to", str), ("title", int, 1)], "type 64 (New.title): the field has another type, default"),
        ([("to", str), ("title", int)], "type 64 (New.title): the field has another type, default or obligation"),
        ([("to", str)], "type 64 (New.title): the field exists only here"),
        ([("to", str), ("title", int, 0), ("gate", str, "")], "type 64 (New.gate): the field exists only there"),
    ],
)
def test_a_field_that_differs_is_named(theirs: list[Any], named: str) -> None:
    mine = msgspec.defstruct("New", [("to", str), ("title", int, 0)])
    (found,) = names(mine, msgspec.defstruct("Theirs", theirs))
    assert found.startswith(named)


def test_fields_without_names_are_told_by_their_place() -> None:
    class Longer(msgspec.Struct, array_like=True):
        a: int
        b: bytes = b""

    assert names(Row, Longer) == ["type 64 (Row.1): the field has another type, default or obligation there"]


def test_a_difference_within_a_nested_type_is_seen() -> None:
    inner = msgspec.defstruct("Inner", [("x", int)])
    changed_inner = msgspec.defstruct("Inner", [("x", str)])
    mine = msgspec.defstruct("Outer", [("inner", list[inner])])  # type: ignore[valid-type]
    theirs = msgspec.defstruct("Outer", [("inner", list[changed_inner])])  # type: ignore[valid-type]
    assert len(names(mine, theirs)) == 1
    assert names(mine, mine) == []


def test_a_type_that_only_one_side_has_is_named() -> None:
    found = differences([summarise(64, Leg)], [summarise(65, Row)])
    assert [str(one) for one in found] == [
        "type 64 (Leg): is registered only here",
        "type 65 (Row): is registered only there",
    ]


def test_a_struct_and_a_dataclass_of_the_same_fields_are_one_type() -> None:
    @dataclasses.dataclass
    class Plain:
        to: str
        title: int = 0

    assert names(Plain, msgspec.defstruct("Plain", [("to", str), ("title", int, 0)])) == []


def test_a_summary_survives_the_way_and_is_the_same_in_any_order() -> None:
    both = [summarise(64, Leg), summarise(65, Row)]
    assert encode_summary(both) == encode_summary(both[::-1])
    assert list(decode_summary(encode_summary(both))) == both


@given(st.binary(max_size=200))
def test_any_bytes_are_a_summary_or_refused(data: bytes) -> None:
    with contextlib.suppress(DataFormatError):
        assert all(isinstance(one, TypeSummary) for one in decode_summary(data))


@pytest.mark.parametrize(
    "bomb", [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\x91\x93\x01\xa1a" + b"\x81\xa1a" * 9999]
)
def test_a_bomb_is_refused(bomb: bytes) -> None:
    with pytest.raises(DataFormatError):
        decode_summary(bomb)


def test_too_many_types_are_refused() -> None:
    with pytest.raises(DataFormatError, match="5000 types, more than 4096"):
        decode_summary(encode_summary(TypeSummary(number, "", {}) for number in range(5000)))
