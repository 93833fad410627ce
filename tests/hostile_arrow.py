"""Arrow batches of a hostile writer. A program that trusts their bytes ends by SIGSEGV, or has an unexpected error."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa


def ints(*values: int) -> pa.Buffer:
    """Return the bytes of int32 numbers."""
    return pa.py_buffer(np.array(values, np.int32).tobytes())


def texts(*offsets: int, data: bytes = b"abcdefghijklmnop") -> pa.Array[Any]:
    """Return an array of strings with these offsets, which nothing has checked."""
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, ints(*offsets), pa.py_buffer(data)])


def stream_of(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    """Return the Arrow IPC stream of a batch, which nothing checks."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _zeros() -> bytes:
    size = 1 << 26
    zeros = pa.Array.from_buffers(pa.string(), 4, [None, ints(0, 0, 0, 0, size), pa.py_buffer(bytes(size))])
    return stream_of(pa.record_batch({"text": zeros}), "zstd")


_GOOD: Final = pa.record_batch({"text": texts(0, 4, 8, 12, 16), "name": pa.nulls(4)})

# Streams of four rows with the column "text", and a part of the reason for which each is refused.
HOSTILE: Final[dict[str, tuple[bytes, str]]] = {
    "offset": (stream_of(pa.record_batch({"text": texts(0, 4, 0x7FFFFFF0, 12, 16)})), "not an Arrow IPC stream"),
    "negative": (stream_of(pa.record_batch({"text": texts(0, 4, -0x7FFFFFF0, 12, 16)})), "not an Arrow IPC stream"),
    "encoding": (stream_of(pa.record_batch({"text": texts(0, 1, 2, 3, 4, data=b"\xff\xfe\xfd\xfc")})), "UTF8"),
    "zeros": (_zeros(), "become more than"),
    "name": (stream_of(_GOOD).replace(b"name", b"\xff\xfeme"), "is not UTF-8"),
    "truncated": (stream_of(_GOOD)[:-100], "not an Arrow IPC stream"),
}  # fmt: skip
