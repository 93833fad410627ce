"""The receiving half of streams: content put together in order, in memory or a sink, given out whole or not at all.

What a sender announces is a claim: nothing is reserved for it, and what arrives is counted. A stream goes to memory if
its announced total is at most ``memory_limit`` and all such totals of the connection are at most ``max_held_bytes``; it
goes to a sink otherwise. The first thing that is wrong with a stream ends it and removes what had arrived; records of
it that were under way already are then ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aeron_spark.endpoint.streams import DATA, FINISHED, GivenUp, Start, broken, decode_failed, decode_start
from aeron_spark.endpoint.typed import Buffer
from aeron_spark.errors import AeronSparkError, RefusedError, SetupError

MEMORY_LIMIT: Final = 16 * 1024 * 1024  # bytes of a stream that stays in memory
MAX_OPEN: Final = 64  # streams of one connection that have begun and not ended
MAX_HELD_BYTES: Final = 64 * 1024 * 1024  # of all streams in memory of one connection, as announced
MAX_SPILLED_BYTES: Final = 64 * 1024 * 1024 * 1024  # of all streams in sinks of one connection, as announced
_REMEMBERED: Final = 1024  # streams that were refused, whose later records are no news


class Sink(Protocol):
    """Where a stream that is too large for memory is written: a file, as a rule."""

    def write(self, data: Buffer) -> None:
        """Append ``data``. It is only valid during the call. Raises OSError."""

    def close(self) -> Any:
        """Make it whole, and return what the receiver is given instead of the bytes. Raises OSError."""

    def discard(self) -> None:
        """Remove it. Never raises."""


Spill = Callable[[Start], Sink]


@dataclass(frozen=True, slots=True)
class Received:
    """A stream that arrived whole: its bytes, or what its sink's ``close`` returned."""

    start: Start
    content: Any
    spilled: bool


@dataclass(slots=True)
class _Open:
    start: Start
    sink: Sink | None
    memory: bytearray = field(default_factory=bytearray)
    received: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


class Assembly:
    """The streams of one connection that arrive. Not for several threads at once.

    An error raised for one stream leaves the others as they were; tell the sender with ``encode_failed(...,
    by_receiver=True)``. Keys are the ids of this connection alone.
    """

    def __init__(
        self,
        spill: Spill,
        *,
        memory_limit: int = MEMORY_LIMIT,
        max_open: int = MAX_OPEN,
        max_held_bytes: int = MAX_HELD_BYTES,
        max_spilled_bytes: int = MAX_SPILLED_BYTES,
    ) -> None:
        self.memory_limit = memory_limit
        self.max_open = max_open
        self.max_held_bytes = max_held_bytes
        self.max_spilled_bytes = max_spilled_bytes
        self.ignored = 0  # records of streams that had been given up
        self._spill = spill
        self._open: dict[int, _Open] = {}
        self._given_up: dict[int, None] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """Bytes in memory now."""
        return sum(len(one.memory) for one in self._open.values())

    def start(self, payload: Buffer) -> Start:
        """Take a START record. Raises DataFormatError, RefusedError beyond a limit, SetupError if the sink fails."""
        start = decode_start(payload)
        if start.stream_id in self._open:
            self._give_up(start.stream_id)
            raise broken(f"stream {start.stream_id} began twice")
        if self._closed:
            self._remember(start.stream_id)
            raise RefusedError(f"stream {start.stream_id} comes after the end", remedy="Connect again")
        try:
            opened = _Open(start, self._sink_for(start))
        except AeronSparkError:
            self._remember(start.stream_id)
            raise
        self._given_up.pop(start.stream_id, None)
        self._open[start.stream_id] = opened
        return start

    def data(self, payload: Buffer) -> None:
        """Take a DATA record. Raises DataFormatError, SetupError if the sink fails; the stream is given up then."""
        if len(payload) < DATA.size:
            raise broken(f"its DATA has {len(payload)} bytes")
        stream_id, offset = DATA.unpack_from(payload)
        one = self._find(stream_id)
        if one is None:
            return
        chunk = memoryview(payload)[DATA.size :]
        end = one.received + len(chunk)
        if not chunk or offset != one.received or end > one.start.total:
            self._give_up(stream_id)
            raise broken(
                f"{len(chunk)} bytes at {offset} of stream {stream_id} do not go on at {one.received} of"
                f" {one.start.total}"
            )
        if one.sink is None:
            one.memory += chunk
        else:
            try:
                one.sink.write(chunk)
            except OSError as error:
                self._give_up(stream_id)
                raise _unwritable(one.start, error) from error
        one.digest.update(chunk)
        one.received = end

    def finished(self, payload: Buffer) -> Received | None:
        """Take a FINISHED record; return the stream, or None for one given up before. Raises as ``data`` does."""
        if len(payload) != FINISHED.size:
            raise broken(f"its FINISHED has {len(payload)} bytes")
        stream_id, digest = FINISHED.unpack_from(payload)
        one = self._find(stream_id)
        if one is None:
            return None
        if one.received != one.start.total or one.digest.digest() != digest:
            self._give_up(stream_id)
            why = "its digest is another" if one.received == one.start.total else "it ended early"
            raise broken(f"stream {stream_id} has {one.received} of {one.start.total} bytes, and {why}")
        if one.sink is None:
            del self._open[stream_id]
            return Received(one.start, one.memory, spilled=False)
        try:
            content = one.sink.close()
        except OSError as error:
            self._give_up(stream_id)
            raise _unwritable(one.start, error) from error
        del self._open[stream_id]
        return Received(one.start, content, spilled=True)

    def failed(self, payload: Buffer) -> GivenUp | None:
        """Take a FAILED record: forget the stream, or learn that ours was refused. None if it was given up before.

        Raises DataFormatError for a stream that never began.
        """
        given_up = decode_failed(payload)
        if given_up.by_receiver:
            return given_up
        if self._find(given_up.stream_id) is None:
            return None
        self._give_up(given_up.stream_id)
        return given_up

    def close(self) -> list[Start]:
        """Give up every stream and remove what had arrived of it; return which they were."""
        self._closed = True
        starts = [one.start for one in self._open.values()]
        for start in starts:
            self._give_up(start.stream_id)
        return starts

    def _find(self, stream_id: int) -> _Open | None:
        one = self._open.get(stream_id)
        if one is None:
            if stream_id not in self._given_up:
                raise broken(f"stream {stream_id} did not begin")
            self.ignored += 1
        return one

    def _sink_for(self, start: Start) -> Sink | None:
        if len(self._open) >= self.max_open:
            raise RefusedError(
                f"{len(self._open)} streams are open on this connection, as many as may be",
                remedy="Send fewer at once, or raise the limit of open streams",
            )
        held = sum(one.start.total for one in self._open.values() if one.sink is None)
        if start.total <= self.memory_limit and held + start.total <= self.max_held_bytes:
            return None
        spilled = sum(one.start.total for one in self._open.values() if one.sink is not None)
        if spilled + start.total > self.max_spilled_bytes:
            raise RefusedError(
                f"a stream of {start.total} bytes is announced beside {spilled} that arrive, and"
                f" {self.max_spilled_bytes} may be on disk for this connection",
                remedy="Send it in parts, or raise the limit",
            )
        try:
            return self._spill(start)
        except OSError as error:
            raise _unwritable(start, error) from error

    def _give_up(self, stream_id: int) -> None:
        one = self._open.pop(stream_id)
        if one.sink is not None:
            one.sink.discard()
        self._remember(stream_id)

    def _remember(self, stream_id: int) -> None:
        self._given_up[stream_id] = None
        if len(self._given_up) > _REMEMBERED:
            del self._given_up[next(iter(self._given_up))]


def _unwritable(start: Start, error: OSError) -> SetupError:
    return SetupError(
        f"stream {start.stream_id} of {start.total} bytes cannot be written down: {error}",
        remedy="Make room where spill files are, or set another place for them",
    )
