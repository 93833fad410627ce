"""The metadata columns that a reader adds to each row: its position in the log, and its writer."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

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
