"""Writes what ``receive`` received: text, JSON lines, CSV, Parquet and Arrow."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.wire.arrow import conform

VALUE: Final = "value"
LAST_SECOND: Final = 971_890_963_199  # of the year 32767, since 1970
_UNITS_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Output(Protocol):
    """Writes batches of one payload."""

    def write(self, payload: str, batch: pa.RecordBatch) -> None: ...

    def close(self, schema: pa.Schema) -> None:
        """Finish the output. ``schema`` is that of a Parquet or Arrow file to which no batch was written."""


class TextOutput:
    """Writes each message as a line with its bytes unchanged, and each row as a line of JSON."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._json = JsonOutput(file)

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        if payload == "arrow":
            self._json.write(payload, batch)
            return
        self._file.write(b"".join(value + b"\n" for value in cast("list[bytes]", batch.column(VALUE).to_pylist())))
        self._file.flush()

    def close(self, schema: pa.Schema) -> None:
        self._file.flush()


class JsonOutput:
    """Writes one JSON object per line.

    A message is ``value`` if its bytes are UTF-8 text, else ``valueBase64``. Other columns of bytes are base64.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        lines = []
        try:
            rows = _with_times_as_text(batch).to_pylist()
        except LookupError as error:  # of a nested time: Arrow takes any name, and Python does not
            raise DataFormatError(
                f"JSON cannot represent these rows: unknown time zone {error}", remedy="Write Parquet or Arrow."
            ) from error
        for row in rows:
            lines.append(json.dumps(_message_fields(row) if payload != "arrow" else _to_json(row), ensure_ascii=False))
        self._file.write("".join(f"{line}\n" for line in lines).encode())
        self._file.flush()

    def close(self, schema: pa.Schema) -> None:
        self._file.flush()


class CsvOutput:
    """Writes CSV with a line of column names. All batches are converted to the schema of the first one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._schema: pa.Schema | None = None

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        is_first = self._schema is None
        self._schema = self._schema or batch.schema
        lines = io.BytesIO()
        options = pyarrow.csv.WriteOptions(include_header=is_first)
        try:
            pyarrow.csv.write_csv(_with_plain_values(conform(batch, self._schema)), lines, options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataFormatError(
                f"CSV cannot represent these columns: {error}", remedy="Write JSON lines, Parquet or Arrow."
            ) from error
        self._file.write(lines.getvalue())
        self._file.flush()

    def close(self, schema: pa.Schema) -> None:
        self._file.flush()


class FileOutput:
    """Writes a Parquet or Arrow file. All batches are converted to the schema of the first one."""

    def __init__(self, path: Path, form: str) -> None:
        self._path = path
        self._form = form
        self._writer: Any = None
        self._schema: pa.Schema | None = None

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        if self._schema is None:
            self._open(batch.schema)
        assert self._schema is not None
        self._writer.write_batch(conform(batch, self._schema))

    def close(self, schema: pa.Schema) -> None:
        if self._schema is None:
            self._open(schema)
        self._writer.close()

    def _open(self, schema: pa.Schema) -> None:
        self._schema = schema
        open_writer = pyarrow.parquet.ParquetWriter if self._form == "parquet" else pyarrow.ipc.new_file
        self._writer = open_writer(str(self._path), schema)


@contextmanager
def open_output(name: str | None, form: str) -> Iterator[Output]:
    """Yield an output to the file ``name``, or to standard output for None.

    The file is written under a temporary name and renamed when it is complete. Raises OptionError if it cannot be
    created.
    """
    if name is None:
        yield _stream_output(sys.stdout.buffer, form)
        return
    path = Path(name)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            file = draft.open("xb")
        except OSError as error:
            raise OptionError(
                f"{name} cannot be written ({error.strerror})", remedy="Choose a folder that this user can write to."
            ) from error
        with file:
            yield FileOutput(draft, form) if form in ("parquet", "arrow") else _stream_output(file, form)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _stream_output(file: BinaryIO, form: str) -> Output:
    if form == "csv":
        return CsvOutput(file)
    return JsonOutput(file) if form == "json" else TextOutput(file)


def _with_times_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with times as text: they may have nanoseconds, which Python's datetime does not have."""
    for index, field in enumerate(batch.schema):
        if pa.types.is_temporal(field.type) and not pa.types.is_interval(field.type):
            batch = batch.set_column(index, field.name, _as_text(batch.column(index)))
        elif pa.types.is_nested(field.type):
            batch = batch.set_column(index, field.name, _with_late_years(batch.column(index)))
    return batch


def _with_plain_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with texts in place of what Arrow's CSV has wrong: late years, and 0E-8 for a decimal zero."""
    for index, field in enumerate(batch.schema):
        column = batch.column(index)
        if pa.types.is_decimal(field.type):
            texts = [None if one is None else f"{one:f}" for one in column.to_pylist()]
            column = pa.array(texts, pa.string())
        else:
            column = _with_late_years(column)
        batch = batch.set_column(index, field.name, column)
    return batch


def _with_late_years(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the column, also a nested one, with texts for timestamps if it has some in late years."""
    kind: Any = column.type
    if pa.types.is_timestamp(kind):
        return _timestamps_as_text(column) if _has_late_years(column) else column
    parts: Any = column
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = [_with_late_years(one) for one in parts.flatten()]
        names = [kind.field(index).name for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, names, mask=column.is_null())
    if pa.types.is_list(kind):
        lengths = pc.list_value_length(column).fill_null(0)
        ends = np.concatenate(([0], np.cumsum(lengths.to_numpy(zero_copy_only=False))))
        offsets = pa.array(ends, pa.int32(), mask=np.append(column.is_null().to_numpy(zero_copy_only=False), False))
        return pa.ListArray.from_arrays(offsets, _with_late_years(parts.flatten()))
    return column


def _has_late_years(column: pa.Array[Any]) -> bool:
    """Whether a timestamp is in a year that Arrow writes as another one, because it has 16 bits for years."""
    numbers: Any = pc.min_max(column.cast(pa.int64())).as_py()
    limit = LAST_SECOND * _UNITS_PER_SECOND[column.type.unit]
    return any(number is not None and abs(number) > limit for number in numbers.values())


def _timestamps_as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return timestamps as Arrow writes them, "2026-11-23 18:30:00Z", in any year."""
    zone = "" if column.type.tz is None else "Z"
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    texts = np.datetime_as_string(numbers.astype(f"datetime64[{column.type.unit}]"), unit=column.type.unit)
    values = [text.replace("T", " ") + zone for text in texts.tolist()]
    return pa.array(values, pa.string(), mask=column.is_null().to_numpy(zero_copy_only=False))


def _as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.string())
    if column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    text: Any = _timestamps_as_text(column) if _has_late_years(column) else column.cast(pa.string())
    iso_text: pa.Array[Any] = pc.replace_substring(text, " ", "T", max_replacements=1)
    return iso_text


def _message_fields(row: dict[str, Any]) -> dict[str, Any]:
    value = row.pop(VALUE)
    try:
        return {VALUE: value.decode(), **_to_json(row)}
    except UnicodeDecodeError:
        return {"valueBase64": base64.b64encode(value).decode(), **_to_json(row)}


def _to_json(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _to_json(item) for name, item in value.items()}
        case list() | tuple():
            return [_to_json(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case float():
            # JSON has no such numbers; Spark writes and reads these texts.
            return value if math.isfinite(value) else _NOT_FINITE[str(value)]
        case datetime() if value.tzinfo is not None:
            return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat() + "Z"
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return f"{value:f}"  # str() makes 0E-8 of a zero with 8 digits
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)
