"""Takes what a program writes, in any of its forms, and gives a transaction the batches to stage. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

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
from aeron_spark.rows.gathering import GatheredRows, Row, RowMark
from aeron_spark.rows.json_rows import Text, rows_of_json
from aeron_spark.stream_client.write_batches import VALUE_SCHEMA, Data, WriteBatch, write_batches_of

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
