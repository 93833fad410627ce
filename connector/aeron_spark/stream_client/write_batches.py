"""Converts the data that a program writes to batches for staging: Arrow rows, or values. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.errors import DataFormatError, OptionError

PAYLOADS: Final = ("auto", "arrow", "raw", "framed")
BYTES: Final = "bytes"  # of a batch: raw if the stream has raw values, else framed

VALUE_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("value", pa.binary(), nullable=False),
    pa.field("reservedValue", pa.int64()),
]
VALUE_SCHEMA: Final = pa.schema(VALUE_FIELDS)

Data = pa.RecordBatch | pa.Table | bytes | bytearray | memoryview | Sequence[bytes]


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Rows for one partition (None: the transaction's). ``payload`` is arrow, raw, framed, or ``BYTES``.

    Unless it is arrow, the rows have a column ``value``, binary without nulls, and can have a column ``reservedValue``,
    int64 without nulls.
    """

    payload: str
    rows: pa.RecordBatch
    partition: int | None = None

    @property
    def values(self) -> pa.Array[Any]:
        """The column ``value``."""
        return self.rows.column("value")

    @property
    def reserved(self) -> pa.Array[Any] | None:
        """The column ``reservedValue``, None without it."""
        return self.rows.column("reservedValue") if "reservedValue" in self.rows.schema.names else None


def check_payload(payload: str) -> str:
    """Return the payload. Raises OptionError unless it is one of ``PAYLOADS``."""
    if payload not in PAYLOADS:
        raise OptionError(f"invalid payload {payload!r}", remedy=f"Choose one of {', '.join(PAYLOADS)}.")
    return payload


def write_batches_of(data: Data, payload: str, partition: int | None = None) -> Iterator[WriteBatch]:
    """Yield ``data`` as batches for a writer of this payload. Raises DataFormatError if they do not match.

    Record batches and tables are Arrow rows; if ``payload`` is raw or framed, only their column ``value`` is written.
    Bytes, and lists of bytes, are values.
    """
    if isinstance(data, pa.RecordBatch):
        batches = [data]
    elif isinstance(data, pa.Table):
        batches = data.to_batches()
    else:
        batches = list(_of_bytes(data))
        if payload == "arrow":
            raise DataFormatError(
                "bytes are not Arrow rows, and the writer's payload is arrow", remedy="Write them with payload='auto'."
            )
        payload = BYTES if payload == "auto" else payload
    for batch in batches:
        if not batch.num_rows:
            continue
        if payload in ("auto", "arrow"):
            yield WriteBatch("arrow", batch, partition)
        else:
            yield WriteBatch(payload, _values_of(batch, payload), partition)


def _of_bytes(data: object) -> Iterator[pa.RecordBatch]:
    values = [data] if isinstance(data, bytes | bytearray | memoryview) else data
    if not isinstance(values, list | tuple):
        raise DataFormatError(
            f"{type(data).__name__} cannot be written",
            remedy="Write dicts, a pandas DataFrame, a structured numpy array, a pyarrow RecordBatch or Table, bytes, "
            "or a list of bytes. write_columns() takes a dict of arrays, and write_json() JSON.",
        )
    for value in values:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise DataFormatError(
                f"a list of values has a {type(value).__name__}, which is not bytes",
                remedy="Encode each value, or write a list of dicts.",
            )
    binary: Any = pa.array([bytes(value) if isinstance(value, memoryview) else value for value in values], pa.binary())
    for array in binary.chunks if isinstance(binary, pa.ChunkedArray) else [binary]:
        yield pa.record_batch({"value": array})


def _values_of(batch: pa.RecordBatch, payload: str) -> pa.RecordBatch:
    names = batch.schema.names
    if "value" not in names:
        raise DataFormatError(
            f"payload {payload} needs a column 'value', and the batch has {', '.join(names) or 'no column'}",
            remedy="Write all columns with payload='arrow'.",
        )
    value_type = batch.schema.field("value").type
    try:
        columns: dict[str, Any] = {"value": _without_nulls(batch.column("value").cast(pa.binary()))}
    except pa.ArrowException as error:
        raise DataFormatError(
            f"the column 'value' is {value_type} and not binary", remedy="Write it with payload='arrow'."
        ) from error
    if "reservedValue" in batch.schema.names:
        numbers: Any = batch.column("reservedValue").cast(pa.int64())
        columns["reservedValue"] = pc.fill_null(numbers, 0)
    return pa.record_batch(columns)


def _without_nulls(values: pa.Array[Any]) -> pa.Array[Any]:
    if values.null_count:
        raise DataFormatError(
            f"{values.null_count} of {len(values)} values are null, and a message cannot be null",
            remedy="Remove the nulls, or write rows with payload='arrow'.",
        )
    return values
