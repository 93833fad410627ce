"""Compiles a schema: its header, messages, fields, groups and data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.sbe.elements import Element, parse_file, parse_text
from aeron_spark.sbe.model import (
    Block,
    CompositeType,
    Constant,
    Data,
    DataHeader,
    Dimensions,
    EncodedType,
    EnumType,
    Field,
    Group,
    Header,
    Integer,
    Message,
    Primitive,
    Schema,
    TimeAttributes,
    UnknownParts,
)
from aeron_spark.sbe.types import (
    MAX_BLOCK,
    MAX_PARTS,
    Types,
    counts_of,
    integer_of,
    number_of,
    offset_of,
    parts_of,
    presence_of,
    time_of,
)

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
    types = Types([one for part in parts if part.name == "types" for one in part.children])
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


def _header(types: Types, root: Element) -> Header:
    composite = types.composite(root.attributes.get("headerType", "").strip() or "messageHeader", root, "header")
    return Header(
        composite.size,
        integer_of(composite, "blockLength", root),
        integer_of(composite, "templateId", root),
        integer_of(composite, "schemaId", root),
        integer_of(composite, "version", root),
        counts_of(composite),
    )


class _Messages:
    """Compiles messages, and refuses two with one name or id."""

    def __init__(self, types: Types) -> None:
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
        groups: list[Group] = []
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

    def _group(self, element: Element) -> Group:
        name = element.attributes.get("dimensionType", "").strip() or _DIMENSIONS
        composite = self._types.composite(name, element, "dimensionType")
        return Group(
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
