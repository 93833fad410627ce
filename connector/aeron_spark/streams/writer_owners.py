"""The keys that own the writer ids of a stream: an id belongs to the first key that uses it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.streams.journal_records import Writer, WriterOwned, WriterReleased
from aeron_spark.text_safety import nearest
from aeron_spark.wire.stream_admin_rpc import StreamWriterId

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

    def prepare_release(self, writer: str, writers: Mapping[str, Writer]) -> WriterReleased | None:
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

    def known_writers(self, writers: Mapping[str, Writer]) -> list[StreamWriterId]:
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


def _known_writer(name: str, writer: Writer | None, owned: WriterOwned | None) -> StreamWriterId:
    owner = "" if owned is None else owned.owner
    if writer is None:  # no run of the id has begun
        return StreamWriterId(name, Writer("").last, 0 if owned is None else owned.time_ns, owner, single_use=False)
    return StreamWriterId(name, writer.last, writer.time_ns, owner, writer.single_use)
