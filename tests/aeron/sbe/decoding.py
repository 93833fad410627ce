"""Decodes messages with the Java helper for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from aeron_spark.aeron.sbe_decoder import SbeDecoder
from aeron_spark.sbe.table import DecodeTable


def decode_rows(table: DecodeTable, messages: Sequence[bytes | None]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for found in SbeDecoder(table).decode(pa.array(messages, pa.binary()), lambda index: f"message {index}"):
        for array in found.columns:
            array.validate(full=True)
            assert len(array) == found.rows
        columns = [array.to_pylist() for array in found.columns]
        rows += [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
        rows += [{}] * (found.rows if not columns else 0)
    return rows
