"""An archive in memory, in the place of Aeron's: what the store of streams publishes to it is kept, and cut off again.

Ledger, journal and stages are the store's own, on the disk; only the recordings are here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.errors import TransportError
from aeron_spark.streams import partition, recordings, store, stream
from aeron_spark.transport.api import OfferResult
from aeron_spark.transport.channel import ChannelUri

FRAME = 32
ADDRESS = ArchiveAddress("test", "/nowhere", "aeron:ipc", archive_dir="/nowhere/archive")


@dataclass
class Kept:
    """One recording and its messages, each with where it begins and ends."""

    described: Recording
    messages: list[tuple[int, int, bytes]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Where the last message ends."""
        return self.messages[-1][1] if self.messages else self.described.start_position


class MemoryArchive:
    """The part of :class:`aeron_spark.aeron.archive.Archive` that the store uses. It outlives the servers of a test."""

    def __init__(self) -> None:
        self.client = SimpleNamespace(closed=False)
        self.address = ADDRESS
        self.kept: dict[int, Kept] = {}
        self.refuses = 0  # messages that are not taken from now on
        self.fails: set[str] = set()  # names of methods that fail from now on
        self._ids = itertools.count()

    def recordings(self, stream_id: int | None = None, from_id: int = 0) -> list[Recording]:
        found = [one.described for number, one in self.kept.items() if number >= from_id]
        return [one for one in found if stream_id in (None, one.stream_id)]

    def recording(self, recording_id: int) -> Recording | None:
        found = self.kept.get(recording_id)
        return None if found is None else found.described

    def position(self, recording_id: int) -> int:
        return self.kept[recording_id].end

    def find_stop_position(self, recording_id: int) -> int | None:
        return self.kept[recording_id].described.stop_position

    def stop_recording_by_id(self, recording_id: int, seconds: float) -> int | None:
        if recording_id not in self.kept:
            return None
        self.stop(recording_id)
        return self.find_stop_position(recording_id)

    def stop(self, recording_id: int) -> None:
        one = self.kept[recording_id]
        if one.described.stop_position is None:
            one.described = replace(one.described, stop_position=one.end)

    def truncate(self, recording_id: int, position: int) -> None:
        one = self.kept[recording_id]
        assert one.described.stop_position is not None
        one.messages = [message for message in one.messages if message[1] <= position]
        assert one.end == position
        one.described = replace(one.described, stop_position=position)

    def purge_segments(self, recording_id: int, position: int) -> int:
        self._check("purge_segments")
        one = self.kept[recording_id]
        size = one.described.segment_length
        start, stop = one.described.start_position, one.described.stop_position
        assert position % size == 0
        assert start < position < (one.end if stop is None else stop), "the archive keeps the last segment with bytes"
        one.messages = [message for message in one.messages if message[1] > position]
        one.described = replace(one.described, start_position=position)
        return (position - start) // size

    def delete(self, recording_id: int) -> None:
        self._check("delete")
        assert self.kept[recording_id].described.stop_position is not None
        del self.kept[recording_id]

    def _check(self, method: str) -> None:
        if method in self.fails:
            raise TransportError(f"the archive of the test does not {method}")

    def keep_alive(self) -> None:
        pass

    def end_publications(self) -> None:
        """The process that published is gone."""
        for recording_id in self.kept:
            self.stop(recording_id)

    def copy(self) -> dict[int, Kept]:
        """Return all of it as it is now, for :meth:`restore`."""
        return {number: Kept(one.described, list(one.messages)) for number, one in self.kept.items()}

    def restore(self, copied: dict[int, Kept]) -> None:
        """Put a copy in the place of what there is."""
        self.kept = {number: Kept(one.described, list(one.messages)) for number, one in copied.items()}
        self.end_publications()

    def opened(self, channel: ChannelUri, stream_id: int, recording_id: int | None) -> tuple[Offers, int]:
        """Stand in for ``partition._open_publication``."""
        self._check("opened")
        terms = int(channel.get("term-id") or 0) - int(channel.get("init-term-id") or 0)
        begin = terms * int(channel.get("term-length") or 0) + int(channel.get("term-offset") or 0)
        if recording_id is None:
            recording_id = next(self._ids)
            self.kept[recording_id] = Kept(
                Recording(
                    id=recording_id,
                    start_timestamp=recording_id,
                    stop_timestamp=None,
                    start_position=begin,
                    stop_position=None,
                    initial_term_id=0,
                    segment_length=1 << 16,
                    term_length=1 << 16,
                    mtu=8192,
                    session_id=0,
                    stream_id=stream_id,
                    channel="aeron:ipc",
                    original_channel=str(channel),
                    source="",
                )
            )
        one = self.kept[recording_id]
        assert one.end == begin
        one.described = replace(one.described, stop_position=None)
        return Offers(self, one), recording_id


class Offers:
    """The part of :class:`aeron_spark.aeron.publications.BatchPublication` that a partition uses."""

    max_message_bytes = 1 << 13
    session_id = 7
    term_length = 1 << 16
    log_file = Path("deleted.logbuffer")

    def __init__(self, archive: MemoryArchive, kept: Kept) -> None:
        self.client = archive.client
        self.closed = False
        self._archive = archive
        self._kept = kept

    @property
    def connected(self) -> bool:
        return self._kept.described.stop_position is None

    @property
    def position(self) -> int:
        return self._kept.end

    def offer_values(self, values: pa.Array[Any], reserved: object, first: int) -> tuple[int, OfferResult | None]:
        for value in values[first:].to_pylist():
            self._take(value)
        return len(values) - first, None

    def offer_gathered(self, head: pa.Buffer, data: pa.Buffer, reserved: int = 0) -> None:
        self._take(head.to_pybytes() + pa.py_buffer(data).to_pybytes())

    def _take(self, value: bytes) -> None:
        if self._archive.refuses:
            self._archive.refuses -= 1
            raise TransportError("the archive of the test takes no message")
        begin = self._kept.end
        self._kept.messages.append((begin, begin + -(-(FRAME + len(value)) // FRAME) * FRAME, value))

    def close(self) -> None:
        self.closed = True
        self._archive.stop(self._kept.described.id)


def stand_in(archive: MemoryArchive, patched: pytest.MonkeyPatch) -> None:
    """Let the store of streams use ``archive``."""

    def opened(_: object, channel: ChannelUri, stream_id: int, recording_id: int | None) -> tuple[Offers, int]:
        return archive.opened(channel, stream_id, recording_id)

    for module in (partition, recordings, store, stream):
        patched.setattr(module, "archive_of", lambda address: archive)
    patched.setattr(partition, "_open_publication", opened)
    patched.setattr(partition, "recent_archive_error", lambda folder: "")


def messages_of(archive: MemoryArchive, recording_id: int, end: int) -> Iterator[bytes]:
    """Yield the messages of a recording up to a committed end."""
    for _, stop, value in archive.kept[recording_id].messages:
        if stop <= end:
            yield value
