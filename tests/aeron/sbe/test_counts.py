"""A message of a newer version has groups and data that the schema does not know: its counts say how many.

The independent decoder of the tests reads each message to the same row, or finds it malformed, too.
"""

from __future__ import annotations

import random
import re
import struct
from dataclasses import replace
from typing import Any, Final

import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import Framing, SbeSettings
from aeron_spark.sbe.table import MessageColumns
from tests.aeron.sbe.decoding import decode_rows
from tests.aeron.sbe.test_fuzzing import Comparison
from tests.sbe_encoding import encode_rows
from tests.sbe_random import mutations
from tests.sbe_reference import Malformed, Reference

COUNTS: Final = '<type name="numGroups" primitiveType="uint16"/><type name="numVarDataFields" primitiveType="uint16"/>'
PLAIN: Final = ("blockLength", "templateId", "schemaId", "version")
TEXT: Final = '<data name="{}" id="9" type="text"/>'
ROW: Final = {"i": 7, "g": [{"x": 1, "n": [{"y": 2}], "e": "one"}, {"x": 3, "n": [], "e": ""}], "d": "hello"}


def composite(name: str, members: tuple[str, ...], counts: str = COUNTS) -> str:
    inner = "".join(f'<type name="{one}" primitiveType="uint16"/>' for one in members)
    return f'<composite name="{name}">{inner}{counts}</composite>'


def schema_text(version: int, body: str, header: str = COUNTS, group: str = COUNTS, types: str = "") -> str:
    text = (
        '<composite name="text"><type name="length" primitiveType="uint16"/>'
        '<type name="varData" primitiveType="uint8" length="0" characterEncoding="UTF-8"/></composite>'
    )
    types += composite("messageHeader", PLAIN, header) + composite(
        "groupSizeEncoding", ("blockLength", "numInGroup"), group
    )
    return (
        f'<messageSchema package="p" id="5" version="{version}"><types>{types}{text}</types>'
        f'<message name="M" id="1"><field name="i" id="1" type="int32"/>{body}</message></messageSchema>'
    )


def group_text(name: str, field: str, inside: str = "") -> str:
    return f'<group name="{name}" id="8"><field name="{field}" id="2" type="int32"/>{inside}</group>'


KNOWN: Final = group_text("g", "x", group_text("n", "y") + TEXT.format("e")) + TEXT.format("d")
# Each adds one part to KNOWN, or several.
NEWER: Final = {
    "group": KNOWN.replace('<data name="d"', group_text("more", "z") + '<data name="d"'),
    "groups within each other": KNOWN.replace(
        '<data name="d"',
        group_text("more", "z", group_text("inner", "u") + TEXT.format("v"))
        + group_text("last", "w")
        + '<data name="d"',
    ),
    "group of a group": KNOWN.replace('<data name="e"', group_text("more", "z", TEXT.format("t")) + '<data name="e"'),
    "data": KNOWN + TEXT.format("f"),
    "data of a group": KNOWN.replace(TEXT.format("e"), TEXT.format("e") + TEXT.format("f")),
    "field": KNOWN.replace('<group name="g"', '<field name="j" id="7" type="int64"/><group name="g"'),
}  # fmt: skip
ADDED: Final = {
    "more": [
        {"z": 5, "inner": [{"u": 6}, {"u": 7}], "v": "deep", "t": "inside"},
        {"z": 8, "inner": [], "v": "", "t": ""},
    ],
    "last": [{"w": 9}],
    "f": "added",
    "j": 10,
}


def columns_of(text: str) -> MessageColumns:
    return MessageColumns(load_schema(text), SbeSettings())


def with_added(columns: MessageColumns) -> dict[str, Any]:
    """Return the row with all that its schema adds, at the root and in the entries of its group."""
    return {**ROW, **ADDED, "g": [{**entry, **ADDED} for entry in ROW["g"]]}


def written(text: str) -> bytes:
    """Return the message of the row with all that the schema has. The encoder writes the counts."""
    columns = columns_of(text)
    (message,) = encode_rows(columns, [with_added(columns)])
    return message


def read(text: str, message: bytes) -> dict[str, Any]:
    (row,) = decode_rows(columns_of(text).table(), [message])
    assert Reference(text).decode(message)["body"] == row
    return row


def assert_malformed(text: str, message: bytes, reason: str) -> None:
    with pytest.raises(DataFormatError, match=re.escape(reason)):
        decode_rows(columns_of(text).table(), [message])
    with pytest.raises(Malformed):
        Reference(text).decode(message)


def test_a_group_that_only_the_message_has_is_not_read_as_data() -> None:
    """It had the datum ``"\\x01\\x00DC"``, the count of the group's entries and an entry, and no error."""
    text = schema_text(0, TEXT.format("d"), group="")
    header = struct.pack("<6H", 4, 1, 5, 1, 1, 1)
    message = header + struct.pack("<i", 7) + struct.pack("<HH4s", 4, 1, b"DC\0\0") + struct.pack("<H5s", 5, b"hello")
    assert read(text, message) == {"i": 7, "d": "hello"}


@pytest.mark.parametrize("part", NEWER)
def test_parts_that_only_a_newer_message_has_are_passed_over(part: str) -> None:
    assert read(schema_text(0, KNOWN), written(schema_text(1, NEWER[part]))) == ROW


@pytest.mark.parametrize("part", NEWER)
def test_the_end_of_a_newer_message_is_found_behind_parts_that_are_not_known(part: str) -> None:
    columns = MessageColumns(load_schema(schema_text(0, KNOWN)), SbeSettings(framing=Framing.SEQUENCE))
    assert decode_rows(columns.table(), [2 * written(schema_text(1, NEWER[part]))]) == [ROW, ROW]


def test_the_counts_of_written_messages_are_those_of_the_schema() -> None:
    message = written(schema_text(0, KNOWN))
    assert struct.unpack_from("<2H", message, 8) == (1, 1)  # header
    assert struct.unpack_from("<4H", message, 16) == (4, 2, 1, 1)  # "g"
    assert struct.unpack_from("<4H", message, 28) == (4, 1, 0, 0)  # "n"


@pytest.mark.parametrize(
    ("version", "offset", "count", "reason"),
    [
        (1, 8, 0, "say 0 groups and 1 data, and version 1 has at least 1 groups and 1 data"),
        (1, 10, 0, "say 1 groups and 0 data"),
        (0, 8, 2, "the counts of the message say 2 groups and 1 data, and version 0 has 1 groups and 1 data"),
        (0, 10, 3, "say 1 groups and 3 data"),
        (0, 20, 2, "the counts of the group 'g' say 2 groups and 1 data, and version 0 has 1 groups and 1 data"),
        (1, 22, 0, "the counts of the group 'g' say 1 groups and 0 data, and version 1 has at least"),
        (1, 8, 9, "does not know is missing"),
        (1, 20, 65_535, "a group that the schema does not know"),
        (1, 32, 1, "a group that the schema does not know"),
    ],
)
def test_counts_that_the_message_cannot_have_make_it_malformed(
    version: int, offset: int, count: int, reason: str
) -> None:
    message = bytearray(written(schema_text(0, KNOWN)))
    struct.pack_into("<H", message, 6, version)
    struct.pack_into("<H", message, offset, count)
    assert_malformed(schema_text(0, KNOWN), bytes(message), reason)


def test_an_older_message_has_the_counts_of_its_version() -> None:
    newer = schema_text(1, NEWER["group"].replace('name="more"', 'name="more" sinceVersion="1"'))
    message = written(schema_text(0, KNOWN))
    assert read(newer, message) == {**ROW, "more": None}
    wrong = bytearray(message)
    struct.pack_into("<H", wrong, 8, 2)
    assert_malformed(newer, bytes(wrong), "say 2 groups and 1 data, and version 0 has 1 groups and 1 data")


@pytest.mark.parametrize("version", [0, 1])
def test_a_message_without_counts_is_read_as_far_as_the_schema_knows_it(version: int) -> None:
    """The encoders of sbe-tool write no counts: a header has 0 there, a group what its buffer had before."""
    message = bytearray(written(schema_text(version, NEWER["field"] if version else KNOWN)))
    struct.pack_into("<2H", message, 8, 0, 0)
    struct.pack_into("<2H", message, 20 + 8 * version, 77, 0)
    assert read(schema_text(0, KNOWN), bytes(message)) == ROW


def test_counts_of_groups_count_for_newer_messages_whose_header_has_none() -> None:
    known, newer = schema_text(0, KNOWN, header=""), schema_text(1, NEWER["group of a group"], header="")
    assert read(known, written(newer)) == ROW
    unwritten = bytearray(written(schema_text(1, NEWER["field"], header="")))
    struct.pack_into("<2H", unwritten, 24, 0, 0)
    struct.pack_into("<2H", unwritten, 36, 0, 0)
    assert read(known, bytes(unwritten)) == ROW


OTHER: Final = composite("big", ("numInGroup", "blockLength"))


def test_parts_whose_headers_may_have_several_forms_are_not_guessed() -> None:
    known = schema_text(0, KNOWN.replace('name="n"', 'name="n" dimensionType="big"'), types=OTHER)
    newer = schema_text(1, NEWER["group"].replace('name="n"', 'name="n" dimensionType="big"'), types=OTHER)
    reason = (
        "1 groups that the schema does not know cannot be passed over: its groups have no header, or different ones"
    )
    assert_malformed(known, written(newer), reason)
    assert_malformed(
        schema_text(0, group_text("g", "x")),
        written(schema_text(1, group_text("g", "x", TEXT.format("e")))),
        "1 data that the schema does not know cannot be passed over",
    )


def test_parts_behind_all_that_is_needed_are_not_looked_at() -> None:
    """They are ignored in whatever form, unless another message follows."""
    known = schema_text(
        0, group_text("g", "x") + group_text("h", "k").replace("id", 'dimensionType="big" id', 1), types=OTHER
    )
    newer = known.replace('version="0"', 'version="1"').replace("</message>", group_text("more", "z") + "</message>")
    message = written_row(newer, {"i": 1, "g": [{"x": 2}], "h": [{"k": 3}], "more": [{"z": 4}]})
    assert read(known, message) == {"i": 1, "g": [{"x": 2}], "h": [{"k": 3}]}
    settings = replace(SbeSettings(), framing=Framing.SEQUENCE)
    with pytest.raises(DataFormatError, match="1 groups that the schema does not know cannot be passed over"):
        decode_rows(MessageColumns(load_schema(known), settings).table(), [message])


def written_row(text: str, row: dict[str, Any]) -> bytes:
    (message,) = encode_rows(columns_of(text), [row])
    return message


def test_groups_within_each_other_without_end_are_malformed() -> None:
    level = struct.pack("<4H", 0, 1, 1, 0)
    message = struct.pack("<6Hi", 4, 1, 5, 1, 1, 1, 7) + 50_000 * level
    assert_malformed(schema_text(0, TEXT.format("d")), message, "they have more than 64 levels")


@pytest.mark.parametrize("part", NEWER)
def test_damaged_newer_messages_decode_as_the_reference_decodes_them(part: str) -> None:
    check_damaged(part)


def check_damaged(part: str, *, alone: bool = False) -> None:
    """Compare damaged messages with a newer part; ``alone``: each in a separate batch and memory."""
    source = random.Random(part)
    comparison = Comparison(schema_text(0, KNOWN))
    damaged = list(mutations(written(schema_text(1, NEWER[part])), source, 100))
    for batch in [[one] for one in damaged] if alone else [damaged]:
        comparison.check(batch)
    assert min(comparison.counts["ok"], comparison.counts["malformed"]) > 3, comparison.counts
