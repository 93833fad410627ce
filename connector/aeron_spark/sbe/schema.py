"""Parses the XML of an SBE schema, and compiles it: its types, header, messages, fields, groups and data.

A schema may come from another organisation, so the parser reads no entities and no file outside the schema's folder: it
refuses ``<!DOCTYPE``, and has limits for size and depth.
"""

from __future__ import annotations

import re
import xml.parsers.expat as expat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.sbe.model import (
    PRIMITIVES,
    Block,
    CompositeType,
    Constant,
    Counts,
    Data,
    DataHeader,
    Dimensions,
    EncodedType,
    EnumType,
    Field,
    Integer,
    Member,
    Message,
    MessageHeader,
    NamedValue,
    Primitive,
    RepeatingGroup,
    Schema,
    SetType,
    TimeAttributes,
    Type,
    UnknownParts,
)

MAX_BYTES: Final = 16 << 20  # of one file; the largest public schema has 0.3 MB
MAX_DEPTH: Final = 64  # nested elements
MAX_ELEMENTS: Final = 200_000  # of a schema with its includes
MAX_INCLUDES: Final = 32

_XINCLUDE: Final = "http://www.w3.org/2001/XInclude"
_SEPARATOR: Final = " "  # between namespace and name; neither can contain it


@dataclass(slots=True)
class Element:
    """An element without its namespace. ``attributes`` has only those without a namespace."""

    name: str
    attributes: dict[str, str]
    file: str
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def error(self, what: str, remedy: str = "Correct the schema.") -> DataFormatError:
        """Return the error for this element, with its file, line and name."""
        named = f" {self.attributes['name']!r}" if "name" in self.attributes else ""
        return DataFormatError(f"{self.file}, line {self.line}: <{self.name}>{named} {what}", remedy=remedy)

    def required(self, attribute: str) -> str:
        """Return an attribute. Raises DataFormatError if it is missing."""
        value = self.attributes.get(attribute, "").strip()
        if not value:
            raise self.error(f"has no attribute '{attribute}'")
        return value

    def number(self, attribute: str, default: int, high: int = (1 << 31) - 1) -> int:
        """Return an attribute that is a whole number of at least 0. Raises DataFormatError for another text."""
        text = self.attributes.get(attribute, "").strip()
        if not text:
            return default
        if not (text.isascii() and text.isdecimal()) or int(text) > high:
            raise self.error(f"has {attribute}={text[:40]!r}, expected a number from 0 to {high}")
        return int(text)


def parse_file(path: Path) -> Element:
    """Return the root element of a schema file. Raises DataFormatError, and OSError if the file cannot be read."""
    reader = _Includes(path.resolve().parent)
    return reader.read(path.resolve(), path.name)


def parse_text(text: str) -> Element:
    """Return the root element of a schema that is given as a text. Raises DataFormatError, also for an include."""
    return _Includes(None).parse(text, "the schema's text", ())


class _Includes:
    """Reads files and replaces includes by what they include."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._elements = 0
        self._files = 0

    def read(self, path: Path, name: str, parents: tuple[Path, ...] = ()) -> Element:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        return self.parse(data, name, (*parents, path))

    def parse(self, data: str | bytes, name: str, files: tuple[Path, ...]) -> Element:
        if len(data) > MAX_BYTES:
            raise DataFormatError(
                f"{name} is longer than {MAX_BYTES} bytes", remedy="Divide the schema, or leave out unused messages."
            )
        root = _ElementParser(name, MAX_ELEMENTS - self._elements).parse(data)
        self._elements += sum(1 for _ in _walk(root))
        self._expand(root, files)
        return root

    def _expand(self, element: Element, files: tuple[Path, ...]) -> None:
        for index, child in enumerate(element.children):
            if child.name == _INCLUDE:
                element.children[index] = self._included(child, files)
            else:
                self._expand(child, files)

    def _included(self, element: Element, files: tuple[Path, ...]) -> Element:
        href = element.required("href")
        if element.attributes.get("parse", "xml") != "xml":
            raise element.error("includes a text, and only XML can be included", "Include an XML file.")
        if self._folder is None:
            raise element.error(
                f"includes {href!r}, but a schema that is given as a text has no folder",
                "Give the path of the schema's file instead.",
            )
        path = (files[-1].parent / href).resolve()
        if not path.is_relative_to(self._folder):
            raise element.error(
                f"includes {href!r}, which is not in the schema's folder", "Put the included file beside the schema."
            )
        if path in files:
            raise element.error(f"includes {href!r}, which includes this file", "Remove one of the includes.")
        self._files += 1
        if self._files > MAX_INCLUDES:
            raise element.error(f"is include number {self._files}, the limit is {MAX_INCLUDES}", "Join the files.")
        try:
            return self.read(path, href, files)
        except OSError as error:
            raise element.error(
                f"includes {href!r}, which cannot be read: {error.strerror}", "Put the included file beside the schema."
            ) from error


_INCLUDE: Final = _XINCLUDE + _SEPARATOR + "include"


def _walk(element: Element) -> Iterator[Element]:
    yield element
    for child in element.children:
        yield from _walk(child)


class _ElementParser:
    """Makes elements of one text."""

    def __init__(self, file: str, max_elements: int) -> None:
        self._file = file
        self._left = max_elements
        self._open: list[Element] = []
        self._root: Element | None = None
        self._expat = expat.ParserCreate(namespace_separator=_SEPARATOR)
        self._expat.StartDoctypeDeclHandler = self._refuse_doctype
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._characters
        self._expat.buffer_text = True

    def parse(self, data: str | bytes) -> Element:
        try:
            self._expat.Parse(data, True)
        except expat.ExpatError as error:
            raise DataFormatError(
                f"{self._file}, line {error.lineno}: not well-formed XML: {expat.ErrorString(error.code)}",
                remedy="Give the XML file of an SBE schema.",
            ) from None
        except (LookupError, ValueError) as error:  # an encoding that Python does not have
            raise DataFormatError(f"{self._file}: {error}", remedy="Save the schema as UTF-8.") from None
        assert self._root is not None  # expat has refused a text without an element
        return self._root

    def _refuse_doctype(self, *_: object) -> None:
        raise DataFormatError(
            f"{self._file}, line {self._expat.CurrentLineNumber}: the schema has a <!DOCTYPE, which could include "
            "other files",
            remedy="Remove the document type declaration. SBE schemas need none.",
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(_SEPARATOR)
        plain = {key: value for key, value in attributes.items() if _SEPARATOR not in key}
        kept = name if namespace == _XINCLUDE else local
        element = Element(kept, plain, self._file, self._expat.CurrentLineNumber)
        self._left -= 1
        if self._left < 0 or len(self._open) >= MAX_DEPTH:
            raise element.error(f"is too much: the limits are {MAX_ELEMENTS} elements, and {MAX_DEPTH} nested ones")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _characters(self, text: str) -> None:
        self._open[-1].text += text


MAX_LENGTH: Final = 1 << 20  # values of an array
MAX_BLOCK: Final = 1 << 24  # bytes of a block; Aeron's longest message has as many
MAX_PARTS: Final = MAX_ELEMENTS  # values of a schema: composites in composites double them with each line

PRESENCES: Final = ("required", "optional", "constant")
TIME_UNITS: Final = {"second": 0, "millisecond": 3, "microsecond": 6, "nanosecond": 9}


class SchemaTypes:
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


_BYTE_ORDERS = {"": False, "littleEndian": False, "bigEndian": True}
_DIMENSIONS = "groupSizeEncoding"  # the name that a group without dimensionType means


def load_schema(source: str) -> Schema:
    """Compile the schema of a file, or the schema's text itself, which begins with ``<``.

    Raises OptionError if the file cannot be read, and DataFormatError with file, line and element for a wrong schema.
    """
    if source.lstrip("\ufeff \t\r\n").startswith("<"):
        return compile_schema(parse_text(source.lstrip("\ufeff \t\r\n")), "the schema's text")
    path = Path(source).expanduser()
    try:
        root = parse_file(path)
    except OSError as error:
        raise OptionError(
            f"the SBE schema {source!r} cannot be read: {error.strerror or error}",
            remedy="Give the path of the schema's XML file on this machine, or the XML itself.",
        ) from error
    return compile_schema(root, path.name)


def compile_schema(root: Element, name: str) -> Schema:
    """Compile the elements of a schema. Raises DataFormatError."""
    if root.name != "messageSchema":
        raise root.error("is the root, expected <messageSchema>", "Give the XML file of an SBE schema.")
    order = root.attributes.get("byteOrder", "").strip()
    if order not in _BYTE_ORDERS:
        raise root.error(f"has byteOrder={order!r}", "Use littleEndian or bigEndian.")
    _check_attributes(root, root.number("version", 0))
    parts = list(_parts(root))
    types = SchemaTypes([one for part in parts if part.name == "types" for one in part.children])
    compiler = _Messages(types)
    messages = tuple(compiler.message(part) for part in parts if part.name == "message")
    if not messages:
        raise root.error("has no message")
    return Schema(
        name=name,
        package=root.attributes.get("package", ""),
        id=root.number("id", 0),
        version=root.number("version", 0),
        big_endian=_BYTE_ORDERS[order],
        header=_header(types, root),
        messages=messages,
        unknown=compiler.unknown(root),
    )


def _check_attributes(element: Element, version: int) -> None:
    """Refuse a part that is newer than the schema, which a decoder reads as null in each message, and an alignment."""
    for child in element.children:
        since = child.number("sinceVersion", 0)
        if since > version:
            raise child.error(
                f"has sinceVersion={since}, but the schema has version={version}",
                "Raise the schema's version, or lower sinceVersion.",
            )
        if child.number("alignment", 1) != 1:
            raise child.error(
                f"has alignment={child.attributes['alignment']}, which is not supported",
                "Give each field its offset, and the block its blockLength.",
            )
        _check_attributes(child, version)


def _parts(element: Element) -> Iterator[Element]:
    """Yield the ``<types>`` and ``<message>`` of a schema, also those of included schemas and in ``<messages>``."""
    for child in element.children:
        match child.name:
            case "types" | "message":
                yield child
            case "messages" | "messageSchema":
                yield from _parts(child)
            case "annotation" | "description" | "documentation":
                pass
            case _:
                raise child.error("is not a part of a schema", "Use <types>, <message> and <messages>.")


def _header(types: SchemaTypes, root: Element) -> MessageHeader:
    composite = types.composite(root.attributes.get("headerType", "").strip() or "messageHeader", root, "header")
    return MessageHeader(
        composite.size,
        integer_of(composite, "blockLength", root),
        integer_of(composite, "templateId", root),
        integer_of(composite, "schemaId", root),
        integer_of(composite, "version", root),
        counts_of(composite),
    )


class _Messages:
    """Compiles messages, and refuses two with one name or id."""

    def __init__(self, types: SchemaTypes) -> None:
        self._types = types
        self._seen: dict[str | int, Element] = {}
        self._parts = 0  # values of all fields so far
        self._dimensions: set[Dimensions] = set()
        self._data_headers: set[DataHeader] = set()

    def message(self, element: Element) -> Message:
        name, number = element.required("name"), element.number("id", -1)
        if number < 0:
            raise element.error("has no attribute 'id'")
        for key in (name, number):
            other = self._seen.setdefault(key, element)
            if other is not element:
                raise element.error(
                    f"has the same name or id as the message in {other.file}, line {other.line}", "Change one of them."
                )
        return Message(name, number, element.number("sinceVersion", 0), self._block(element))

    def unknown(self, root: Element) -> UnknownParts:
        """Return the headers of the parts that a newer schema adds: all of the messages have the same one, or None."""
        if self._types.defines(_DIMENSIONS):
            with suppress(DataFormatError):  # no group has it: it may be anything
                self._dimensions_of(self._types.composite(_DIMENSIONS, root, "dimensionType"), root)
        dimensions, data = list(self._dimensions), list(self._data_headers)
        return UnknownParts(dimensions[0] if len(dimensions) == 1 else None, data[0] if len(data) == 1 else None)

    def _block(self, element: Element) -> Block:
        fields: list[Field] = []
        groups: list[RepeatingGroup] = []
        data: list[Data] = []
        names: set[str] = set()
        end = 0
        for child in element.children:
            match child.name:
                case "field" if not groups and not data:
                    fields.append(self._field(child, end))
                    end = fields[-1].offset + fields[-1].size
                case "group" if not data:
                    groups.append(self._group(child))
                case "data":
                    data.append(self._data(child))
                case "field" | "group":
                    raise child.error("comes too late", "Write fields first, then groups, then data.")
                case "annotation" | "description":
                    continue
                case _:
                    raise child.error("is not a part of a message", "Use <field>, <group> and <data>.")
            name = child.required("name")
            if name in names:
                raise child.error("has the same name as a part before it", "Rename one of them.")
            names.add(name)
        length = element.number("blockLength", 0, MAX_BLOCK)
        if length and length < end:
            raise element.error(f"has blockLength={length}, but its fields take {end} bytes")
        if end > MAX_BLOCK:
            raise element.error(f"has fields of {end} bytes, the limit is {MAX_BLOCK}")
        return Block(length or end, tuple(fields), tuple(groups), tuple(data))

    def _field(self, element: Element, end: int) -> Field:
        name = element.required("name")
        kind = self._types.named(element.required("type"), element)
        self._parts += parts_of(kind)
        if self._parts > MAX_PARTS:
            raise element.error(f"is too much: the limit of a schema is {MAX_PARTS} values in its fields")
        presence = presence_of(element)
        optional = presence == "optional" or (not presence and isinstance(kind, EncodedType) and kind.optional)
        own = time_of(element)
        of_type = kind.time if isinstance(kind, EncodedType | CompositeType) else TimeAttributes()
        constant = None
        if presence == "constant":
            constant = self._constant(element, kind)
        elif isinstance(kind, EncodedType) and kind.constant is not None:
            constant = Constant(kind.constant, kind.primitive)
        return Field(
            name,
            element.number("id", 0),
            kind,
            end if constant is not None else offset_of(element, end),
            max(element.number("sinceVersion", 0), kind.since),
            optional,
            constant,
            TimeAttributes(own.semantic_type or of_type.semantic_type, of_type.unit if own.unit is None else own.unit),
        )

    def _constant(self, element: Element, kind: object) -> Constant:
        """Return the constant of a field: of ``valueRef``, of its type, or its own text."""
        reference = element.attributes.get("valueRef", "").strip()
        if reference:
            enum, value = self._types.constant(reference, element)
            if isinstance(kind, EnumType):
                return Constant(value.name, Primitive.CHAR)
            if isinstance(kind, EncodedType):
                is_text = kind.primitive is Primitive.CHAR and enum.primitive is Primitive.CHAR
                return Constant(chr(value.value) if is_text else value.value, kind.primitive)
        text = element.text.strip()
        if isinstance(kind, EncodedType):
            if kind.constant is not None:
                return Constant(kind.constant, kind.primitive)
            if text and kind.primitive is Primitive.CHAR:
                return Constant(text, Primitive.CHAR)
            if text:
                return Constant(number_of(element, "value", text, kind.primitive), kind.primitive)
        if isinstance(kind, EnumType) and text in {value.name for value in kind.values}:
            return Constant(text, Primitive.CHAR)
        raise element.error("is constant and has no value", "Add valueRef='Enum.VALUE'.")

    def _group(self, element: Element) -> RepeatingGroup:
        name = element.attributes.get("dimensionType", "").strip() or _DIMENSIONS
        composite = self._types.composite(name, element, "dimensionType")
        return RepeatingGroup(
            element.required("name"),
            element.number("id", 0),
            max(element.number("sinceVersion", 0), composite.since),
            self._dimensions_of(composite, element),
            self._block(element),
        )

    def _dimensions_of(self, composite: CompositeType, element: Element) -> Dimensions:
        dimensions = Dimensions(
            composite.size,
            _unsigned(integer_of(composite, "blockLength", element), element),
            _unsigned(integer_of(composite, "numInGroup", element), element),
            counts_of(composite),
        )
        self._dimensions.add(dimensions)
        return dimensions

    def _data(self, element: Element) -> Data:
        composite = self._types.composite(element.required("type"), element, "type")
        length = _unsigned(integer_of(composite, "length", element), element)
        content, offset = _content(composite, element)
        header = DataHeader(offset, length)
        self._data_headers.add(header)
        encoding = content.encoding or ("US-ASCII" if content.primitive is Primitive.CHAR else None)
        return Data(
            element.required("name"),
            element.number("id", 0),
            max(element.number("sinceVersion", 0), composite.since),
            header,
            encoding,
        )


def _content(composite: CompositeType, user: Element) -> tuple[EncodedType, int]:
    """Return the type and the offset of a data composite's bytes: its other member, of any name."""
    found = [one for one in composite.members if one.name != "length"]
    kind = found[0].type if len(found) == 1 else None
    if not isinstance(kind, EncodedType) or kind.primitive.size != 1 or kind.constant is not None:
        raise user.error(
            f"uses the composite {composite.name!r}, which is not a length and its bytes",
            "Use a composite of 'length' and 'varData'.",
        )
    return kind, found[0].offset


def _unsigned(integer: Integer, user: Element) -> Integer:
    if integer.primitive.is_signed or integer.primitive is Primitive.CHAR or integer.constant is not None:
        raise user.error("has a length or counter that is not an unsigned integer")
    return integer
