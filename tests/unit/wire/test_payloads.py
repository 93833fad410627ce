"""The error for rows of another payload than the stream's names both, and a column that was meant."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.wire.arrow import other_payload


def schema(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])


@pytest.mark.parametrize(
    ("held", "given", "columns", "remedy"),
    [
        ("raw", "arrow", schema("key", "value"), "Select only the column 'value' and write with payload=raw"),
        ("raw", "arrow", schema("vlaue"), "Did you mean 'value' in place of 'vlaue'?"),
        ("framed", "arrow", schema("id"), "Write a column 'value' with payload=framed"),
        ("arrow", "raw", None, "Write with payload=arrow, or to another stream."),
        ("framed", "raw", None, "Write with payload=framed, or to another stream."),
    ],
)
def test_the_error_has_both_names_and_a_remedy(held: str, given: str, columns: pa.Schema | None, remedy: str) -> None:
    error = other_payload("stream 7 of aeron:ipc", held, given, columns)
    assert error.what.startswith(f"stream 7 of aeron:ipc has {held} rows, and the new rows are {given}")
    assert error.remedy.startswith(remedy)


def test_a_schema_that_a_peer_sent_is_shown_only_in_part() -> None:
    sent = schema(*("x" * 100_000 for _ in range(10)), *(f"c{number}" for number in range(10_000)))
    error = other_payload("the stream", "raw", "arrow", sent.serialize().to_pybytes())
    assert len(str(error)) < 1_000
