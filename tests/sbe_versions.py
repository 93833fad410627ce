"""A schema of ten message types in three versions, and messages of all versions, which are encoded by hand.

A message has a number. Its version, its type and all its values follow from this number. Later versions add fields,
fields of groups, a group, data, values of an enum, choices of a set, and a message type.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

VERSIONS: Final = (1, 2, 3)
VERSION_GAP: Final = 10_000_000  # between the first numbers of two versions
SCHEMA_ID: Final = 18

# What a reader finds, by the version of its schema
Shown = Callable[[int], Any]


@dataclass(frozen=True)
class Kind:
    """A type of a field: its name in the schema, and how a random value of a version is encoded and read."""

    name: str
    make: Callable[[random.Random, int], tuple[bytes, Shown]]


@dataclass(frozen=True)
class Field:
    """A field, and the version that added it."""

    name: str
    kind: Kind
    since: int = 1


@dataclass(frozen=True)
class Group:
    """A group, and the version that added it."""

    name: str
    fields: tuple[Field, ...]
    since: int = 1


@dataclass(frozen=True)
class Text:
    """Data of variable length, and the version that added them."""

    name: str
    since: int = 1


@dataclass(frozen=True)
class Message:
    """A message type, and the version that added it. Each has the field ``number`` first."""

    name: str
    id: int
    fields: tuple[Field, ...] = ()
    groups: tuple[Group, ...] = ()
    texts: tuple[Text, ...] = ()
    since: int = 1


def _always(value: Any) -> Shown:
    return lambda schema: value


def _integer(code: str, low: int, high: int, null: int | None = None) -> Callable[..., tuple[bytes, Shown]]:
    """Return a function that makes random integers, and every fifth time ``null`` if the field is optional."""

    def make(rng: random.Random, version: int) -> tuple[bytes, Shown]:
        if null is not None and rng.random() < 0.2:
            return struct.pack(code, null), _always(None)
        value = rng.randint(low, high)
        return struct.pack(code, value), _always(value)

    return make


def _price(rng: random.Random, version: int) -> tuple[bytes, Shown]:
    mantissa = rng.randint(-(10**15), 10**15)
    return struct.pack("<q", mantissa), _always(Decimal(mantissa).scaleb(-4))


def _money(rng: random.Random, version: int) -> tuple[bytes, Shown]:
    data, amount = _price(rng, version)
    currency = rng.choice(("EUR", "USD"))
    return data + currency.encode(), lambda schema: {"amount": amount(schema), "currency": currency}


def _symbol(rng: random.Random, version: int) -> tuple[bytes, Shown]:
    text = rng.choice(("A", "MSFT", "SIXSIX"))
    return text.encode().ljust(6, b"\0"), _always(text)


def _ratio(rng: random.Random, version: int) -> tuple[bytes, Shown]:
    value = rng.uniform(-1e6, 1e6)
    return struct.pack("<d", value), _always(value)


def _levels(rng: random.Random, version: int) -> tuple[bytes, Shown]:
    values = [rng.randint(-(2**15), 2**15 - 1) for _ in range(3)]
    return struct.pack("<3h", *values), _always(values)


def _reason(rng: random.Random, version: int) -> tuple[bytes, Shown]:
    value = rng.randint(1, version)
    return bytes([value]), lambda schema: _REASONS[value - 1] if value <= schema else str(value)


def _state(rng: random.Random, version: int) -> tuple[bytes, Shown]:
    bits = [bit for bit in range(version) if rng.random() < 0.5]
    data = bytes([sum(1 << bit for bit in bits)])
    return data, lambda schema: [_STATES[bit] if bit < schema else str(bit) for bit in bits]


# The value or choice at index N came with version N + 1.
_REASONS: Final = ("USER", "EXPIRED", "RISK")
_STATES: Final = ("OPEN", "HALTED", "AUCTION")

NUMBER: Final = Kind("int64", _integer("<q", -(2**62), 2**62))
COUNT: Final = Kind("uint32", _integer("<I", 0, 2**32 - 2))
OPTIONAL: Final = Kind("optional", _integer("<I", 0, 2**32 - 2, null=2**32 - 1))
PRICE: Final = Kind("price", _price)
MONEY: Final = Kind("money", _money)
SYMBOL: Final = Kind("symbol", _symbol)
RATIO: Final = Kind("double", _ratio)
LEVELS: Final = Kind("levels", _levels)
REASON: Final = Kind("Reason", _reason)
STATE: Final = Kind("State", _state)

MESSAGES: Final = (
    Message("Trade", 1, (Field("price", PRICE), Field("symbol", SYMBOL), Field("size", OPTIONAL, 2))),
    Message("Quote", 2, (Field("bid", PRICE), Field("ask", PRICE), Field("state", STATE), Field("depth", LEVELS, 3))),
    Message(
        "Order",
        3,
        (Field("symbol", SYMBOL), Field("limit", PRICE, 2)),
        (Group("fills", (Field("size", COUNT), Field("price", PRICE, 2), Field("reason", REASON, 3))),),
    ),
    Message("Cancel", 4, (Field("reason", REASON), Field("rest", OPTIONAL, 3))),
    Message("Status", 5, (Field("state", STATE), Field("next", STATE, 2))),
    Message("News", 6, (), (), (Text("headline"), Text("body", 2))),
    Message("Position", 7, (Field("levels", LEVELS), Field("value", MONEY, 2))),
    Message("Rate", 8, (Field("rate", RATIO), Field("weight", RATIO, 2), Field("source", SYMBOL, 3))),
    Message(
        "Book",
        9,
        (Field("symbol", SYMBOL),),
        (Group("bids", (Field("price", PRICE),)), Group("asks", (Field("price", PRICE), Field("size", COUNT, 3)), 2)),
    ),
    Message("Auction", 10, (Field("price", MONEY), Field("reason", REASON, 3)), since=2),
)

_TYPES: Final = """
    <composite name="messageHeader">
        <type name="blockLength" primitiveType="uint16"/>
        <type name="templateId" primitiveType="uint16"/>
        <type name="schemaId" primitiveType="uint16"/>
        <type name="version" primitiveType="uint16"/>
    </composite>
    <composite name="groupSizeEncoding">
        <type name="blockLength" primitiveType="uint16"/>
        <type name="numInGroup" primitiveType="uint8"/>
    </composite>
    <composite name="text">
        <type name="length" primitiveType="uint8"/>
        <type name="varData" primitiveType="uint8" length="0" characterEncoding="UTF-8"/>
    </composite>
    <composite name="price">
        <type name="mantissa" primitiveType="int64"/>
        <type name="exponent" primitiveType="int8" presence="constant">-4</type>
    </composite>
    <composite name="money">
        <ref name="amount" type="price"/>
        <type name="currency" primitiveType="char" length="3"/>
    </composite>
    <type name="optional" primitiveType="uint32" presence="optional"/>
    <type name="symbol" primitiveType="char" length="6"/>
    <type name="levels" primitiveType="int16" length="3"/>
"""


def schema_text(version: int) -> str:
    """Return the schema of a version as XML."""

    def element(tag: str, since: int, content: str, **attributes: object) -> str:
        if since > version:
            return ""
        if since > 1:
            attributes["sinceVersion"] = since
        words = "".join(f' {name}="{value}"' for name, value in attributes.items())
        return f"<{tag}{words}>{content}</{tag}>\n"

    def fields(some: Sequence[Field]) -> str:
        return "".join(element("field", one.since, "", name=one.name, id=1, type=one.kind.name) for one in some)

    def body(message: Message) -> str:
        groups = [element("group", one.since, fields(one.fields), name=one.name, id=1) for one in message.groups]
        texts = [element("data", one.since, "", name=one.name, id=1, type="text") for one in message.texts]
        return "".join([fields((Field("number", NUMBER), *message.fields)), *groups, *texts])

    reasons = [element("validValue", at, str(at), name=name) for at, name in enumerate(_REASONS, 1)]
    states = [element("choice", at, str(at - 1), name=name) for at, name in enumerate(_STATES, 1)]
    messages = [element("message", one.since, body(one), name=one.name, id=one.id) for one in MESSAGES]
    return (
        f'<messageSchema package="versions" id="{SCHEMA_ID}" version="{version}"><types>{_TYPES}'
        f'<enum name="Reason" encodingType="uint8">{"".join(reasons)}</enum>'
        f'<set name="State" encodingType="uint8">{"".join(states)}</set></types>{"".join(messages)}</messageSchema>'
    )


def version_of(number: int) -> int:
    return number // VERSION_GAP + 1


def message_of(number: int) -> Message:
    """Return the type of the message with this number."""
    known = [message for message in MESSAGES if message.since <= version_of(number)]
    return random.Random(number).choice(known)


def number_of(data: bytes) -> int:
    """Return the number of an encoded message, after a check of all its bytes."""
    (number,) = struct.unpack_from("<q", data, 8)
    assert data == encode_message(number), f"message {number} was changed"
    return int(number)


def encode_message(number: int) -> bytes:
    return _make(number)[0]


def row_of(number: int, schema: int) -> dict[str, Any] | None:
    """Return the row of the message for a reader with the schema of a version; None if this schema has no such type."""
    if message_of(number).since > schema:
        return None
    row: dict[str, Any] = _make(number)[1](schema)
    return row


def _make(number: int) -> tuple[bytes, Shown]:
    version, message = version_of(number), message_of(number)
    rng = random.Random(number + 1)
    block, shown = _make_fields(message.fields, rng, version)
    block = struct.pack("<q", number) + block
    data = struct.pack("<HHHH", len(block), message.id, SCHEMA_ID, version) + block
    parts: list[tuple[str, int, Shown]] = [("number", 1, _always(number)), *shown]
    for group in message.groups:
        if group.since <= version:
            entries = [_make_fields(group.fields, rng, version) for _ in range(rng.randint(0, 3))]
            length = len(_make_fields(group.fields, random.Random(0), version)[0])
            data += struct.pack("<HB", length, len(entries)) + b"".join(entry for entry, _ in entries)
            parts.append((group.name, group.since, _rows(entry for _, entry in entries)))
        else:
            parts.append((group.name, group.since, _always(None)))
    for text in message.texts:
        value = rng.choice(("", "Zürich", "x" * 200)) if text.since <= version else None
        data += b"" if value is None else bytes([len(value.encode())]) + value.encode()
        parts.append((text.name, text.since, _always(value)))
    return data, lambda schema: _row(parts, schema)


def _make_fields(
    fields: Sequence[Field], rng: random.Random, version: int
) -> tuple[bytes, list[tuple[str, int, Shown]]]:
    """Return the bytes of the fields that the version has, and all fields as a reader finds them."""
    data, parts = b"", []
    for field in fields:
        encoded, shown = field.kind.make(rng, version) if field.since <= version else (b"", _always(None))
        data += encoded
        parts.append((field.name, field.since, shown))
    return data, parts


def _rows(entries: Any) -> Shown:
    parts = list(entries)
    return lambda schema: [_row(one, schema) for one in parts]


def _row(parts: Sequence[tuple[str, int, Shown]], schema: int) -> dict[str, Any]:
    return {name: shown(schema) for name, since, shown in parts if since <= schema}
