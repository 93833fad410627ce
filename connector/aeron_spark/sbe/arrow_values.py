"""The values of Arrow arrays as numpy has them, and the errors of values that a message cannot hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[Any]

SHOWN: Final = 60  # characters of a value in an error


class Misfit(Exception):
    """A value that its field cannot hold: its index in the array, the problem, what to do, and the path of names."""

    def __init__(self, index: int, problem: str, remedy: str, path: str = "") -> None:
        super().__init__(problem)
        self.index = index
        self.problem = problem
        self.remedy = remedy
        self.path = path


@dataclass(frozen=True, slots=True)
class VariableBytes:
    """Values of different lengths, back to back in ``data``; NULL has none."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    data: NDArray[np.uint8]

    _SHORT = 64  # bytes; a longer value is copied by itself, because an index for each byte takes eight

    @classmethod
    def of(cls, array: pa.Array[Any]) -> VariableBytes:
        """Return the bytes of a binary or string array."""
        kind = array.type
        if array.null_count:
            is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
            array = pc.fill_null(array, pa.scalar(b"" if is_binary else "", kind))
        is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        _, offset_buffer, data = array.buffers()
        width = "i8" if is_large else "i4"
        count = len(array)
        offsets: NDArray[np.int64] = (
            np.zeros(1, np.int64)
            if offset_buffer is None or not count
            else np.frombuffer(memoryview(offset_buffer), width)[array.offset : array.offset + count + 1].astype(
                np.int64
            )
        )
        first, last = int(offsets[0]), int(offsets[-1])
        content = np.zeros(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)[first:last]
        return cls(offsets[:-1] - first, np.diff(offsets), content)

    def copy_to(self, memory: NDArray[np.uint8], places: NDArray[np.int64]) -> None:
        """Copy each value to its place."""
        short = self.lengths <= self._SHORT
        lengths = np.where(short, self.lengths, 0)
        within = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        memory[np.repeat(places, lengths) + within] = self.data[np.repeat(self.starts, lengths) + within]
        for index in np.flatnonzero(~short):
            start, length, place = int(self.starts[index]), int(self.lengths[index]), int(places[index])
            memory[place : place + length] = self.data[start : start + length]


def encoded(array: pa.Array[Any], charset: str) -> VariableBytes:
    """Return the bytes of texts. Raises Misfit for a character that the encoding does not have."""
    found = VariableBytes.of(array)
    if charset == "UTF-8" or not len(found.data) or found.data.max() < 0x80:
        return found  # all encodings have the characters of ASCII as their own bytes
    texts: list[bytes | None] = []
    for index, text in enumerate(array.to_pylist()):
        try:
            texts.append(None if text is None else text.encode(charset))
        except UnicodeEncodeError:
            raise misfit(index, array, f"{charset} lacks one of its characters", "Replace the character.") from None
    return VariableBytes.of(pa.array(texts, pa.large_binary()))


def cast(array: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return the same values with another type. Raises Misfit for the first value that it does not have."""
    if array.type.equals(kind):
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        raise misfit(
            _first_failing(array, kind), array, f"the column is {kind}", "Round it, or use a longer type."
        ) from None


def _first_failing(array: pa.Array[Any], kind: pa.DataType) -> int:
    """Return the index of the first value that cannot be cast, by halves."""
    first, end = 0, len(array)
    while end - first > 1:
        middle = (first + end) // 2
        try:
            array.slice(first, middle - first).cast(kind)
            first = middle
        except pa.ArrowInvalid:
            end = middle
    return first


def refuse_null(array: pa.Array[Any]) -> None:
    """Raise Misfit for the first NULL."""
    if array.null_count:
        raise Misfit(
            int(np.argmin(is_valid(array))), "it is NULL, and the field is required",
            "Give a value. A query fills NULL with coalesce(...).",
        )  # fmt: skip


def refuse(wrong: Numbers, array: pa.Array[Any], problem: str, remedy: str) -> None:
    """Raise Misfit for the first value that is ``wrong``."""
    if wrong.any():
        raise misfit(int(np.argmax(wrong)), array, problem, remedy)


def misfit(index: int, array: pa.Array[Any], problem: str, remedy: str) -> Misfit:
    """Return the error of a value, with the value."""
    text = repr(array[index].as_py()) if len(array) else ""
    return Misfit(index, f"{text[:SHOWN]}{'…' * (len(text) > SHOWN)}: {problem}", remedy)


def nulls(count: int, kind: pa.DataType) -> pa.Array[Any]:
    """Return an array of NULL."""
    any_kind: Any = kind  # the stubs have an overload for each type
    found: pa.Array[Any] = pa.nulls(count, any_kind)
    return found


def is_valid(array: pa.Array[Any]) -> NDArray[np.bool_]:
    """Return for each value whether it is not NULL."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    valid: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def list_lengths(lists: Any) -> NDArray[np.int64]:
    """Return the number of elements of each list; NULL has none."""
    lengths: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)


def children_of(array: Any) -> dict[str, pa.Array[Any]]:
    """Return the fields of structs by name; those of a NULL are NULL. An array of the type null has none."""
    if pa.types.is_null(array.type):
        return {}
    return dict(zip([field.name for field in array.type], array.flatten(), strict=True))


def buffer_of(array: pa.Array[Any], kind: Any, values: int = 1) -> Numbers:
    """Return the values of an array of a fixed width, those of NULL being any; ``values`` of ``kind`` are one."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array) * values, kind)
    numbers: Numbers = np.frombuffer(memoryview(data), kind)
    return numbers[array.offset * values : (array.offset + len(array)) * values]
