"""The two ways to reach a stream, and what is wrong with every other combination."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from aeron_spark.errors import OptionError
from aeron_spark.options import endpoint_values, values
from aeron_spark.options.given import OptionReader, example
from aeron_spark.options.row import Route
from aeron_spark.protocol.keypair import public_text
from aeron_spark.transport.channel import ChannelUri, refuse_archive_streams


@dataclass(frozen=True, slots=True)
class DirectRoute:
    """The direct way: which stream, and which archives and driver serve it."""

    channel: str
    stream_id: int
    archives: tuple[str, ...] = ("embedded",)
    aeron_dir: str | None = None  # None: the node's own default
    response_channel: str | None = None  # None: an ephemeral port; or "response"
    replay_channel: str | None = None
    credentials_file: str | None = field(default=None, repr=False)
    connect_timeout_s: float = 10.0

    @property
    def label(self) -> str:
        """What it is called in errors."""
        return f"stream {self.stream_id} of {self.channel}"

    @property
    def embedded(self) -> bool:
        """Whether this machine's own node is one of the archives."""
        return "embedded" in self.archives


@dataclass(frozen=True, slots=True)
class ServerAt:
    """One server: ``name`` is ``host:port`` and tells it from others, ``address`` has the control port, too."""

    name: str
    address: str
    key: str  # its public key, as text


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """The way through a server: where it is, which stream of it, and who both sides are. No secret is in it.

    ``servers`` are empty where ``servers_file`` lists them, until somebody has read it. ``client`` are further options
    of the endpoint's client, by name.
    """

    servers: tuple[ServerAt, ...]
    stream: str
    identity: str | None  # a path, a name in SparkFiles, or env:NAME; None: the user's own
    handshake: str = "worker"  # worker | partition
    aeron_dir: str | None = None
    connect_timeout_s: float = 10.0
    client: tuple[tuple[str, str], ...] = ()
    servers_file: str | None = None  # a path, or a name in SparkFiles

    @property
    def names(self) -> tuple[str, ...]:
        """The servers' names."""
        return tuple(one.name for one in self.servers)

    @property
    def label(self) -> str:
        """What it is called in errors."""
        return f"stream {self.stream!r} of {' and '.join(self.names) or f'the servers in {self.servers_file}'}"

    def at(self, servers: tuple[ServerAt, ...]) -> ServerRoute:
        """Return the way to these servers, whatever lists them."""
        return replace(self, servers=servers, servers_file=None)


def route_of(given: OptionReader, *, reading: bool) -> DirectRoute | ServerRoute:
    """Read the way out of the options. Raises ``OptionError`` for both ways, for none, and for options of the other."""
    return _through(given) if "server" in given else direct(given, reading=reading)


def direct(given: OptionReader, *, reading: bool) -> DirectRoute:
    """Read the direct way out of the options. Raises ``OptionError`` where there is none, or another."""
    _only_direct(given)
    stream_id = given.required("streamId", given.whole("streamId"))
    channel = given.required("channel", given.channel("channel"))
    uri = ChannelUri.parse(channel)
    if uri.spy and not reading:
        raise OptionError(
            "option 'channel' is a spy (aeron-spy:), which only listens", remedy="Write to the channel itself, aeron:…"
        )
    try:
        refuse_archive_streams(uri, stream_id)
    except OptionError as error:
        raise OptionError(f"option 'streamId': {error.what}", remedy=error.remedy) from None
    return DirectRoute(
        channel=channel,
        stream_id=stream_id,
        archives=given.required("archive", given.archives("archive")),
        aeron_dir=given.text("aeronDir"),
        response_channel=given.response("responseChannel"),
        replay_channel=given.response("replayChannel") if reading else None,
        credentials_file=given.text("credentialsFile"),
        connect_timeout_s=given.seconds("connectTimeout"),
    )


def direct_route(way: DirectRoute | ServerRoute) -> DirectRoute:
    """Insist on the direct way. Raises ``OptionError`` where it is through a server."""
    if isinstance(way, ServerRoute):
        raise OptionError(
            f"{way.label} is reached through a server, and this goes the direct way only",
            remedy="Give 'channel' and 'streamId'",
        )
    return way


def _through(given: OptionReader) -> ServerRoute:
    _only_through(given)
    if "stream" not in given:
        raise OptionError(
            "option 'server' needs 'stream', the name of a stream of that server",
            remedy=example(given.option("stream")),
        )
    file = given.read("server", endpoint_values.servers_file)
    if file is not None and "serverKey" in given:
        raise OptionError(
            "option 'server' names a file, which has the servers' keys, too, and 'serverKey' is given beside it",
            remedy="Leave 'serverKey' out, and write 'host:port key', a server a line, into the file",
        )
    return ServerRoute(
        servers=() if file is not None else _servers(given),
        servers_file=file,
        stream=given.required("stream", given.read("stream", values.stream_name)),
        identity=given.read("identity", endpoint_values.identity),
        handshake=given.choice("handshake"),
        aeron_dir=given.text("aeronDir"),
        connect_timeout_s=given.seconds("connectTimeout"),
        client=given.of_client(),
    )


LINE: Final = "Write 'host:port key', a server a line"


def listed(text: str) -> tuple[ServerAt, ...]:
    """Parse a list of servers, ``address key`` a line, as options 'server' and 'serverKey' have them.

    ``#`` begins a line for people. Raises ``OptionError`` that names a line, and where there is no server.
    """
    found: dict[str, ServerAt] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            one = _server(line.split())
            if one.name in found:
                raise OptionError(f"the server {one.name} is given twice", remedy="Give it once")
        except OptionError as error:
            raise OptionError(f"line {number}: {error.what}", remedy=error.remedy) from None
        found[one.name] = one
    if not found:
        raise OptionError("it lists no server", remedy=LINE)
    return tuple(found.values())


def _server(words: list[str]) -> ServerAt:
    if len(words) != 2 or "," in words[0]:
        raise OptionError("it is not 'host:port key'", remedy=LINE)
    ((name, address),) = endpoint_values.servers(words[0])
    return ServerAt(name, address, public_text(endpoint_values.public_key(words[1])))


def _servers(given: OptionReader) -> tuple[ServerAt, ...]:
    if "serverKey" not in given:
        raise OptionError(
            "option 'server' needs 'serverKey', the server's public key: executors trust nobody on first use",
            remedy=f"'aeron-spark keys show --server' prints it on the server. {example(given.option('serverKey'))}",
        )
    servers = given.required("server", given.read("server", endpoint_values.servers))
    keys = given.required("serverKey", given.read("serverKey", endpoint_values.public_keys))
    if len(keys) not in (1, len(servers)):
        raise OptionError(
            f"option 'serverKey' has {len(keys)} keys, and 'server' has {len(servers)}",
            remedy="Give one key for all servers, or one for each, in the order of 'server'",
        )
    texts = [public_text(key) for key in keys]
    texts = texts if len(texts) == len(servers) else texts * len(servers)
    return tuple(ServerAt(name, address, key) for (name, address), key in zip(servers, texts, strict=True))


def _only_through(given: OptionReader) -> None:
    for name in given.names():
        if name in ("channel", "streamId", "archive"):
            raise OptionError(
                f"options 'server' and '{name}' are two ways to reach a stream, and only one can be taken",
                remedy="Give 'channel' and 'streamId' for the direct way, or 'server' and 'stream' for the way "
                "through a server",
            )
        if given.option(name).way is Route.DIRECT:
            raise OptionError(
                f"option '{name}' belongs to the direct way, and a stream of a server has no use for it",
                remedy="Leave it out, or leave 'server' out and give 'channel' and 'streamId'",
            )


def _only_direct(given: OptionReader) -> None:
    of_server = [name for name in given.names() if given.option(name).way is Route.SERVER]
    for name in (*of_server, *(name for name, _ in given.of_client())):
        raise OptionError(
            f"option '{name}' belongs to the way through a server, and there is no 'server'",
            remedy="For the direct way, give 'channel' and 'streamId' and leave it out",
        )
    if "channel" not in given and "streamId" not in given:
        raise OptionError(
            "no stream is named: option 'channel' is required, with 'streamId'",
            remedy=f"{example(given.option('channel'))}.option('streamId', '1001'), or through a server 'server', "
            "'stream' and 'serverKey'",
        )
