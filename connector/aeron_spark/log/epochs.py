"""The epochs of one partition: which opening of its store committed which bytes. Pure.

Each opening of a store begins an epoch: a number of 44 bits of time (ms since 1970) and 20 random bits, so that two
openings never share one, and a later opening has a higher one. A position that a program keeps carries the epoch of
the byte *before* it. The position is valid in a stream that knows this epoch, if the epoch reaches that far: all
streams that know an epoch have the same bytes before it. Otherwise the position *diverged*: it follows bytes that this
stream never had, because it was restored from an older copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FIRST: Final = 0  # the epoch of all bytes that were committed before epochs were kept
RANDOM_BITS: Final = 20
TIME_BITS: Final = 44
DIVERGED: Final = "diverged"  # the reason of every error about state of a lost history
_PAIR: Final = struct.Struct(
    "<"
    "Q"  # epoch
    "q"  # position at which it began
)
_MS: Final = 1_000_000  # ns
_HEX_DIGITS: Final = 16
_DIGITS: Final = frozenset("0123456789abcdef")


class NoEpochWarning(UserWarning):
    """Kept positions have no epochs: the server cannot tell whether they are of the history that it has."""


def epoch_at(time_ns: int, random: int, after: int = FIRST) -> int:
    """Return the epoch of an opening at ``time_ns`` (since 1970) with 20 bits of ``random``; higher than ``after``.

    A clock that went back gives an epoch one millisecond after ``after``.
    """
    time_ms = max(max(0, time_ns) // _MS, (after >> RANDOM_BITS) + 1) & ((1 << TIME_BITS) - 1)
    return time_ms << RANDOM_BITS | random & ((1 << RANDOM_BITS) - 1)


def epoch_text(epoch: int) -> str:
    """Write an epoch as 16 hexadecimal digits: JSON readers may not keep integers of 64 bits."""
    return f"{epoch:0{_HEX_DIGITS}x}"


def parse_epoch(text: object) -> int:
    """Read what :func:`epoch_text` wrote. Raises ValueError for anything else."""
    if not isinstance(text, str) or len(text) != _HEX_DIGITS or set(text) - _DIGITS:
        raise ValueError(f"{text!r} is not an epoch, 16 hexadecimal digits")
    return int(text, 16)


def stamp_text(epoch: int, transactions: int) -> str:
    """Write a stamp: what a stream has when it has committed so many transactions, the last one in ``epoch``."""
    return f"{epoch_text(epoch)}-{transactions:x}"


def parse_stamp(text: str) -> tuple[int, int]:
    """Read what :func:`stamp_text` wrote: epoch, number of transactions. Raises ValueError for anything else."""
    epoch, dash, number = text.partition("-")
    if not dash or not number or set(number) - _DIGITS:
        raise ValueError(f"{text!r} is not a stamp, an epoch and a number of transactions")
    return parse_epoch(epoch), int(number, 16)


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs of a partition, the oldest first, each with the position at which it began; at least one.

    Bytes before the first one that is kept were committed in epochs that are forgotten. State of such an epoch
    cannot be checked, and is accepted there.
    """

    pairs: tuple[tuple[int, int], ...] = ((FIRST, 0),)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Epochs:
        """Make it of all epochs of a stream, leaving out those in which the partition got nothing."""
        kept: list[tuple[int, int]] = []
        for epoch, begin in pairs:
            if kept and kept[-1][1] == begin and len(kept) > 1:
                kept.pop()
            kept.append((epoch, begin))
        return cls(tuple(kept))

    def at(self, position: int) -> int:
        """Return the epoch of the byte before ``position``."""
        return next((epoch for epoch, begin in reversed(self.pairs) if begin < position), self.pairs[0][0])

    def diverged_at(self, epoch: int, position: int, end: int) -> int | None:
        """Return None where ``position`` of ``epoch`` is one of this stream, else the position at which they diverged.

        ``end`` is the partition's committed end. At position 0 nothing lies before, in any history.
        """
        oldest, began = self.pairs[0]
        if position <= 0 or (epoch < oldest and position <= began):
            return None
        ends = [*(begin for _, begin in self.pairs[1:]), end]
        for (known, _), reached in zip(self.pairs, ends, strict=True):
            if known == epoch:
                return None if position <= reached else reached
        return min(position, next((begin for known, begin in self.pairs if known > epoch), end))

    def to_bytes(self) -> bytes:
        """Return the pairs as unsigned and signed 64-bit integers, little-endian."""
        return b"".join(_PAIR.pack(*pair) for pair in self.pairs)

    @classmethod
    def from_bytes(cls, data: bytes) -> Epochs:
        """Read what :meth:`to_bytes` gave. Raises ValueError for anything else."""
        if not data or len(data) % _PAIR.size:
            raise ValueError(f"{len(data)} bytes are not epochs")
        return cls(tuple(_PAIR.iter_unpack(data)))


def diverged_sentence(stream: str, partition: int, who: str, position: int, at: int) -> str:
    """Say that ``who`` (a query, a reader) holds a position that the restored stream never had."""
    return (
        f"partition {partition} of stream {stream!r} diverged: the {who} is at {position}, and the store was restored "
        f"from a copy that ended at {at}"
    )
