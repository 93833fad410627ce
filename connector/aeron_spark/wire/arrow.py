"""Arrow record batches as payload: each group is one whole Arrow IPC stream, with its schema, that stands alone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError

_LISTS = (pa.ListType, pa.LargeListType)
MAX_GROWTH: Final = 8  # times as many rows as fitted the last time; each guess that is too large costs a measurement
ALIGNMENT: Final = 8  # bytes; Arrow wants its buffers aligned, and an IPC stream keeps them so relative to its start


def encoded_size(batch: pa.RecordBatch) -> int:
    """The bytes ``encode_batch`` would give, without making them."""
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
    """Encodes as ``encode_batch`` does, one batch after the other into the same memory of ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._memory = pa.allocate_buffer(most)

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Encode a batch; what is returned lasts until the next one. Raises OSError where it does not fit."""
        with pa.FixedSizeBufferWriter(self._memory) as sink:
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            size = sink.tell()
        return self._memory.slice(0, size)


def encode_parts(batch: pa.RecordBatch) -> list[pa.Buffer]:
    """Encode as ``encode_batch`` does, into buffers that follow each other: mostly views of the batch's own."""
    parts = _Parts()
    with pa.ipc.new_stream(pa.PythonFile(parts, mode="w"), batch.schema) as stream:
        stream.write_batch(batch)
    return parts.buffers


class _Parts(io.RawIOBase):
    """A file that keeps what is written to it as it is."""

    def __init__(self) -> None:
        self.buffers: list[pa.Buffer] = []
        self._size = 0

    def writable(self) -> bool:
        """Say that it is, as Arrow asks."""
        return True

    def write(self, data: Any) -> int:
        """Keep ``data``: Arrow hands its buffers over without a copy."""
        buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        self.buffers.append(buffer)
        self._size += buffer.size
        return int(buffer.size)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size


def decode_batches(buffer: pa.Buffer | memoryview | bytes, rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow IPC stream; their columns are views of ``buffer``, or of a copy to align it.

    Raises DataFormatError if it is none, or if it does not have the ``rows`` its header promised.
    """
    found = 0
    source = buffer if isinstance(buffer, pa.Buffer) else pa.py_buffer(buffer)
    if source.address % ALIGNMENT:
        source = pa.py_buffer(source.to_pybytes())  # a message lies wherever the one before it ended
    try:
        with pa.ipc.open_stream(source) as stream:
            for batch in stream:
                batch.validate()
                found += batch.num_rows
                yield batch
    except (pa.ArrowException, OSError) as error:
        raise DataFormatError(
            f"the payload of an arrow group is not an Arrow IPC stream: {error}",
            remedy="The writer broke it before it was published; write it anew",
        ) from error
    if rows is not None and found != rows:
        raise DataFormatError(
            f"an arrow group holds {found} rows, its header says {rows}",
            remedy="The writer broke it before it was published; write it anew",
        )


def split_rows(batch: pa.RecordBatch, max_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield slices of ``batch`` in order, each with the index of its first row, whose encodings fit ``max_bytes``.

    One row that is larger stays alone, to be sent in chunks. A batch without rows is yielded as it is.
    """
    begin, step = 0, batch.num_rows
    while True:
        part = batch.slice(begin, step)
        size = encoded_size(part)
        if size > max_bytes and part.num_rows > 1:
            # By the average row, but at most by half: one huge row must not split all others into single ones.
            step = max(part.num_rows // 2, min(part.num_rows * max_bytes * 15 // (size * 16), part.num_rows - 1))
            continue
        yield begin, part
        begin += part.num_rows
        if begin >= batch.num_rows:
            return
        step = min(part.num_rows * max(1, max_bytes // size), part.num_rows * MAX_GROWTH)


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` with the columns of ``target``, as a schema that has changed since allows.

    Columns are matched by name. One that is missing in the batch is null, if ``target`` allows that; one that
    ``target`` does not know is dropped, if the batch allows nulls in it. Types have to be the same but for what makes
    no difference to a row: the zone a timestamp is shown in, the width of offsets, dictionary encoding. Raises
    DataFormatError showing both schemas.
    """
    if batch.schema.equals(target):
        return batch
    for schema, whose in ((batch.schema, "data"), (target, "wanted schema")):
        if len(set(schema.names)) < len(schema.names):
            raise _unlike(batch.schema, target, f"the {whose} names a column twice")
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    for field in batch.schema:
        if field.name not in target.names and not field.nullable:
            raise _unlike(batch.schema, target, f"the data's column {field.name!r} is not nullable and not wanted")
    columns = [_column(given.get(field.name), field, batch, target) for field in target]
    # Without a column there would be nothing to count the rows by.
    if not columns:
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _column(
    column: pa.Array[Any] | None, field: pa.Field[Any], batch: pa.RecordBatch, target: pa.Schema
) -> pa.Array[Any]:
    if column is None:
        if not field.nullable:
            raise _unlike(batch.schema, target, f"the column {field.name!r} is missing in the data and not nullable")
        nulls: pa.Array[Any] = pa.nulls(batch.num_rows, field.type)
        return nulls
    if not _same_rows(column.type, field.type):
        raise _unlike(batch.schema, target, f"the column {field.name!r} is {column.type} and not {field.type}")
    if column.null_count and not field.nullable:
        raise _unlike(batch.schema, target, f"the column {field.name!r} has nulls and is not nullable")
    try:
        return column if column.type.equals(field.type) else column.cast(field.type)
    except pa.ArrowException as error:
        raise _unlike(batch.schema, target, f"the column {field.name!r} does not fit {field.type}: {error}") from error


def _same_rows(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether both types hold the same rows, so that a cast changes nothing that shows in them."""
    kinds = pa.types
    if given.equals(wanted):
        return True
    if kinds.is_dictionary(given):
        return _same_rows(given.value_type, wanted)
    if kinds.is_timestamp(given) and kinds.is_timestamp(wanted):
        return given.unit == wanted.unit and given.tz is not None and wanted.tz is not None
    if kinds.is_struct(given) and kinds.is_struct(wanted):
        return given.num_fields == wanted.num_fields and all(
            given.field(i).name == wanted.field(i).name and _same_field(given.field(i), wanted.field(i))
            for i in range(given.num_fields)
        )
    if kinds.is_map(given) and kinds.is_map(wanted):
        return _same_rows(given.key_type, wanted.key_type) and _same_field(given.item_field, wanted.item_field)
    if isinstance(given, _LISTS) and isinstance(wanted, _LISTS):
        return _same_field(given.value_field, wanted.value_field)
    return any(alike(given) and alike(wanted) for alike in (_is_string, _is_binary))


def _same_field(given: pa.Field[Any], wanted: pa.Field[Any]) -> bool:
    return (wanted.nullable or not given.nullable) and _same_rows(given.type, wanted.type)


def _is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _unlike(given: pa.Schema, wanted: pa.Schema, why: str) -> DataFormatError:
    return DataFormatError(
        f"the data's schema does not go with the wanted one: {why}\nthe data has:\n{_indented(given)}\nwanted is:\n"
        f"{_indented(wanted)}\n",
        remedy="Give the schema the data has, with .schema(...), or read the stream from a later position",
    )


def _indented(schema: pa.Schema) -> str:
    return "\n".join(f"    {field}" for field in schema) or "    (no columns)"
