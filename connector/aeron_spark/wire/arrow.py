"""Encodes Arrow record batches as payloads. Each group is one complete Arrow IPC stream with its schema."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.texts import nearest
from aeron_spark.wire.foreign_arrow import read_schema, read_stream

_LISTS = (pa.ListType, pa.LargeListType)
MAX_SHOWN: Final = 100  # columns in an error
MAX_SHOWN_WIDTH: Final = 500  # characters of a column in an error
MAX_GROWTH: Final = 8  # next slice in relation to the last; a slice that is too large is measured in vain


def encoded_size(batch: pa.RecordBatch) -> int:
    """Return the size of the result of ``encode_batch`` in bytes, without encoding."""
    counter = pa.MockOutputStream()
    with pa.ipc.new_stream(counter, batch.schema) as stream:
        stream.write_batch(batch)
    return int(counter.size())


def encode_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """Encode a batch as an Arrow IPC stream: schema, dictionaries, batch, end marker. Copies each buffer once."""
    buffer = pa.allocate_buffer(encoded_size(batch))
    with pa.FixedSizeBufferWriter(buffer) as sink, pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return buffer


class BatchEncoder:
    """Encodes like ``encode_batch``, but always into the same memory of ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._memory = pa.allocate_buffer(max_bytes)

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Encode a batch. The result is valid until the next call. Raises OSError if it does not fit."""
        with pa.FixedSizeBufferWriter(self._memory) as sink:
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            size = sink.tell()
        return self._memory.slice(0, size)


def encode_parts(batch: pa.RecordBatch) -> list[pa.Buffer]:
    """Encode like ``encode_batch``, but return consecutive buffers, most of which are views of the batch's buffers."""
    parts = _Parts()
    with pa.ipc.new_stream(pa.PythonFile(parts, mode="w"), batch.schema) as stream:
        stream.write_batch(batch)
    return parts.buffers


class _Parts(io.RawIOBase):
    """A file that keeps the buffers that are written to it."""

    def __init__(self) -> None:
        self.buffers: list[pa.Buffer] = []
        self._size = 0

    def writable(self) -> bool:
        """Return True; Arrow checks it."""
        return True

    def write(self, data: Any) -> int:
        """Keep ``data``, which Arrow passes without a copy."""
        buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        self.buffers.append(buffer)
        self._size += buffer.size
        return int(buffer.size)

    def tell(self) -> int:
        """Return the number of written bytes."""
        return self._size


def decode_batches(
    buffer: pa.Buffer | memoryview | bytes,
    rows: int | None = None,
    wanted: pa.Schema | None = None,
    *,
    is_checked: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow IPC stream. Their columns are views of ``buffer``, or of an aligned copy of it.

    With ``wanted`` each batch is as :func:`conform` returns it, and its other columns are not decoded. ``is_checked``
    is that of :func:`read_stream`. Raises DataFormatError for an invalid stream, for another number of rows than
    ``rows``, and as ``conform`` does.
    """
    count = 0
    select = None if wanted is None else lambda schema: _columns_of(schema, wanted)
    data, batches = read_stream(buffer, select, is_checked=is_checked)
    for batch in batches:
        count += batch.num_rows
        yield batch if wanted is None else _conform(batch, wanted, data)
    if rows is not None and count != rows:
        raise DataFormatError(
            f"an arrow group has {count} rows, but its header announces {rows}",
            remedy="The writer published invalid data. Write it again.",
        )


def _columns_of(data: pa.Schema, wanted: pa.Schema) -> list[int] | None:
    """Return the indices of the columns of ``data`` that ``wanted`` has; None for all."""
    if data.equals(wanted):
        return None
    _check_names(data, wanted)
    names = set(wanted.names)
    return [index for index, name in enumerate(data.names) if name in names]


def split_rows(batch: pa.RecordBatch, max_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the first row and the slice, for consecutive slices of ``batch`` whose encodings fit into ``max_bytes``.

    A row larger than ``max_bytes`` is a slice by itself, and the caller sends it in chunks. A batch without rows is
    yielded unchanged.
    """
    begin, step = 0, batch.num_rows
    while True:
        part = batch.slice(begin, step)
        size = encoded_size(part)
        if size > max_bytes and part.num_rows > 1:
            # Shrink according to the average row, but at most by half, so one huge row does not isolate all others.
            step = max(part.num_rows // 2, min(part.num_rows * max_bytes * 15 // (size * 16), part.num_rows - 1))
            continue
        yield begin, part
        begin += part.num_rows
        if begin >= batch.num_rows:
            return
        step = min(part.num_rows * max(1, max_bytes // size), part.num_rows * MAX_GROWTH)


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` with the columns of the schema ``target``, if the schemas are compatible.

    Matches columns by name. A column that is missing in the batch is null, if it is nullable in ``target``. A column
    that is missing in ``target`` is dropped, if it is nullable in the batch. Types must be equal, except for the zone
    of a timestamp, the width of offsets, and dictionary encoding. Raises DataFormatError with both schemas.
    """
    if batch.schema.equals(target):
        return batch
    _check_names(batch.schema, target)
    return _conform(batch, target, batch.schema)


def _conform(batch: pa.RecordBatch, target: pa.Schema, data: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` with the columns of ``target``; ``data`` is the schema before any column was left out."""
    if batch.schema.equals(target):
        return batch
    columns_by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = [
        _column(columns_by_name[field.name], field, data, target)
        if field.name in columns_by_name
        else _missing_column(batch.num_rows, field, data, target)
        for field in target
    ]
    # from_arrays cannot know the number of rows without a column
    if not columns:
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _check_names(data: pa.Schema, target: pa.Schema) -> None:
    for schema, label in ((data, "data"), (target, "wanted schema")):
        if len(set(schema.names)) < len(schema.names):
            raise _schema_error(data, target, f"the {label} has two columns with one name")
    wanted = set(target.names)
    for field in data:
        if field.name not in wanted and not field.nullable:
            raise _schema_error(
                data, target, f"the data's column {field.name!r} is not nullable and not in the wanted schema"
            )


def _missing_column(rows: int, field: pa.Field[Any], data: pa.Schema, target: pa.Schema) -> pa.Array[Any]:
    if not field.nullable:
        raise _schema_error(data, target, f"the column {field.name!r} is missing in the data and not nullable")
    nulls: pa.Array[Any] = pa.nulls(rows, field.type)
    return nulls


def _column(column: pa.Array[Any], field: pa.Field[Any], data: pa.Schema, target: pa.Schema) -> pa.Array[Any]:
    if not _have_same_rows(column.type, field.type):
        raise _schema_error(data, target, f"the column {field.name!r} is {column.type}, wanted is {field.type}")
    if column.null_count and not field.nullable:
        raise _schema_error(data, target, f"the column {field.name!r} has nulls and is not nullable")
    try:
        return column if column.type.equals(field.type) else column.cast(field.type)
    except pa.ArrowException as error:
        raise _schema_error(data, target, f"the column {field.name!r} does not fit {field.type}: {error}") from error


def _have_same_rows(actual: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast between the types changes no row."""
    kinds = pa.types
    if actual.equals(wanted):
        return True
    if kinds.is_dictionary(actual):
        return _have_same_rows(actual.value_type, wanted)
    if kinds.is_timestamp(actual) and kinds.is_timestamp(wanted):
        return actual.unit == wanted.unit and actual.tz is not None and wanted.tz is not None
    if kinds.is_struct(actual) and kinds.is_struct(wanted):
        return actual.num_fields == wanted.num_fields and all(
            actual.field(i).name == wanted.field(i).name and _are_same_fields(actual.field(i), wanted.field(i))
            for i in range(actual.num_fields)
        )
    if kinds.is_map(actual) and kinds.is_map(wanted):
        return _have_same_rows(actual.key_type, wanted.key_type) and _are_same_fields(
            actual.item_field, wanted.item_field
        )
    if isinstance(actual, _LISTS) and isinstance(wanted, _LISTS):
        return _are_same_fields(actual.value_field, wanted.value_field)
    return any(alike(actual) and alike(wanted) for alike in (_is_string, _is_binary))


def _are_same_fields(actual: pa.Field[Any], wanted: pa.Field[Any]) -> bool:
    return (wanted.nullable or not actual.nullable) and _have_same_rows(actual.type, wanted.type)


def _is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _schema_error(actual: pa.Schema, wanted: pa.Schema, reason: str) -> DataFormatError:
    return DataFormatError(
        f"the data's schema is incompatible with the wanted schema: {reason}\nthe data has:\n{indented(actual)}\n"
        f"wanted is:\n{indented(wanted)}\n",
        remedy="Pass the schema of the data with .schema(...), or read the stream from a later position.",
    )


def indented(schema: pa.Schema) -> str:
    """Return the columns for an error, one a line; not all of a wide schema."""
    lines = [f"    {str(schema.field(index))[:MAX_SHOWN_WIDTH]}" for index in range(min(len(schema), MAX_SHOWN))]
    more = [f"    and {len(schema) - MAX_SHOWN} more columns"] if len(schema) > MAX_SHOWN else []
    return "\n".join([*lines, *more]) or "    (no columns)"


# A stream holds one payload: the error for rows of another one.

VALUE: Final = "value"
_MAX_OTHER_SHOWN: Final = 10  # columns in an error
_MAX_COMPARED: Final = 100  # columns; a peer may send many, with long names
_MAX_NAME: Final = 64  # characters


def other_payload(stream: str, held: str, given: str, schema: pa.Schema | bytes | None = None) -> DataFormatError:
    """Return the error for rows with the payload ``given``, written into a stream that holds ``held``.

    ``schema`` is that of ``arrow`` rows, also as bytes of Arrow IPC. A column with nearly the name ``value`` is named.
    """
    names = _names(schema)
    shown = ", ".join([*names[:_MAX_OTHER_SHOWN], *(["..."] if names[_MAX_OTHER_SHOWN:] else [])])
    columns = f", with the columns {shown}" if names else ""
    return DataFormatError(
        f"{stream} has {held} rows, and the new rows are {given}{columns}", remedy=_remedy(held, given, names)
    )


def _names(schema: pa.Schema | bytes | None) -> list[str]:
    if isinstance(schema, bytes):
        schema = read_schema(schema)
    return [] if schema is None else [name[:_MAX_NAME] for name in schema.names[:_MAX_COMPARED]]


def _remedy(held: str, given: str, names: list[str]) -> str:
    if given != "arrow" or not names:
        return f"Write with payload={held}, or to another stream."
    if VALUE in names:
        return f"Select only the column '{VALUE}' and write with payload={held}, or write to another stream."
    close = nearest(VALUE, names)
    if close:
        return f"Did you mean {VALUE!r} in place of {close!r}? Rename it, or write to another stream."
    return f"Write a column '{VALUE}' with payload={held}, or write to another stream."
