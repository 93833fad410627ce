"""Where ``receive`` writes to: text, JSON lines, CSV, Parquet, Arrow."""

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

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.wire.arrow import conform

VALUE: Final = "value"


class Output(Protocol):
    """Takes batches of one payload; a file is there, whole, once it is closed."""

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        """Write a batch."""

    def close(self, schema: pa.Schema) -> None:
        """Finish; ``schema`` is for a file to which nothing was written."""


class TextOutput:
    """A message a line, its bytes untouched; rows as JSON, because they have no text of their own."""

    def __init__(self, to: BinaryIO) -> None:
        self._to = to
        self._json = JsonOutput(to)

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        if payload == "arrow":
            self._json.write(payload, batch)
            return
        self._to.write(b"".join(value + b"\n" for value in cast("list[bytes]", batch.column(VALUE).to_pylist())))
        self._to.flush()

    def close(self, schema: pa.Schema) -> None:
        self._to.flush()


class JsonOutput:
    """A JSON object a line. Messages are text where they are UTF-8, else ``valueBase64``; bytes elsewhere base64."""

    def __init__(self, to: BinaryIO) -> None:
        self._to = to

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        lines = []
        for row in _readable(batch).to_pylist():
            lines.append(json.dumps(_message(row) if payload != "arrow" else _plain(row), ensure_ascii=False))
        self._to.write("".join(f"{line}\n" for line in lines).encode())
        self._to.flush()

    def close(self, schema: pa.Schema) -> None:
        self._to.flush()


class CsvOutput:
    """CSV, a line of column names first; batches take the schema of the first one."""

    def __init__(self, to: BinaryIO) -> None:
        self._to = to
        self._schema: pa.Schema | None = None

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        first = self._schema is None
        self._schema = self._schema or batch.schema
        lines = io.BytesIO()
        try:
            pyarrow.csv.write_csv(
                conform(batch, self._schema), lines, pyarrow.csv.WriteOptions(include_header=first)
            )  # fmt: skip
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataFormatError(
                f"CSV cannot hold these columns: {error}", remedy="Write JSON lines, Parquet or Arrow."
            ) from error
        self._to.write(lines.getvalue())
        self._to.flush()

    def close(self, schema: pa.Schema) -> None:
        self._to.flush()


class FileOutput:
    """A Parquet or Arrow file; batches take the schema of the first one."""

    def __init__(self, path: Path, form: str) -> None:
        self._path = path
        self._form = form
        self._writer: Any = None
        self._schema: pa.Schema | None = None

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        if self._schema is None:
            self._begin(batch.schema)
        assert self._schema is not None
        self._writer.write_batch(conform(batch, self._schema))

    def close(self, schema: pa.Schema) -> None:
        if self._schema is None:
            self._begin(schema)
        self._writer.close()

    def _begin(self, schema: pa.Schema) -> None:
        self._schema = schema
        make = pyarrow.parquet.ParquetWriter if self._form == "parquet" else pyarrow.ipc.new_file
        self._writer = make(str(self._path), schema)


@contextmanager
def opened(name: str | None, form: str) -> Iterator[Output]:
    """Open ``name``, or standard output; a file appears under its name once it is whole."""
    if name is None:
        yield _stream(sys.stdout.buffer, form)
        return
    path = Path(name)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            to = draft.open("xb")
        except OSError as error:
            raise OptionError(f"{name} cannot be written ({error.strerror})", remedy="Name another file.") from error
        with to:
            yield FileOutput(draft, form) if form in ("parquet", "arrow") else _stream(to, form)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _stream(to: BinaryIO, form: str) -> Output:
    if form == "csv":
        return CsvOutput(to)
    return JsonOutput(to) if form == "json" else TextOutput(to)


def _readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times have nanoseconds that Python's own do not: they become text."""
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
    spaced: Any = column.cast(pa.string())
    text: pa.Array[Any] = pc.replace_substring(spaced, " ", "T", max_replacements=1)
    return text


def _message(row: dict[str, Any]) -> dict[str, Any]:
    value = row.pop(VALUE)
    try:
        return {VALUE: value.decode(), **_plain(row)}
    except UnicodeDecodeError:
        return {"valueBase64": base64.b64encode(value).decode(), **_plain(row)}


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
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
