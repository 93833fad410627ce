"""The two routes to a stream, and what is wrong with every other combination of options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.options.declaration import EVERYWHERE, READING, REQUIRED, OptionSet, Route, option
from aeron_spark.options.reader import OptionReader, example
from aeron_spark.options.values import (
    INT32_MAX,
    INT32_MIN,
    Archives,
    Channel,
    Identity,
    PathText,
    PublicKeys,
    ResponseChannel,
    Seconds,
    Servers,
    StreamName,
)
from aeron_spark.protocol.keypair import public_text
from aeron_spark.transport.channel import ChannelUri, refuse_archive_streams

# of both routes
AERON_DIR: Final = option(
    None,
    "Directory of the media driver of this machine; one is started there when none runs.",
    example="/dev/shm/aeron-desk",
    shown="`/dev/shm/aeron-spark-<user>`",
)
CONNECT_TIMEOUT: Final = option(
    "10s",
    "How long to wait for a driver, an archive, a server or (writing) a subscriber.",
    example="10s",
)


@dataclass(frozen=True)
class DirectRoute(OptionSet, where=EVERYWHERE):
    """The direct route: which stream, and which archives and driver serve it."""

    channel: Channel = option(
        REQUIRED,
        "The Aeron channel of the stream. With `streamId`: the direct way, for a trusted network and any existing "
        "Aeron program.",
        example="aeron:udp?endpoint=224.20.30.39:40123|interface=localhost",
        only=Route.DIRECT,
    )
    stream_id: int = option(
        REQUIRED,
        "The stream within the channel. An archive's own control streams are refused.",
        example="1001",
        only=Route.DIRECT,
        low=INT32_MIN,
        high=INT32_MAX,
    )
    archive: Archives = option(
        "embedded",
        "Control channel of an Aeron Archive, or several separated by commas; or `embedded`: this machine's own "
        "media driver and archive under `aeronDir`, started when absent, shared by all processes, stopped when "
        "unused.",
        example="aeron:udp?endpoint=archive.example:8010",
        only=Route.DIRECT,
    )
    aeron_dir: PathText | None = AERON_DIR
    response_channel: ResponseChannel | None = option(
        None,
        "Where an archive elsewhere sends its responses; `response` for Aeron's response channels, which need no "
        "inbound port here, and on the archive's side the port after its control port.",
        example="aeron:udp?endpoint=10.0.0.7:0",
        only=Route.DIRECT,
        shown="an ephemeral port on the address that faces the archive",
    )
    replay_channel: ResponseChannel | None = option(
        None,
        "Where an archive elsewhere replays to; `response` as above.",
        example="aeron:udp?endpoint=10.0.0.7:0",
        only=(READING, Route.DIRECT),
        shown="an ephemeral port on the address that faces the archive",
    )
    credentials_file: PathText | None = option(
        None,
        "File with the credentials for an archive that asks for them. The secret itself never stands in an option.",
        example="/etc/aeron/archive.credentials",
        only=Route.DIRECT,
        secret=True,
    )
    connect_timeout: Seconds = CONNECT_TIMEOUT

    @classmethod
    def read(cls, reader: OptionReader) -> DirectRoute:
        """Read the direct route. Raises OptionError where it is incomplete, or options name the other one."""
        _only_direct(reader)
        route = reader.read(cls)
        uri = ChannelUri.parse(route.channel)
        if uri.spy and reader.where not in READING:
            raise OptionError(
                "option 'channel' is a spy (aeron-spy:), which only listens",
                remedy="Write to the channel itself, aeron:…",
            )
        try:
            refuse_archive_streams(uri, route.stream_id)
        except OptionError as error:
            raise OptionError(f"option 'streamId': {error.what}", remedy=error.remedy) from None
        return route

    @property
    def label(self) -> str:
        """What it is called in errors."""
        return f"stream {self.stream_id} of {self.channel}"

    @property
    def embedded(self) -> bool:
        """Whether this machine's own node is one of the archives."""
        return "embedded" in self.archive


@dataclass(frozen=True, slots=True)
class ServerAt:
    """One server: ``name`` is ``host:port`` and tells it from others, ``address`` has the control port, too."""

    name: str
    address: str
    key: str  # its public key, as text


@dataclass(frozen=True, kw_only=True)
class ServerRoute(OptionSet, where=EVERYWHERE):
    """The route through a server: where it is, which stream of it, and who both sides are. No secret is in it.

    ``client`` are further options of the endpoint's client, by name.
    """

    server: Servers = option(
        REQUIRED,
        "`host:port` of a secure endpoint, or `host:port:control` where the control port is not the next one; "
        "several separated by commas where the stream's partitions live on several; or `@` and the path of a file "
        "that lists them, an address and a key a line, which the query's driver reads again for each micro-batch, "
        "so that a server can be added while the query runs. With `stream`: the way with keys and encryption, and "
        "exactly once for writers. Every option of a client below may stand beside it.",
        example="feeds.example:20121",
        only=Route.SERVER,
    )
    stream: StreamName = option(REQUIRED, "Name of a stream of the server.", example="flights", only=Route.SERVER)
    identity: Identity | None = option(
        None,
        "This side's key: the path of its file, a name in SparkFiles (`spark.addFile`), or `env:NAME`, a variable "
        "that holds it, in the driver's and the executors' environment. Never the key itself, which Spark would "
        "show.",
        example="/etc/aeron-spark/me.key",
        only=Route.SERVER,
        shown="`identity` in `$XDG_CONFIG_HOME/aeron-spark`, made when it is first used",
    )
    server_key: PublicKeys | None = option(
        None,
        "The server's public key, as `aeron-spark keys show --server` prints it on the server; one for all, or one "
        "for each server, separated by commas. Required: executors trust nobody on first use.",
        example="aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        only=Route.SERVER,
    )
    handshake: Literal["worker", "partition"] = option(
        "worker",
        "`worker`: each Python worker has one authenticated connection, over which each of its tasks opens ways of "
        "its own (milliseconds). `partition`: each task's partition has a connection, with a handshake, of its own.",
        example="partition",
        only=Route.SERVER,
    )
    aeron_dir: PathText | None = AERON_DIR
    connect_timeout: Seconds = CONNECT_TIMEOUT
    client: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.server, str):
            if self.server_key is not None:
                raise OptionError(
                    "option 'server' names a file, which has the servers' keys, too, and 'serverKey' is given beside "
                    "it",
                    remedy="Leave 'serverKey' out, and write 'host:port key', a server a line, into the file",
                )
        elif self.server_key is None:
            raise OptionError(
                "option 'server' needs 'serverKey', the server's public key: executors trust nobody on first use",
                remedy="'aeron-spark keys show --server' prints it on the server. "
                f"{example(self.declared['server_key'])}",
            )
        elif len(self.server_key) not in (1, len(self.server)):
            raise OptionError(
                f"option 'serverKey' has {len(self.server_key)} keys, and 'server' has {len(self.server)}",
                remedy="Give one key for all servers, or one for each, in the order of 'server'",
            )

    @classmethod
    def read(cls, reader: OptionReader) -> ServerRoute:
        """Read the route through a server. Raises OptionError where it is incomplete, or options name the other one."""
        _only_server(reader)
        if "stream" not in reader:
            raise OptionError(
                "option 'server' needs 'stream', the name of a stream of that server",
                remedy=example(cls.declared["stream"]),
            )
        return reader.read(cls, client=reader.of_client())

    def at(self, servers: tuple[ServerAt, ...]) -> ServerRoute:
        """Return the route to these servers, whatever lists them."""
        names = tuple((one.name, one.address) for one in servers)
        return replace(self, server=names, server_key=tuple(values.public_key(one.key) for one in servers))

    @property
    def servers_file(self) -> str | None:
        """The file that lists the servers, a path or a name in SparkFiles; None where the options name them."""
        return self.server if isinstance(self.server, str) else None

    @property
    def servers(self) -> tuple[ServerAt, ...]:
        """The servers; none as long as a file lists them."""
        if isinstance(self.server, str):
            return ()
        keys = [public_text(key) for key in self.server_key or ()]
        keys = keys if len(keys) == len(self.server) else keys * len(self.server)
        return tuple(ServerAt(name, address, key) for (name, address), key in zip(self.server, keys, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The servers' names."""
        return () if isinstance(self.server, str) else tuple(name for name, _ in self.server)

    @property
    def label(self) -> str:
        """What it is called in errors."""
        return f"stream {self.stream!r} of {' and '.join(self.names) or f'the servers in {self.servers_file}'}"


def route_of(reader: OptionReader) -> DirectRoute | ServerRoute:
    """Read the route. Raises OptionError for both routes, for none, and for options of the other one."""
    return ServerRoute.read(reader) if "server" in reader else DirectRoute.read(reader)


def direct_route(route: DirectRoute | ServerRoute) -> DirectRoute:
    """Insist on the direct route. Raises OptionError where it is through a server."""
    if isinstance(route, ServerRoute):
        raise OptionError(
            f"{route.label} is reached through a server, and this goes the direct way only",
            remedy="Give 'channel' and 'streamId'",
        )
    return route


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
    ((name, address),) = values.servers(words[0])
    return ServerAt(name, address, public_text(values.public_key(words[1])))


def _only_server(reader: OptionReader) -> None:
    for given in reader.given():
        name = given.name
        if name in ("channel", "streamId", "archive"):
            raise OptionError(
                f"options 'server' and '{name}' are two ways to reach a stream, and only one can be taken",
                remedy="Give 'channel' and 'streamId' for the direct way, or 'server' and 'stream' for the way "
                "through a server",
            )
        if given.route is Route.DIRECT:
            raise OptionError(
                f"option '{name}' belongs to the direct way, and a stream of a server has no use for it",
                remedy="Leave it out, or leave 'server' out and give 'channel' and 'streamId'",
            )


def _only_direct(reader: OptionReader) -> None:
    of_server = [given.name for given in reader.given() if given.route is Route.SERVER]
    for name in (*of_server, *(name for name, _ in reader.of_client())):
        raise OptionError(
            f"option '{name}' belongs to the way through a server, and there is no 'server'",
            remedy="For the direct way, give 'channel' and 'streamId' and leave it out",
        )
    if "channel" not in reader and "streamId" not in reader:
        raise OptionError(
            "no stream is named: option 'channel' is required, with 'streamId'",
            remedy=f"{example(DirectRoute.declared['channel'])}.option('streamId', '1001'), or through a server "
            "'server', 'stream' and 'serverKey'",
        )
