"""Random schemas, and random messages of them, from an encoder that shares no code with the product."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

VERSION: Final = 3  # of all schemas
_FORMATS: Final = {
    "char": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I",
    "uint64": "Q", "float": "f", "double": "d",
}  # fmt: skip
_TEXTS: Final = ("", "a", "trade", "Zürich", "日本", "x" * 30)

Encode = Callable[[], bytes]


@dataclass(frozen=True)
class Type:
    """A named type: its size, and a function that makes the bytes of a random value."""

    name: str
    size: int
    encode: Encode


@dataclass(frozen=True)
class Part:
    """A field, group or data of a block, and the version it came with."""

    since: int
    size: int  # of a field, with the gap before it
    encode: Callable[[int], bytes]  # of a message's version


class RandomSchema:
    """A random schema with one message ``M``, as XML in ``text``; ``message`` encodes a random message."""

    def __init__(self, seed: random.Random) -> None:
        self._random = seed
        self._order = seed.choice("<>")
        self._types: list[str] = []
        self._names = 0
        self._header = seed.choice(([2, 2, 2, 2], [4, 2, 2, 1], [2, 1, 4, 2]))
        known = [self._new_type() for _ in range(seed.randint(1, 6))]
        known += [Type(name, struct.calcsize(code), self._value_of(name)) for name, code in _FORMATS.items()]
        self._known = known
        body, self._parts = self._block(2)
        order = "bigEndian" if self._order == ">" else "littleEndian"
        unsigned = {1: "uint8", 2: "uint16", 4: "uint32"}
        header = "".join(
            f'<type name="{name}" primitiveType="{unsigned[size]}"/>'
            for name, size in zip(("blockLength", "templateId", "schemaId", "version"), self._header, strict=True)
        )
        self.text = (
            f'<messageSchema id="77" version="{VERSION}" byteOrder="{order}"><types>'
            f'<composite name="messageHeader">{header}</composite>{"".join(self._types)}</types>'
            f'<message name="M" id="5">{body}</message></messageSchema>'
        )

    def message(self) -> bytes:
        """Return a random message of a random version."""
        version = self._random.randint(0, VERSION)
        block, rest = self._encode_block(self._parts, version)
        values = (len(block), 5, 77, version)
        codes = {1: "B", 2: "H", 4: "I"}
        header = b"".join(self._pack(codes[size], value) for size, value in zip(self._header, values, strict=True))
        return header + block + rest + self._random.choice((b"", b"\xff\x01"))

    def _pack(self, code: str, value: float) -> bytes:
        return struct.pack(self._order + code, value)

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def _value_of(self, primitive: str, null: float | None = None) -> Encode:
        code = _FORMATS[primitive]

        def encode() -> bytes:
            if null is not None and not self._random.randrange(4):
                return self._pack(code, null)
            if code in "fd":
                return self._pack(code, self._random.choice((0.0, -1.5, float("nan"), float("inf"), 3.25)))
            return (
                self._random.choice((b"\0", b"\xff", b"\x80", b"\x41")) * struct.calcsize(code)
                if (self._random.randrange(2))
                else self._random.randbytes(struct.calcsize(code))
            )

        return encode

    # types

    def _new_type(self) -> Type:
        make = self._random.choice((self._encoded, self._enum, self._set, self._composite, self._texts))
        return make()

    def _encoded(self) -> Type:
        name, primitive = self._name(), self._random.choice(list(_FORMATS))
        length = self._random.choice((1, 1, 3)) if primitive != "char" else 1
        # a column of bytes has no null elements
        optional = self._random.randrange(2) and (primitive != "uint8" or length == 1)
        null = self._random.choice((None, 5)) if optional else None
        attributes = ' presence="optional"' if optional else ""
        attributes += f' nullValue="{null}"' if null is not None else ""
        self._types.append(f'<type name="{name}" primitiveType="{primitive}" length="{length}"{attributes}/>')
        encode = self._value_of(primitive, null)
        return Type(
            name, length * struct.calcsize(_FORMATS[primitive]), lambda: b"".join(encode() for _ in range(length))
        )

    def _texts(self) -> Type:
        name, length = self._name(), self._random.randint(2, 12)
        encoding = self._random.choice(("UTF-8", "ISO-8859-1"))
        self._types.append(
            f'<type name="{name}" primitiveType="char" length="{length}" characterEncoding="{encoding}"/>'
        )

        def encode() -> bytes:
            text = self._random.choice(_TEXTS).encode(encoding, "ignore")[:length]
            return text.decode(encoding, "ignore").encode(encoding).ljust(length, b"\0")

        return Type(name, length, encode)

    def _enum(self) -> Type:
        name, primitive = self._name(), self._random.choice(("char", "uint8", "uint16", "int32"))
        values = self._random.sample(range(65, 91) if primitive == "char" else range(200), 3)
        texts = [chr(value) if primitive == "char" else str(value) for value in values]
        valid = "".join(f'<validValue name="{self._name()}">{text}</validValue>' for text in texts)
        self._types.append(f'<enum name="{name}" encodingType="{primitive}">{valid}</enum>')
        code = _FORMATS[primitive]
        return Type(name, struct.calcsize(code), lambda: self._pack(code, self._random.choice([*values, 7])))

    def _set(self) -> Type:
        name, primitive = self._name(), self._random.choice(("uint8", "uint16", "uint32", "uint64"))
        size = struct.calcsize(_FORMATS[primitive])
        bits = self._random.sample(range(8 * size), 3)
        choices = "".join(f'<choice name="{self._name()}">{bit}</choice>' for bit in bits)
        self._types.append(f'<set name="{name}" encodingType="{primitive}">{choices}</set>')
        return Type(name, size, lambda: self._random.randbytes(size))

    def _composite(self) -> Type:
        name, text, parts, end = self._name(), "", [], 0
        for _ in range(self._random.randint(1, 3)):
            primitive = self._random.choice(list(_FORMATS))
            offset = end + self._random.choice((0, 0, 3))
            presence = self._random.choice(("", ' presence="optional"'))
            placed = f' offset="{offset}"' if offset > end else ""
            text += f'<type name="{self._name()}" primitiveType="{primitive}"{presence}{placed}/>'
            parts.append((offset - end, self._value_of(primitive)))
            end = offset + struct.calcsize(_FORMATS[primitive])
        self._types.append(f'<composite name="{name}">{text}</composite>')
        return Type(name, end, lambda: b"".join(self._random.randbytes(gap) + encode() for gap, encode in parts))

    # blocks

    def _block(self, depth: int) -> tuple[str, tuple[list[Part], list[Part]]]:
        """Return the XML of a block, and its fields and its groups and data."""
        text, fields, others, end, since = "", [], [], 0, 0
        for _ in range(self._random.randint(0, 5)):
            kind = self._random.choice(self._known)
            since = min(VERSION, since + self._random.choice((0, 0, 0, 1)))
            gap = self._random.choice((0, 0, 0, 2))
            placed = f' offset="{end + gap}"' if gap and end + gap else ""
            gap = gap if placed else 0
            text += f'<field name="{self._name()}" id="1" type="{kind.name}" sinceVersion="{since}"{placed}/>'
            fields.append(Part(since, gap + kind.size, self._field(gap, kind)))
            end += gap + kind.size
        for _ in range(self._random.randint(0, 2) if depth else 0):
            part_text, part = self._group(depth - 1)
            text += part_text
            others.append(part)
        for _ in range(self._random.randint(0, 2)):
            part_text, part = self._data()
            text += part_text
            others.append(part)
        return text, (fields, others)

    def _field(self, gap: int, kind: Type) -> Callable[[int], bytes]:
        return lambda version: self._random.randbytes(gap) + kind.encode()

    def _encode_block(self, parts: tuple[list[Part], list[Part]], version: int) -> tuple[bytes, bytes]:
        fields, others = parts
        block = b"".join(part.encode(version) for part in fields if part.since <= version)
        block += self._random.randbytes(self._random.choice((0, 0, 0, 3)))
        return block, b"".join(part.encode(version) for part in others if part.since <= version)

    def _group(self, depth: int) -> tuple[str, Part]:
        sizes = self._random.choice((("uint16", "uint16"), ("uint8", "uint8"), ("uint16", "uint32")))
        members = list(zip(("blockLength", "numInGroup"), sizes, strict=True))
        self._random.shuffle(members)
        dimensions, since = self._name(), self._random.choice((0, 0, 2))
        inner = "".join(f'<type name="{name}" primitiveType="{primitive}"/>' for name, primitive in members)
        self._types.append(f'<composite name="{dimensions}">{inner}</composite>')
        text, parts = self._block(depth)

        def encode(version: int) -> bytes:
            entries = [self._encode_block(parts, version) for _ in range(self._random.choice((0, 1, 2, 5)))]
            length = max((len(block) for block, _ in entries), default=0)
            values = {"blockLength": length, "numInGroup": len(entries)}
            header = b"".join(self._pack(_FORMATS[primitive], values[name]) for name, primitive in members)
            return header + b"".join(block.ljust(length, b"\xee") + rest for block, rest in entries)

        name = self._name()
        whole = f'<group name="{name}" id="1" dimensionType="{dimensions}" sinceVersion="{since}">{text}</group>'
        return whole, Part(since, 0, encode)

    def _data(self) -> tuple[str, Part]:
        primitive, encoding = self._random.choice(("uint8", "uint16", "uint32")), self._random.choice(("UTF-8", ""))
        kind, since = self._name(), self._random.choice((0, 0, 1))
        declared = f' characterEncoding="{encoding}"' if encoding else ""
        self._types.append(
            f'<composite name="{kind}"><type name="length" primitiveType="{primitive}"/>'
            f'<type name="varData" primitiveType="uint8" length="0"{declared}/></composite>'
        )

        def encode(version: int) -> bytes:
            text = (
                self._random.choice(_TEXTS).encode() if encoding else self._random.randbytes(self._random.randint(0, 9))
            )
            return self._pack(_FORMATS[primitive], len(text)) + text

        return f'<data name="{self._name()}" id="1" type="{kind}" sinceVersion="{since}"/>', Part(since, 0, encode)


def mutations(data: bytes, seed: random.Random, count: int) -> list[bytes]:
    """Return ``count`` damaged copies of a message: cut, with a bit flipped, or with random bytes."""
    found = []
    for _ in range(count):
        copy = bytearray(data)
        match seed.randrange(3):
            case 0:
                del copy[seed.randrange(len(copy)) :]
            case 1:
                copy[seed.randrange(len(copy))] ^= 1 << seed.randrange(8)
            case _:
                at = seed.randrange(len(copy))
                copy[at : at + 2] = seed.choice((b"\xff\xff", b"\0\0", seed.randbytes(2)))[: len(copy) - at]
        found.append(bytes(copy))
    return found
