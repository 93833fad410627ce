"""Rows that become SBE messages come back from the Java decoder as the same rows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import settings_of
from aeron_spark.sbe.table import MessageColumns
from tests.aeron.sbe.decoding import decode_rows
from tests.sbe_encoding import encode_rows, is_writable, known_choices
from tests.sbe_orders import SCHEMA, order_rows
from tests.sbe_random import VERSION, RandomSchema
from tests.sbe_reference import Reference
from tests.sbe_vectors import MISSING, OTHER_SCHEMAS, as_row, columns_of, read_set, same, schema_of, set_names


def assert_come_back(columns: MessageColumns, rows: list[dict[str, Any]]) -> None:
    """Encode the rows, decode their messages, and compare."""
    found = decode_rows(columns.table(), encode_rows(columns, rows))
    assert len(found) == len(rows)
    for row, wanted in zip(found, rows, strict=True):
        assert same(row, wanted), (row, wanted)


def test_rows_with_a_group_data_and_a_decimal_come_back() -> None:
    assert_come_back(MessageColumns(load_schema(SCHEMA), settings_of("Order", {})), order_rows(100))


@pytest.mark.parametrize("options", [{}, {"times": "none", "enums": "values", "sets": "bits"}, {"sets": "flags"}])
@pytest.mark.skipif(not set_names(), reason=MISSING)
@pytest.mark.parametrize("name", sorted(set(set_names()) - OTHER_SCHEMAS.keys()))
def test_the_rows_of_public_messages_come_back(name: str, options: dict[str, str]) -> None:
    """The rows are those that the decoder itself makes of the public messages, which test_vectors.py compares."""
    schema = schema_of(name)
    by_message: dict[str, list[bytes]] = {}
    for vector in read_set(name):
        expected = vector.expected
        is_whole = expected["status"] == "ok" and expected["header"]["version"] == schema.version
        if is_whole and is_writable(expected["body"]):
            by_message.setdefault(expected["message"], []).append(vector.data)
    written = 0
    for message, messages in by_message.items():
        columns = columns_of(schema, message, settings_of(None, options))
        if columns.columns:
            rows = [known_choices(row) for row in decode_rows(columns.table(), messages)]
            assert_come_back(columns, rows)
            written += len(rows)
    assert written, "the set has no message that can be written"


def test_the_rows_of_random_messages_come_back() -> None:
    written = 0
    for number in range(100, 112):
        schema = RandomSchema(random.Random(number))
        reference = Reference(schema.text)
        columns = MessageColumns(load_schema(schema.text), settings_of(None, {"times": "none"}))
        messages = [schema.message() for _ in range(16)]
        whole = [one for one in messages if reference.integers(reference.header, one, 0)["version"] == VERSION]
        bodies = [body for body in (reference.decode(one)["body"] for one in whole) if is_writable(body)]
        if columns.columns and bodies:
            assert_come_back(columns, [known_choices(as_row(columns.columns, body)) for body in bodies])
            written += len(bodies)
    assert written > 20
