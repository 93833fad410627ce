"""The metadata columns that a reader adds to each row: its position in the log, and its writer."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from aeron_spark.wire.values import repeated

METADATA_PREFIX: Final = "_aeron_"
MICROSECONDS: Final = pa.timestamp("us", "UTC")

VALUE: Final = pa.schema({"value": pa.binary()})

_POSITION: list[pa.Field[Any]] = [
    pa.field("channel", pa.string()),
    pa.field("streamId", pa.int32()),
    pa.field("sessionId", pa.int32()),
    pa.field("recordingId", pa.int64()),
    pa.field("position", pa.int64()),
    pa.field("reservedValue", pa.int64()),
    pa.field("timestamp", MICROSECONDS),
]
_WRITER: list[pa.Field[Any]] = [
    pa.field("writer", pa.string()),
    pa.field("batch", pa.int64()),
    pa.field("partition", pa.int32()),
    pa.field("row", pa.int64()),
]

POSITION: Final = pa.schema(_POSITION)
WRITER: Final = pa.schema(_WRITER)
RAW: Final = pa.schema([*VALUE, *POSITION])


def metadata() -> list[pa.Field[Any]]:
    """Return the metadata columns of ``framed`` and ``arrow``."""
    return [field.with_name(METADATA_PREFIX + field.name) for field in (*POSITION, *WRITER)]


_TYPES: Final = {field.name: field.type for field in (*POSITION, *WRITER)}


class ConstantColumns:
    """Metadata columns with one value for all rows of a batch. An array of a value is made once, and sliced then."""

    def __init__(self) -> None:
        self._arrays: dict[str, tuple[int | str, pa.Array[Any]]] = {}

    def column(self, name: str, value: int | str, rows: int) -> pa.Array[Any]:
        """Return the column ``name`` with ``rows`` rows; a timestamp's ``value`` is in µs since 1970."""
        last, array = self._arrays.get(name, (None, None))
        if array is None or last != value:
            array = repeated(value, _TYPES[name], rows)
        elif len(array) < rows:
            array = repeated(value, _TYPES[name], max(rows, 2 * len(array)))
        self._arrays[name] = value, array
        return array.slice(0, rows)


def are_values(schema: pa.Schema) -> bool:
    """Whether rows are messages: ``value`` of bytes or text, perhaps ``reservedValue``, and no other column."""
    if "value" not in schema.names or not {*schema.names} <= {"value", "reservedValue"}:
        return False
    value_type = schema.field("value").type
    return any(matches(value_type) for matches in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string))
