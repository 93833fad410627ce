"""Rows become SBE messages that the independent decoder of the tests reads as these rows; other values are refused."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import settings_of
from aeron_spark.sbe.table import MessageColumns
from tests.sbe_encoding import encode_rows, is_writable, known_choices
from tests.sbe_random import VERSION, RandomSchema
from tests.sbe_reference import Reference
from tests.sbe_vectors import FOLDER, MISSING, as_row, columns_of, read_set, schema_of, set_names

FRAMED: Final = {"frames", "cluster-log"}


def normal(value: Any) -> Any:
    """Return a body in which NaN equals itself, and sets have no unknown bits."""
    match value:
        case {"bits": _, "choices": choices}:
            return choices
        case dict():
            return {name: normal(one) for name, one in value.items()}
        case list():
            return [normal(one) for one in value]
        case float():
            return repr(value)
    return value


@pytest.mark.skipif(not set_names(), reason=MISSING)
@pytest.mark.parametrize("name", sorted(set(set_names()) - FRAMED))
def test_the_rows_of_public_messages_become_messages_with_the_same_values(name: str) -> None:
    schema, reference = schema_of(name), Reference(FOLDER / name / "schema.xml")
    bodies: dict[str, list[Any]] = {}
    for vector in read_set(name):
        if vector.expected["status"] == "ok":
            found = reference.decode(vector.data)
            if vector.expected["header"]["version"] == schema.version and is_writable(found["body"]):
                bodies.setdefault(found["message"], []).append(found["body"])
    written = 0
    for message, of_message in bodies.items():
        columns = columns_of(schema, message, settings_of(None, {"times": "none"}))
        if columns.columns:
            rows = [as_row(columns.columns, body) for body in of_message]
            messages = encode_rows(columns, rows)
            assert [normal(reference.decode(one)["body"]) for one in messages] == [normal(one) for one in of_message]
            written += len(messages)
    assert written, "the set has no message that can be written"


def test_the_rows_of_random_messages_become_messages_with_the_same_values() -> None:
    written = 0
    for number in range(18):
        schema = RandomSchema(random.Random(number))
        reference = Reference(schema.text)
        columns = MessageColumns(load_schema(schema.text), settings_of(None, {"times": "none"}))
        messages = [schema.message() for _ in range(24)]
        whole = [one for one in messages if reference.integers(reference.header, one, 0)["version"] == VERSION]
        bodies = [body for body in (reference.decode(one)["body"] for one in whole) if is_writable(body)]
        if columns.columns and bodies:
            rows = [known_choices(as_row(columns.columns, body)) for body in bodies]
            messages = encode_rows(columns, rows)
            assert [normal(reference.decode(one)["body"]) for one in messages] == [normal(one) for one in bodies], (
                number
            )
            written += len(messages)
    assert written > 20
