"""A decoder of SBE messages for tests, written from the specification: slow, and independent of the product's code.

It reads a schema's XML itself, and returns messages in the form of the public vectors.
"""

from __future__ import annotations

import math
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

_FORMATS: Final = {
    "char": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I",
    "uint64": "Q", "float": "f", "double": "d",
}  # fmt: skip
_MAX_EMPTY: Final = 65_535
_MAX_ENTRIES: Final = 2_000_000
_MAX_DEPTH: Final = 64
_DIMENSIONS: Final = "groupSizeEncoding"
Counts = tuple[int | None, int | None]  # of groups and data, by a header


class Malformed(Exception):
    """The message does not keep to its own lengths, or not to its schema."""


class Other(Exception):
    """The message is of another template or schema."""


def local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def number(element: Element, name: str) -> int:
    return int(element.get(name) or 0)


class Reference:
    """Decodes messages of one schema."""

    def __init__(self, schema: Path | str) -> None:
        if isinstance(schema, Path):
            root = ElementTree.parse(schema).getroot()
            self._include(root, schema.parent)
        else:
            root = ElementTree.fromstring(schema)
        self.order = ">" if root.get("byteOrder") == "bigEndian" else "<"
        self.id = number(root, "id")
        self.types = {str(one.get("name")): one for part in root.iter() if local(part) == "types" for one in part}
        self.messages = {number(one, "id"): one for one in root.iter() if local(one) == "message"}
        self.header = root.get("headerType") or "messageHeader"
        self.version = number(root, "version")
        groups = [one.get("dimensionType") or _DIMENSIONS for one in root.iter() if local(one) == "group"]
        self.added_group = self._only(groups + [name for name in self.types if name == _DIMENSIONS])
        self.added_data = self._only([str(one.get("type")) for one in root.iter() if local(one) == "data"])

    def _only(self, names: list[str]) -> str | None:
        """Return one of the composites if all have the numbers of a header in the same places."""
        forms = {}
        for name in names:
            places = {
                str(one.get("name")): (of.get("primitiveType"), at) for one, of, at in self.layout(self.kind(name))[0]
            }
            content = [at for one, (_, at) in places.items() if one != "length"] if "length" in places else []
            numbers = ("length", "blockLength", "numInGroup", "numGroups", "numVarDataFields")
            form = (*(places.get(one) for one in numbers), *(content or [self.size(self.kind(name))]))
            forms[form] = name
        return next(iter(forms.values())) if len(forms) == 1 else None

    def _include(self, root: Element, folder: Path) -> None:
        for index, child in enumerate(root):
            if local(child) == "include":
                root[index] = ElementTree.parse(folder / str(child.get("href"))).getroot()

    # sizes

    def kind(self, name: str) -> Element:
        """Return the element of a type, also for a primitive one."""
        if name in self.types:
            return self.types[name]
        return Element("type", {"name": name, "primitiveType": name})

    def resolved(self, member: Element) -> Element:
        return self.kind(str(member.get("type"))) if local(member) == "ref" else member

    def coding(self, kind: Element) -> Element:
        return self.kind(str(kind.get("encodingType")))

    def size(self, kind: Element) -> int:
        match local(kind):
            case "composite":
                return self.layout(kind)[1]
            case "enum" | "set":
                return self.size(self.coding(kind))
        if kind.get("presence") == "constant":
            return 0
        return struct.calcsize(_FORMATS[str(kind.get("primitiveType"))]) * int(kind.get("length") or 1)

    def layout(self, kind: Element) -> tuple[list[tuple[Element, Element, int]], int]:
        """Return each member of a composite, its type and its offset; and the size of all."""
        found, end = [], 0
        for member in kind:
            of = self.resolved(member)
            offset = number(member, "offset") or end
            found.append((member, of, offset))
            end = offset + self.size(of)
        return found, end

    # values

    def raw(self, data: bytes, at: int, primitive: str) -> Any:
        return struct.unpack_from(self.order + _FORMATS[primitive], data, at)[0]

    def integers(self, composite: str, data: bytes, at: int) -> dict[str, Any]:
        """Return the members of a header, by name."""
        found = {}
        for member, of, offset in self.layout(self.kind(composite))[0]:
            value = (
                of.text if of.get("presence") == "constant" else self.value(of, data, at + offset, False, 0, 1 << 30)
            )
            found[str(member.get("name"))] = int(value) if isinstance(value, str) else value
        return found

    def counts(self, composite: str, header: dict[str, Any]) -> Counts:
        """Return the counts of groups and data that a header has."""
        kinds = {str(one.get("name")): of for one, of, _ in self.layout(self.kind(composite))[0]}
        found = []
        for name in ("numGroups", "numVarDataFields"):
            is_there = name in kinds and kinds[name].get("presence") != "constant"
            found.append(int(header[name]) if is_there else None)
        return found[0], found[1]

    @staticmethod
    def null(kind: Element) -> Any:
        primitive, own = str(kind.get("primitiveType")), kind.get("nullValue")
        if primitive in ("float", "double"):
            return float(own) if own else math.nan
        if own:
            return int(own) if own.lstrip("+-").isdigit() else ord(own)
        if primitive == "char":
            return 0
        bits = 8 * struct.calcsize(_FORMATS[primitive])
        return -(1 << (bits - 1)) if primitive.startswith("int") else (1 << bits) - 1

    def value(self, kind: Element, data: bytes, at: int, optional: bool, since: int, version: int) -> Any:
        """Return a value as the vectors have it; None if it is null, or came with a later version."""
        if since > version:
            return None
        match local(kind):
            case "composite":
                return {
                    str(member.get("name")): self.value(
                        of, data, at + offset, of.get("presence") == "optional",
                        max(since, number(member, "sinceVersion"), number(of, "sinceVersion")), version,
                    )
                    for member, of, offset in self.layout(kind)[0]
                }  # fmt: skip
            case "enum":
                return self.enum(kind, data, at)
            case "set":
                bits = self.raw(data, at, str(self.coding(kind).get("primitiveType")))
                choices = [str(one.get("name")) for one in kind if bits >> int(str(one.text)) & 1]
                return {"bits": bits, "choices": choices}
        if kind.get("presence") == "constant":
            return self.constant(kind)
        return self.encoded(kind, data, at, optional)

    def enum(self, kind: Element, data: bytes, at: int) -> Any:
        coding = self.coding(kind)
        raw = self.raw(data, at, str(coding.get("primitiveType")))
        own = kind.get("nullValue")
        if raw == (int(own) if own else self.null(coding)):
            return None
        for one in kind:
            if raw == self.enum_value(kind, one):
                return one.get("name")
        return {"unknown": raw}

    def enum_value(self, kind: Element, value: Element) -> int:
        text = str(value.text).strip() or str(value.text)
        return ord(text) if self.coding(kind).get("primitiveType") == "char" else int(text)

    def encoded(self, kind: Element, data: bytes, at: int, optional: bool) -> Any:
        primitive, length = str(kind.get("primitiveType")), int(kind.get("length") or 1)
        step = struct.calcsize(_FORMATS[primitive])
        if primitive == "char" and length != 1:
            text = data[at : at + length].split(b"\0")[0]
            return text.decode(kind.get("characterEncoding") or "ascii", "replace")
        null = self.null(kind)
        values = []
        for index in range(length):
            one = self.raw(data, at + index * step, primitive)
            is_null = optional and (one == null or (math.isnan(null) and math.isnan(one)))
            values.append(None if is_null else self.character(kind, one) if primitive == "char" else one)
        return values[0] if length == 1 else values

    @staticmethod
    def character(kind: Element, code: int) -> str:
        return bytes([code]).decode(kind.get("characterEncoding") or "ascii", "replace")

    def constant(self, kind: Element) -> Any:
        reference = kind.get("valueRef")
        text = str(kind.text or "").strip()
        primitive = str(kind.get("primitiveType"))
        if reference:
            enum, _, name = reference.partition(".")
            of = self.types[enum]
            raw = next(self.enum_value(of, one) for one in of if one.get("name") == name)
            is_text = primitive == "char" and self.coding(of).get("primitiveType") == "char"
            return chr(raw) if is_text else raw
        return text if primitive == "char" else float(text) if primitive in ("float", "double") else int(text)

    # messages

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return name and body of a message. Raises Malformed or Other."""
        length = self.size(self.kind(self.header))
        if len(data) < length:
            raise Malformed("header")
        header = self.integers(self.header, data, 0)
        message = self.messages.get(header["templateId"])
        if header["schemaId"] != self.id or message is None:
            raise Other
        walk = _Walk(self, data, header["version"], self.counts(self.header, header))
        body, _ = walk.message(message, length, header["blockLength"])
        return {"message": message.get("name"), "body": body}


class _Walk:
    """Decodes the blocks of one message."""

    def __init__(self, reference: Reference, data: bytes, version: int, counts: Counts) -> None:
        self._reference = reference
        self._data = data
        self._version = version
        self._entries = 0
        self._empty = 0
        self._counts = counts
        self._is_newer = version > reference.version
        self._is_counted = counts != (None, None)
        # Encoders of sbe-tool leave the counts 0. One count alone may be of something else.
        self._follows = any(counts) and (self._is_newer or None not in counts) if self._is_counted else self._is_newer

    def message(self, message: Element, at: int, length: int) -> tuple[dict[str, Any], int]:
        groups, _ = self._added(message, self._counts)
        return self.block(message, at, length, (groups if any(local(one) == "data" for one in message) else 0, 0))

    def _added(self, parent: Element, counts: Counts) -> tuple[int, int]:
        """Return how many groups and data are there that the schema does not know."""
        if not self._follows or (not any(counts) and not self._is_counted):
            return 0, 0
        added = []
        for tag, count in zip(("group", "data"), counts, strict=True):
            known = sum(self._since(one) <= self._version for one in parent if local(one) == tag)
            if count is not None and (count < known or (count > known and not self._is_newer)):
                raise Malformed("counts")
            added.append(0 if count is None else count - known)
        return added[0], added[1]

    def _since(self, part: Element) -> int:
        name = (part.get("dimensionType") or _DIMENSIONS) if local(part) == "group" else str(part.get("type"))
        return max(number(part, "sinceVersion"), number(self._reference.kind(name), "sinceVersion"))

    def _pass_groups(self, count: int, at: int, depth: int = 1) -> int:
        of, name = self._reference, self._reference.added_group
        if count and (name is None or depth > _MAX_DEPTH):
            raise Malformed("a group that is not known")
        for _ in range(count):
            assert name is not None
            header, at = self._dimensions(name, at)
            groups, data = of.counts(name, header)
            if header["numInGroup"] * header["blockLength"] > len(self._data) - at:
                raise Malformed("entries that are not known")
            if not groups and not data:
                at += header["numInGroup"] * header["blockLength"]
                continue
            for _ in range(header["numInGroup"]):
                at += header["blockLength"]
                if at > len(self._data):
                    raise Malformed("an entry that is not known")
                at = self._pass_data(data or 0, self._pass_groups(groups or 0, at, depth + 1))
        return at

    def _pass_data(self, count: int, at: int) -> int:
        if count and self._reference.added_data is None:
            raise Malformed("data that are not known")
        for _ in range(count):
            _, _, at = self._bytes(self._reference.kind(str(self._reference.added_data)), at)
        return at

    def block(self, parent: Element, at: int, length: int, added: tuple[int, int]) -> tuple[dict[str, Any], int]:
        if length > len(self._data) - at:
            raise Malformed("block")
        body: dict[str, Any] = {}
        end = 0
        for field in parent:
            if local(field) == "field":
                end = self._field(field, body, at, end, length)
        next_at = at + length
        for part in parent:
            if local(part) == "group":
                body[str(part.get("name"))], next_at = self._group(part, next_at)
        next_at = self._pass_groups(added[0], next_at)
        for part in parent:
            if local(part) == "data":
                body[str(part.get("name"))], next_at = self._data_of(part, next_at)
        return body, self._pass_data(added[1], next_at)

    def _field(self, field: Element, body: dict[str, Any], at: int, end: int, length: int) -> int:
        of, name = self._reference, str(field.get("name"))
        kind = of.kind(str(field.get("type")))
        since = max(number(field, "sinceVersion"), number(kind, "sinceVersion"))
        presence = field.get("presence") or (kind.get("presence") if local(kind) == "type" else None)
        if presence == "constant":
            body[name] = None if since > self._version else self._constant(field, kind)
            return end
        offset = number(field, "offset") or end
        for value_since, value_end in self._ends(kind, offset, since):
            if value_since <= self._version and value_end > length:
                raise Malformed(name)
        body[name] = of.value(kind, self._data, at + offset, presence == "optional", since, self._version)
        return offset + of.size(kind)

    def _ends(self, kind: Element, offset: int, since: int) -> Iterator[tuple[int, int]]:
        if local(kind) != "composite":
            size = self._reference.size(kind)
            if size:
                yield since, offset + size
            return
        for member, of, inner in self._reference.layout(kind)[0]:
            later = max(since, number(member, "sinceVersion"), number(of, "sinceVersion"))
            yield from self._ends(of, offset + inner, later)

    def _constant(self, field: Element, kind: Element) -> Any:
        reference = field.get("valueRef")
        if reference and local(kind) == "enum":
            return reference.partition(".")[2]
        if reference:
            return self._reference.constant(
                Element("type", {"primitiveType": str(kind.get("primitiveType")), "valueRef": reference})
            )
        return self._reference.constant(kind)

    def _group(self, group: Element, at: int) -> tuple[Any, int]:
        of = self._reference
        dimensions = group.get("dimensionType") or _DIMENSIONS
        if self._since(group) > self._version:
            return None, at
        header, at = self._dimensions(dimensions, at)
        self._entries += header["numInGroup"]
        if header["numInGroup"] * header["blockLength"] > len(self._data) - at or self._entries > _MAX_ENTRIES:
            raise Malformed("entries")
        added = self._added(group, of.counts(dimensions, header)) if header["numInGroup"] else (0, 0)
        entries = []
        for _ in range(header["numInGroup"]):
            before = at
            entry, at = self.block(group, at, header["blockLength"], added)
            self._empty += at == before
            if self._empty > _MAX_EMPTY:
                raise Malformed("empty entries")
            entries.append(entry)
        return entries, at

    def _dimensions(self, name: str, at: int) -> tuple[dict[str, Any], int]:
        of = self._reference
        length = of.size(of.kind(name))
        if length > len(self._data) - at:
            raise Malformed("dimensions")
        return of.integers(name, self._data, at), at + length

    def _data_of(self, data: Element, at: int) -> tuple[Any, int]:
        if self._since(data) > self._version:
            return None, at
        content, bytes_, at = self._bytes(self._reference.kind(str(data.get("type"))), at)
        encoding = content.get("characterEncoding") or ("ascii" if content.get("primitiveType") == "char" else None)
        return {"hex": bytes_.hex()} if encoding is None else bytes_.decode(encoding, "replace"), at

    def _bytes(self, kind: Element, at: int) -> tuple[Element, bytes, int]:
        """Return the type of the bytes behind a length, the bytes, and the index behind them."""
        of = self._reference
        members = of.layout(kind)[0]
        ((content, offset),) = [(one, place) for member, one, place in members if member.get("name") != "length"]
        ((counter, counter_at),) = [(one, place) for member, one, place in members if member.get("name") == "length"]
        if offset > len(self._data) - at:
            raise Malformed("length")
        length = of.raw(self._data, at + counter_at, str(counter.get("primitiveType")))
        start = at + offset
        if length > len(self._data) - start:
            raise Malformed("data")
        return content, self._data[start : start + length], start + length
