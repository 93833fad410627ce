"""A small schema in two versions, and messages of it that are encoded by hand."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any, Final

_TYPES: Final = """
    <types>
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
        <enum name="Side" encodingType="char">
            <validValue name="BUY">1</validValue>
            <validValue name="SELL">2</validValue>
        </enum>
        <type name="symbol" primitiveType="char" length="6" characterEncoding="UTF-8"/>
        <type name="desk" primitiveType="char" length="2"/>
    </types>
"""
_FIELDS: Final = """
        <field name="id" id="1" type="int64"/>
        <field name="price" id="2" type="price"/>
        <field name="side" id="3" type="Side"/>
        <field name="symbol" id="4" type="symbol"/>
"""
_GROUP: Final = """
        <group name="fills" id="10" dimensionType="groupSizeEncoding">
            <field name="quantity" id="11" type="uint32"/>
        </group>
        <data name="note" id="20" type="text"/>
"""


def _schema(version: int, later: str) -> str:
    return f"""<messageSchema package="orders" id="7" version="{version}">{_TYPES}
    <message name="Order" id="1">{_FIELDS}{later}{_GROUP}</message>
    <message name="Heartbeat" id="9"/>
</messageSchema>"""


SCHEMA: Final = _schema(2, '<field name="desk" id="5" type="desk" sinceVersion="2"/>')

_BLOCK: Final = struct.Struct("<qqc6s")


def _encode(number: int, version: int, later: bytes, quantities: tuple[int, ...], note: str) -> bytes:
    block = _BLOCK.pack(number, 12345 * number, b"2", "ÄBC".encode()) + later
    header = struct.pack("<HHHH", len(block), 1, 7, version)
    group = struct.pack("<HB", 4, len(quantities)) + b"".join(struct.pack("<I", one) for one in quantities)
    text = note.encode()
    return header + block + group + bytes([len(text)]) + text


def encode_order(number: int) -> bytes:
    """Return an order of version 2 with this id, two fills and a note."""
    return _encode(number, 2, b"EU", (1, 2), "über")


def encode_order_of_version_1(number: int) -> bytes:
    """Return an order of version 1 with this id, without fills and with an empty note."""
    return _encode(number, 1, b"", (), "")


def encode_heartbeat() -> bytes:
    """Return a heartbeat, which has no fields."""
    return struct.pack("<HHHH", 0, 9, 7, 2)


def order_rows(count: int) -> list[dict[str, Any]]:
    """Return the rows of orders 0, 1, …, which are encoded as :func:`encode_order` does."""
    return [
        {
            "id": number,
            "price": Decimal(12345 * number).scaleb(-4),
            "side": "SELL",
            "symbol": "ÄBC",
            "desk": "EU",
            "fills": [{"quantity": 1}, {"quantity": 2}],
            "note": "über",
        }
        for number in range(count)
    ]
