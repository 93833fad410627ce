"""The writers of a stream: the key that owns a writer id, and the transactions that a writer has committed. Pure.

A writer sends the stamp of its last acknowledgement with its next request. A stream that was restored from a copy
without the acknowledged transaction does not have the stamp. A stamp also has earlier epochs in which the writer
committed. So the stream finds the last transaction that it has in common with the history that the writer has seen.

A stamp:

    "<epoch, 16 hex>-<count>-<following>" for each epoch, newest first, separated by spaces

``count`` is the number of the stream's transactions up to the writer's last one in the epoch, and ``following`` the
number after that one's; both are hexadecimal. The stamps of earlier releases have the newest epoch without
``following``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.log.epochs import MAX_SAVED, Epochs, epoch_text, largest_shares, parse_epoch, parse_number
from aeron_spark.streams.journal_records import CommittedIn, WriterOwned, WriterReleased, WriterState
from aeron_spark.texts import nearest
from aeron_spark.wire.stream_requests import StreamWriterId

MAX_WRITERS: Final = 20_000  # ids with an owner; an owner has about 300 bytes
MAX_WRITERS_OF_OWNER: Final = 10_000  # so that one key leaves room for others


class WriterOwners:
    """The owners by writer id, computed from the records of a journal. Not safe for concurrent use.

    An owner is the fingerprint of a key. Ids of earlier releases, and those that this server's own program uses, have
    no owner until a client uses them.
    """

    def __init__(self, owned: Iterable[WriterOwned] = ()) -> None:
        self._owned: dict[str, WriterOwned] = {}
        self._ids: Counter[str] = Counter()  # by owner
        for one in owned:
            self.apply(one)

    def check(self, writer: str, owner: str) -> None:
        """Raise RefusedError if the writer id belongs to another key."""
        known = self._owned.get(writer)
        if known is not None and known.owner != owner:
            raise RefusedError(
                f"the writer id {writer!r} belongs to another key",
                remedy="Use another writer id, or ask the server's operator to grant it to your key (writers=).",
                reason="not-permitted",
            )

    def prepare(self, writer: str, owner: str, time_ns: int, *, is_granted: bool = False) -> WriterOwned | None:
        """Return the record that gives the id to its first owner, or None if a key owns it already.

        ``time_ns`` is in nanoseconds since 1970. Raises RefusedError if the id belongs to another key, unless it
        ``is_granted`` to this one by name, or if the stream or the key has too many ids.
        """
        if not is_granted:
            self.check(writer, owner)
        if writer in self._owned:
            return None
        if len(self._owned) >= MAX_WRITERS or self._ids[owner] >= MAX_WRITERS_OF_OWNER:
            is_full = len(self._owned) >= MAX_WRITERS
            holder, limit = ("the stream has", MAX_WRITERS) if is_full else ("your key owns", MAX_WRITERS_OF_OWNER)
            raise RefusedError(
                f"{holder} {limit} writer ids, which is the limit",
                remedy="Write under an id that the stream knows already, or wait until unused ids are forgotten.",
                reason="limit",
            )
        return WriterOwned(writer, owner, time_ns)

    def prepare_release(self, writer: str, writers: Mapping[str, WriterState]) -> WriterReleased | None:
        """Return the record that makes the id belong to no key, or None if it belongs to none.

        ``writers`` are the writers that have a run. Raises OptionError for an unknown id.
        """
        if writer in self._owned:
            return WriterReleased(writer)
        if writer not in writers:
            near = nearest(writer, {*self._owned, *writers})
            raise OptionError(
                f"the stream does not know the writer id {writer[:255]!r}",
                remedy=f"Did you mean {near!r}?" if near else "Use one of the ids that 'streams writers' lists.",
            )
        return None

    def known_writers(self, writers: Mapping[str, WriterState]) -> list[StreamWriterId]:
        """Return the ids that have a run or an owner, in their order."""
        return [
            _known_writer(name, writers.get(name), self._owned.get(name)) for name in sorted({*writers, *self._owned})
        ]

    def apply(self, record: WriterOwned) -> None:
        """Change the owner of a writer id."""
        self.forget([record.writer])
        self._owned[record.writer] = record
        self._ids[record.owner] += 1

    def forget(self, ids: Collection[str]) -> None:
        """Forget the owners of these ids."""
        for one in ids:
            known = self._owned.pop(one, None)
            if known is not None:
                self._ids[known.owner] -= 1
                if not self._ids[known.owner]:
                    del self._ids[known.owner]

    def unused(self, known: Mapping[str, object], before_ns: int) -> list[str]:
        """Return the ids that are not in ``known`` and that got their owner before ``before_ns``."""
        return [one.writer for one in self._owned.values() if one.writer not in known and one.time_ns < before_ns]

    def records(self) -> tuple[WriterOwned, ...]:
        """Return the owners, for a snapshot."""
        return tuple(self._owned.values())


def _known_writer(name: str, writer: WriterState | None, owned: WriterOwned | None) -> StreamWriterId:
    owner = "" if owned is None else owned.owner
    if writer is None:  # no run of the id has begun
        return StreamWriterId(
            name, WriterState("").last, 0 if owned is None else owned.time_ns, owner, single_use=False
        )
    return StreamWriterId(name, writer.last, writer.time_ns, owner, writer.single_use)


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
