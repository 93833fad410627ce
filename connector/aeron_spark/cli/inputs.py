"""Reads the input of ``send`` in batches: lines of text, JSON lines, CSV, Parquet and Arrow files."""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet

from aeron_spark.cli.formats import STANDARD_INPUT, display_name, format_of
from aeron_spark.errors import DataFormatError

BLOCK_BYTES: Final = 1 << 20  # lines of at least this size make a batch
INPUT_IDLE_S: Final = 0.05  # without further input for this time, the lines read so far make a batch
POLL_INTERVAL_S: Final = 0.2  # interval at which a wait for input checks for a signal
_JSON_TYPES: Final[dict[str, pa.DataType]] = {
    "value": pa.string(),
    "valueBase64": pa.string(),
    "reservedValue": pa.int64(),
}
JSON_VALUE_COLUMNS: Final = pa.schema(_JSON_TYPES)


@dataclass(frozen=True, slots=True)
class Input:
    """One batch of rows, or of messages (columns ``value`` and perhaps ``reservedValue``). ``size`` is in bytes.

    ``line_of`` returns the line of a row by its index; None if the input has no lines.
    """

    rows: pa.RecordBatch
    size: int
    line_of: Callable[[int], int] | None = None


class InputReader(Protocol):
    """Reads the files of ``send``."""

    def read(self, name: str, form: str | None, stopped: Callable[[], bool]) -> Iterator[Input]:
        """Yield the batches of a file or of standard input, until its end or until ``stopped`` returns True.

        ``form`` is the chosen format, None for that of the file's suffix. Raises DataFormatError for wrong input.
        """


class PlainReader:
    """Reads the rows and messages of a payload as they are."""

    def __init__(self, payload: str) -> None:
        self._values = {"auto": None, "arrow": False}.get(payload, True)

    def read(self, name: str, form: str | None, stopped: Callable[[], bool]) -> Iterator[Input]:
        """Yield the batches of a file."""
        yield from read_input(name, format_of(name, form), self._values, stopped)


def read_input(name: str, form: str, values: bool | None, stopped: Callable[[], bool]) -> Iterator[Input]:
    """Yield the batches of a file or of standard input, until its end or until ``stopped`` returns True.

    ``values``: whether JSON lines are messages; None decides by the keys of the first line. Raises DataFormatError for
    input of another format.
    """
    if form in ("csv", "parquet", "arrow"):
        yield from _tables(name, form, stopped)
        return
    with line_blocks(name, stopped) as blocks:
        yield from _text(blocks) if form == "text" else _Json(name, values).batches(blocks)


@contextmanager
def line_blocks(name: str, stopped: Callable[[], bool]) -> Iterator[Iterator[bytes]]:
    """Open a file or standard input, and yield its blocks of whole lines."""
    file = os.dup(0) if name == STANDARD_INPUT else os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _line_blocks(file, stopped)
    finally:
        os.close(file)


def _line_blocks(file: int, stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield blocks of whole lines: of about ``BLOCK_BYTES``, or smaller ones when the input pauses."""
    parts: list[bytes] = []  # joined when a line is complete: a line of many parts is copied once
    size = complete = 0  # bytes of the parts, and of the whole lines in them
    while not stopped():
        ready, _, _ = select.select([file], [], [], INPUT_IDLE_S if complete else POLL_INTERVAL_S)
        data = os.read(file, BLOCK_BYTES) if ready else None
        if data == b"":
            if parts:
                yield b"".join(parts)
            return
        if data:
            parts.append(data)
            newline = data.rfind(b"\n") + 1
            complete = size + newline if newline else complete
            size += len(data)
        if complete and (data is None or size >= BLOCK_BYTES):
            read = b"".join(parts)
            incomplete = read[complete:]
            yield read[:complete]
            parts, size, complete = ([incomplete] if incomplete else []), len(incomplete), 0


def _text(blocks: Iterator[bytes]) -> Iterator[Input]:
    line = 1
    for block in blocks:
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        yield Input(pa.record_batch({"value": pa.array(lines, pa.binary())}), len(block), partial(add, line))
        line += len(lines)


class _Json:
    """Parses JSON lines into batches. The first block determines the schema of all of them."""

    def __init__(self, name: str, values: bool | None) -> None:
        self._name = display_name(name)
        self._values = values
        self._schema: pa.Schema | None = None
        self._line_count = 0

    def batches(self, blocks: Iterator[bytes]) -> Iterator[Input]:
        for block in blocks:
            if not block.strip():
                self._line_count += block.count(b"\n")
                continue
            if self._values is None:
                self._values = self._has_value_keys(block)
            # pyarrow refuses a line that is longer than its block size.
            read_options = pyarrow.json.ReadOptions(block_size=len(block) + 1)
            try:
                table = pyarrow.json.read_json(io.BytesIO(block), read_options, self._parse_options())
            except pa.ArrowInvalid as error:
                raise self._format_error(error) from error
            if not self._values and self._schema is None:
                self._schema = _without_null_types(table.schema)
                table = table.cast(self._schema)
            first_line = self._line_count + 1
            self._line_count += block.count(b"\n")
            table = table.combine_chunks()
            line_of = partial(_line_of, block, first_line)
            for batch in table.to_batches():
                yield Input(_to_messages(batch) if self._values else batch, len(block), line_of)

    def _parse_options(self) -> pyarrow.json.ParseOptions:
        if self._values:
            return pyarrow.json.ParseOptions(explicit_schema=JSON_VALUE_COLUMNS, unexpected_field_behavior="ignore")
        if self._schema is None:
            return pyarrow.json.ParseOptions()
        return pyarrow.json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="error")

    def _has_value_keys(self, block: bytes) -> bool:
        """Return whether the first line has only the keys of a message."""
        first = block.lstrip().partition(b"\n")[0]
        try:
            row = json.loads(first)
        except ValueError:
            return False
        return isinstance(row, dict) and bool(row) and set(row) <= set(JSON_VALUE_COLUMNS.names)

    def _format_error(self, error: Exception) -> DataFormatError:
        return DataFormatError(
            f"{self._name} is not JSON lines of one schema, after line {self._line_count}: {error}",
            remedy="Write one JSON object per line, all with the columns and types of the first lines.",
        )


def _line_of(block: bytes, first_line: int, row: int) -> int:
    """Return the line of a row in a block of JSON lines, some of which may be empty."""
    lines = [number for number, line in enumerate(block.split(b"\n"), first_line) if line.strip()]
    return lines[row]


def _without_null_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema with text columns instead of those in which every value was null."""
    return pa.schema([field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema])


def _to_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages as bytes from the JSON columns ``value`` and ``valueBase64``."""
    texts, encoded_texts = batch.column("value").to_pylist(), batch.column("valueBase64").to_pylist()
    values: list[bytes | None] = []
    for row, (text, encoded) in enumerate(zip(texts, encoded_texts, strict=True)):
        if (text is None) == (encoded is None):
            raise DataFormatError(
                f"JSON line {row + 1} has {'neither' if text is None else 'both'} of 'value' and 'valueBase64'",
                remedy="Give each message either as 'value' (text) or as 'valueBase64' (any bytes). To send the lines "
                "as rows, add --payload arrow.",
            )
        try:
            values.append(text.encode() if text is not None else base64.b64decode(encoded or "", validate=True))
        except (binascii.Error, ValueError) as error:
            raise DataFormatError(
                f"'valueBase64' in JSON line {row + 1} is not base64: {error}", remedy="Encode the bytes as base64."
            ) from error
    columns: dict[str, pa.Array[Any]] = {"value": pa.array(values, pa.binary())}
    reserved = batch.column("reservedValue")
    if reserved.null_count < len(reserved):
        columns["reservedValue"] = reserved
    return pa.record_batch(columns)


def _tables(name: str, form: str, stopped: Callable[[], bool]) -> Iterator[Input]:
    try:
        for batch in _batches_of(name, form):
            if stopped():
                return
            if batch.num_rows:
                yield Input(batch, batch.nbytes)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataFormatError(
            f"{display_name(name)} is not a {form} file: {error}", remedy="Name its format with --format."
        ) from error


def _batches_of(name: str, form: str) -> Iterator[pa.RecordBatch]:
    if form == "csv":
        if name != STANDARD_INPUT:
            yield from _csv_batches(name)
            return
        with os.fdopen(os.dup(0), "rb") as lines:
            yield from _csv_batches(lines)
        return
    source: Any = name
    if name == STANDARD_INPUT:
        with os.fdopen(os.dup(0), "rb") as file:
            source = pa.BufferReader(file.read())
    yield from pyarrow.parquet.ParquetFile(source).iter_batches() if form == "parquet" else _arrow_batches(source)


def _csv_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the line of column names. pyarrow infers the types from the first megabyte."""
    with pyarrow.csv.open_csv(source) as reader:
        for batch in reader:
            if batch.num_rows:
                table = pa.Table.from_batches([batch]).cast(_without_null_types(batch.schema))
                yield table.to_batches()[0]
            else:
                yield batch


def _arrow_batches(source: Any) -> Iterator[pa.RecordBatch]:
    buffer = pa.memory_map(source) if isinstance(source, str) else source
    with buffer:
        magic = buffer.read(6)
        buffer.seek(0)
        if magic == b"ARROW1":
            with pyarrow.ipc.open_file(buffer) as file:
                for index in range(file.num_record_batches):
                    yield _validated(file.get_batch(index))
        else:
            with pyarrow.ipc.open_stream(buffer) as stream:
                yield from map(_validated, stream)


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)  # a wrong offset in the file would end the process when its row is read
    return batch
