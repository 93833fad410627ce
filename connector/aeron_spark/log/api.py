"""A stream as its readers and writers see it: the interface that both routes implement.

An offset names its stream:

    {"channel": "aeron:udp?endpoint=10.0.0.7:40123", "id": 1001}
    {"name": "flights", "servers": {"feeds.example:20121": "<public key>"}}
    {"streams": [<several of one of these>]}

Channels are compared like those of recordings (``transport.channel.same_stream``): by endpoint, control address and
interface, not by text.

All positions are positions of a recording, in bytes. The position of a message is the start of its first frame; the
position in an offset is the *next* one to read. Positions of frames are multiples of ``FRAME_ALIGNMENT``. A term begins
at a multiple of the term length, and always with a new message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from aeron_spark.errors import OptionError
from aeron_spark.log.epochs import Divergence, Epochs
from aeron_spark.transport.channel import ChannelUri

if TYPE_CHECKING:  # a command about recordings reads no rows, and starts without pyarrow
    import pyarrow as pa

    from aeron_spark.wire.values import Rows

_REMEDY = "Use a new checkpointLocation for this query, or give the options that name the stream of the checkpoint"


@dataclass(frozen=True, slots=True)
class DirectStream:
    """A stream of the direct route; ``channel`` is canonical, see :func:`canonical_channel`."""

    channel: str
    stream_id: int

    @property
    def label(self) -> str:
        """The name of the stream in errors."""
        return f"stream {self.stream_id} of {self.channel}"

    @property
    def title(self) -> str:
        """The name of the stream in metrics: the label."""
        return self.label

    def to_dict(self) -> dict[str, object]:
        """Return plain values in canonical order."""
        return {"channel": self.channel, "id": self.stream_id}


@dataclass(frozen=True, slots=True)
class ServerStream:
    """A stream of one or several servers: their public keys, as text, by ``host:port``.

    ``former_names`` are those that the stream had before it was renamed, as far as they are known. They are no part of
    an offset.
    """

    name: str
    servers: Mapping[str, str]
    former_names: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def label(self) -> str:
        """The name of the stream in errors."""
        servers = " and ".join(f"{name} (key {key})" for name, key in sorted(self.servers.items()))
        return f"stream {self.name!r} of {servers}"

    @property
    def title(self) -> str:
        """The name of the stream in metrics, as in the metrics of a server."""
        return self.name

    def to_dict(self) -> dict[str, object]:
        """Return plain values in canonical order."""
        return {"name": self.name, "servers": dict(sorted(self.servers.items()))}


@dataclass(frozen=True, slots=True)
class StreamSet:
    """Several streams of one route, sorted by title. New ones may join."""

    streams: tuple[DirectStream | ServerStream, ...]

    @property
    def label(self) -> str:
        """The names of the streams in errors."""
        return " and ".join(stream.label for stream in self.streams) or "no stream"

    @property
    def title(self) -> str:
        """The names of the streams in metrics."""
        return ", ".join(stream.title for stream in self.streams)

    def to_dict(self) -> dict[str, object]:
        """Return plain values in canonical order."""
        return {"streams": [stream.to_dict() for stream in self.streams]}


SourceStream = DirectStream | ServerStream | StreamSet


def stream_set(streams: Iterable[DirectStream | ServerStream]) -> StreamSet:
    """Return a set of streams in canonical order."""
    return StreamSet(tuple(sorted(streams, key=lambda stream: stream.title)))


def direct_stream(channel: str, stream_id: int) -> DirectStream:
    """Return the stream of the option ``channel`` and a stream id."""
    return DirectStream(canonical_channel(channel), stream_id)


def canonical_channel(channel: str) -> str:
    """Return a channel with only the identifying parameters; channels of the same streams have the same text."""
    identity = ChannelUri.parse(channel, foreign=True).identity
    dynamic = identity.control is not None and identity.control_mode == "dynamic"
    values = {
        "endpoint": None if dynamic else identity.endpoint,  # for dynamic multi-destination-cast, control identifies it
        "control": identity.control,
        "control-mode": identity.control_mode,
        "interface": None if dynamic else identity.interface,
    }
    parameters = tuple((name, value) for name, value in values.items() if value is not None)
    return str(ChannelUri(identity.media, parameters, foreign=True))


def parse_stream(value: object) -> SourceStream:
    """Parse a value of ``to_dict`` that was converted to JSON and back. Raises ValueError for other values."""
    if isinstance(value, Mapping) and value.keys() == {"channel", "id"}:
        channel, stream_id = value["channel"], value["id"]
        is_id = isinstance(stream_id, int) and not isinstance(stream_id, bool) and -(2**31) <= stream_id < 2**31
        if isinstance(channel, str) and is_id:
            try:
                canonical_channel(channel)
            except OptionError as error:
                raise ValueError(error.what) from None
            return DirectStream(channel, stream_id)
    if isinstance(value, Mapping) and value.keys() == {"name", "servers"}:
        name, servers = value["name"], value["servers"]
        if isinstance(name, str) and isinstance(servers, Mapping) and servers:
            texts = {str(server): key for server, key in servers.items() if isinstance(key, str)}
            if len(texts) == len(servers):
                return ServerStream(name, texts)
    if isinstance(value, Mapping) and value.keys() == {"streams"} and isinstance(value["streams"], list):
        streams = [parse_stream(one) for one in value["streams"]]
        return stream_set(one for one in streams if not isinstance(one, StreamSet))
    raise ValueError("it does not identify a stream")


def joined_stream(known: SourceStream | None, read: SourceStream) -> SourceStream:
    """Return the stream of an offset that continues an offset of ``known``, while the query reads ``read``.

    Servers may be added; servers that the query omits are kept. The stream may have been renamed. Of several streams
    some may be added, and those that the query omits are kept. Returns ``known`` itself without a change. Raises
    OptionError for two different streams: another channel, stream id or name, no common server, or a server with
    another key; and for sets without a common stream, or a set and one stream.
    """
    if known is None:
        return read
    if isinstance(known, StreamSet) or isinstance(read, StreamSet):
        return _joined_set(known, read)
    if isinstance(known, DirectStream) or isinstance(read, DirectStream):
        if _same_direct(known, read):
            return known
        raise _other_stream(known, read)
    common = known.servers.keys() & read.servers.keys()
    if known.name not in {read.name, *read.former_names} or not common:
        raise _other_stream(known, read)
    for server in sorted(common):
        if known.servers[server] != read.servers[server]:
            raise OptionError(
                f"the checkpoint is of {known.label}, but the query reads {read.label}: {server} has another key now, "
                "so it is another server",
                remedy=_REMEDY,
            )
    together = {**known.servers, **read.servers}
    is_unchanged = known.name == read.name and together == dict(known.servers)
    return known if is_unchanged else replace(known, name=read.name, servers=together)


def _joined_set(known: SourceStream, read: SourceStream) -> SourceStream:
    if not isinstance(known, StreamSet) or not isinstance(read, StreamSet):
        raise _other_stream(known, read)
    by_title = {stream.title: stream for stream in known.streams}
    if by_title and read.streams and by_title.keys().isdisjoint(stream.title for stream in read.streams):
        raise _other_stream(known, read)
    joined: dict[str, DirectStream | ServerStream] = dict(by_title)
    for stream in read.streams:
        one = joined_stream(by_title.get(stream.title), stream)
        assert not isinstance(one, StreamSet)
        joined[stream.title] = one
    return known if joined == by_title else stream_set(joined.values())


def _same_direct(known: SourceStream, read: SourceStream) -> bool:
    return (
        isinstance(known, DirectStream)
        and isinstance(read, DirectStream)
        and known.stream_id == read.stream_id
        and canonical_channel(known.channel) == canonical_channel(read.channel)
    )


def _other_stream(known: SourceStream, read: SourceStream) -> OptionError:
    return OptionError(f"the checkpoint is of {known.label}, but the query reads {read.label}", remedy=_REMEDY)


@dataclass(frozen=True, slots=True)
class StreamContent:
    """A stream's content: ``payload`` is ``raw``, ``framed`` or ``arrow``; ``schema`` is of the first Arrow batch."""

    payload: str
    schema: pa.Schema | None = None


PublishTimes = Callable[["Rows"], "pa.Array[Any]"]
"""Returns the publish time of each row, in ns since 1970 (UTC)."""


EMBEDDED: Final = "embedded"  # the archive's name in keys, for this machine's node


_RECORDING_ID: Final = re.compile("0|[1-9][0-9]{0,18}")


def recording_key(archive: str, recording_id: int) -> str:
    """Return the key of a recording in offsets: ``<archive>/<recording id>``."""
    return f"{archive}/{recording_id}"


def split_key(key: str) -> tuple[str, int]:
    """Split a recording's key into archive and id; an archive's name may have slashes. Raises ValueError."""
    archive, slash, number = key.rpartition("/")
    if not slash or not archive or not _RECORDING_ID.fullmatch(number) or int(number) >= 1 << 63:
        raise ValueError(f"{key!r} is not '<archive>/<recording id>'")
    return archive, int(number)


@dataclass(frozen=True, slots=True)
class RecordingState:
    """The state of one recording at one time, from its archive."""

    key: str
    fingerprint: str
    start: int  # the first available position, after purges
    end: int  # the recorded position or the stop position; may be inside a message
    active: bool  # still being recorded (or capped: more follows after ``end``)
    term_length: int
    initial_term_id: int = 0
    mtu: int = 1408
    stream_id: int = 0
    session_id: int = 0
    channel: str = ""
    source_identity: str = ""
    start_timestamp: int = 0  # milliseconds since 1970, by the archive's clock
    stop_timestamp: int | None = None  # of a stopped recording
    epochs: Epochs | None = None  # of a server's partition; None on the direct route
    checked_from: int | None = None  # as in streams.model.PartitionState; None on the direct route
    committed: int | None = None  # of a cluster's log: no reader reads beyond it; None if all is committed

    @property
    def archive(self) -> str:
        """The archive in the key."""
        return split_key(self.key)[0]

    @property
    def recording_id(self) -> int:
        """The recording's id in the key."""
        return split_key(self.key)[1]

    def epoch_at(self, position: int) -> int | None:
        """Return the epoch of the byte before ``position``; None on the direct route."""
        return None if self.epochs is None else self.epochs.at(position)

    def epochs_before(self, position: int) -> Epochs | None:
        """Return the epochs of the bytes before ``position``, as saved state has them; None on the direct route."""
        return None if self.epochs is None else self.epochs.before(position)

    def divergence(self, saved: Epochs | None, position: int) -> Divergence | None:
        """Return up to where the histories are equal, or None if this partition has all bytes before ``position``.

        See ``Epochs``. A position without epochs has diverged only if it is beyond the end.
        """
        if self.epochs is None:
            return None
        if saved is None:
            return Divergence(0, is_exact=False) if position > self.end else None
        return self.epochs.divergence(saved, position, self.end)


@dataclass(frozen=True, slots=True)
class Mark:
    """The number of compared bytes before a position, a multiple of 32, and their CRC-32; see ``log.offsets``."""

    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Range:
    """A task's range of one recording: the messages, or groups of chunks, that *begin* in ``[start, end)``.

    To complete a group that begins there, the task may read up to ``overrun``, the batch's end in this recording.
    """

    key: str
    fingerprint: str
    start: int
    end: int
    overrun: int
    term_length: int
    epoch: int | None = None  # of the byte before ``overrun``, if known
    mark: Mark | None = None  # of ``overrun``, if known

    @property
    def length(self) -> int:
        """Bytes of the log in this range."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Boundary:
    """A position at which a message or a group of chunks ends, and the number of rows from the requested start."""

    position: int
    rows: int


class Boundaries(Protocol):
    """Finds the ends of messages in a log."""

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Return the last boundary up to ``limit`` with at most ``max_rows`` rows since ``start``.

        ``start`` is a boundary; ``start <= limit <= end``. If the first message or group after ``start`` ends beyond
        the limit, or has more rows, return its end, or ``Boundary(start, 0)`` if it is not complete by ``end``. A group
        of chunks counts as one message. ``rows`` may be 0 if ``max_rows`` is None.
        """
        ...


class RecordedBytes(Protocol):
    """Reads the bytes of recordings."""

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        """Return bytes of one term of a recording; None if they cannot be read as files of this machine."""
        ...


class Log(Boundaries, RecordedBytes, Protocol):
    """A log, on the direct route or through a server.

    A log counts single messages or, if ``framed``, groups of chunks; :meth:`counting` returns the other view.
    """

    @property
    def framed(self) -> bool:
        """Whether the log counts groups of chunks instead of single messages."""
        ...

    @property
    def archives(self) -> tuple[str, ...]:
        """The archives' names in keys."""
        ...

    @property
    def stream(self) -> SourceStream:
        """The log's stream, as offsets identify it."""
        ...

    def counting(self, *, framed: bool) -> Log:
        """Return the same log, counting groups or single messages."""
        ...

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Start the stream's recording if the option ``record`` requires it; cheap if nothing must be started.

        Only for streaming queries: the recording continues after the query. ``query`` is the query's name.
        """
        ...

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Raise OptionError if ``states`` is empty and no archive records the stream."""
        ...

    def states(self) -> list[RecordingState]:
        """Return all recordings of the stream with their current ends."""
        ...

    def state(self, key: str) -> RecordingState:
        """Return one recording. Raises DataLossError if it does not exist."""
        ...

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        """Return the content of the stream, or None if nothing is recorded yet."""
        ...

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Return the start of the first message that was published (through a server: committed) at or after a time.

        Returns the end if no message was. ``time_ns`` is ns since 1970. ``times`` returns the publish times of
        messages, for a log that needs them; without it such a log raises OptionError.
        """
        ...

    def lags_s(self, positions: Mapping[str, int]) -> dict[str, float] | None:
        """Return how long ago the first row at or after each position was committed, in seconds, by recording.

        0 if all rows are before the position. None if the log has no commit times.
        """
        ...

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, end)``; from a framed log those up to ``overrun``.

        Raises DataLossError if the range is gone, WaitTimeout or TransportError if reading makes no progress or fails.
        """
        ...
