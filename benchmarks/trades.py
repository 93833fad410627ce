"""SBE messages of 73 bytes with 12 fields, as an exchange sends them: their schema, and their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

BLOCK_BYTES: Final = 65
HEADER_BYTES: Final = 8
MESSAGE_BYTES: Final = HEADER_BYTES + BLOCK_BYTES
FRAME_BYTES: Final = 128  # of a message in a recording: Aeron's header of 32 bytes, and a multiple of 32
TEMPLATE_ID, SCHEMA_ID, VERSION = 1, 9, 1
FIRST_TIME_NS: Final = 1_700_000_000_000_000_000
SYMBOLS: Final = (b"AAPL", b"MSFT", b"EURUSD")

SCHEMA_XML: Final = """\
<messageSchema package="trades" id="9" version="1">
  <types>
    <composite name="messageHeader">
      <type name="blockLength" primitiveType="uint16"/>
      <type name="templateId" primitiveType="uint16"/>
      <type name="schemaId" primitiveType="uint16"/>
      <type name="version" primitiveType="uint16"/>
    </composite>
    <composite name="price">
      <type name="mantissa" primitiveType="int64"/>
      <type name="exponent" primitiveType="int8" presence="constant">-8</type>
    </composite>
    <composite name="nanoseconds">
      <type name="time" primitiveType="uint64"/>
      <type name="unit" primitiveType="uint8" presence="constant">9</type>
    </composite>
    <enum name="Side" encodingType="char">
      <validValue name="BUY">1</validValue>
      <validValue name="SELL">2</validValue>
    </enum>
    <type name="symbol" primitiveType="char" length="8"/>
    <type name="venue" primitiveType="char" length="4"/>
    <type name="account" primitiveType="int32" presence="optional"/>
    <type name="desk" primitiveType="uint16" presence="optional"/>
    <type name="parent" primitiveType="int64" presence="optional"/>
  </types>
  <message name="Trade" id="1">
    <field name="at" id="1" type="nanoseconds"/>
    <field name="price" id="2" type="price"/>
    <field name="quantity" id="3" type="price"/>
    <field name="symbol" id="4" type="symbol"/>
    <field name="venue" id="5" type="venue"/>
    <field name="tradeId" id="6" type="int64"/>
    <field name="account" id="7" type="account"/>
    <field name="desk" id="8" type="desk"/>
    <field name="parent" id="9" type="parent"/>
    <field name="side" id="10" type="Side"/>
    <field name="flags" id="11" type="uint16"/>
    <field name="sequence" id="12" type="uint32"/>
  </message>
</messageSchema>
"""
LAYOUT: Final = np.dtype(
    [
        ("blockLength", "<u2"), ("templateId", "<u2"), ("schemaId", "<u2"), ("version", "<u2"),
        ("at", "<u8"), ("price", "<i8"), ("quantity", "<i8"), ("symbol", "S8"), ("venue", "S4"),
        ("tradeId", "<i8"), ("account", "<i4"), ("desk", "<u2"), ("parent", "<i8"), ("side", "S1"),
        ("flags", "<u2"), ("sequence", "<u4"),
    ]
)  # fmt: skip


def trade_messages(ids: np.ndarray[Any, Any]) -> pa.Array[Any]:
    """Return one message (binary) for each id (int64); prices, sides and nulls follow from the id."""
    messages = np.zeros(len(ids), LAYOUT)
    messages["blockLength"], messages["templateId"] = BLOCK_BYTES, TEMPLATE_ID
    messages["schemaId"], messages["version"] = SCHEMA_ID, VERSION
    messages["at"] = FIRST_TIME_NS + ids
    messages["price"] = ids * 2_654_435_761 % 10**12
    messages["quantity"] = ids * 40_503 % 10**9
    messages["symbol"] = np.array(SYMBOLS)[ids % len(SYMBOLS)]
    messages["venue"] = b"XEUR"
    messages["tradeId"] = ids
    messages["account"] = np.where(ids % 2, ids % 1_000, -(2**31))  # the null value of int32
    messages["desk"] = np.where(ids % 3, ids % 100, 65_535)
    messages["parent"] = np.where(ids % 5, ids, -(2**63))
    messages["side"] = np.where(ids % 2, b"1", b"2")
    messages["flags"] = 7
    messages["sequence"] = ids % 2**32
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * MESSAGE_BYTES
    return pa.Array.from_buffers(
        pa.binary(), len(ids), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(messages.tobytes())]
    )


def trade_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a batch with the column ``value`` for each batch with the column ``id``."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([trade_messages(batch["id"].to_numpy())], names=["value"])
