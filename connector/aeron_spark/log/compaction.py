"""Finished recordings, packed: what an offset keeps of a recording that stopped and was read to its end.

A query that runs for a year may have seen thousands of recordings (every restart of a publisher begins a new one). They
cannot be forgotten, since one of them may be extended; so they are packed into base64 of this, losslessly:

    for each archive, in the order of names:
        varint  length of the name, then the name in UTF-8
        varint  number of recordings
        for each recording, in the order of ids:
            varint  id, less the id before (the first: less nothing)
            varint  position / 32
            varint  tail / 32
            4 bytes fingerprint

``varint`` is LEB128: seven bits a byte, the lowest first, the top bit set on all but the last byte.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from aeron_spark.log.api import FRAME_ALIGNMENT, recording_key, split_key

_FINGERPRINT_BYTES: Final = 4
_MAX_VARINT_BITS: Final = 63


@dataclass(frozen=True, slots=True)
class Finished:
    """A recording read to ``position``, after which only an unfinished ``tail`` (usually 0 bytes) was recorded."""

    position: int
    tail: int
    fingerprint: str

    @property
    def seen(self) -> int:
        """The recorded end that is known to hold nothing more; beyond it the recording was extended."""
        return self.position + self.tail

    @property
    def packable(self) -> bool:
        """Whether packing loses nothing: Aeron's own positions are aligned, those of a test may not be."""
        return self.position % FRAME_ALIGNMENT == 0 and self.tail % FRAME_ALIGNMENT == 0


def pack(finished: Mapping[str, Finished]) -> str:
    """Pack; the same recordings give the same text. Every one of them must be ``packable``."""
    entries = sorted(((*split_key(key), one) for key, one in finished.items()), key=lambda entry: entry[:2])
    out = bytearray()
    for archive, group in groupby(entries, key=lambda entry: entry[0]):
        members = list(group)
        name = archive.encode("utf-8")
        out += _varint(len(name)) + name + _varint(len(members))
        before = 0
        for _, number, one in members:
            out += (
                _varint(number - before)
                + _varint(one.position // FRAME_ALIGNMENT)
                + _varint(one.tail // FRAME_ALIGNMENT)
            )
            out += bytes.fromhex(one.fingerprint)
            before = number
    return base64.b64encode(out).decode("ascii")


def unpack(text: str) -> dict[str, Finished]:
    """Give back what was packed, sorted as it was. Raises ``ValueError`` for anything that ``pack`` did not write."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None
    taken = _Taken(data)
    finished: dict[str, Finished] = {}
    while taken.left:
        archive = taken.bytes(taken.varint()).decode("utf-8")
        number = 0
        for _ in range(taken.varint()):
            number += taken.varint()
            position, tail = taken.varint() * FRAME_ALIGNMENT, taken.varint() * FRAME_ALIGNMENT
            key = recording_key(archive, number)
            finished[key] = Finished(position, tail, taken.bytes(_FINGERPRINT_BYTES).hex())
    # One text for one set of recordings: offsets are compared as text.
    if pack(finished) != text:
        raise ValueError("not in canonical form")
    return finished


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class _Taken:
    """Bytes taken one after the other, never beyond their end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def bytes(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def varint(self) -> int:
        number = shift = 0
        while shift < _MAX_VARINT_BITS:
            byte = self.bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise ValueError("a number that is too long")
