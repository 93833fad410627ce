"""Packs a value of each of many recordings into a short text, grouped by archive and sorted. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Final, TypeVar

from aeron_spark.log.api import recording_key, split_key
from aeron_spark.transport.channel import FRAME_ALIGNMENT

Value = TypeVar("Value")
_MAX_VARINT_BITS: Final = 63
MAX_NAME_BYTES: Final = 1_024  # of an archive, which is in the key of each of its recordings
MAX_NUMBER: Final = (1 << 63) - 1  # of a position, and of a recording's id


def pack_values(values: Mapping[str, Value], encode: Callable[[Value], bytes]) -> str:
    """Return the values, by recording, as a text; equal values have the same text."""
    entries = sorted(((*split_key(key), one) for key, one in values.items()), key=lambda entry: entry[:2])
    out = bytearray()
    for archive, group in groupby(entries, key=lambda entry: entry[0]):
        members = list(group)
        name = archive.encode("utf-8")
        out += varint(len(name)) + name + varint(len(members))
        before = 0
        for _, number, one in members:
            out += varint(number - before) + encode(one)
            before = number
    return base64.b64encode(out).decode("ascii")


def unpack_values(
    text: str, decode: Callable[[ByteReader], Value], encode: Callable[[Value], bytes]
) -> dict[str, Value]:
    """Return the values of a text of ``pack_values``, in its order. Raises ValueError for other texts."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None
    reader = ByteReader(data)
    values: dict[str, Value] = {}
    while reader.remaining:
        length = reader.varint()
        if length > MAX_NAME_BYTES:
            raise ValueError(f"not valid: an archive's name has {length} bytes")
        archive = reader.bytes(length).decode("utf-8")
        number = 0
        for _ in range(reader.varint()):
            number += reader.varint()
            if number > MAX_NUMBER:
                raise ValueError("not valid: a recording's id is too large")
            values[recording_key(archive, number)] = decode(reader)
    # Equal values must have only one text, because offsets are compared as texts.
    if pack_values(values, encode) != text:
        raise ValueError("not in canonical form")
    return values


def varint(number: int) -> bytes:
    """Return a number that is not negative in as few bytes as it needs, seven bits in each."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class ByteReader:
    """Reads bytes in order. Raises ValueError beyond the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        """Bytes that are not read yet."""
        return len(self._data) - self._at

    def bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        if count > self.remaining:
            raise ValueError("truncated")
        self._at += count
        return self._data[self._at - count : self._at]

    def length(self) -> int:
        """Return the length or position that comes next as a multiple of ``FRAME_ALIGNMENT``."""
        number = self.varint() * FRAME_ALIGNMENT
        if number > MAX_NUMBER:
            raise ValueError("not valid: a position is too large")
        return number

    def varint(self) -> int:
        """Return the number that comes next."""
        number = shift = 0
        while shift < _MAX_VARINT_BITS:
            byte = self.bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise ValueError("not valid: a number is too long")
