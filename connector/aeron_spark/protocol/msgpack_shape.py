"""Checks that MessagePack bytes are safe to decode, without decoding them.

A decoder follows the bytes: nesting can exhaust the stack, an array can announce 2^32 entries, and the keys of a map
can have equal hashes. Therefore this module limits the depth and the number of entries, and permits only text and bytes
as keys: a peer cannot predict their hashes, while chosen integers or tuples make a map quadratic. The same rules apply
within extension types that contain MessagePack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ShapeLimits:
    """Limits of one MessagePack value: levels of nested containers, and entries of all containers together."""

    depth: int
    items: int


MESSAGE_SHAPE: Final = ShapeLimits(depth=64, items=1_000_000)  # at most about 100 MB of Python objects


def _scalar_lengths() -> list[int]:
    lengths = [0] * 256
    for first in (*range(0x00, 0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3):
        lengths[first] = 1
    for first, payload in ((0xCA, 4), (0xCB, 8), (0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        lengths[first] = 1 + payload
    for power, first in enumerate(range(0xD0, 0xD4)):  # int8 to int64
        lengths[first] = 1 + 2**power
    for first in range(0xA0, 0xC0):  # fixstr
        lengths[first] = 1 + (first & 0x1F)
    return lengths


_LENGTHS: Final = tuple(_scalar_lengths())  # complete length by first byte; 0: depends on later bytes
_SIZED: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin and str: width of the length
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_MAPS: Final = {0xDE: 2, 0xDF: 4}
_KEYS: Final = frozenset((*range(0xA0, 0xC0), *_SIZED))


class _Unsafe(Exception):
    pass


def fault_of(
    body: bytes | memoryview,
    *,
    nested: Mapping[int, int],
    limits: ShapeLimits = MESSAGE_SHAPE,
) -> str | None:
    """Return the fault of ``body``, which must be one MessagePack value, or None.

    ``nested`` has the extension types that contain MessagePack, and the offset in their payload where it begins.
    """
    scanner = _Scanner(body, nested, limits)
    try:
        end = scanner.scan_values(0, 1, 0)
    except _Unsafe as fault:
        return str(fault)
    except IndexError:
        return "it is truncated"
    if end != len(body):
        return "it is truncated" if end > len(body) else f"{len(body) - end} bytes follow the value"
    return None


class _Scanner:
    __slots__ = ("body", "items", "limits", "nested")

    def __init__(self, body: bytes | memoryview, nested: Mapping[int, int], limits: ShapeLimits) -> None:
        self.body = body
        self.nested = nested
        self.limits = limits
        self.items = 0

    def scan_values(self, at: int, count: int, depth: int, *, pairs: bool = False) -> int:
        """Check ``count`` values from offset ``at``, and return their end. ``pairs``: every other value is a key."""
        self.items += count
        if self.items > self.limits.items:
            raise _Unsafe(f"it has more than {self.limits.items} entries")
        if depth > self.limits.depth:
            raise _Unsafe(f"it is nested deeper than {self.limits.depth} levels")
        body, lengths = self.body, _LENGTHS
        for index in range(count):
            first = body[at]
            if pairs and not index & 1 and first not in _KEYS:
                raise _Unsafe("a map has a key that is neither text nor bytes")
            length = lengths[first]
            at = at + length if length else self.scan_sized(first, at, depth)
        return at

    def scan_sized(self, first: int, at: int, depth: int) -> int:
        """Check the value at ``at``, whose length depends on more than its first byte, and return its end."""
        if first & 0xF0 == 0x90:
            return self.scan_values(at + 1, first & 0x0F, depth + 1)
        if first & 0xF0 == 0x80:
            return self.scan_values(at + 1, 2 * (first & 0x0F), depth + 1, pairs=True)
        if width := _SIZED.get(first):
            return at + 1 + width + self.read_number(at + 1, width)
        if width := _ARRAYS.get(first):
            return self.scan_values(at + 1 + width, self.read_number(at + 1, width), depth + 1)
        if width := _MAPS.get(first):
            return self.scan_values(at + 1 + width, 2 * self.read_number(at + 1, width), depth + 1, pairs=True)
        if length := _FIXED_EXTENSIONS.get(first):
            return self.scan_extension(at + 1, length, depth)
        if width := _EXTENSIONS.get(first):
            return self.scan_extension(at + 1 + width, self.read_number(at + 1, width), depth)
        raise _Unsafe(f"it has the invalid first byte 0x{first:02x}")

    def scan_extension(self, at: int, length: int, depth: int) -> int:
        """Check an extension value whose code is at ``at``, and return its end."""
        end = at + 1 + length
        prefix = self.nested.get(self.body[at])
        if prefix is None:
            return end
        if length <= prefix or self.scan_values(at + 1 + prefix, 1, depth + 1) != end:
            raise _Unsafe("a nested value does not fill its extension")
        return end

    def read_number(self, at: int, width: int) -> int:
        return int.from_bytes(self.body[at : at + width], "big")
