"""What a program writes, as what is staged: Arrow rows, or values that are messages. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.errors import DataFormatError, OptionError

PAYLOADS: Final = ("auto", "arrow", "raw", "framed")
BYTES: Final = "bytes"  # of a piece: raw where the stream holds that, else framed

Data = pa.RecordBatch | pa.Table | bytes | bytearray | memoryview | Sequence[bytes]


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Rows for one partition (None: the transaction's own). ``payload`` is arrow, raw, framed, or ``BYTES``.

    All but arrow have a column ``value``, binary without nulls, and perhaps ``reservedValue``, int64 without nulls.
    """

    payload: str
    rows: pa.RecordBatch
    partition: int | None = None

    @property
    def values(self) -> pa.Array[Any]:
        """The values to be sent as messages."""
        return self.rows.column("value")

    @property
    def reserved(self) -> pa.Array[Any] | None:
        """Their reserved values, where there are any."""
        return self.rows.column("reservedValue") if "reservedValue" in self.rows.schema.names else None


def check_payload(payload: str) -> str:
    """Return a payload that a writer knows. Raises OptionError."""
    if payload not in PAYLOADS:
        raise OptionError(f"{payload!r} is no payload", remedy=f"Choose one of {', '.join(PAYLOADS)}.")
    return payload


def write_batches_of(data: Data, payload: str, partition: int | None = None) -> Iterator[WriteBatch]:
    """Yield what ``data`` is to a writer of this payload. Raises DataFormatError for what does not go with it.

    Batches and tables are Arrow rows, unless ``payload`` is raw or framed: then their column ``value`` is meant.
    Bytes, and lists of them, are values.
    """
    if isinstance(data, pa.RecordBatch):
        batches = [data]
    elif isinstance(data, pa.Table):
        batches = data.to_batches()
    else:
        batches = list(_of_bytes(data))
        if payload == "arrow":
            raise DataFormatError(
                "bytes are no rows, and the writer's payload is arrow", remedy="Write them with payload='auto'."
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
    given = [data] if isinstance(data, bytes | bytearray | memoryview) else data
    if not isinstance(given, list | tuple):
        raise DataFormatError(
            f"{type(data).__name__} cannot be written",
            remedy="Write a pyarrow RecordBatch or Table, bytes, or a list of bytes.",
        )
    for one in given:
        if not isinstance(one, bytes | bytearray | memoryview):
            raise DataFormatError(
                f"a list of values holds {type(one).__name__}, which is not bytes", remedy="Encode each value."
            )
    made: Any = pa.array([bytes(one) if isinstance(one, memoryview) else one for one in given], pa.binary())
    for array in made.chunks if isinstance(made, pa.ChunkedArray) else [made]:
        yield pa.record_batch({"value": array})


def _values_of(batch: pa.RecordBatch, payload: str) -> pa.RecordBatch:
    if "value" not in batch.schema.names:
        raise DataFormatError(
            f"payload {payload} needs a column 'value', and there are {', '.join(batch.schema.names) or 'none'}",
            remedy="Write all columns with payload='arrow'.",
        )
    kind = batch.schema.field("value").type
    try:
        columns: dict[str, Any] = {"value": _whole(batch.column("value").cast(pa.binary()))}
    except pa.ArrowException as error:
        raise DataFormatError(
            f"the column 'value' is {kind} and not binary", remedy="Write it with payload='arrow'."
        ) from error
    if "reservedValue" in batch.schema.names:
        numbers: Any = batch.column("reservedValue").cast(pa.int64())
        columns["reservedValue"] = pc.fill_null(numbers, 0)
    return pa.record_batch(columns)


def _whole(values: pa.Array[Any]) -> pa.Array[Any]:
    if values.null_count:
        raise DataFormatError(
            f"{values.null_count} of {len(values)} values are null, which a message cannot be",
            remedy="Leave the nulls out, or write rows with payload='arrow'.",
        )
    return values
