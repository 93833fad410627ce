"""The values that cross the seam between a log and what is built upon it. Pure: no Aeron, no clock, no I/O.

All positions are stream positions of a recording, in bytes. The position of a message is where its first frame begins;
a position kept in an offset is the *next* one to read. Positions of frames are multiples of ``FRAME_ALIGNMENT``, and a
term begins at a multiple of the term length, always at the beginning of a message.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from aeron_spark.log.epochs import Epochs
from aeron_spark.wire.values import Rows

if TYPE_CHECKING:
    from aeron_spark.log.source_stream import SourceStream


@dataclass(frozen=True, slots=True)
class StreamContent:
    """``payload`` is ``raw``, ``framed`` or ``arrow``; ``schema`` that of the first Arrow batch."""

    payload: str
    schema: pa.Schema | None = None


PublishTimes = Callable[[Rows], "pa.Array[Any]"]
"""Returns the time at which each row was published, in ns since 1970 (UTC)."""

FRAME_ALIGNMENT: Final = 32  # bytes; Aeron's own, every frame begins at a multiple of it

EMBEDDED: Final = "embedded"  # the archive key of this machine's own node


def recording_key(archive: str, recording_id: int) -> str:
    """Name a recording as offsets do: ``<archive>/<recording id>``."""
    return f"{archive}/{recording_id}"


def split_key(key: str) -> tuple[str, int]:
    """Take a recording's key apart into archive and id.

    Raises ``ValueError`` where it is no such key. An archive's name may hold a slash, a recording id never does.
    """
    archive, slash, number = key.rpartition("/")
    if not slash or not archive or not (number.isascii() and number.isdecimal()) or str(int(number)) != number:
        raise ValueError(f"{key!r} is not '<archive>/<recording id>'")
    return archive, int(number)


def fingerprint(*, initial_term_id: int, stream_id: int, term_length: int, mtu: int, start_timestamp: int) -> str:
    """Give the eight hex digits that tell a recording from another one of the same archive and id.

    The session id is not part of it: an extension of the same recording changes it.
    """
    text = f"{initial_term_id},{stream_id},{term_length},{mtu},{start_timestamp}"
    return f"{zlib.crc32(text.encode('ascii')):08x}"


@dataclass(frozen=True, slots=True)
class RecordingState:
    """What an archive says of one recording at one moment."""

    key: str
    fingerprint: str
    start: int  # the first position there is; a purge and a late join both move it
    end: int  # the recorded position, or the stop position; it may lie inside a message
    active: bool  # still being recorded (or capped: more follows behind ``end``)
    term_length: int
    initial_term_id: int = 0
    mtu: int = 1408
    stream_id: int = 0
    session_id: int = 0
    channel: str = ""
    source_identity: str = ""
    start_timestamp: int = 0  # milliseconds since 1970, by the archive's clock
    epochs: Epochs | None = None  # of a server's partition; recordings that are read directly have none

    @property
    def archive(self) -> str:
        """The archive's part of the key."""
        return split_key(self.key)[0]

    @property
    def recording_id(self) -> int:
        """The recording's part of the key."""
        return split_key(self.key)[1]

    def epoch_at(self, position: int) -> int | None:
        """The epoch of the byte before ``position``; None of a recording that is read directly."""
        return None if self.epochs is None else self.epochs.at(position)

    def diverged_at(self, epoch: int | None, position: int) -> int | None:
        """Where the histories parted, if this partition never had what is before ``position``; see ``Epochs``.

        A position without an epoch diverged only where it is beyond the end. None otherwise.
        """
        if self.epochs is None:
            return None
        if epoch is None:
            return self.end if position > self.end else None
        return self.epochs.diverged_at(epoch, position, self.end)


@dataclass(frozen=True, slots=True)
class Range:
    """A task's share of one recording: the messages, or groups of chunks, that *begin* in ``[start, end)``.

    To finish a group that began there, the task may read on up to ``overrun``, where the batch ends in this recording.
    """

    key: str
    fingerprint: str
    start: int
    end: int
    overrun: int
    term_length: int
    epoch: int | None = None  # of the byte before ``overrun``, where it is known

    @property
    def length(self) -> int:
        """Bytes of the log in this range."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Boundary:
    """A position at which a message (or a whole group of chunks) ends, and the rows from the start asked for to it."""

    position: int
    rows: int


class Boundaries(Protocol):
    """What only the log itself can say: where messages end."""

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Give the last boundary at or before ``limit`` with at most ``max_rows`` rows since ``start``.

        ``start`` is itself a boundary; ``start <= limit <= end``. Where the first message (or group) after ``start`` is
        already beyond the limit or has more rows, its own end is given, if it is complete by ``end``; where it is
        not complete, ``Boundary(start, 0)``. A group of chunks is one message here: it is never cut. ``rows``
        need not be counted (may be 0) where ``max_rows`` is None.
        """
        ...


class Log(Boundaries, Protocol):
    """The seam. Above it nobody knows whether a stream is read from archives directly or through a server.

    A log counts single messages or, where ``framed``, whole groups of chunks; :meth:`counting` gives the other view.
    """

    @property
    def framed(self) -> bool:
        """Whether groups of chunks count, not single messages."""
        ...

    @property
    def archives(self) -> tuple[str, ...]:
        """The archives' names, as they stand in keys."""
        ...

    @property
    def stream(self) -> SourceStream:
        """The stream this is the log of, as offsets name it."""
        ...

    def counting(self, *, framed: bool) -> Log:
        """Give the same log, counting groups or single messages."""
        ...

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Have the stream recorded unless it is, as the option ``record`` says; cheap where nothing is to be done.

        For streaming queries alone: a recording that this starts goes on after them. ``query`` names the one that asks.
        """
        ...

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Raise ``OptionError`` where ``states`` are empty and the stream is not one that is being recorded."""
        ...

    def states(self) -> list[RecordingState]:
        """Give every recording of the stream, with how far it reaches now."""
        ...

    def state(self, key: str) -> RecordingState:
        """Give one recording. Raises ``DataLossError`` where there is none of that key."""
        ...

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        """Give what the stream says it holds, or None where it has nothing yet."""
        ...

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Give where what was published (through a server: committed) at or after a time begins, or else the end.

        ``time_ns`` is ns since the epoch. ``times`` gives the publish times of messages, for a log that has to look at
        them; it raises ``OptionError`` where nobody said where they are.
        """
        ...

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, end)``, of a framed log those up to ``overrun``.

        Raises ``DataLossError`` where the range is gone, ``WaitTimeout`` or ``TransportError`` where reading got stuck.
        """
        ...
