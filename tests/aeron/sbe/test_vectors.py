"""The decoder makes the columns of all public vectors that the reference's decoder makes of them."""

from __future__ import annotations

from typing import Final, Literal

import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.sbe.settings import FRAMINGS, Framing, OnMalformed, SbeSettings
from aeron_spark.sbe.table import DecodeTable, MessageColumns
from tests.aeron.sbe.decoding import decode_rows
from tests.sbe_vectors import MISSING, Vector, as_row, columns_of, read_set, same, schema_of, set_names

pytestmark = pytest.mark.skipif(not set_names(), reason=MISSING)

PLAIN: Final = sorted(set(set_names()) - {"frames", "cluster-log"})
# How the vectors name the framings, and how the option does.
FRAMING_NAMES: Final = {
    "one": "one",
    "back-to-back": "sequence",
    "aligned-8": "aligned-8",
    "sofh-be": "sofh",
    "sofh-le": "sofh",
    "length-u16-le-inclusive": "length16",
    "length-u32-le-exclusive": "length32",
    "cluster": "cluster",
}


class Decoders:
    """The decode tables of a set's messages."""

    def __init__(self, name: str, settings: SbeSettings) -> None:
        self._schema = schema_of(name)
        self._settings = settings
        self._known: dict[str, tuple[MessageColumns, DecodeTable]] = {}

    def of(self, message: str) -> tuple[MessageColumns, DecodeTable]:
        """Return the columns of a message, and their table."""
        if message not in self._known:
            columns = columns_of(self._schema, message, self._settings)
            self._known[message] = columns, columns.table()
        return self._known[message]

    def names(self) -> list[str]:
        """Return the names of all messages."""
        return [message.name for message in self._schema.messages]


@pytest.mark.parametrize("name", PLAIN)
def test_the_columns_of_a_message_are_the_values_of_the_reference(name: str) -> None:
    decoders = Decoders(name, SbeSettings())
    compared = 0
    for vector in read_set(name):
        if vector.expected["status"] == "ok":
            columns, table = decoders.of(vector.expected["message"])
            (row,) = decode_rows(table, [vector.data])
            assert same(row, as_row(columns.columns, vector.expected["body"])), vector
            compared += 1
    assert compared


@pytest.mark.parametrize("name", PLAIN)
def test_messages_of_all_versions_decode_in_one_batch_as_they_do_alone(name: str) -> None:
    decoders = Decoders(name, SbeSettings())
    of_message: dict[str, list[Vector]] = {}
    for vector in read_set(name):
        if vector.expected["status"] == "ok":
            of_message.setdefault(vector.expected["message"], []).append(vector)
    for message, vectors in of_message.items():
        columns, table = decoders.of(message)
        wanted = [as_row(columns.columns, vector.expected["body"]) for vector in vectors]
        rows = decode_rows(table, [vector.data for vector in vectors])
        assert [vector.id for vector, row, want in zip(vectors, rows, wanted, strict=True) if not same(row, want)] == []


@pytest.mark.parametrize("name", PLAIN)
def test_all_messages_of_a_schema_decode_in_one_batch_into_structs(name: str) -> None:
    columns = MessageColumns(schema_of(name), SbeSettings(messages=("*",)))
    structs = {column.name: column for column in columns.columns[1:]}
    vectors = [vector for vector in read_set(name) if vector.expected["status"] == "ok"]
    rows = decode_rows(columns.table(), [vector.data for vector in vectors])
    for vector, row in zip(vectors, rows, strict=True):
        message = vector.expected["message"]
        assert row.pop("message") == message
        struct = row.pop(message)
        assert same(struct, as_row(structs[message].children, vector.expected["body"])), vector
        assert not any(row.values())


@pytest.mark.parametrize("name", PLAIN)
def test_a_message_that_the_reference_refuses_is_malformed_or_another(name: str) -> None:
    """Unknown templates and schemas are other messages; each cut or length that leads out of a message is malformed."""
    schema = schema_of(name)
    table = MessageColumns(schema, SbeSettings(messages=("*",), others="skip")).table()
    for vector in read_set(name):
        if vector.expected["status"] == "error":
            if vector.case in ("unknown template", "another schema"):
                assert decode_rows(table, [vector.data]) == []
            else:
                with pytest.raises(DataFormatError, match="is malformed at byte"):
                    decode_rows(table, [vector.data])


# What the README of the vectors says of the cases for which the reference has no rule.
def _is_malformed(vector: Vector) -> bool:
    case = vector.case
    if case.startswith(("not UTF-8", "symbol (US-ASCII)", "written with")):
        return False
    # A block can be shorter than the schema's and have all fields: then its padding is shorter, or it has no fields.
    return case.startswith(("block", "2 entries of 0 bytes"))


@pytest.mark.parametrize("name", PLAIN)
def test_cases_without_a_rule_of_the_reference_follow_the_policy(name: str) -> None:
    table = MessageColumns(schema_of(name), SbeSettings(messages=("*",))).table()
    for vector in read_set(name):
        if vector.expected["status"] != "policy" or vector.case.startswith("version 0 said"):
            continue
        if _is_malformed(vector) and not _has_padding(name, vector):
            with pytest.raises(DataFormatError, match="the block has"):
                decode_rows(table, [vector.data])
        else:
            assert len(decode_rows(table, [vector.data])) == 1


def _has_padding(name: str, vector: Vector) -> bool:
    """Whether all fields of the message end within its block, although it is shorter than the schema's."""
    if not vector.case.startswith("block"):
        return False
    schema = schema_of(name)
    order: Literal["big", "little"] = "big" if schema.big_endian else "little"
    length, template = (int.from_bytes(vector.data[at : at + 2], order) for at in (0, 2))
    required = next(one for one in schema.messages if one.id == template).block.required_lengths()
    return not required or required[-1][1] <= length


def test_a_later_member_of_a_composite_is_null_in_an_older_message() -> None:
    table = MessageColumns(schema_of("composite-since"), SbeSettings()).table()
    older = [vector for vector in read_set("composite-since") if vector.expected["status"] == "policy"]
    assert len(older) == 9
    for row in decode_rows(table, [vector.data for vector in older]):
        assert row["origin"]["session"] is not None
        assert row["origin"]["indicator"] is None


@pytest.mark.parametrize("vector", read_set("frames") if set_names() else [], ids=lambda vector: vector.id)
def test_messages_in_frames_are_found(vector: Vector) -> None:
    framing = FRAMINGS[FRAMING_NAMES[vector.expected["framing"]]]
    settings = SbeSettings(messages=("*",), framing=framing, metadata=True)
    columns = MessageColumns(schema_of("frames"), settings)
    structs = {column.name: column for column in columns.columns}
    rows = decode_rows(columns.table(), [vector.data])
    assert [row["message"] for row in rows] == [one["message"] for one in vector.expected["messages"]]
    for index, (row, wanted) in enumerate(zip(rows, vector.expected["messages"], strict=True)):
        struct = row[wanted["message"]]
        assert same(struct, as_row(structs[wanted["message"]].children, wanted["body"]))
        assert row["_aeron_templateId"] == wanted["header"]["templateId"]
        assert row["_aeron_version"] == wanted["header"]["version"]
        if framing is Framing.CLUSTER:
            session = wanted["session"]
            assert row["_aeron_leadershipTermId"] == session["leadershipTermId"]
            assert row["_aeron_clusterSessionId"] == session["clusterSessionId"]
            assert row["_aeron_clusterTimestamp"] == session["timestamp"]
        elif not framing.is_single:
            assert row["_aeron_row"] == index


def test_the_log_of_a_cluster_has_its_own_events_and_the_messages_of_its_clients() -> None:
    vectors = read_set("cluster-log")
    events = MessageColumns(schema_of("cluster-log"), SbeSettings(messages=("*",)))
    structs = {column.name: column for column in events.columns}
    messages = [vector.data for vector in vectors]
    for vector, row in zip(vectors, decode_rows(events.table(), messages), strict=True):
        name = vector.expected["message"]
        assert same(row[name], as_row(structs[name].children, vector.expected["body"]))
    cars = MessageColumns(schema_of("car"), SbeSettings(framing=Framing.CLUSTER))
    payloads = [vector.expected["payload"] for vector in vectors if "payload" in vector.expected]
    wanted = [payload for payload in payloads if "message" in payload]  # without a service's own message
    rows = decode_rows(cars.table(), messages)
    assert len(rows) == len(wanted) == 16
    for row, payload in zip(rows, wanted, strict=True):
        assert same(row, as_row(cars.columns, payload["body"]))


@pytest.mark.parametrize("framing", ["aligned-8", "back-to-back", "sofh-le", "length-u32-le-exclusive"])
def test_messages_in_frames_are_found_in_each_value_of_a_batch(framing: str) -> None:
    """Messages are aligned from the start of their Aeron message, not of the batch."""
    vectors = [vector for vector in read_set("frames") if vector.expected["framing"] == framing]
    settings = SbeSettings(messages=("*",), framing=FRAMINGS[FRAMING_NAMES[framing]], mode=OnMalformed.DROPMALFORMED)
    table = MessageColumns(schema_of("frames"), settings).table()
    values = [value for vector in vectors for value in (b"odd", vector.data)]
    wanted = [one["message"] for vector in vectors for one in vector.expected["messages"]]
    assert [row["message"] for row in decode_rows(table, values)] == wanted
