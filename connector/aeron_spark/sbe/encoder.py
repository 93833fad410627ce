"""Encodes rows as SBE messages, column by column with numpy; no Python runs per row, except for long or odd texts.

A batch is encoded in two passes over the blocks of its messages, level by level. The first one measures: how many
entries each group has, and how long each block is with its groups and data. The second one writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aeron_spark.errors import DataFormatError
from aeron_spark.sbe.arrow_values import Misfit, VariableBytes, children_of, encoded, list_lengths, nulls
from aeron_spark.sbe.encode_plan import Counter, EncodePlan, PlannedBlock, PlannedData, PlannedField, PlannedGroup
from aeron_spark.sbe.field_values import Part

MAX_BYTES: Final = 1 << 28  # of an array of messages

Integers = NDArray[np.int64]
Memory = NDArray[np.uint8]


def row_of(source: str) -> Callable[[int], str]:
    """Return a function that names rows of ``source`` by their numbers."""
    return lambda number: f"row {number} of {source}"


class SbeEncoder:
    """Encodes rows; ``rows`` counts them over all calls. ``name_row`` names one in an error, by its number from 0.

    For one thread.
    """

    def __init__(self, plan: EncodePlan, name_row: Callable[[int], str]) -> None:
        self._plan = plan
        self._name_row = name_row
        self.rows = 0

    def encode(self, batch: pa.RecordBatch) -> Iterator[pa.Array[Any]]:
        """Yield the messages of the rows (binary), in arrays of at most :data:`MAX_BYTES`, or of one message.

        Raises DataFormatError, with row and column, for a value that its field cannot hold.
        """
        if not batch.num_rows:
            return
        rows = np.arange(self.rows, self.rows + batch.num_rows, dtype=np.int64)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        measured = _measure(self._plan.block, columns, _Place(rows, self._name_row))
        sizes = measured.sizes + len(self._plan.header)
        if int(sizes.sum()) > MAX_BYTES and batch.num_rows > 1:
            middle = batch.num_rows // 2
            yield from self.encode(batch.slice(0, middle))
            yield from self.encode(batch.slice(middle))
            return
        yield self._write(measured, sizes)
        self.rows += batch.num_rows

    def _write(self, measured: _Blocks, sizes: Integers) -> pa.Array[Any]:
        header = self._plan.header
        ends = np.cumsum(sizes)
        starts = ends - sizes
        memory: Memory = np.zeros(int(ends[-1]), np.uint8)
        _scatter(memory, starts, np.full(len(starts), np.frombuffer(header, f"V{len(header)}")))
        measured.write(memory, starts + len(header))
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        buffers: list[Any] = [None, pa.py_buffer(offsets.data), pa.py_buffer(memory.data)]
        return pa.Array.from_buffers(pa.binary(), len(starts), buffers, null_count=0)


@dataclass(frozen=True, slots=True)
class _Place:
    """The rows of some blocks, a function that names a row, and the path of names to the blocks, for errors."""

    rows: Integers
    name_row: Callable[[int], str]
    path: str = ""

    def error(self, name: str, problem: Misfit) -> DataFormatError:
        path = f"{self.path}{name}" + (f".{problem.path}" if problem.path else "")
        return DataFormatError(
            f"{self.name_row(int(self.rows[problem.index]))}, column {path!r}: {problem.problem}",
            remedy=problem.remedy,
        )


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The blocks of one level of a batch, measured: ``sizes`` are in bytes, with the groups and data behind each."""

    length: int
    parts: list[Part]
    groups: list[_Entries]
    data: list[_Data]
    sizes: Integers

    def write(self, memory: Memory, starts: Integers) -> None:
        """Write the blocks, which begin at ``starts``."""
        if self.length and len(starts):
            blocks: Memory = np.zeros((len(starts), self.length), np.uint8)
            for offset, values in self.parts:
                target: Any = np.ndarray(
                    (len(starts),), values.dtype, buffer=blocks, offset=offset, strides=(self.length,)
                )
                target[:] = values
            _scatter(memory, starts, blocks.view(f"V{self.length}").reshape(-1))
        places = starts + self.length
        for group in self.groups:
            places = group.write(memory, places)
        for data in self.data:
            places = data.write(memory, places)


@dataclass(frozen=True, slots=True)
class _Entries:
    """A group in all blocks of a level: the number of its entries in each, and the entries."""

    group: PlannedGroup
    counts: Integers
    entries: _Blocks

    def sizes(self) -> Integers:
        """Return the bytes of the group in each block."""
        ends, firsts = self._ends()
        lengths: Integers = ends[firsts + self.counts] - ends[firsts] + len(self.group.header)
        return lengths

    def write(self, memory: Memory, places: Integers) -> Integers:
        """Write the group at ``places``; return where each ends."""
        header = self.group.header
        if header:
            _scatter(memory, places, np.full(len(places), np.frombuffer(header, f"V{len(header)}")))
        _put_counts(memory, places, self.group.count, self.counts)
        ends, firsts = self._ends()
        self.entries.write(memory, np.repeat(places + len(header) - ends[firsts], self.counts) + ends[:-1])
        return places + self.sizes()

    def _ends(self) -> tuple[Integers, Integers]:
        """Return the ends of all entries if they lie back to back, behind a 0; and each block's first entry."""
        ends: Integers = np.concatenate(([0], np.cumsum(self.entries.sizes)))
        return ends, np.cumsum(self.counts) - self.counts


@dataclass(frozen=True, slots=True)
class _Data:
    """Data in all blocks of a level."""

    data: PlannedData
    values: VariableBytes

    def write(self, memory: Memory, places: Integers) -> Integers:
        """Write the data at ``places``; return where each ends."""
        _put_counts(memory, places, self.data.length, self.values.lengths)
        self.values.copy_to(memory, places + self.data.header_length)
        return places + self.data.header_length + self.values.lengths


def _measure(planned: PlannedBlock, columns: dict[str, pa.Array[Any]], place: _Place) -> _Blocks:
    """Return the blocks of rows or entries. A missing column is NULL. Raises DataFormatError."""
    count = len(place.rows)

    def column(one: PlannedField | PlannedGroup | PlannedData) -> pa.Array[Any]:
        given = columns.get(one.name)
        return nulls(count, one.type) if given is None or pa.types.is_null(given.type) else given

    parts = [part for field in planned.fields for part in _parts(field, column(field), place)]
    groups = [_entries(group, column(group), place) for group in planned.groups]
    data = [_data(one, column(one), place) for one in planned.data]
    sizes: Integers = np.full(count, planned.length, np.int64)
    for group in groups:
        sizes += group.sizes()
    for one in data:
        sizes += one.data.header_length + one.values.lengths
    return _Blocks(planned.length, parts, groups, data, sizes)


def _parts(field: PlannedField, array: pa.Array[Any], place: _Place) -> list[Part]:
    try:
        return list(field.values.parts(array))
    except Misfit as problem:
        raise place.error(field.name, problem) from None


def _entries(group: PlannedGroup, array: Any, place: _Place) -> _Entries:
    counts = list_lengths(array)
    _refuse_long(counts, group.count, "entries", group.name, place)
    inner = array.flatten()
    inside = _Place(np.repeat(place.rows, counts), place.name_row, f"{place.path}{group.name}.")
    if inner.null_count:
        index = int(np.argmin(inner.is_valid().to_numpy(zero_copy_only=False)))
        row = _Place(inside.rows, place.name_row, place.path)
        raise row.error(group.name, Misfit(index, "an entry is NULL", "Remove it from the array."))
    return _Entries(group, counts, _measure(group.block, children_of(inner), inside))


def _data(data: PlannedData, array: pa.Array[Any], place: _Place) -> _Data:
    try:
        values = encoded(array, data.charset) if data.charset else VariableBytes.of(array)
    except Misfit as problem:
        raise place.error(data.name, problem) from None
    _refuse_long(values.lengths, data.length, "bytes", data.name, place)
    return _Data(data, values)


def _refuse_long(lengths: Integers, counter: Counter, noun: str, name: str, place: _Place) -> None:
    if len(lengths) and int(lengths.max()) > counter.high:
        index = int(np.argmax(lengths > counter.high))
        problem = f"it has {lengths[index]} {noun}, and the message holds at most {counter.high}"
        raise place.error(name, Misfit(index, problem, "Write fewer, or use a wider type in the schema."))


def _put_counts(memory: Memory, places: Integers, counter: Counter, counts: Integers) -> None:
    _scatter(memory, places + counter.offset, counts.astype(counter.type))


def _scatter(memory: Memory, places: Integers, values: NDArray[Any]) -> None:
    """Write each value at its place, which may be any byte."""
    width = values.dtype.itemsize
    if len(places):
        windows: Any = np.ndarray((len(memory) - width + 1,), f"V{width}", buffer=memory, strides=(1,))
        windows[places] = values.view(f"V{width}")
