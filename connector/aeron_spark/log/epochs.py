"""The epochs of a partition: the opening of its store that committed each byte. Pure.

Each opening of a store begins an epoch: a number of 44 bits of time (ms since 1970) and 20 random bits. Two openings
never have the same epoch, and a later opening of a store has a higher one. A program stores a position with the epoch
of the byte *before* it. The position is valid in a stream that has this epoch up to the position, because all streams
with an epoch have the same bytes before it. Otherwise the position has *diverged*: it follows bytes that this stream
never had, because the stream was restored from another copy.

The times of two epochs do not show where two histories separated: the clock may go back, and the copy may be of a
history that an earlier restore left. Therefore a program stores the epochs before that one, too, with their first
positions. The newest of these that the stream has proves what the two have in common.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

FIRST: Final = 0  # the epoch of bytes that an earlier release, without epochs, committed
UNKNOWN: Final = (1 << 64) - 1  # stands in saved state for epochs that it does not have
MAX_SAVED: Final = 16  # epochs in the saved state of a partition, or of a writer
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


def parse_number(digits: str) -> int:
    """Parse a hexadecimal number of at most 63 bits. Raises ValueError for other texts."""
    if not digits or len(digits) > _HEX_DIGITS or set(digits) - _DIGITS or int(digits, 16) >= 1 << 63:
        raise ValueError(f"{digits!r} is not a hexadecimal number of at most 63 bits")
    return int(digits, 16)


def largest_shares(begins: Sequence[int], end: int) -> set[int]:
    """Return the indices of at most ``MAX_SAVED`` of the sections that begin at ``begins``; the last ends at ``end``.

    A section is chosen if it is large compared with the distance from its beginning to ``end``. So the newest ones are
    chosen, and of a hundred short ones only a few, but the long one before them.
    """
    indices = range(len(begins))
    if len(begins) <= MAX_SAVED:
        return set(indices)
    ends = [*begins[1:], end]
    shares = [(ends[index] - begins[index]) / max(1, end - begins[index]) for index in indices]
    return set(heapq.nlargest(MAX_SAVED, indices, key=lambda index: (shares[index], index)))


class Divergence(NamedTuple):
    """A position up to which two histories are equal. Unless ``is_exact``, they may be equal beyond it."""

    at: int
    is_exact: bool


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

    @property
    def newest(self) -> int:
        """The newest epoch."""
        return self.pairs[-1][0]

    def before(self, position: int) -> Epochs:
        """Return the epochs of the bytes before ``position``, as saved state has them.

        Of more than ``MAX_SAVED`` epochs some are replaced by UNKNOWN; the newest one is never replaced.
        """
        found = [pair for pair in self.pairs if pair[1] < position] or [self.pairs[0]]
        kept = largest_shares([begin for _, begin in found], position)
        saved: list[tuple[int, int]] = []
        for index, (epoch, begin) in enumerate(found):
            if index in kept:
                saved.append((epoch, begin))
            elif not saved or saved[-1][0] != UNKNOWN:
                saved.append((UNKNOWN, begin))
        return Epochs(tuple(saved))

    def end_of(self, epoch: int, end: int) -> int | None:
        """Return the position at which ``epoch`` ends, None if it is not stored. ``end`` is the end of the newest."""
        ends = [*(begin for _, begin in self.pairs[1:]), end]
        return next((found for (known, _), found in zip(self.pairs, ends, strict=True) if known == epoch), None)

    def has(self, epoch: int, position: int, end: int) -> bool:
        """Whether this stream has the bytes before ``position``, the last of which has ``epoch``.

        ``end`` is the partition's committed end. Each stream has the bytes before position 0.
        """
        oldest, oldest_begin = self.pairs[0]
        if position <= 0 or (epoch < oldest and position <= oldest_begin):
            return True
        epoch_end = self.end_of(epoch, end)
        return epoch_end is not None and position <= epoch_end

    def divergence(self, saved: Epochs, position: int, end: int) -> Divergence | None:
        """Return where ``position`` with the epochs ``saved`` diverged from this stream, or None if it did not.

        ``end`` is the partition's committed end. The two histories have the same bytes before the returned position.
        """
        if self.has(saved.newest, position, end):
            return None
        limit, is_exact = position, True  # the bytes after ``limit`` are of epochs that are not found here
        for epoch, begin in reversed(saved.pairs):
            epoch_end = None if epoch == UNKNOWN else self.end_of(epoch, end)
            if epoch_end is not None:
                at = min(limit, epoch_end)
                return Divergence(at, is_exact or at < limit)
            limit = min(limit, begin)
            is_exact = self.pairs[0][0] < epoch != UNKNOWN  # an older one may be common, and not be stored here
        return Divergence(0, is_exact and limit == 0)

    def to_text(self) -> str:
        """Return the epochs of saved state as text, oldest first: ``<16 hex>-<first position, hex>``, ``?`` if unknown.

        The text of an earlier release has only the newest epoch.
        """
        if self == Epochs._only(self.newest):
            return epoch_text(self.newest)
        return " ".join(f"{'?' if epoch == UNKNOWN else epoch_text(epoch)}-{begin:x}" for epoch, begin in self.pairs)

    @classmethod
    def parse(cls, text: object) -> Epochs:
        """Parse a text of :meth:`to_text`. Raises ValueError for other values."""
        if not isinstance(text, str) or "-" not in text:
            return cls._only(parse_epoch(text))
        pairs: list[tuple[int, int]] = []
        for part in text.split(" "):
            epoch, _, begin = part.partition("-")
            pairs.append((UNKNOWN if epoch == "?" else parse_epoch(epoch), parse_number(begin)))
        begins = [begin for _, begin in pairs]
        if pairs[-1][0] == UNKNOWN or begins != sorted(begins):
            raise ValueError(f"{text!r} are not epochs with rising first positions")
        return cls(tuple(pairs))

    @classmethod
    def _only(cls, epoch: int) -> Epochs:
        """Return the saved state of an earlier release, which has one epoch and not those before it."""
        return cls(((UNKNOWN, 0), (epoch, 0)))

    def to_bytes(self) -> bytes:
        """Return the pairs as unsigned and signed 64-bit integers, little-endian."""
        return b"".join(_PAIR.pack(*pair) for pair in self.pairs)

    @classmethod
    def from_bytes(cls, data: bytes) -> Epochs:
        """Parse the bytes of :meth:`to_bytes`. Raises ValueError for other bytes."""
        if not data or len(data) % _PAIR.size:
            raise ValueError(f"{len(data)} bytes are not epochs")
        pairs = tuple(_PAIR.iter_unpack(data))
        begins = [begin for _, begin in pairs]
        if begins[0] < 0 or begins != sorted(begins):
            raise ValueError("epochs do not have rising first positions")
        return cls(pairs)


def diverged_sentence(
    stream: str, partition: int, reader: str, position: int, divergence: Divergence, start: int
) -> str:
    """Return an error's text: ``reader``, such as "query", has a position that the restored stream never had.

    ``start`` is the first position of the partition that is not purged.
    """
    at, is_exact = divergence
    extent = f"up to {at}" if is_exact else f"at least up to {at}, and rows after it may be read again"
    purged = f"; its rows up to {start} were purged" if start > at else ""
    return (
        f"partition {partition} of stream {stream!r} diverged: the {reader} is at {position}, and the store was "
        f"restored from a copy that has the same rows {extent}{purged}"
    )
