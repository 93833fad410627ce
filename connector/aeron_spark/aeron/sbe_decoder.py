"""Decodes SBE messages of an Arrow array into columns with the Java helper; no Python runs per message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import jpype
import pyarrow as pa

from aeron_spark.aeron.java_calls import describe
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import DataFormatError
from aeron_spark.sbe.table import DecodeTable

_SKIP_REMEDY: Final = (
    "Use the schema that the publisher uses; or set the mode PERMISSIVE (a malformed message becomes a row with "
    "_corrupt_record) or DROPMALFORMED (it is left out)."
)
_OTHERS_REMEDY: Final = "Choose this message, too, or let other messages be skipped."


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows of some messages. ``columns`` are those of the table; ``sources`` is the index of each row's value (int32).

    ``others`` is the number of messages that were not wanted, ``dropped`` that of malformed messages left out.
    """

    columns: list[pa.Array[Any]]
    rows: int
    sources: pa.Array[Any]
    others: int
    dropped: int


class SbeDecoder:
    """Decodes values as a table says. ``locate`` describes the value with an index, for errors. Not thread-safe."""

    def __init__(self, table: DecodeTable) -> None:
        self._table = table
        self._java = jclass("io.aeronspark.sbe.SbeDecoder")(
            jpype.JArray(jpype.JLong)(table.numbers), jpype.JArray(jpype.JString)(table.texts)
        )

    def decode(self, values: pa.Array[Any], locate: Callable[[int], str]) -> Iterator[DecodedRows]:
        """Yield the rows of ``values`` (binary) in batches. Raises DataFormatError as the mode and policies say."""
        count = len(values)
        if not count:
            return
        validity, offsets, data = values.buffers()
        assert offsets is not None  # Arrow omits them only in an empty array
        done = 0
        while done < count:
            try:
                done += int(
                    self._java.walk(
                        0 if data is None else data.address,
                        0 if data is None else data.size,
                        offsets.address + 4 * values.offset,
                        0 if validity is None else validity.address,
                        values.offset,
                        done,
                        count,
                    )
                )
                if self._java.hasFailed():
                    raise self._failure(locate)
                length = int(self._java.outputLength())
            except jpype.JException as error:
                raise _too_long(locate(done), error) from error
            yield self._take(length)

    def _take(self, length: int) -> DecodedRows:
        memory = pa.allocate_buffer(length)
        self._java.fill(memory.address)
        reader = _ArrayReader(memory, memoryview(self._java.places()).cast("B").cast("q").tolist())
        rows = int(self._java.rows())
        arrays = [reader.array(field.type) for field in self._table.schema]
        sources = reader.array(pa.int32())
        others, dropped = (int(number) for number in self._java.counts())
        return DecodedRows(arrays, rows, sources, others, dropped)

    def _failure(self, locate: Callable[[int], str]) -> DataFormatError:
        value, message, byte = (int(number) for number in self._java.failedPlace())
        is_other = bool(self._java.hasFailedForType())
        kind = "is not wanted" if is_other else "is malformed"
        number = f"message {message} in it" if message else "the message"
        return DataFormatError(
            f"{locate(value)}: {number} {kind} at byte {byte}: {self._java.failure()} ({self._table.label})",
            remedy=_OTHERS_REMEDY if is_other else _SKIP_REMEDY,
        )


def _too_long(first: str, error: Exception) -> DataFormatError:
    """Return the error for messages whose places or columns are longer than the memory of Java or an array."""
    return DataFormatError(
        f"{first}: the columns of the messages from there are too long: {describe(error)}",
        remedy="Choose fewer columns with .schema(...), or read the messages with payload=raw.",
    )


class _ArrayReader:
    """Makes the arrays of one memory from their places, in order."""

    def __init__(self, memory: pa.Buffer, places: list[int]) -> None:
        self._memory = memory
        self._places = places
        self._next = 0

    def array(self, kind: pa.DataType) -> pa.Array[Any]:
        """Return the next array, of this type."""
        length, nulls = self._numbers(2)
        buffers: list[pa.Buffer | None] = [self._buffer()]
        if not nulls:
            buffers[0] = None
        if pa.types.is_struct(kind):
            children = [self.array(kind.field(index).type) for index in range(kind.num_fields)]
            return pa.Array.from_buffers(kind, length, buffers, nulls, children=children)
        buffers.append(self._buffer())
        if pa.types.is_list(kind):
            return pa.Array.from_buffers(kind, length, buffers, nulls, children=[self.array(kind.value_type)])
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            buffers.append(self._buffer())
        return pa.Array.from_buffers(kind, length, buffers, nulls)

    def _numbers(self, count: int) -> list[int]:
        found = self._places[self._next : self._next + count]
        self._next += count
        return found

    def _buffer(self) -> pa.Buffer:
        offset, length = self._numbers(2)
        return self._memory.slice(offset, length)
