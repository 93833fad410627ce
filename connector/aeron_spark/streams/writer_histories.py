"""The epochs in which each writer of a stream committed, and the stamps that writers get with acknowledgements. Pure.

A writer sends the stamp of its last acknowledgement with its next request. A stream that was restored from a copy
without the acknowledged transaction does not have the stamp. A stamp also has earlier epochs in which the writer
committed. So the stream finds the last transaction that it has in common with the history that the writer has seen.

    "<epoch, 16 hex>-<count>-<following>" for each epoch, newest first, separated by spaces

``count`` is the number of the stream's transactions up to the writer's last one in the epoch, and ``following`` the
number after that one's; both are hexadecimal. The stamps of earlier releases have the newest epoch without
``following``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aeron_spark.log.epochs import MAX_SAVED, Epochs, epoch_text, largest_shares, parse_epoch, parse_number
from aeron_spark.streams.journal_records import CommittedIn


class Acknowledged(NamedTuple):
    """The part of a stamp for one epoch. ``following`` is None in the stamp of an earlier release."""

    epoch: int
    transactions: int
    following: int | None


class Loss(NamedTuple):
    """The first transaction that the stream lacks. Unless ``is_exact``, it may have this one and some after it."""

    first: int
    is_exact: bool


def stamp_text(parts: Iterable[Acknowledged]) -> str:
    """Return a stamp of these parts, newest first."""
    return " ".join(
        f"{epoch_text(epoch)}-{transactions:x}" + ("" if following is None else f"-{following:x}")
        for epoch, transactions, following in parts
    )


def parse_stamp(text: str) -> tuple[Acknowledged, ...]:
    """Parse a text of :func:`stamp_text`, or of an earlier release. Raises ValueError for other texts."""
    found = []
    for part in text.split(" "):
        epoch, *numbers = part.split("-")
        if not 1 <= len(numbers) <= 2:
            raise ValueError(f"{text!r} is not a stamp of epochs and numbers of transactions")
        transactions, *following = map(parse_number, numbers)
        found.append(Acknowledged(parse_epoch(epoch), transactions, following[0] if following else None))
    return tuple(found)


class WriterHistories:
    """By writer: its last transaction in each epoch, oldest first, with the number of the stream's up to it.

    Of a writer that committed in more than ``MAX_SAVED`` epochs some are forgotten. Not safe for concurrent use.
    """

    def __init__(self, committed_in: Mapping[str, tuple[CommittedIn, ...]] | None = None) -> None:
        self._committed_in = dict(committed_in or {})

    def records(self) -> dict[str, tuple[CommittedIn, ...]]:
        """Return the content for a snapshot."""
        return dict(self._committed_in)

    def add(self, writer: str, now: CommittedIn) -> None:
        """Add the writer's newest transaction."""
        before = [one for one in self._committed_in.get(writer, ()) if one.epoch != now.epoch]
        kept = largest_shares([0, *(one.count for one in before)], now.count)
        self._committed_in[writer] = tuple(one for index, one in enumerate([*before, now]) if index in kept)

    def forget(self, writer: str) -> None:
        """Forget a writer."""
        self._committed_in.pop(writer, None)

    def stamp(self, writer: str) -> str:
        """Return the stamp of the writer's last transaction; "" if no epoch of the writer is known."""
        known = self._committed_in.get(writer, ())
        return stamp_text(Acknowledged(one.epoch, one.count, one.transaction + 1) for one in reversed(known))

    def find_loss(
        self, writer: str, acknowledged: int, stamp: tuple[Acknowledged, ...], epochs: Epochs, transactions: int
    ) -> Loss | None:
        """Return what the stream lacks of the writer's transactions up to ``acknowledged``; None if nothing.

        ``epochs`` are the stream's by its number of transactions, which is ``transactions`` now.
        """
        newest = stamp[0]
        if epochs.has(newest.epoch, newest.transactions, transactions):
            return None
        ends = {one.epoch: epochs.end_of(one.epoch, transactions) or 0 for one in stamp}
        common = max(min(one.transactions, ends[one.epoch]) for one in stamp)  # both histories have these
        own = self._committed_in.get(writer, ())
        following = [one.transaction + 1 for one in own if one.count <= common]
        following += [one.following for one in stamp if one.following and one.transactions <= ends[one.epoch]]
        is_complete = newest.following is not None and max(len(stamp), len(own)) < MAX_SAVED
        is_exact = is_complete and stamp[-1].epoch >= epochs.pairs[0][0]
        return Loss(min(max(following, default=0), acknowledged), is_exact)
