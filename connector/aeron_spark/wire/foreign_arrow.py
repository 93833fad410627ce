"""Reads Arrow IPC bytes of another program. Bytes that could harm the process that reads their rows are refused.

Arrow's own reader verifies the metadata, but it trusts the values: a wrong offset ends the process when its row is
read. It also allocates as many bytes as a compressed buffer announces. This module therefore checks in this order:

* the schema: names and time zones in UTF-8, the depth of nesting, and only types whose rows have bytes of their own;
* the metadata of each message: the number of cells, and what the buffers become without compression;
* each batch: Arrow's full validation, of children and dictionaries, too, or an equal one of texts that are ASCII; and
  the bytes that several rows share.

A stream may become ``EXPANSION`` times as large as its bytes, and ``FREE_BYTES`` more; LZ4 cannot compress better than
255 to 1. A cell is a value, a null, a list or a struct. Each one counts as ``CELL_BYTES`` at least, because cells of
some types have no bytes, and each becomes an object in a program.

The metadata is Arrow's Message.fbs in FlatBuffers. All numbers are little-endian. A table begins with an int32: the
distance back to its vtable, which has a uint16 for its own size, one for the table's size, and one for each field: the
field's offset in the table, or 0 if it is absent. A reference is a uint32, the distance to its target. A vector begins
with its length, a uint32.

    table           field  type       meaning
    Message         2      reference  a RecordBatch or a DictionaryBatch
    DictionaryBatch 1      reference  a RecordBatch with one column, the dictionary
    RecordBatch     0      int64      rows
                    1      vector     for each column and child, depth first: int64 length, int64 number of nulls
                    2      vector     for each buffer: int64 offset in the body, int64 length
                    3      reference  present if buffers are compressed. Each one that is not empty begins with an
                                      int64: its length without compression, or -1 if it is not compressed
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aeron_spark.errors import DataFormatError

EXPANSION: Final = 256
FREE_BYTES: Final = 16 << 20
CELL_BYTES: Final = 8
ASCII_END: Final = 128
SHORT_STREAM: Final = 64 << 10  # bytes; for a shorter one Arrow's validation takes less time than ``_is_ascii``
MAX_DEPTH: Final = 32  # Arrow reads 64 levels
ALIGNMENT: Final = 8  # bytes; an IPC stream aligns its buffers relative to its start
MAX_SCALES: Final = {4: 9, 8: 18, 16: 38, 32: 76}  # of decimals, by their bytes; Arrow cannot format larger ones
MAX_REASON: Final = 500  # characters of Arrow's reason, which may have bytes of the payload
MAX_KNOWN: Final = 256 << 10  # bytes of a schema that is kept
MAX_NAME: Final = 64  # characters of a column's name in an error

_UINT16: Final = struct.Struct("<H")
_INT32: Final = struct.Struct("<i")
_UINT32: Final = struct.Struct("<I")
_INT64: Final = struct.Struct("<q")
_CONTINUATION: Final = 0xFFFFFFFF
_MESSAGE: Final = struct.Struct(
    "<"
    "I"  # continuation
    "I"  # length of the metadata
)
# For invalid metadata Arrow raises also SystemError, ValueError, KeyError and MemoryError.
_READ_ERRORS: Final = (
    pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError, SystemError, MemoryError, struct.error,
)  # fmt: skip
_REMEDY: Final = "The writer published invalid data. Write it again."
_SAME_RELEASE: Final = "Use the same release of aeron-spark in client and server."
_NOT_A_STREAM: Final = "the payload of an arrow group is not an Arrow IPC stream"

# Neither unions nor run-end encoding, which Spark cannot read, and whose rows may share bytes; nor intervals that
# pyarrow cannot read.
_SAFE_TYPES: Final = (
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal32(1), pa.decimal64(1), pa.decimal128(1),
    pa.decimal256(1), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"),
    pa.duration("us"), pa.month_day_nano_interval(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
    pa.large_binary(), pa.binary_view(), pa.binary(1), pa.list_(pa.null()), pa.large_list(pa.null()),
    pa.list_(pa.null(), 1), pa.list_view(pa.null()), pa.large_list_view(pa.null()), pa.map_(pa.int8(), pa.null()),
    pa.struct([]), pa.dictionary(pa.int8(), pa.null()),
)  # fmt: skip
_TYPES: Final = frozenset(kind.id for kind in _SAFE_TYPES)
_VIEWS: Final = frozenset((pa.string_view().id, pa.binary_view().id))
_LIST_VIEWS: Final = frozenset((pa.list_view(pa.null()).id, pa.large_list_view(pa.null()).id))
_TEXTS: Final = frozenset((pa.string().id, pa.large_string().id, pa.binary().id, pa.large_binary().id))
_UTF8: Final = (pa.string().id, pa.large_string().id)
_DICTIONARY: Final = pa.dictionary(pa.int8(), pa.null()).id
_STRUCT: Final = pa.struct([]).id
_SHARED: Final = _VIEWS | _LIST_VIEWS | {_DICTIONARY}

Select = Callable[[pa.Schema], "Sequence[int] | None"]
"""Returns the indices of the columns to read, in order; None: all."""


def read_schema(data: pa.Buffer | memoryview | bytes) -> pa.Schema:
    """Return the schema of an Arrow IPC message or stream. Raises DataFormatError for other bytes."""
    with _reading(_not_a_schema(data), _SAME_RELEASE):
        return _checked_schema(_first_metadata(data))[0]


def has_more_fields(data: pa.Buffer | memoryview | bytes, limit: int) -> bool:
    """Whether the schema of an Arrow IPC message has more than ``limit`` columns, with the fields in them.

    Checks neither names nor types, which takes ten times as long. Raises DataFormatError for other bytes.
    """
    with _reading(_not_a_schema(data), _SAME_RELEASE):
        schema = _parsed_schema(_first_metadata(data))
    return count_fields(schema, limit) > limit


def _first_metadata(data: pa.Buffer | memoryview | bytes) -> bytes:
    """Return the metadata of the first message. Raises DataFormatError or struct.error for too few bytes."""
    view = memoryview(data).cast("B")
    (length,), begin = _UINT32.unpack_from(view), _UINT32.size
    if length == _CONTINUATION:  # programs before Arrow 0.15 wrote none
        (length,), begin = _UINT32.unpack_from(view, begin), _MESSAGE.size
    metadata = bytes(view[begin : begin + length])
    if len(metadata) < length:
        raise DataFormatError(_not_a_schema(data), remedy=_SAME_RELEASE)
    return metadata


def _not_a_schema(data: pa.Buffer | memoryview | bytes) -> str:
    return f"{memoryview(data).nbytes} bytes are not an Arrow IPC schema"


def read_stream(
    data: pa.Buffer | memoryview | bytes, select: Select | None = None, *, is_checked: bool = False
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of an Arrow IPC stream, and its batches with the columns that ``select`` chooses.

    The batches are views of ``data``, or of an aligned copy of it. With ``is_checked`` the caller knows that another
    program has checked these bytes with this function. This call and each step of the iterator
    raise DataFormatError for invalid bytes.
    """
    source = _aligned(data)
    with _reading(_NOT_A_STREAM):
        budget = _MemoryBudget(source.size)
        shares_bytes = not is_checked and _check_messages(source, budget)
        stream = pa.ipc.open_stream(source)
        schema = stream.schema
    chosen = None if select is None else select(schema)
    if chosen is not None and len(chosen) < len(schema):
        with _reading(_NOT_A_STREAM):
            # At least one column: an empty list would mean all columns.
            options = pa.ipc.IpcReadOptions(included_fields=list(chosen) or [0])
            stream = pa.ipc.open_stream(source, options=options)
    is_short = source.size < SHORT_STREAM
    return schema, _batches(stream, budget, is_checked=is_checked, is_short=is_short, shares_bytes=shares_bytes)


def _batches(
    stream: pa.RecordBatchStreamReader, budget: _MemoryBudget, *, is_checked: bool, is_short: bool, shares_bytes: bool
) -> Iterator[pa.RecordBatch]:
    with _reading(_NOT_A_STREAM), stream:
        for batch in stream:
            batch.validate(full=is_short and not is_checked)
            for column in () if is_short or is_checked else batch.columns:
                if not _is_ascii(column):
                    column.validate(full=True)
            for column in batch.columns if shares_bytes else ():
                _count_shared_bytes(column, budget)
            yield batch


def _is_ascii(column: pa.Array[Any]) -> bool:
    """Whether a column has only ASCII texts and no nulls: then it is valid. Arrow's test takes four times as long.

    Arrow's validation without ``full`` has checked the sizes of its buffers, and the first and the last offset.
    """
    if column.type.id not in _UTF8 or not len(column) or column.buffers()[0] is not None:
        return False
    _, ends, data = column.buffers()
    width = np.dtype(np.int32 if column.type.id == _UTF8[0] else np.int64)
    offsets = np.frombuffer(memoryview(ends or b""), width, len(column) + 1, column.offset * width.itemsize)
    if (offsets[1:] < offsets[:-1]).any():
        return False
    texts = np.frombuffer(memoryview(data or b""), np.uint8)[offsets[0] : offsets[-1]]
    return not len(texts) or int(texts.max()) < ASCII_END


def count_fields(schema: pa.Schema, limit: int = sys.maxsize) -> int:
    """Return the number of columns and of the fields in them, at any depth.

    If that exceeds ``limit``, the result is some number above ``limit``.
    """
    count = len(schema)
    kinds = schema.types if count <= limit else []
    while kinds and count <= limit:
        kind = _storage(kinds.pop())
        count += kind.num_fields
        if count <= limit:
            kinds += [child.type for child in _children(kind)]
    return count


class _MemoryBudget:
    """Counts the bytes that a stream becomes in memory, up to the limit for its size."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._limit = EXPANSION * size + FREE_BYTES
        self._used = 0

    def spend(self, count: int) -> None:
        """Count bytes. Raises DataFormatError above the limit."""
        self._used += count
        if self._used > self._limit:
            raise DataFormatError(
                f"the {self._size} bytes of an Arrow IPC stream become more than {self._limit} bytes in memory",
                remedy="Write its rows without compression and without dictionaries.",
            )


# Schemas


def _check_schema(schema: pa.Schema) -> bool:
    """Return whether rows of the schema may share bytes. Raises DataFormatError for a schema that is refused."""
    shares_bytes = [_check_field(field, f"column {index}", 1) for index, field in enumerate(schema)]
    return any(shares_bytes)


def _checked_schema(metadata: bytes) -> tuple[pa.Schema, bool]:
    """Return the schema in a message's metadata, and whether its rows may share bytes. Raises as ``_check_schema``."""
    return (_known_schema if len(metadata) <= MAX_KNOWN else _known_schema.__wrapped__)(metadata)


@lru_cache(maxsize=16)
def _known_schema(metadata: bytes) -> tuple[pa.Schema, bool]:
    """Return the result of ``_checked_schema``: most groups and requests of a stream have the same schema."""
    schema = _parsed_schema(metadata)
    return schema, _check_schema(schema)


def _parsed_schema(metadata: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(_MESSAGE.pack(_CONTINUATION, len(metadata)) + metadata))


def _check_field(field: pa.Field[Any], place: str, depth: int) -> bool:
    if depth > MAX_DEPTH:
        raise _refused(f"{place} is nested deeper than {MAX_DEPTH} levels", "Write the values as text.")
    kind = _storage(field.type)
    try:
        name = repr(field.name[:MAX_NAME])
        if kind.id == pa.lib.Type_TIMESTAMP:
            str(kind.tz)
    except UnicodeDecodeError:
        raise _refused(f"the name or the time zone of {place} is not UTF-8", "Write it in UTF-8.") from None
    if kind.id not in _TYPES:
        raise _refused(f"{place}, {name}, has the type {str(kind)[:MAX_REASON]}", "Cast it to a type of Spark.")
    if pa.types.is_decimal(kind) and abs(kind.scale) > MAX_SCALES[kind.byte_width]:
        raise _refused(f"{place}, {name}, has the type {kind}", "Use a smaller scale.")
    if kind.id == _DICTIONARY:
        _check_dictionary(kind, f"{place}, {name}")
    children = [
        _check_field(child, f"field {index} of {name}", depth + 1) for index, child in enumerate(_children(kind))
    ]
    if kind.id == _STRUCT and len({child.name for child in _children(kind)}) < kind.num_fields:
        raise _refused(f"{place}, {name}, is a struct with two fields of one name", "Rename one of them.")
    return kind.id in _SHARED or any(children)


def _check_dictionary(kind: pa.DictionaryType[Any, Any, Any], place: str) -> None:
    values = _storage(kind.value_type)
    if values.num_fields or values.id in _SHARED or values.id not in _TYPES:
        raise _refused(f"{place}, has a dictionary of {str(values)[:MAX_REASON]}", "Cast it to the type of its values.")


def _refused(what: str, remedy: str) -> DataFormatError:
    return DataFormatError(f"{what}, which streams do not have", remedy=remedy)


def _storage(kind: pa.DataType) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _children(kind: pa.DataType) -> list[pa.Field[Any]]:
    return [kind.field(index) for index in range(kind.num_fields)]


# Metadata of messages


def _check_messages(source: pa.Buffer, budget: _MemoryBudget) -> bool:
    """Check the schema of a stream and count what its messages announce, before anything is decompressed or built.

    Returns whether its rows may share bytes.
    """
    shares_bytes = False
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type == "schema":
            _, shares_bytes = _checked_schema(message.metadata.to_pybytes())
        elif message.type in ("record batch", "dictionary"):
            metadata = message.metadata
            table = _follow(metadata, _UINT32.unpack_from(metadata)[0], 2)
            if message.type == "dictionary":
                table = _follow(metadata, table, 1)
            _count_batch(metadata, table, message.body, budget)
    return shares_bytes


def _count_batch(metadata: pa.Buffer, table: int, body: pa.Buffer | None, budget: _MemoryBudget) -> None:
    """Count the cells of the RecordBatch at ``table``, and what its buffers become without compression."""
    at = _place(metadata, table, 0)
    rows = _INT64.unpack_from(metadata, at)[0] if at else 0
    lengths = _pairs(metadata, table, 1)[::2]
    cells = max(_count_of(rows), sum(map(_count_of, lengths)))
    budget.spend(max(CELL_BYTES * cells, _decompressed_bytes(metadata, table, body)))


def _decompressed_bytes(metadata: pa.Buffer, table: int, body: pa.Buffer | None) -> int:
    """Return what the compressed buffers of a RecordBatch become; 0 without compression."""
    if not _place(metadata, table, 3):
        return 0
    total, buffers = 0, _pairs(metadata, table, 2)
    for offset, length in zip(buffers[::2], buffers[1::2], strict=True):
        if length > 0:
            (size,) = _INT64.unpack_from(body or b"", _count_of(offset))
            total += length if size == -1 else _count_of(size)
    return total


def _place(metadata: pa.Buffer, table: int, field: int) -> int:
    """Return where a field of a table is, 0 if it is absent."""
    vtable = table - _INT32.unpack_from(metadata, table)[0]
    slot = 4 + 2 * field
    if slot >= _UINT16.unpack_from(metadata, _count_of(vtable))[0]:
        return 0
    (offset,) = _UINT16.unpack_from(metadata, vtable + slot)
    return table + offset if offset else 0


def _follow(metadata: pa.Buffer, table: int, field: int) -> int:
    """Return where the target of a reference is."""
    at = _place(metadata, table, field)
    if not at:
        raise DataFormatError(f"{_NOT_A_STREAM}: its metadata lacks field {field} of a table", remedy=_REMEDY)
    target: int = at + _UINT32.unpack_from(metadata, at)[0]
    return target


def _pairs(metadata: pa.Buffer, table: int, field: int) -> tuple[int, ...]:
    """Return the numbers of a vector of pairs of int64; an absent one is empty."""
    if not _place(metadata, table, field):
        return ()
    at = _follow(metadata, table, field)
    (count,) = _UINT32.unpack_from(metadata, at)
    return struct.unpack_from(f"<{2 * count}q", metadata, at + 4)


def _count_of(value: int) -> int:
    if value < 0:
        raise DataFormatError(f"{_NOT_A_STREAM}: its metadata has {value} in place of a count", remedy=_REMEDY)
    return value


# Bytes that rows share


def _count_shared_bytes(array: Any, budget: _MemoryBudget) -> None:
    """Count what the values of a validated array become when each has bytes of its own."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if kind.id == _DICTIONARY:
        budget.spend(array.dictionary.nbytes)  # it is validated again with each batch
        budget.spend(_decoded_bytes(array))
    elif kind.id in _VIEWS:
        budget.spend(_length_of_views(array))
    elif kind.id in _LIST_VIEWS:
        _check_apart(array)
    for child in _child_arrays(array):
        _count_shared_bytes(child, budget)


def _child_arrays(array: Any) -> list[Any]:
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    return [array.values] if kind.num_fields else []


def _decoded_bytes(array: Any) -> int:
    values = array.dictionary.storage if isinstance(array.dictionary, pa.ExtensionArray) else array.dictionary
    if values.type.id in _TEXTS:
        return _total_length(values, array.indices)
    width: int = -(-values.nbytes // max(1, len(values)))
    return len(array) * width


def _total_length(texts: Any, indices: Any) -> int:
    """Return the sum of the lengths of the texts at these indices."""
    import pyarrow.compute as pc  # not at the module's import: it takes long, and most batches do not need it

    lengths: Any = pc.binary_length(texts)
    return pc.sum(lengths.take(indices)).as_py() or 0


def _length_of_views(array: Any) -> int:
    views = np.frombuffer(memoryview(array.buffers()[1] or b""), "<i4").reshape(-1, 4)
    lengths = views[array.offset : array.offset + len(array), 0]
    return int(lengths[array.is_valid().to_numpy(zero_copy_only=False)].sum(dtype=np.int64))


def _check_apart(array: Any) -> None:
    """Raise DataFormatError if two lists of a list view have an element in common."""
    is_used = array.is_valid().to_numpy(zero_copy_only=False)
    begins, sizes = (part.to_numpy().astype(np.int64)[is_used] for part in (array.offsets, array.sizes))
    begins, sizes = begins[sizes > 0], sizes[sizes > 0]
    order = np.argsort(begins, kind="stable")
    ends = (begins + sizes)[order]
    if (begins[order][1:] < ends[:-1]).any():
        raise _refused("two lists of a list view share elements", "Cast the column to lists.")


def _aligned(data: pa.Buffer | memoryview | bytes) -> pa.Buffer:
    """Return the bytes at an address that is a multiple of 8: messages of a log can begin at any address."""
    source = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    return pa.py_buffer(source.to_pybytes()) if source.address % ALIGNMENT else source


@contextmanager
def _reading(failure: str, remedy: str = _REMEDY) -> Iterator[None]:
    """Raise DataFormatError for the errors that Arrow raises in the block."""
    try:
        yield
    except DataFormatError:
        raise
    except _READ_ERRORS as error:
        raise DataFormatError(f"{failure}: {str(error)[:MAX_REASON]}", remedy=remedy) from error
