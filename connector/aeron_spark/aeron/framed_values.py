"""Encodes and decodes many values of the wire format at once with the Java helper; no Python runs per message.

The results are those of ``encode_values`` and ``decode_values`` in ``wire.values``, which do the work if no JVM runs.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aeron_spark.aeron.checksum import is_in_java
from aeron_spark.aeron.jvm import enter_java, jclass
from aeron_spark.wire import values as in_python
from aeron_spark.wire.chunks import Content, Header, encode_header
from aeron_spark.wire.values import FIELDS, Values, repeated

# In the order of the arguments in Java.
NUMBERS: Final = ("published", "batch", "partition", "row")
NUMBERS_OF_A_RUN: Final = 3


class FramedDecoder:
    """Decodes the ``wanted`` fields of values. Not thread-safe."""

    def __init__(self, wanted: Collection[str] = FIELDS) -> None:
        self._wanted = wanted
        self._java: Any = None

    def decode(self, messages: pa.Array[Any], begin: int) -> Values:
        """Decode consecutive messages (binary) from index ``begin``; see ``wire.values.decode_values``."""
        if not _can_use_java():
            return in_python.decode_values(messages, begin, self._wanted)
        if self._java is None:
            self._java = jclass("io.aeronspark.wire.ValueDecoder")()
        enter_java()
        _, offsets, data = messages.buffers()
        assert offsets is not None  # Arrow omits them only in an empty array
        memory = _ColumnMemory(self._wanted, messages, begin)
        count = int(
            self._java.decode(
                0 if data is None else data.address,
                offsets.address + 4 * messages.offset,
                begin,
                len(messages),
                memory.address("ends"),
                memory.address("value"),
                *(memory.address(name) for name in NUMBERS),
            )
        )
        fields = memory.arrays(count)
        if "writer" in self._wanted:
            fields["writer"] = self._writers(memoryview(data or b""), count)
        return Values(begin, count, fields)

    def _writers(self, data: memoryview, count: int) -> pa.Array[Any]:
        """Return the writer of each message. Most batches have one writer."""
        runs = np.array(self._java.writerRuns(), np.int64).reshape(-1, NUMBERS_OF_A_RUN).tolist()
        ids = [str(data[at : at + length], "utf-8") for _, at, length in runs]
        if len(ids) == 1:
            return repeated(ids[0], FIELDS["writer"], count)
        lengths = [end - start for start, end in pairwise([*(start for start, _, _ in runs), count])]
        indices = np.repeat(np.arange(len(ids)), lengths)
        found: pa.Array[Any] = pa.array(ids, FIELDS["writer"]).take(indices)
        return found


class _ColumnMemory:
    """Memory for the wanted columns of the messages from an index on."""

    def __init__(self, wanted: Collection[str], messages: pa.Array[Any], begin: int) -> None:
        rows = len(messages) - begin
        self._buffers = {
            name: pa.allocate_buffer(rows * FIELDS[name].bit_width // 8) for name in NUMBERS if name in wanted
        }
        if "value" in wanted:
            self._buffers["ends"] = pa.allocate_buffer(4 * (rows + 1))
            first, last = in_python.bounds(messages, begin)
            # At least one byte, because Java takes the address 0 for a column that is not wanted.
            self._buffers["value"] = pa.allocate_buffer(max(1, last - first))

    def address(self, name: str) -> int:
        """Return the address of a column, 0 for one that is not wanted."""
        return self._buffers[name].address if name in self._buffers else 0

    def arrays(self, rows: int) -> dict[str, pa.Array[Any]]:
        """Return the wanted columns with the first ``rows`` rows."""
        found: dict[str, pa.Array[Any]] = {
            name: pa.Array.from_buffers(FIELDS[name], rows, [None, self._buffers[name]])
            for name in NUMBERS
            if name in self._buffers
        }
        if "value" in self._buffers:
            buffers = [None, self._buffers["ends"], self._buffers["value"]]
            found["value"] = pa.Array.from_buffers(FIELDS["value"], rows, buffers)
        return found


def encode_values(values: pa.Array[Any], header: Header, first_row: int) -> pa.Array[Any]:
    """Encode each value as one message; see ``wire.values.encode_values``."""
    is_narrow = pa.types.is_binary(values.type) or pa.types.is_string(values.type)
    if not is_narrow or not len(values) or not _can_use_java():
        return in_python.encode_values(values, header, first_row)
    enter_java()
    count = len(values)
    _, offsets, data = values.buffers()
    assert offsets is not None  # Arrow omits them only in an empty array
    template = pa.py_buffer(encode_header(replace(header, total=0, content=Content.BYTES, first=True, last=True), b""))
    first, last = in_python.bounds(values, 0)
    ends = pa.allocate_buffer(4 * (count + 1))
    messages = pa.allocate_buffer(last - first + count * template.size)
    jclass("io.aeronspark.wire.ValueEncoder").encode(
        0 if data is None else data.address,
        offsets.address + 4 * values.offset,
        count,
        template.address,
        template.size,
        first_row,
        messages.address,
        ends.address,
    )
    found: pa.Array[Any] = pa.Array.from_buffers(pa.binary(), count, [None, ends, messages])
    return found


def _can_use_java() -> bool:
    """Whether the JVM runs and allows access to its CRC-32. Java reads numbers in the byte order of the machine."""
    return sys.byteorder == "little" and is_in_java()
