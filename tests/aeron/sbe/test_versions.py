"""Messages of three versions are decoded with the schema of each version, as older and newer readers do."""

from __future__ import annotations

import pytest

from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import SbeSettings
from aeron_spark.sbe.table import MessageColumns
from tests.aeron.sbe.decoding import decode_rows
from tests.sbe_versions import MESSAGES, VERSION_GAP, VERSIONS, encode_message, message_of, row_of, schema_text

PER_VERSION = 200


@pytest.mark.parametrize("schema", VERSIONS)
def test_each_version_is_read_as_far_as_the_message_and_the_schema_have_it(schema: int) -> None:
    numbers = [first * VERSION_GAP + one for one in range(PER_VERSION) for first in range(len(VERSIONS))]
    assert {message_of(number) for number in numbers} == set(MESSAGES)
    columns = MessageColumns(load_schema(schema_text(schema)), SbeSettings(messages=("*",)))
    rows = decode_rows(columns.table(), [encode_message(number) for number in numbers])
    for number, row in zip(numbers, rows, strict=True):
        expected, name = row_of(number, schema), message_of(number).name
        assert row["message"] == (None if expected is None else name)
        own = {key: value for key, value in row.items() if key != "message" and value is not None}
        assert own == ({} if expected is None else {name: expected})
