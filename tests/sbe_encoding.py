"""Encodes rows as SBE messages for tests, and says which rows can be written."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa

from aeron_spark.sbe.encoding import SbeEncoder, encode_plan, row_of
from aeron_spark.sbe.table import MessageColumns


def encode_rows(columns: MessageColumns, rows: list[dict[str, Any]]) -> list[bytes]:
    """Return the messages of rows, by a plan that went to another process."""
    schema = columns.arrow_schema
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    encoder = SbeEncoder(pickle.loads(pickle.dumps(encode_plan(columns, schema))), row_of("a test"))
    arrays = list(encoder.encode(batch))
    for array in arrays:
        array.validate(full=True)
    assert encoder.rows == len(rows)
    return [message for array in arrays for message in array.to_pylist()]


def is_writable(body: Any) -> bool:
    """Whether the body has no unknown enum value, and no text that was not one."""
    match body:
        case {"unknown": _}:
            return False
        case dict():
            return all(map(is_writable, body.values()))
        case list():
            return all(map(is_writable, body))
    return not (isinstance(body, str) and "\ufffd" in body)


def known_choices(value: Any) -> Any:
    """Return a row without the numbers of unknown bits, which cannot be written as names."""
    match value:
        case dict():
            return {name: known_choices(one) for name, one in value.items()}
        case list():
            return [known_choices(one) for one in value if not (isinstance(one, str) and one.isdecimal())]
    return value
