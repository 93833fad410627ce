"""The parts of a compiled schema: types, fields, groups, data and messages. Offsets and lengths are in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Primitive(IntEnum):
    """The primitive types; the numbers are part of the decode table."""

    CHAR = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT = 9
    DOUBLE = 10

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return _SIZES[self]

    @property
    def is_signed(self) -> bool:
        """Whether it is a signed integer."""
        return Primitive.INT8 <= self <= Primitive.INT64

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an unsigned integer, which ``char`` is not."""
        return Primitive.UINT8 <= self <= Primitive.UINT64

    @property
    def is_float(self) -> bool:
        """Whether it is ``float`` or ``double``."""
        return self >= Primitive.FLOAT

    @property
    def null(self) -> int | float:
        """The null value of an optional field, if its type has no other."""
        if self is Primitive.CHAR:
            return 0
        if self.is_float:
            return float("nan")
        bits = 8 * self.size
        return -(1 << (bits - 1)) if self.is_signed else (1 << bits) - 1

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value that the bytes of an integer can hold."""
        bits = 8 * self.size
        return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.is_signed else (0, (1 << bits) - 1)


_SIZES: Final = (1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8)

PRIMITIVES: Final = {one.name.lower(): one for one in Primitive}


@dataclass(frozen=True, slots=True)
class TimeAttributes:
    """The attributes of a type or field for times and dates: the FIX semantic type, and the deprecated ``timeUnit``."""

    semantic_type: str = ""
    unit: int | None = None  # 0, 3, 6 or 9: the negative power of ten of a second; None if it is not said

    @property
    def may_be_a_point(self) -> bool:
        """Whether the value may be a point in time. ``Int``, ``UTCTimeOnly`` and all other types say that it is not."""
        return not self.semantic_type or "timestamp" in self.semantic_type.lower()


@dataclass(frozen=True, slots=True)
class EncodedType:
    """A primitive value or an array of them."""

    name: str
    primitive: Primitive
    length: int = 1
    optional: bool = False
    null: int | float | None = None  # the own null value; None means the primitive's
    constant: str | int | float | None = None
    encoding: str = ""  # of characters; "" if none is declared
    since: int = 0
    time: TimeAttributes = TimeAttributes()

    @property
    def size(self) -> int:
        """Bytes of the value in a message; a constant has none."""
        return 0 if self.constant is not None else self.primitive.size * self.length

    @property
    def null_value(self) -> int | float:
        """The value that means null."""
        return self.primitive.null if self.null is None else self.null


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A valid value of an enum, or a choice of a set with its bit number as value."""

    name: str
    value: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class EnumType:
    """An enum. ``null`` is the value that means null, also in a required field."""

    name: str
    primitive: Primitive
    values: tuple[NamedValue, ...]
    null: int
    since: int = 0

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return self.primitive.size


@dataclass(frozen=True, slots=True)
class SetType:
    """A set of choices, each of which is one bit."""

    name: str
    primitive: Primitive
    choices: tuple[NamedValue, ...]
    since: int = 0

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return self.primitive.size


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a composite."""

    name: str
    type: Type
    offset: int  # from the composite's start
    since: int


@dataclass(frozen=True, slots=True)
class CompositeType:
    """A sequence of members. ``parts`` is the number of values in it, with those of its composites."""

    name: str
    members: tuple[Member, ...]
    size: int
    parts: int
    since: int = 0
    time: TimeAttributes = TimeAttributes()

    def member(self, name: str) -> Member | None:
        """Return the member of this name."""
        return next((one for one in self.members if one.name == name), None)


Type = EncodedType | EnumType | SetType | CompositeType


@dataclass(frozen=True, slots=True)
class Constant:
    """The value of a constant field: a text (also the name of an enum's value) or a number of ``primitive``."""

    value: str | int | float
    primitive: Primitive


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a block. ``optional`` and ``constant`` are the field's own, or those of its type."""

    name: str
    id: int
    type: Type
    offset: int  # from the block's start
    since: int  # the later one of the field's version and its type's version
    optional: bool
    constant: Constant | None
    time: TimeAttributes

    @property
    def size(self) -> int:
        """Bytes of the field in its block."""
        return 0 if self.constant is not None else self.type.size


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number at an offset: a member of a header. ``constant`` replaces the bytes."""

    primitive: Primitive
    offset: int
    constant: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Where a header says how many groups and data a message or an entry has; None if the header does not say it."""

    groups: Integer | None = None
    data: Integer | None = None


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The header of a group. ``counts`` are those of each entry."""

    length: int
    block_length: Integer
    count: Integer
    counts: Counts


@dataclass(frozen=True, slots=True)
class RepeatingGroup:
    """A group of a block: its header has the number of entries, which follow."""

    name: str
    id: int
    since: int
    dimensions: Dimensions
    block: Block


@dataclass(frozen=True, slots=True)
class DataHeader:
    """The header of a field of variable length. The bytes begin behind it."""

    size: int
    length: Integer


@dataclass(frozen=True, slots=True)
class Data:
    """A field of variable length: its header, then its bytes."""

    name: str
    id: int
    since: int
    header: DataHeader
    encoding: str | None  # of a text; None for bytes


@dataclass(frozen=True, slots=True)
class Block:
    """The fixed fields of a message or of a group's entry, and the groups and data behind them, in their order."""

    length: int
    fields: tuple[Field, ...]
    groups: tuple[RepeatingGroup, ...]
    data: tuple[Data, ...]

    def required_lengths(self) -> list[tuple[int, int, str]]:
        """Return what a block must have at least: ``(version, length, name of the last field)``, by version.

        The last entry whose version is not above a message's version applies to that message. A member of a composite
        counts from its own version on.
        """
        ends: dict[int, tuple[int, str]] = {}
        for field in self.fields:
            for since, end, name in field_ends(field):
                ends[since] = max(ends.get(since, (0, "")), (end, name))
        required = []
        longest = (0, "")
        for since in sorted(ends):
            if ends[since] > longest:
                longest = ends[since]
                required.append((since, *longest))
        return required


def field_ends(field: Field) -> Iterator[tuple[int, int, str]]:
    """Yield for each value of a field its version, the end of its bytes in the block, and its name."""
    if field.constant is None:
        yield from _ends(field.type, field.name, field.offset, field.since)


def _ends(kind: Type, name: str, offset: int, since: int) -> Iterator[tuple[int, int, str]]:
    if isinstance(kind, CompositeType):
        for member in kind.members:
            yield from _ends(member.type, f"{name}.{member.name}", offset + member.offset, max(since, member.since))
    elif kind.size:
        yield since, offset + kind.size, name


@dataclass(frozen=True, slots=True)
class Message:
    """A message type."""

    name: str
    id: int
    since: int
    block: Block


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """The header of each message."""

    length: int
    block_length: Integer
    template_id: Integer
    schema_id: Integer
    version: Integer
    counts: Counts


@dataclass(frozen=True, slots=True)
class UnknownParts:
    """The headers of groups and data that only newer messages have; None if the schema has none, or several."""

    dimensions: Dimensions | None
    data: DataHeader | None


@dataclass(frozen=True, slots=True)
class Schema:
    """A compiled schema."""

    name: str  # of its file
    package: str
    id: int
    version: int
    big_endian: bool
    header: MessageHeader
    messages: tuple[Message, ...]
    unknown: UnknownParts
