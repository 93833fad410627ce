"""Compiles the types of a schema: encoded types, enums, sets and composites."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from aeron_spark.sbe.elements import MAX_DEPTH, MAX_ELEMENTS, Element
from aeron_spark.sbe.model import (
    PRIMITIVES,
    CompositeType,
    Counts,
    EncodedType,
    EnumType,
    Integer,
    Member,
    NamedValue,
    Primitive,
    SetType,
    TimeAttributes,
    Type,
)

MAX_LENGTH: Final = 1 << 20  # values of an array
MAX_BLOCK: Final = 1 << 24  # bytes of a block; Aeron's longest message has as many
MAX_PARTS: Final = MAX_ELEMENTS  # values of a schema: composites in composites double them with each line

PRESENCES: Final = ("required", "optional", "constant")
TIME_UNITS: Final = {"second": 0, "millisecond": 3, "microsecond": 6, "nanosecond": 9}


class Types:
    """The named types of a schema. A type is compiled at its first use, so that types can refer to later ones."""

    def __init__(self, elements: list[Element]) -> None:
        self._elements: dict[str, Element] = {}
        for element in elements:
            name = element.required("name")
            if name in self._elements:
                other = self._elements[name]
                raise element.error(f"is defined twice, also in {other.file}, line {other.line}", "Remove one of them.")
            self._elements[name] = element
        self._compiled: dict[str, Type] = {}
        self._in_progress: list[str] = []
        self._values: dict[str, dict[str, NamedValue]] = {}  # by the name of their enum

    def named(self, name: str, user: Element) -> Type:
        """Return the type of this name, also a primitive one. Raises DataFormatError that names the ``user``."""
        if name in self._compiled:
            return self._compiled[name]
        element = self._elements.get(name)
        if element is None:
            if name in PRIMITIVES:
                return EncodedType(name, PRIMITIVES[name])
            raise user.error(f"uses the type {name!r}, which is not defined", f"Define {name!r} in <types>.")
        if name in self._in_progress:
            raise user.error(f"uses the type {name!r}, which contains it", "Remove the cycle.")
        if len(self._in_progress) >= MAX_DEPTH:
            raise user.error(
                f"uses types in types, more than {MAX_DEPTH} deep", "Write fewer composites in composites."
            )
        self._in_progress.append(name)
        try:
            self._compiled[name] = compiled = self.compile(element)
        finally:
            self._in_progress.pop()
        return compiled

    def defines(self, name: str) -> bool:
        """Whether the schema defines a type of this name."""
        return name in self._elements

    def composite(self, name: str, user: Element, role: str) -> CompositeType:
        """Return a composite that ``user`` needs as ``role``."""
        kind = self.named(name, user)
        if not isinstance(kind, CompositeType):
            raise user.error(f"needs a composite as its {role}, and {name!r} is another type")
        return kind

    def constant(self, reference: str, user: Element) -> tuple[EnumType, NamedValue]:
        """Return the enum and its value that ``valueRef`` names: ``Enum.VALUE``."""
        enum_name, point, value_name = reference.partition(".")
        kind = self.named(enum_name, user) if point else None
        if not isinstance(kind, EnumType):
            raise user.error(f"has valueRef={reference!r}, expected 'Enum.VALUE' with a defined enum")
        if enum_name not in self._values:
            self._values[enum_name] = {value.name: value for value in reversed(kind.values)}  # the first of a name
        value = self._values[enum_name].get(value_name)
        if value is not None:
            return kind, value
        raise user.error(f"has valueRef={reference!r}, but the enum {enum_name!r} has no such value")

    def compile(self, element: Element) -> Type:
        """Compile a type, named or inside a composite."""
        match element.name:
            case "type":
                return self._encoded(element)
            case "enum":
                return self._enum(element)
            case "set":
                return self._set(element)
            case "composite":
                return self._composite(element)
        raise element.error("is not a type", "Use <type>, <enum>, <set> or <composite>.")

    def _encoded(self, element: Element) -> EncodedType:
        primitive = PRIMITIVES.get(element.required("primitiveType"))
        if primitive is None:
            raise element.error(
                f"has primitiveType={element.attributes['primitiveType']!r}", f"Use one of {', '.join(PRIMITIVES)}."
            )
        presence = presence_of(element) or "required"
        kind = EncodedType(
            element.attributes.get("name", ""),
            primitive,
            length=element.number("length", 1, MAX_LENGTH),
            optional=presence == "optional",
            encoding=element.attributes.get("characterEncoding", "").strip(),
            since=element.number("sinceVersion", 0),
            time=time_of(element),
        )
        if presence == "constant":
            return self._constant(element, kind)
        own = element.attributes.get("nullValue", "").strip()
        return replace(kind, null=number_of(element, "nullValue", own, primitive)) if own else kind

    def _constant(self, element: Element, kind: EncodedType) -> EncodedType:
        reference = element.attributes.get("valueRef", "").strip()
        if reference:
            enum, value = self.constant(reference, element)
            is_text = kind.primitive is Primitive.CHAR and enum.primitive is Primitive.CHAR
            return replace(kind, constant=chr(value.value) if is_text else value.value)
        text = element.text.strip()
        if not text:
            raise element.error("is constant and has no value", "Write the value between its tags.")
        if kind.primitive is Primitive.CHAR:
            return replace(kind, constant=text, length=len(text))
        return replace(kind, constant=number_of(element, "value", text, kind.primitive))

    def _coding(self, element: Element) -> EncodedType:
        kind = self.named(element.required("encodingType"), element)
        if not isinstance(kind, EncodedType) or kind.length != 1 or kind.primitive.is_float:
            raise element.error(f"has encodingType={element.attributes['encodingType']!r}, expected a single integer")
        return kind

    def _enum(self, element: Element) -> EnumType:
        coding = self._coding(element)
        primitive = coding.primitive
        values = tuple(
            NamedValue(child.required("name"), _enum_value(child, primitive), child.number("sinceVersion", 0))
            for child in element.children
            if child.name == "validValue"
        )
        own = element.attributes.get("nullValue", "").strip()
        null = number_of(element, "nullValue", own, primitive) if own else coding.null_value
        assert isinstance(null, int)
        return EnumType(element.attributes.get("name", ""), primitive, values, null, max(coding.since, _since(element)))

    def _set(self, element: Element) -> SetType:
        coding = self._coding(element)
        if not coding.primitive.is_unsigned:
            raise element.error("is a set, whose encodingType must be unsigned")
        bits = 8 * coding.primitive.size
        choices = []
        for child in element.children:
            if child.name == "choice":
                text = child.text.strip()
                if not (text.isascii() and text.isdecimal()) or int(text) >= bits:
                    raise child.error(f"is bit {text[:20]!r} of a set with {bits} bits")
                choices.append(NamedValue(child.required("name"), int(text), _since(child)))
        return SetType(
            element.attributes.get("name", ""), coding.primitive, tuple(choices), max(coding.since, _since(element))
        )

    def _composite(self, element: Element) -> CompositeType:
        members: dict[str, Member] = {}
        end = parts = 0
        for child in element.children:
            if child.name in ("annotation", "description"):
                continue
            kind = self.named(child.required("type"), child) if child.name == "ref" else self.compile(child)
            name = child.required("name")
            if name in members:
                raise child.error(f"is the second member {name!r} of its composite", "Rename one of them.")
            offset = offset_of(child, end)
            members[name] = Member(name, kind, offset, max(kind.since, _since(child)))
            end = offset + kind.size
            parts += parts_of(kind)
            if parts > MAX_PARTS:
                raise child.error(f"is too much: the limit of a composite is {MAX_PARTS} values")
        if end > MAX_BLOCK:
            raise element.error(f"has {end} bytes, the limit is {MAX_BLOCK}")
        name = element.attributes.get("name", "")
        return CompositeType(name, tuple(members.values()), end, parts, _since(element), time_of(element))


def parts_of(kind: Type) -> int:
    """Return the number of values of a type: those of a composite, or one."""
    return max(1, kind.parts) if isinstance(kind, CompositeType) else 1


def _since(element: Element) -> int:
    return element.number("sinceVersion", 0)


def presence_of(element: Element) -> str:
    """Return the attribute ``presence``, or "" without one."""
    presence = element.attributes.get("presence", "").strip()
    if presence and presence not in PRESENCES:
        raise element.error(f"has presence={presence!r}", f"Use one of {', '.join(PRESENCES)}.")
    return presence


def time_of(element: Element) -> TimeAttributes:
    """Return what an element says about times. A unit counts only with the epoch of 1970."""
    unit = element.attributes.get("timeUnit", "").strip()
    if unit and unit not in TIME_UNITS:
        raise element.error(f"has timeUnit={unit!r}", f"Use one of {', '.join(TIME_UNITS)}.")
    is_unix = element.attributes.get("epoch", "unix").strip().lower() in ("unix", "")
    known = TIME_UNITS[unit] if unit and is_unix else None
    return TimeAttributes(element.attributes.get("semanticType", "").strip(), known)


def offset_of(element: Element, end: int) -> int:
    """Return the attribute ``offset``, or the end of the part before. Raises DataFormatError if they overlap."""
    offset = element.number("offset", 0, MAX_BLOCK)
    if not offset:
        return end
    if offset < end:
        raise element.error(f"has offset={offset}, but the part before it ends at {end}")
    return offset


def number_of(element: Element, attribute: str, text: str, primitive: Primitive) -> int | float:
    """Return the number in a text, for a value of ``primitive``. Raises DataFormatError if it is not one."""
    if primitive.is_float:
        try:
            return float(text)
        except ValueError:
            raise element.error(f"has {attribute} {text[:40]!r}, expected a number") from None
    if primitive is Primitive.CHAR and len(text) == 1 and not text.isdecimal():
        return ord(text)
    low, high = primitive.limits
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text) or not low <= int(text) <= high:
        raise element.error(f"has {attribute} {text[:40]!r}, expected a number from {low} to {high}")
    return int(text)


def _enum_value(element: Element, primitive: Primitive) -> int:
    text = element.text.strip()
    if primitive is Primitive.CHAR:
        character = text or element.text[:1]
        if len(character) != 1 or ord(character) > 255:
            raise element.error(f"has the value {text[:20]!r}, expected one character")
        return ord(character)
    value = number_of(element, "the value", text, primitive)
    assert isinstance(value, int)
    return value


def integer_of(composite: CompositeType, name: str, user: Element) -> Integer:
    """Return a whole number among a composite's members, by name. Raises DataFormatError without such a member."""
    member = composite.member(name)
    if member is None:
        raise user.error(f"uses the composite {composite.name!r}, which has no member {name!r}")
    kind = member.type
    if not isinstance(kind, EncodedType) or kind.length != 1 or kind.primitive.is_float:
        raise user.error(f"uses the composite {composite.name!r}, whose member {name!r} is not a single integer")
    if kind.constant is None:
        return Integer(kind.primitive, member.offset)
    if not isinstance(kind.constant, int):
        raise user.error(f"uses the composite {composite.name!r}, whose constant {name!r} is not an integer")
    return Integer(kind.primitive, member.offset, kind.constant)


def counts_of(composite: CompositeType) -> Counts:
    """Return the counts of groups and data that a header has in its bytes, as FIX names them."""
    return Counts(_count_of(composite, "numGroups"), _count_of(composite, "numVarDataFields"))


def _count_of(composite: CompositeType, name: str) -> Integer | None:
    member = composite.member(name)
    kind = None if member is None else member.type
    if member is None or not isinstance(kind, EncodedType):
        return None
    is_count = kind.primitive.is_unsigned and kind.length == 1 and kind.constant is None
    return Integer(kind.primitive, member.offset) if is_count else None
