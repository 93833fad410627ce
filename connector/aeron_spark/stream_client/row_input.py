"""Takes what a program writes, in any of its forms, and gives a transaction the batches to stage. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.rows.columns import (
    DataFrame,
    StructuredArray,
    batch_of_columns,
    columns_of_data_frame,
    columns_of_structured_array,
    is_data_frame,
    is_structured_array,
)
from aeron_spark.rows.gathering import GatheredRows, Row, RowMark, Text, rows_of_json

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


Rows = Data | Row | Iterable[Row] | DataFrame | StructuredArray  # the forms of a transaction's rows
Stage = Callable[[Sequence[WriteBatch]], None]  # adds batches to the transaction, all or none


class RowInput:
    """The input of one writer. Dicts wait here until they fill a batch; everything else is staged at once.

    ``schema`` is that of the stream, or of the program; None until the first rows tell it. For the payloads raw and
    framed, rows have the columns ``value`` and ``reservedValue``.
    """

    def __init__(self, payload: str, schema: pa.Schema | None) -> None:
        """Raises OptionError if ``schema`` is not a PyArrow schema."""
        if not isinstance(schema, pa.Schema | None):
            raise OptionError(f"schema is a {type(schema).__name__}", remedy="Give a pyarrow.Schema: pa.schema(...).")
        self._payload = payload
        self._schema = VALUE_SCHEMA if payload in ("raw", "framed") else schema
        self._rows = GatheredRows(self._schema)
        self._partition: int | None = None  # of the gathered rows

    def __len__(self) -> int:
        """The number of rows that wait."""
        return len(self._rows)

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows, None while it is not known."""
        return self._rows.schema

    @property
    def arrow_schema(self) -> pa.Schema | None:
        """The schema of Arrow rows, None while it is not known, and for values."""
        return None if self.schema is VALUE_SCHEMA else self.schema

    def write(self, data: Rows, partition: int | None, stage: Stage) -> None:
        """Add rows, all or none; ``stage`` takes complete batches. Raises DataFormatError, and the errors of stage."""
        if isinstance(data, Mapping):
            self._refuse_columns(data)
            self._gather([data], partition, stage)
        elif is_data_frame(data):
            self.write_columns(columns_of_data_frame(data), partition, stage)
        elif is_structured_array(data):
            self.write_columns(columns_of_structured_array(data), partition, stage)
        elif (rows := _as_rows(data)) is not None:
            self._gather(rows, partition, stage)
        else:
            self._stage(list(write_batches_of(data, self._payload, partition)), stage)  # type: ignore[arg-type]

    def write_columns(self, columns: Mapping[str, Any], partition: int | None, stage: Stage) -> None:
        """Add the rows of columns, all or none; see :meth:`write`."""
        mark = self._rows.mark()
        try:
            self._rows.complete()  # these rows tell the schema, if nothing did before
            batch = batch_of_columns(columns, self.schema)
        finally:
            self._rows.restore(mark)
        self._stage(list(write_batches_of(batch, self._payload, partition)), stage)

    def write_json(self, text: Text | Iterable[Text], partition: int | None, stage: Stage) -> None:
        """Add the rows of a JSON text, or of lines, all or none; see :meth:`write`."""
        self._gather(rows_of_json(text, self.schema), partition, stage)

    def flush(self, stage: Stage) -> None:
        """Stage the rows that wait. Raises DataFormatError if they do not tell the schema; then they still wait."""
        self._stage([], stage)

    def commit(self) -> None:
        """Keep the schema of the transaction's rows for the next ones."""
        self._schema = self.schema

    def abort(self) -> None:
        """Drop the rows that wait, and the schema if only this transaction has given it."""
        self._rows.clear()
        self._rows.schema = self._schema

    def _refuse_columns(self, row: Row) -> None:
        """Raise DataFormatError for a dict that looks like columns, before it tells the stream a schema of lists."""
        if self.schema is None and row and all(isinstance(one, list | tuple) or _is_array(one) for one in row.values()):
            raise DataFormatError(
                "all values of the dict are lists: it can be a row of lists, or a dict of columns",
                remedy="Write columns with write_columns(). For rows of lists, give the columns with schema=, a "
                "pyarrow.Schema.",
            )

    def _gather(self, rows: Iterable[Row], partition: int | None, stage: Stage) -> None:
        if len(self._rows) and partition != self._partition:
            self.flush(stage)
        mark = self._rows.mark()
        self._rows.add(rows)
        self._partition = partition
        self._stage_complete(mark, [], stage)

    def _stage(self, batches: list[WriteBatch], stage: Stage) -> None:
        """Stage the rows that wait, and then ``batches``."""
        mark = self._rows.mark()
        try:
            self._rows.complete()
        except BaseException:
            self._rows.restore(mark)
            raise
        if self.schema is None and batches and batches[0].payload == "arrow":
            self._rows.schema = batches[0].rows.schema
        self._stage_complete(mark, batches, stage)

    def _stage_complete(self, mark: RowMark, batches: list[WriteBatch], stage: Stage) -> None:
        try:
            gathered = [
                one
                for rows in self._rows.take_batches()
                for one in write_batches_of(rows, self._payload, self._partition)
            ]
            if gathered or batches:
                stage([*gathered, *batches])
        except BaseException:
            self._rows.restore(mark)
            raise


def _as_rows(data: Any) -> Iterable[Row] | None:
    """Return ``data`` if it is an iterable of dicts; None for anything else. A list is one by its first element."""
    if isinstance(data, list | tuple):
        return data if data and isinstance(data[0], Mapping) else None
    is_other = isinstance(data, str | bytes | bytearray | memoryview) or _is_array(data)
    return data if isinstance(data, Iterable) and not is_other else None


def _is_array(data: object) -> bool:
    """Whether it is an array or a table of a library: its elements are not rows."""
    return type(data).__module__.partition(".")[0] in ("numpy", "pandas", "pyarrow")
