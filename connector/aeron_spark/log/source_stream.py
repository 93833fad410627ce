"""The identity of an offset's stream: channel and stream id, or name and servers. Pure.

    {"channel": "aeron:udp?endpoint=10.0.0.7:40123", "id": 1001}
    {"name": "flights", "servers": {"feeds.example:20121": "<public key>"}}

Channels are compared like those of recordings (``transport.channel.same_stream``): by endpoint, control address and
interface, not by text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aeron_spark.errors import OptionError
from aeron_spark.transport.channel import ChannelUri

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


SourceStream = DirectStream | ServerStream


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
    raise ValueError("it does not identify a stream")


def joined_stream(known: SourceStream | None, read: SourceStream) -> SourceStream:
    """Return the stream of an offset that continues an offset of ``known``, while the query reads ``read``.

    Servers may be added; servers that the query omits are kept. The stream may have been renamed. Returns ``known``
    itself without a change. Raises OptionError for two different streams: another channel, stream id or name, no common
    server, or a server with another key.
    """
    if known is None:
        return read
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


def _same_direct(known: SourceStream, read: SourceStream) -> bool:
    return (
        isinstance(known, DirectStream)
        and isinstance(read, DirectStream)
        and known.stream_id == read.stream_id
        and canonical_channel(known.channel) == canonical_channel(read.channel)
    )


def _other_stream(known: SourceStream, read: SourceStream) -> OptionError:
    return OptionError(f"the checkpoint is of {known.label}, but the query reads {read.label}", remedy=_REMEDY)
