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
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.wire.arrow import conform

VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class ReceivedRows:
    """The number of rows that ``receive`` wrote, and whether a signal ended it."""

    rows: int
    interrupted: bool


class Output(Protocol):
    """Writes batches of one payload."""

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        """Write a batch."""

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
        for row in _with_times_as_text(batch).to_pylist():
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
            pyarrow.csv.write_csv(conform(batch, self._schema), lines, options)
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
    return batch


def _as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.string())
    if column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    text: Any = column.cast(pa.string())  # "2026-11-23 18:30:00Z"
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
            return value if math.isfinite(value) else None  # JSON has no infinity
        case datetime() if value.tzinfo is not None:
            return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat() + "Z"
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)
