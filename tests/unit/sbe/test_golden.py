"""The rows of ``tests/golden/sbe/book.txt`` become its messages, which the reference's decoder reads in the Java tests.

A line has a message in little-endian order, the same in big-endian order, and the JSON that sbe-tool prints of both.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import SbeSettings
from aeron_spark.sbe.table import MessageColumns
from tests.sbe_encoding import encode_rows

FOLDER: Final = Path(__file__).parents[2] / "golden" / "sbe"
NULL_QUANTITY: Final = -(2**31)  # sbe-tool prints null values as they are


def row_of(value: Any) -> Any:
    """Return the row, or a value of it, that sbe-tool prints as ``value``."""
    match value:
        case {"mantissa": mantissa, "exponent": exponent}:
            return Decimal(mantissa).scaleb(exponent)
        case {"dark": bool()}:
            return [name for name, is_set in value.items() if is_set]
        case dict():
            row = {name: row_of(one) for name, one in value.items()}
            return row if row.get("traded") != NULL_QUANTITY else {**row, "traded": None}
        case list():
            return [row_of(one) for one in value]
    return value


@pytest.mark.parametrize(("order", "column"), [("littleEndian", 0), ("bigEndian", 1)])
def test_rows_become_the_messages_that_the_reference_reads(order: str, column: int) -> None:
    lines = [line.split("\t") for line in (FOLDER / "book.txt").read_text("utf-8").splitlines()]
    schema = load_schema((FOLDER / "book.xml").read_text("utf-8").replace("littleEndian", order))
    rows = [row_of(json.loads(line[2])) for line in lines]
    messages = encode_rows(MessageColumns(schema, SbeSettings()), rows)
    assert [message.hex() for message in messages] == [line[column] for line in lines]
    assert len(messages) == 3
