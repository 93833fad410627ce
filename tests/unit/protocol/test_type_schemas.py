"""Summaries of message types: equivalent types are equal, and each difference is in the summary of its field."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from aeron_spark.protocol.message_types import encode_summary, summarise


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


def differing(mine: type, theirs: type) -> list[str]:
    """Return the names of the fields that two types do not have alike."""
    one, other = summarise(64, mine).fields, summarise(64, theirs).fields
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def test_names_and_documentation_of_classes_are_not_a_difference() -> None:
    assert differing(Leg, Other) == []


@pytest.mark.parametrize(
    ("theirs", "field"),
    [
        ([("to", int), ("title", int, 0)], "to"),
        ([("to", str), ("title", int, 1)], "title"),
        ([("to", str), ("title", int)], "title"),
        ([("to", str)], "title"),
        ([("to", str), ("title", int, 0), ("gate", str, "")], "gate"),
    ],
)
def test_another_type_default_or_presence_of_a_field_is_a_difference(theirs: list[Any], field: str) -> None:
    mine = msgspec.defstruct("New", [("to", str), ("title", int, 0)])
    assert differing(mine, msgspec.defstruct("Theirs", theirs)) == [field]


def test_a_field_without_a_name_has_its_index() -> None:
    class Longer(msgspec.Struct, array_like=True):
        a: int
        b: bytes = b""

    assert differing(Row, Longer) == ["1"]


def test_a_difference_within_a_nested_type_is_found() -> None:
    inner = msgspec.defstruct("Inner", [("x", int)])
    changed_inner = msgspec.defstruct("Inner", [("x", str)])
    mine = msgspec.defstruct("Outer", [("inner", list[inner])])  # type: ignore[valid-type]
    theirs = msgspec.defstruct("Outer", [("inner", list[changed_inner])])  # type: ignore[valid-type]
    assert differing(mine, theirs) == ["inner"]
    assert differing(mine, mine) == []


def test_a_struct_and_a_dataclass_with_equal_fields_are_equal() -> None:
    @dataclasses.dataclass
    class Plain:
        to: str
        title: int = 0

    assert differing(Plain, msgspec.defstruct("Plain", [("to", str), ("title", int, 0)])) == []


def test_an_encoded_summary_does_not_depend_on_the_order() -> None:
    both = [summarise(64, Leg), summarise(65, Row)]
    assert encode_summary(both) == encode_summary(both[::-1])
