"""The epochs of a partition: the opening of its store that committed each byte. Pure.

Each opening of a store begins an epoch: a number of 44 bits of time (ms since 1970) and 20 random bits. Two openings
never have the same epoch, and a later opening has a higher one. A program stores a position with the epoch of the byte
*before* it. The position is valid in a stream that has this epoch up to the position, because all streams with an
epoch have the same bytes before it. Otherwise the position has *diverged*: it follows bytes that this stream never had,
because the stream was restored from an older copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FIRST: Final = 0  # the epoch of bytes that an earlier release, without epochs, committed
RANDOM_BITS: Final = 20
TIME_BITS: Final = 44
DIVERGED: Final = "diverged"  # reason of errors about a position or transaction that has diverged
_PAIR: Final = struct.Struct(
    "<"
    "Q"  # epoch
    "q"  # its first position
)
_MS: Final = 1_000_000  # ns
_HEX_DIGITS: Final = 16
_DIGITS: Final = frozenset("0123456789abcdef")


class NoEpochWarning(UserWarning):
    """Stored positions have no epochs, so the server cannot detect whether they have diverged."""


def epoch_at(time_ns: int, random: int, after: int = FIRST) -> int:
    """Return an epoch for an opening at ``time_ns`` (since 1970) with 20 bits of ``random``, higher than ``after``.

    If the clock was set back, the epoch's time is one millisecond after that of ``after``.
    """
    time_ms = max(max(0, time_ns) // _MS, (after >> RANDOM_BITS) + 1) & ((1 << TIME_BITS) - 1)
    return time_ms << RANDOM_BITS | random & ((1 << RANDOM_BITS) - 1)


def epoch_text(epoch: int) -> str:
    """Return an epoch as 16 hexadecimal digits, because JSON readers may lose bits of 64-bit integers."""
    return f"{epoch:0{_HEX_DIGITS}x}"


def parse_epoch(text: object) -> int:
    """Parse a text of :func:`epoch_text`. Raises ValueError for other values."""
    if not isinstance(text, str) or len(text) != _HEX_DIGITS or set(text) - _DIGITS:
        raise ValueError(f"{text!r} is not an epoch, 16 hexadecimal digits")
    return int(text, 16)


def stamp_text(epoch: int, transactions: int) -> str:
    """Return a stamp, which identifies a stream's state: its number of transactions, and the epoch of the last one."""
    return f"{epoch_text(epoch)}-{transactions:x}"


def parse_stamp(text: str) -> tuple[int, int]:
    """Parse a text of :func:`stamp_text` into epoch and number of transactions. Raises ValueError for other texts."""
    epoch, dash, number = text.partition("-")
    if not dash or not number or set(number) - _DIGITS:
        raise ValueError(f"{text!r} is not a stamp of an epoch and a number of transactions")
    return parse_epoch(epoch), int(number, 16)


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs of a partition with their first positions, oldest first; at least one.

    Bytes before the oldest stored epoch belong to epochs that are not stored any more. Positions with such an epoch
    cannot be checked, and are accepted.
    """

    pairs: tuple[tuple[int, int], ...] = ((FIRST, 0),)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Epochs:
        """Return the epochs of a partition from those of its stream, without epochs in which it got no bytes."""
        found: list[tuple[int, int]] = []
        for epoch, begin in pairs:
            if found and found[-1][1] == begin and len(found) > 1:
                found.pop()
            found.append((epoch, begin))
        return cls(tuple(found))

    def at(self, position: int) -> int:
        """Return the epoch of the byte before ``position``."""
        return next((epoch for epoch, begin in reversed(self.pairs) if begin < position), self.pairs[0][0])

    def diverged_at(self, epoch: int, position: int, end: int) -> int | None:
        """Return the position at which ``position`` with ``epoch`` diverged from this stream, or None if it did not.

        ``end`` is the partition's committed end. Position 0 never diverges, because no bytes precede it.
        """
        oldest, oldest_begin = self.pairs[0]
        if position <= 0 or (epoch < oldest and position <= oldest_begin):
            return None
        ends = [*(begin for _, begin in self.pairs[1:]), end]
        for (known, _), epoch_end in zip(self.pairs, ends, strict=True):
            if known == epoch:
                return None if position <= epoch_end else epoch_end
        return min(position, next((begin for known, begin in self.pairs if known > epoch), end))

    def to_bytes(self) -> bytes:
        """Return the pairs as unsigned and signed 64-bit integers, little-endian."""
        return b"".join(_PAIR.pack(*pair) for pair in self.pairs)

    @classmethod
    def from_bytes(cls, data: bytes) -> Epochs:
        """Parse the bytes of :meth:`to_bytes`. Raises ValueError for other bytes."""
        if not data or len(data) % _PAIR.size:
            raise ValueError(f"{len(data)} bytes are not epochs")
        return cls(tuple(_PAIR.iter_unpack(data)))


def diverged_sentence(stream: str, partition: int, reader: str, position: int, at: int) -> str:
    """Return an error's text: ``reader``, such as "query", has a position that the restored stream never had."""
    return (
        f"partition {partition} of stream {stream!r} diverged: the {reader} is at {position}, and the store was "
        f"restored from a copy that ended at {at}"
    )
