"""A message has at most 65,535 entries without bytes, and 2,000,000 entries in all; else it is malformed."""

from __future__ import annotations

import struct

import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.sbe.settings import SbeSettings
from aeron_spark.sbe.table import MessageColumns
from tests.aeron.sbe.decoding import decode_rows
from tests.unit.sbe.schemas import schema_of

GROUP = (
    '<composite name="wide"><type name="blockLength" primitiveType="uint16"/>'
    '<type name="numInGroup" primitiveType="uint32"/></composite>'
    '<type name="k" primitiveType="int8" presence="constant">7</type>'
)


def counts(body: str, groups: bytes, version: int = 3) -> list[int]:
    """Return how many entries the group ``g`` has in a message with these bytes behind its empty block."""
    table = MessageColumns(schema_of(GROUP, body), SbeSettings()).table()
    return [len(row["g"]) for row in decode_rows(table, [struct.pack("<HHHH", 0, 1, 1, version) + groups])]


CONSTANTS = '<group name="g" id="1" dimensionType="wide"><field name="c" id="2" type="k"/></group>'
LATER = (
    '<group name="g" id="1" dimensionType="wide"><group name="h" id="2" dimensionType="wide" sinceVersion="2"/></group>'
)


@pytest.mark.parametrize(("body", "version"), [(CONSTANTS, 3), (LATER, 1)], ids=["constants", "a later group"])
def test_entries_without_bytes_have_a_limit(body: str, version: int) -> None:
    assert counts(body, struct.pack("<HI", 0, 65_535), version) == [65_535]
    for many in (65_536, 2**31, 2**32 - 1):
        with pytest.raises(DataFormatError, match=f"the group 'g' has {many} entries of 0 bytes"):
            counts(body, struct.pack("<HI", 0, many), version)


def test_entries_without_bytes_are_counted_for_the_whole_message() -> None:
    body = '<group name="g" id="1" dimensionType="wide"><group name="h" id="2" dimensionType="wide"/></group>'
    inner = struct.pack("<HI", 0, 40_000)
    assert counts(body, struct.pack("<HI", 0, 1) + inner) == [1]
    with pytest.raises(DataFormatError, match="the group 'h' has 40000 entries"):
        counts(body, struct.pack("<HI", 0, 2) + inner + inner)


def test_entries_have_a_limit() -> None:
    body = '<group name="g" id="1" dimensionType="wide"><field name="a" id="2" type="int8"/></group>'
    with pytest.raises(DataFormatError, match="the group 'g' has 2000001 entries"):
        counts(body, struct.pack("<HI", 1, 2_000_001) + bytes(2_000_001))
