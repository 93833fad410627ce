"""The two routes to a stream, direct and through a server, and the errors for options that fit neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.options.declaration import (
    EVERYWHERE,
    READING,
    REQUIRED,
    Format,
    Option,
    OptionReader,
    OptionSet,
    Route,
    example,
    option,
)
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

# The channel of a cluster's log changes with each election; this one identifies the log in offsets.
CLUSTER_LOG_CHANNEL: Final = "aeron:udp?alias=log|tags=1"
CLUSTER_LOG_STREAM: Final = 100  # ConsensusModule.Configuration.LOG_STREAM_ID_DEFAULT

# options of both routes
AERON_DIR: Final = option(
    None,
    "Directory of this machine's media driver. If none runs, a node is started in the default directory, or where a "
    "node has run before. Elsewhere a query or command waits `connectTimeout` for the driver, which you run.",
    example="/dev/shm/aeron-desk",
    shown="`/dev/shm/aeron-spark-<user>`",
)
CONNECT_TIMEOUT: Final = option(
    "10s",
    "Longest wait for a media driver, an archive, a server or (writing) a subscriber.",
    example="10s",
)


@dataclass(frozen=True)
class DirectRoute(OptionSet, where=EVERYWHERE):
    """The direct route: an Aeron stream, its archives, and this machine's media driver."""

    channel: Channel = option(
        REQUIRED,
        "Aeron channel URI of the stream. With `streamId`, selects the direct route, for a trusted network and any "
        "existing Aeron program.",
        example="aeron:udp?endpoint=224.20.30.39:40123|interface=localhost",
        only=Route.DIRECT,
    )
    stream_id: int = option(
        REQUIRED,
        "Aeron stream id in the channel; a reader with `format('aeron')` may have several, separated by commas. The "
        "rows then have the column `streamId`, and all streams one payload and one schema. The stream ids of an "
        "archive's control streams are refused.",
        example="1001",
        only=Route.DIRECT,
        low=INT32_MIN,
        high=INT32_MAX,
    )
    archive: Archives = option(
        "embedded",
        "Control channel of an Aeron Archive, or several separated by commas; or `embedded`: this machine's media "
        "driver and archive (the node) in `aeronDir`, which all processes share.",
        example="aeron:udp?endpoint=archive.example:8010",
        only=Route.DIRECT,
    )
    aeron_dir: PathText | None = AERON_DIR
    response_channel: ResponseChannel | None = option(
        None,
        "Channel on which a remote archive sends its responses; or `response`: Aeron's response channels, which need "
        "no inbound port on this machine, but the port after the control port on the archive's machine.",
        example="aeron:udp?endpoint=10.0.0.7:0",
        only=Route.DIRECT,
        shown="an ephemeral port on the network interface towards the archive",
    )
    replay_channel: ResponseChannel | None = option(
        None,
        "Channel to which a remote archive replays; or `response`, as for `responseChannel`.",
        example="aeron:udp?endpoint=10.0.0.7:0",
        only=(READING, Route.DIRECT),
        shown="an ephemeral port on the network interface towards the archive",
    )
    credentials_file: PathText | None = option(
        None,
        "File with the credentials for an archive that requires them. No option contains the secret itself.",
        example="/etc/aeron/archive.credentials",
        only=Route.DIRECT,
        secret=True,
    )
    connect_timeout: Seconds = CONNECT_TIMEOUT
    archive_timeout: Seconds = option(
        "60s",
        "Longest wait of a running query for an archive, or its media driver, that is restarted; then the query fails "
        "and names it. The first connection waits only `connectTimeout`; through a server, a query also waits "
        "`connectTimeout` for a restart.",
        example="60s",
        only=Route.DIRECT,
    )
    cluster: Literal["log"] | None = option(
        None,
        "`log`: read the log of an Aeron Cluster, in place of `channel` and `streamId`, from the archive of a member "
        "or a ClusterBackup node. `aeronDir` is its media driver. A member's log is read up to the commit position.",
        example="log",
        only=(READING, Route.DIRECT, Format.AERON),
    )
    cluster_uncommitted: bool = option(
        False,
        "`true`: with `cluster=log`, read up to the recorded end. A member may take back its last entries after an "
        "election, and rows of such entries are then wrong. Without it, a log whose commit position is unknown is "
        "refused.",
        example="true",
        only=(READING, Route.DIRECT, Format.AERON),
    )
    several: tuple[str, ...] = ()  # the ids of a reader of several streams, of which ``stream_id`` is the first

    @classmethod
    def read(cls, reader: OptionReader) -> DirectRoute:
        """Read the direct route. Raises OptionError if it is incomplete, or for options of the other route."""
        _refuse_server_options(reader)
        if "cluster" in reader:
            return cls._read_cluster(reader)
        several = _several(reader, cls.declared["stream_id"], values.parse_stream_ids)
        route = reader.read(cls, stream_id=int(several[0]), several=several) if several else reader.read(cls)
        if route.cluster_uncommitted:
            raise OptionError(
                "option 'clusterUncommitted' is only for the log of a cluster, and 'cluster' is missing",
                remedy=f"{example(cls.declared['cluster'])}, or leave the option out.",
            )
        uri = ChannelUri.parse(route.channel)
        if uri.spy and reader.where not in READING:
            raise OptionError(
                "option 'channel' is a spy channel (aeron-spy:), which can only be read",
                remedy="Write to the channel itself, aeron:…",
            )
        try:
            for stream_id in route.several or (route.stream_id,):
                refuse_archive_streams(uri, int(stream_id))
        except OptionError as error:
            raise OptionError(f"option 'streamId': {error.what}", remedy=error.remedy) from None
        return route

    @classmethod
    def _read_cluster(cls, reader: OptionReader) -> DirectRoute:
        for name in ("channel", "streamId"):
            if name in reader:
                raise OptionError(
                    f"option 'cluster' selects the log of a cluster, and '{name}' another stream",
                    remedy="Leave one of them out. The log's channel changes with each election.",
                )
        route = reader.read(cls, channel=CLUSTER_LOG_CHANNEL, stream_id=CLUSTER_LOG_STREAM)
        if len(route.archive) > 1:
            raise OptionError(
                f"option 'archive' names {len(route.archive)} archives, and each has the complete log of the cluster",
                remedy="Give the archive of one member or of a ClusterBackup.",
            )
        return route

    @property
    def label(self) -> str:
        """The name of the stream in errors."""
        if self.cluster:
            return "the cluster's log"
        return (
            f"streams {', '.join(self.several)} of {self.channel}"
            if self.several
            else (f"stream {self.stream_id} of {self.channel}")
        )

    def of_one(self, stream: str) -> DirectRoute:
        """Return the route to one of several streams."""
        return replace(self, stream_id=int(stream), several=())

    @property
    def stream_column(self) -> str | None:
        """The column of rows of several streams with their stream; None for one stream."""
        return "streamId" if self.several else None

    @property
    def embedded(self) -> bool:
        """Whether this machine's own node is one of the archives."""
        return "embedded" in self.archive


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server of a route: ``name`` is the unique ``host:port``, ``address`` also has the control port."""

    name: str
    address: str
    key: str  # public key of the server, as text


@dataclass(frozen=True, kw_only=True)
class ServerRoute(OptionSet, where=EVERYWHERE):
    """The route through a server: the addresses and keys of the servers, the stream, and this client's options.

    Contains no secret. ``client`` has further client options by name.
    """

    server: Servers = option(
        REQUIRED,
        "`host:port` of a server, or `host:port:control` if the control port is not the next port; several servers, "
        "separated by commas, if they share the stream's partitions; or `@` and the path of a file with an address "
        "and a key on each line. The Spark driver reads the file again for each micro-batch, so that servers can be "
        "added during a query. With `stream`, selects the route through a server: with keys, encryption and "
        "exactly-once writing. All client options below are also allowed.",
        example="feeds.example:20121",
        only=Route.SERVER,
    )
    stream: StreamName = option(
        REQUIRED,
        "Name of a stream on the server. A reader may have several names and patterns, separated by commas: a text "
        "with `*`, `?` or `[` is a pattern of whole names, as in a grant; a dot is always a dot. Streams that match "
        "later join a running query at its next micro-batch, from their beginning. The rows then have the column "
        "`stream`, and all streams one payload and one schema.",
        example="flights",
        only=Route.SERVER,
    )
    identity: Identity | None = option(
        None,
        "Identity key of this client: the path of its file, a file name in SparkFiles (`spark.addFile`), or "
        "`env:NAME`, an environment variable of the Spark driver and the executors. Never the key itself, because "
        "Spark shows options.",
        example="/etc/aeron-spark/me.key",
        only=Route.SERVER,
        shown="`identity` in `$XDG_CONFIG_HOME/aeron-spark`, created at its first use",
    )
    server_key: PublicKeys | None = option(
        None,
        "Public key of the server, as `aeron-spark keys show --server` prints it on the server; one for all servers, "
        "or one for each, separated by commas. Required: executors do not trust an unknown server at first use.",
        example="aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        only=Route.SERVER,
    )
    handshake: Literal["worker", "partition"] = option(
        "worker",
        "`worker`: each Python worker has one authenticated connection, on which its tasks open bulk links, in "
        "milliseconds. `partition`: each Spark partition has a separate connection with its own handshake.",
        example="partition",
        only=Route.SERVER,
    )
    aeron_dir: PathText | None = AERON_DIR
    connect_timeout: Seconds = CONNECT_TIMEOUT
    client: tuple[tuple[str, str], ...] = ()
    several: tuple[str, ...] = ()  # the names and patterns of a reader of several streams; ``stream`` is their list

    def __post_init__(self) -> None:
        if isinstance(self.server, str):
            if self.server_key is not None:
                raise OptionError(
                    "option 'serverKey' is set, but 'server' names a file, which also has the servers' keys",
                    remedy="Leave 'serverKey' out, and write 'host:port key' for each server on a line of the file.",
                )
        elif self.server_key is None:
            raise OptionError(
                "option 'server' needs 'serverKey', the server's public key: executors do not trust an unknown server "
                "at first use",
                remedy="Run 'aeron-spark keys show --server' on the server to get it. "
                f"{example(self.declared['server_key'])}",
            )
        elif len(self.server_key) not in (1, len(self.server)):
            raise OptionError(
                f"option 'serverKey' has {len(self.server_key)} keys, expected 1 or {len(self.server)}: one for each "
                "server of option 'server'",
                remedy="Give one key for all servers, or one for each, in the order of 'server'.",
            )

    @classmethod
    def read(cls, reader: OptionReader) -> ServerRoute:
        """Read the route through a server. Raises OptionError if it is incomplete, or for options of the direct one."""
        _refuse_direct_options(reader)
        if "stream" not in reader:
            raise OptionError(
                "option 'server' needs 'stream', the name of a stream on that server",
                remedy=example(cls.declared["stream"]),
            )
        several = _several(reader, cls.declared["stream"], values.parse_streams)
        given = {"stream": ",".join(several)} if several else {}
        return reader.read(cls, client=reader.client_options(), several=several, **given)

    def with_servers(self, servers: tuple[ServerEntry, ...]) -> ServerRoute:
        """Return this route with ``servers`` in place of the option or the file that lists them."""
        names = tuple((server.name, server.address) for server in servers)
        return replace(self, server=names, server_key=tuple(values.parse_public_key(server.key) for server in servers))

    @property
    def servers_file(self) -> str | None:
        """The file that lists the servers: a path, or a name in SparkFiles. None if the options list them."""
        return self.server if isinstance(self.server, str) else None

    @property
    def servers(self) -> tuple[ServerEntry, ...]:
        """The servers; empty if a file lists them."""
        if isinstance(self.server, str):
            return ()
        keys = [public_text(key) for key in self.server_key or ()]
        keys = keys if len(keys) == len(self.server) else keys * len(self.server)
        return tuple(ServerEntry(name, address, key) for (name, address), key in zip(self.server, keys, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers; empty if a file lists them."""
        return () if isinstance(self.server, str) else tuple(name for name, _ in self.server)

    @property
    def label(self) -> str:
        """The name of the stream in errors."""
        servers = " and ".join(self.names) or f"the servers in {self.servers_file}"
        return f"{'streams' if self.several else 'stream'} {self.stream!r} of {servers}"

    def of_one(self, stream: str) -> ServerRoute:
        """Return the route to one of several streams."""
        return replace(self, stream=stream, several=())

    @property
    def stream_column(self) -> str | None:
        """The column of rows of several streams with their stream; None for one stream."""
        return "stream" if self.several else None


def _several(reader: OptionReader, option: Option, parse: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the streams that a reader names; empty for one, which the option's own type parses.

    Writers and ``format("aeron-jvm")`` have one.
    """
    has_several = reader.where in READING and reader.spark_format is Format.AERON
    return (reader.value(option, parse) or ()) if has_several else ()


def route_of(reader: OptionReader) -> DirectRoute | ServerRoute:
    """Read the route. Raises OptionError for options of both routes or of none."""
    return ServerRoute.read(reader) if "server" in reader else DirectRoute.read(reader)


def direct_route(route: DirectRoute | ServerRoute) -> DirectRoute:
    """Return the route if it is direct. Raises OptionError for a route through a server."""
    if isinstance(route, ServerRoute):
        raise OptionError(
            f"{route.label} is reached through a server, expected the direct route",
            remedy="Give 'channel' and 'streamId'.",
        )
    if route.several:
        raise OptionError(f"option 'streamId' names {len(route.several)} streams, expected one", remedy="Give one id.")
    return route


SERVERS_FILE_REMEDY: Final = "Write 'host:port key' for each server on a line."


def parse_servers_file(text: str) -> tuple[ServerEntry, ...]:
    """Parse the text of a servers file: on each line an address and a key, as in options 'server' and 'serverKey'.

    Ignores empty lines, and lines that begin with ``#``. Raises OptionError that names a wrong line, or for a file
    without a server.
    """
    entries: dict[str, ServerEntry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            entry = _server_entry(line.split())
            if entry.name in entries:
                raise OptionError(f"the server {entry.name} is given twice", remedy="Give it once.")
        except OptionError as error:
            raise OptionError(f"line {number}: {error.what}", remedy=error.remedy) from None
        entries[entry.name] = entry
    if not entries:
        raise OptionError("the file lists no server", remedy=SERVERS_FILE_REMEDY)
    return tuple(entries.values())


def _server_entry(words: list[str]) -> ServerEntry:
    if len(words) != 2 or "," in words[0]:
        raise OptionError("the line is not 'host:port key'", remedy=SERVERS_FILE_REMEDY)
    ((name, address),) = values.parse_servers(words[0])
    return ServerEntry(name, address, public_text(values.parse_public_key(words[1])))


def _refuse_direct_options(reader: OptionReader) -> None:
    for given_option in reader.given_options():
        name = given_option.name
        if name in ("channel", "streamId", "archive"):
            raise OptionError(
                f"option 'server' selects the route through a server, and '{name}' the direct route",
                remedy="Give 'channel' and 'streamId' for the direct route, or 'server' and 'stream' for the route "
                "through a server.",
            )
        if given_option.route is Route.DIRECT:
            raise OptionError(
                f"option '{name}' is only for the direct route, and 'server' selects the route through a server",
                remedy="Leave it out, or leave 'server' out and give 'channel' and 'streamId'.",
            )


def _refuse_server_options(reader: OptionReader) -> None:
    server_options = [one.name for one in reader.given_options() if one.route is Route.SERVER]
    for name in (*server_options, *(name for name, _ in reader.client_options())):
        raise OptionError(
            f"option '{name}' is only for the route through a server, and 'server' is missing",
            remedy="Add 'server', or leave the option out and give 'channel' and 'streamId' for the direct route.",
        )
    if not any(name in reader for name in ("channel", "streamId", "cluster")):
        has_servers = reader.spark_format is Format.AERON
        raise OptionError(
            "no stream is named: option 'channel' is required, with 'streamId'",
            remedy=f"{example(DirectRoute.declared['channel'])}.option('streamId', '1001')"
            + ("; or, through a server, give 'server', 'stream' and 'serverKey'." if has_servers else ""),
        )
