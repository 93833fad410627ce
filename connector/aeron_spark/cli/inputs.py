"""What ``send`` sends: lines, JSON lines, CSV, Parquet and Arrow files, in batches as they come."""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet

from aeron_spark.cli.formats import STANDARD_INPUT
from aeron_spark.errors import DataFormatError

PIECE_BYTES: Final = 1 << 20  # bytes of lines that make a batch
QUIET: Final = 0.05  # seconds without more input after which what is there is sent
POLL_INTERVAL_S: Final = 0.2  # seconds between two looks at whether to stop
_TEXT: Final[dict[str, pa.DataType]] = {"value": pa.string(), "valueBase64": pa.string(), "reservedValue": pa.int64()}
TEXT_COLUMNS: Final = pa.schema(_TEXT)


VALUE_COLUMNS: Final = {"value", "reservedValue"}


@dataclass(frozen=True, slots=True)
class Input:
    """One batch: ``rows`` with columns of their own, or with ``value`` and perhaps ``reservedValue``; and its size."""

    rows: pa.RecordBatch
    size: int


def read_input(name: str, form: str, values: bool | None, stopped: Callable[[], bool]) -> Iterator[Input]:
    """Yield the batches of a file, or of standard input; ``values``: JSON lines hold messages (None: look)."""
    if form in ("csv", "parquet", "arrow"):
        yield from _tables(name, form, stopped)
        return
    file = os.dup(0) if name == STANDARD_INPUT else os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = _pieces(file, stopped)
        yield from _text(pieces) if form == "text" else _Json(name, values).batches(pieces)
    finally:
        os.close(file)


def are_values(schema: pa.Schema) -> bool:
    """Whether rows are messages: nothing but ``value`` and ``reservedValue``."""
    if "value" not in schema.names or not set(schema.names) <= VALUE_COLUMNS:
        return False
    kind = schema.field("value").type
    return any(of(kind) for of in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string))


def _pieces(file: int, stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield whole lines, many at once where many are there, and at once where no more come."""
    parts: list[bytes] = []
    size = 0
    while not stopped():
        ready, _, _ = select.select([file], [], [], QUIET if parts else POLL_INTERVAL_S)
        data = os.read(file, PIECE_BYTES) if ready else None
        if data:
            parts.append(data)
            size += len(data)
        if data == b"" or (parts and (data is None or size >= PIECE_BYTES)):
            whole, newline, rest = b"".join(parts).rpartition(b"\n")
            if data == b"":
                if whole or newline or rest:
                    yield whole + newline + rest
                return
            parts, size = ([rest] if rest else []), 0
            if newline:
                yield whole + newline
            elif data is None:
                select.select([file], [], [], POLL_INTERVAL_S)  # half a line: the rest decides


def _text(pieces: Iterator[bytes]) -> Iterator[Input]:
    for piece in pieces:
        lines = piece.split(b"\n")
        if not lines[-1]:
            lines.pop()
        yield Input(pa.record_batch({"value": pa.array(lines, pa.binary())}), len(piece))


class _Json:
    """JSON lines as batches of one schema: that of the first piece of them."""

    def __init__(self, name: str, values: bool | None) -> None:
        self._name = _shown(name)
        self._values = values
        self._schema: pa.Schema | None = None
        self._lines = 0

    def batches(self, pieces: Iterator[bytes]) -> Iterator[Input]:
        for piece in pieces:
            if not piece.strip():
                self._lines += piece.count(b"\n")
                continue
            if self._values is None:
                self._values = self._looks_like_values(piece)
            options = self._options()
            # One block: a line longer than a block would be refused.
            reading = pyarrow.json.ReadOptions(block_size=len(piece) + 1)
            try:
                table = pyarrow.json.read_json(io.BytesIO(piece), reading, options)
            except pa.ArrowInvalid as error:
                raise self._wrong(error) from error
            if not self._values and self._schema is None:
                self._schema = _settled(table.schema)
                table = table.cast(self._schema)
            self._lines += piece.count(b"\n")
            for batch in table.combine_chunks().to_batches():
                yield Input(_values_of(batch) if self._values else batch, len(piece))

    def _options(self) -> pyarrow.json.ParseOptions:
        if self._values:
            return pyarrow.json.ParseOptions(explicit_schema=TEXT_COLUMNS, unexpected_field_behavior="ignore")
        if self._schema is None:
            return pyarrow.json.ParseOptions()
        return pyarrow.json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="error")

    def _looks_like_values(self, piece: bytes) -> bool:
        first = piece.lstrip().partition(b"\n")[0]
        try:
            keys = json.loads(first)
        except ValueError:
            return False
        return isinstance(keys, dict) and bool(keys) and set(keys) <= set(TEXT_COLUMNS.names)

    def _wrong(self, error: Exception) -> DataFormatError:
        return DataFormatError(
            f"{self._name} is not JSON lines of one schema, after line {self._lines}: {error}",
            remedy="Write one JSON object a line, all with the columns and types of the first ones.",
        )


def _shown(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else name


def _settled(schema: pa.Schema) -> pa.Schema:
    """A column of nulls alone says nothing of its type; text is what fits most."""
    return pa.schema([field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema])


def _values_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    texts, coded = batch.column("value").to_pylist(), batch.column("valueBase64").to_pylist()
    values: list[bytes | None] = []
    for row, (text, code) in enumerate(zip(texts, coded, strict=True)):
        if (text is None) == (code is None):
            raise DataFormatError(
                f"JSON line {row + 1} has {'neither' if text is None else 'both'} of 'value' and 'valueBase64'",
                remedy="Give each message as the one (text) or the other (any bytes), or send rows: --payload arrow.",
            )
        try:
            values.append(text.encode() if text is not None else base64.b64decode(code or "", validate=True))
        except (binascii.Error, ValueError) as error:
            raise DataFormatError(f"'valueBase64' is not base64: {error}", remedy="Encode it anew.") from error
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
            f"{_shown(name)} is not a {form} file: {error}", remedy="Say what it is with --format."
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
        with os.fdopen(os.dup(0), "rb") as whole:
            source = pa.BufferReader(whole.read())
    yield from pyarrow.parquet.ParquetFile(source).iter_batches() if form == "parquet" else _arrow_batches(source)


def _csv_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """The rows behind a line of column names; the first megabyte says of what types they are."""
    with pyarrow.csv.open_csv(source) as reader:
        for batch in reader:
            yield (
                pa.Table.from_batches([batch]).cast(_settled(batch.schema)).to_batches()[0] if batch.num_rows else batch
            )


def _arrow_batches(source: Any) -> Iterator[pa.RecordBatch]:
    opened = pa.memory_map(source) if isinstance(source, str) else source
    with opened:
        magic = opened.read(6)
        opened.seek(0)
        if magic == b"ARROW1":
            with pyarrow.ipc.open_file(opened) as file:
                for index in range(file.num_record_batches):
                    yield file.get_batch(index)
        else:
            with pyarrow.ipc.open_stream(opened) as stream:
                yield from stream
