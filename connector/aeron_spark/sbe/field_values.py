"""Converts the values of Arrow arrays to those that fields of fixed length have in SBE messages.

Each class is one kind of column. Its ``parts`` yields places in a block and the values to write there: a numpy array
with one value for each block, in the byte order of the schema. A value that the field cannot hold raises
:class:`Misfit`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

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
        what, remedy = "it is NULL, and the field is required", "Give a value. A query fills NULL with coalesce(...)."
        raise Misfit(int(np.argmin(is_valid(array))), what, remedy)


def refuse(wrong: Numbers, array: pa.Array[Any], problem: str, remedy: str) -> None:
    """Raise Misfit for the first value that is ``wrong``."""
    if wrong.any():
        raise misfit(int(np.argmax(wrong)), array, problem, remedy)


def misfit(index: int, array: pa.Array[Any], problem: str, remedy: str) -> Misfit:
    """Return the error of a value, with the value."""
    text = repr(array[index].as_py()) if len(array) else ""
    return Misfit(index, f"{text[:SHOWN]}{'…' * (len(text) > SHOWN)}: {problem}", remedy)


def nulls(count: int, kind: pa.DataType) -> pa.Array[Any]:
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


Part = tuple[int, Numbers]  # the offset in the block, and a value for each block

INT64_MAX: Final = (1 << 63) - 1


class FieldValues(Protocol):
    """The values of one column in the blocks of messages."""

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield what to write for the values of an array. Raises Misfit."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a message. ``type`` is numpy's name of it with its byte order; ``null`` is None if it is required."""

    type: str
    low: int
    high: int
    null: float | None

    def stored(self, numbers: Numbers, array: pa.Array[Any]) -> Numbers:
        """Return whole ``numbers``, of 64 bits and within the limits, as a message has them.

        ``array`` has them as the user does, for errors. Raises Misfit.
        """
        if self.null is None:
            refuse_null(array)
        else:
            bits = np.int64(_signed(int(self.null)))
            means_null = (numbers == bits) & is_valid(array)
            refuse(means_null, array, f"the field has {self.null} for NULL", "Write NULL, or another value.")
            if array.null_count:
                numbers = np.where(is_valid(array), numbers, bits)
        return numbers.astype(self.type)

    def check(self, numbers: Numbers, array: pa.Array[Any]) -> None:
        """Raise Misfit for whole numbers of 64 bits with a sign that are outside the limits."""
        outside = (numbers < self.low) | (numbers > min(self.high, INT64_MAX))
        self.refuse(outside & is_valid(array), array)

    def refuse(self, wrong: Numbers, array: pa.Array[Any]) -> None:
        """Raise Misfit for the first value that is ``wrong``, because it is outside the limits."""
        refuse(wrong, array, f"the field holds {self.low} to {self.high}", "Write a value that the field can hold.")


@dataclass(frozen=True, slots=True)
class Integers:
    """Whole numbers, and dates as days since 1970."""

    offset: int
    number: Number

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the numbers."""
        yield self.offset, self.number.stored(whole_numbers(array, self.number), array)


@dataclass(frozen=True, slots=True)
class Floats:
    """Floating-point numbers."""

    offset: int
    number: Number

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the numbers."""
        null = self.number.null
        numbers = buffer_of(array, "f4" if pa.types.is_float32(array.type) else "f8")
        if null is None:
            refuse_null(array)
        else:
            means_null = np.isnan(numbers) if null != null else numbers == null
            refuse(
                means_null & is_valid(array), array, f"the field has {null} for NULL", "Write NULL, or another value."
            )
            if array.null_count:
                numbers = np.where(is_valid(array), numbers, null)
        yield self.offset, numbers.astype(self.number.type)


@dataclass(frozen=True, slots=True)
class Decimals:
    """Decimals of type ``kind``, whose mantissas leave out ``digits`` zeros."""

    offset: int
    number: Number
    kind: pa.DataType
    digits: int

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the mantissas."""
        exact = cast(array, self.kind)
        if self.digits:
            exact = self._without_zeros(exact)
        yield self.offset, self.number.stored(mantissas(exact, self.number, array), array)

    def _without_zeros(self, array: pa.Array[Any]) -> pa.Array[Any]:
        step = 10**self.digits
        values = [None if value is None else int(value) for value in array.to_pylist()]
        broken = np.array([value is not None and value % step != 0 for value in values], bool)
        refuse(broken, array, f"the field holds multiples of {step}", "Round the values.")
        return pa.array([None if value is None else value // step for value in values], pa.decimal128(38, 0))


@dataclass(frozen=True, slots=True)
class FloatingDecimals:
    """Decimals of type ``kind`` whose mantissa and exponent are in the message; the exponent is the column's."""

    offset: int
    number: Number
    kind: pa.DataType
    exponent_offset: int
    exponent: Number

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the mantissas and the exponents."""
        exact = cast(array, self.kind)
        yield self.offset, self.number.stored(mantissas(exact, self.number, array), array)
        scale: Any = exact.type
        exponents: Numbers = np.full(len(array), -scale.scale, np.int64)
        if array.null_count and self.exponent.null is not None:
            exponents = np.where(is_valid(array), exponents, np.int64(_signed(int(self.exponent.null))))
        yield self.exponent_offset, exponents.astype(self.exponent.type)


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Times in a unit: 0, 3, 6 or 9 decimal digits of a second."""

    offset: int
    number: Number
    unit: int

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the numbers."""
        micros = buffer_of(cast(array, pa.timestamp("us", "UTC")), "i8")
        valid = is_valid(array)
        if self.unit <= 6:
            step = 10 ** (6 - self.unit)
            what = f"the field holds multiples of {step} microseconds"
            refuse((micros % step != 0) & valid, array, what, "Cut it with date_trunc.")
            numbers = micros // step
            self.number.check(numbers, array)
        else:
            step = 10 ** (self.unit - 6)
            low, high = -(-self.number.low // step), self.number.high // step
            what = f"the field holds {self.number.low} to {self.number.high} nanoseconds since 1970"
            refuse(((micros < low) | (micros > high)) & valid, array, what, "Write a time that the field can hold.")
            numbers = micros * step  # the bits of an unsigned number beyond those with a sign
        yield self.offset, self.number.stored(numbers, array)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of a fixed number of bytes; shorter ones are followed by zeros."""

    offset: int
    charset: str
    length: int
    optional: bool

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the bytes."""
        if not self.optional:
            refuse_null(array)
        found = encoded(array, self.charset)
        what = f"the field holds {self.length} bytes of {self.charset}"
        refuse(found.lengths > self.length, array, what, "Shorten it, for example with left(...).")
        self._refuse_zeros(found, array)
        matrix = np.zeros((len(array), self.length), np.uint8)
        found.copy_to(matrix.reshape(-1), np.arange(len(array), dtype=np.int64) * self.length)
        if self.length:
            yield self.offset, matrix.view(f"V{self.length}").reshape(-1)

    @staticmethod
    def _refuse_zeros(found: VariableBytes, array: pa.Array[Any]) -> None:
        zeros = np.flatnonzero(found.data == 0)
        if len(zeros):
            index = int(np.searchsorted(found.starts + found.lengths, zeros[0], side="right"))
            raise misfit(index, array, "a reader ends the text at its first NUL", "Remove the character NUL.")


@dataclass(frozen=True, slots=True)
class Characters:
    """Texts of one character and one byte."""

    offset: int
    charset: str
    number: Number

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the bytes."""
        found = encoded(array, self.charset)
        what = f"the field holds one byte of {self.charset}"
        refuse((found.lengths != 1) & is_valid(array), array, what, "Write one character.")
        numbers = np.zeros(len(array), np.int64)
        numbers[found.lengths == 1] = found.data
        yield self.offset, self.number.stored(numbers, array)


@dataclass(frozen=True, slots=True)
class FixedBytes:
    """Bytes of a fixed number."""

    offset: int
    length: int
    optional: bool

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the bytes."""
        if not self.optional:
            refuse_null(array)
        found = VariableBytes.of(array)
        what = f"the field holds exactly {self.length} bytes"
        refuse((found.lengths != self.length) & is_valid(array), array, what, "Write as many.")
        matrix = np.zeros((len(array), self.length), np.uint8)
        found.copy_to(matrix.reshape(-1), np.arange(len(array), dtype=np.int64) * self.length)
        if self.length:
            yield self.offset, matrix.view(f"V{self.length}").reshape(-1)


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays of a fixed number of elements."""

    offset: int
    count: int
    element: FieldValues
    element_type: pa.DataType

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the elements of each array as one value."""
        lists: Any = array
        lengths = list_lengths(lists)
        what = f"the field holds exactly {self.count} elements"
        remedy = "Write as many; an element may be NULL if the field is optional."
        refuse((lengths != self.count) & is_valid(array), array, what, remedy)
        if not self.count:
            return
        try:
            ((_, numbers),) = self.element.parts(lists.flatten())
        except Misfit as problem:
            index = int(np.flatnonzero(is_valid(array))[problem.index // self.count])
            raise Misfit(index, problem.problem, problem.remedy) from None
        rows = numbers.reshape(-1, self.count)
        if array.null_count:
            rows = self._with_nulls(rows, array)
        yield self.offset, np.ascontiguousarray(rows).view(f"V{self.count * rows.dtype.itemsize}").reshape(-1)

    def _with_nulls(self, rows: Numbers, array: pa.Array[Any]) -> Numbers:
        """Return the rows of all arrays, where ``rows`` has those that are not NULL: a NULL has NULL elements."""
        try:
            ((_, missing),) = self.element.parts(nulls(self.count, self.element_type))
        except Misfit:
            refuse_null(array)
            raise
        whole: Numbers = np.tile(missing, (len(array), 1))
        whole[is_valid(array)] = rows
        return whole


@dataclass(frozen=True, slots=True)
class EnumNames:
    """Names of an enum's values, and their numbers."""

    offset: int
    number: Number
    names: tuple[str, ...]
    values: tuple[int, ...]

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the numbers."""
        indexes = indexes_of(array, self.names, "value", "sbeEnums=values")
        numbers = np.array([*self.values, 0], np.int64)[indexes]
        yield self.offset, self.number.stored(numbers, array)


@dataclass(frozen=True, slots=True)
class SetNames:
    """Lists with the names of a set's choices, and their bits."""

    offset: int
    type: str
    names: tuple[str, ...]
    bits: tuple[int, ...]
    optional: bool

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the sets."""
        if not self.optional:
            refuse_null(array)
        lists: Any = array
        sets = np.repeat(np.arange(len(array)), list_lengths(lists))
        names: Any = lists.flatten()
        try:
            refuse_null(names)
            indexes = indexes_of(names, self.names, "choice", "sbeSets=bits")
        except Misfit as problem:
            raise Misfit(int(sets[problem.index]), problem.problem, problem.remedy) from None
        found = np.zeros(len(array), np.uint64)
        np.bitwise_or.at(found, sets, np.array([*(1 << bit for bit in self.bits), 0], np.uint64)[indexes])
        yield self.offset, found.astype(self.type)


@dataclass(frozen=True, slots=True)
class SetFlags:
    """Structs of BOOLEAN with a set's choices, and their bits."""

    offset: int
    type: str
    bits: tuple[int, ...]
    optional: bool

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield the sets."""
        if not self.optional:
            refuse_null(array)
        structs: Any = array
        found = np.zeros(len(array), np.uint64)
        for bit, flags in zip(self.bits, structs.flatten(), strict=True):
            refuse(is_valid(array) & ~is_valid(flags), array, "a flag is NULL", "Write true or false.")
            found |= pc.fill_null(flags, False).to_numpy(zero_copy_only=False).astype(np.uint64) << np.uint64(bit)
        yield self.offset, found.astype(self.type)


@dataclass(frozen=True, slots=True)
class Constants:
    """Values that every message has and no message holds: other values are refused."""

    kind: pa.DataType
    value: Any

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield nothing."""
        differs: Any = pc.not_equal(cast(array, self.kind), pa.scalar(self.value, self.kind))
        wrong = pc.fill_null(differs, False).to_numpy(zero_copy_only=False)
        refuse(wrong, array, f"the field is the constant {self.value!r}", "Write it or NULL, or drop the column.")
        yield from ()


@dataclass(frozen=True, slots=True)
class Structs:
    """Composites: the values of their members."""

    names: tuple[str, ...]
    members: tuple[FieldValues, ...]
    types: tuple[pa.DataType, ...]

    def parts(self, array: pa.Array[Any]) -> Iterator[Part]:
        """Yield those of the members."""
        given = children_of(array)
        for name, member, kind in zip(self.names, self.members, self.types, strict=True):
            try:
                yield from member.parts(given.get(name, nulls(len(array), kind)))
            except Misfit as problem:
                path = f"{name}.{problem.path}" if problem.path else name
                raise Misfit(problem.index, problem.problem, problem.remedy, path) from None


def whole_numbers(array: pa.Array[Any], number: Number) -> NDArray[np.int64]:
    """Return integers, decimals without a fraction, or dates, as 64 bits. Raises Misfit outside the limits."""
    kind: Any = array.type
    if pa.types.is_uint64(kind):
        array = array.cast(pa.decimal128(20, 0))
    if pa.types.is_decimal(array.type):
        return mantissas(cast(array, pa.decimal128(38, 0)), number, array)
    numbers = buffer_of(array, "i4" if pa.types.is_date32(kind) else kind.to_pandas_dtype()).astype(np.int64)
    number.check(numbers, array)
    return numbers


def mantissas(array: pa.Array[Any], number: Number, shown: pa.Array[Any]) -> NDArray[np.int64]:
    """Return decimals without their points, as 64 bits. Raises Misfit, with the values ``shown``, outside the limits.

    The bits of a number above the largest one with a sign are those without.
    """
    words = buffer_of(array, "i8", 2).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    if number.high > INT64_MAX:
        number.refuse((high != 0) & is_valid(array), shown)
    else:
        number.refuse((high != low >> 63) & is_valid(array), shown)
        number.check(low, shown)
    return np.ascontiguousarray(low)


def indexes_of(array: pa.Array[Any], names: tuple[str, ...], noun: str, option: str) -> NDArray[np.int64]:
    """Return for each name its index, -1 for NULL. Raises Misfit for an unknown one."""
    found: Any = pc.index_in(array, pa.array(names, array.type))
    unknown = (~is_valid(found)) & is_valid(array)
    if unknown.any():
        index = int(np.argmax(unknown))
        close = difflib.get_close_matches(array[index].as_py(), names, n=1)
        remedy = f"Did you mean {close[0]!r}?" if close else f"The names are {', '.join(names)}"[:400] + "."
        raise misfit(index, array, f"the schema has no such {noun}", f"{remedy} Numbers need {option}.")
    indexes: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return indexes


def _signed(number: int) -> int:
    """Return a number of 64 bits with the sign that its bits have."""
    return number - (1 << 64) if number > INT64_MAX else number
