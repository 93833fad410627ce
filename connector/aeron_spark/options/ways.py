"""The two ways to reach a stream, and what is wrong with every other combination."""

from __future__ import annotations

from dataclasses import dataclass, field

from aeron_spark.endpoint.keypair import public_text
from aeron_spark.errors import OptionError
from aeron_spark.options import endpoint_values, values
from aeron_spark.options.given import Given, example
from aeron_spark.options.row import Way
from aeron_spark.transport.channel import ChannelUri, refuse_archive_streams


@dataclass(frozen=True, slots=True)
class Direct:
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
class Through:
    """The way through a server: where it is, which stream of it, and who both sides are. No secret is in it.

    ``names`` tells servers apart, ``host:port`` each; ``addresses`` (with the control port) and ``server_keys`` (texts)
    are theirs, in the same order. ``client`` are further options of the endpoint's client, by name.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    stream: str
    identity: str | None  # a path, a name in SparkFiles, or env:NAME; None: the user's own
    server_keys: tuple[str, ...]
    handshake: str = "worker"  # worker | partition
    aeron_dir: str | None = None
    connect_timeout_s: float = 10.0
    client: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """What it is called in errors."""
        return f"stream {self.stream!r} of {' and '.join(self.names)}"


def way_of(given: Given, *, reading: bool) -> Direct | Through:
    """Read the way out of the options. Raises ``OptionError`` for both ways, for none, and for options of the other."""
    return _through(given) if "server" in given else direct(given, reading=reading)


def direct(given: Given, *, reading: bool) -> Direct:
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
    return Direct(
        channel=channel,
        stream_id=stream_id,
        archives=given.required("archive", given.archives("archive")),
        aeron_dir=given.text("aeronDir"),
        response_channel=given.response("responseChannel"),
        replay_channel=given.response("replayChannel") if reading else None,
        credentials_file=given.text("credentialsFile"),
        connect_timeout_s=given.seconds("connectTimeout"),
    )


def direct_way(way: Direct | Through) -> Direct:
    """Insist on the direct way. Raises ``OptionError`` where it is through a server."""
    if isinstance(way, Through):
        raise OptionError(
            f"{way.label} is reached through a server, and this goes the direct way only",
            remedy="Give 'channel' and 'streamId'",
        )
    return way


def _through(given: Given) -> Through:
    _only_through(given)
    if "stream" not in given:
        raise OptionError(
            "option 'server' needs 'stream', the name of a stream of that server",
            remedy=example(given.option("stream")),
        )
    if "serverKey" not in given:
        raise OptionError(
            "option 'server' needs 'serverKey', the server's public key: executors trust nobody on first use",
            remedy=f"'aeron-spark keys show' prints it on the server. {example(given.option('serverKey'))}",
        )
    servers = given.required("server", given.read("server", endpoint_values.servers))
    keys = given.required("serverKey", given.read("serverKey", endpoint_values.public_keys))
    if len(keys) not in (1, len(servers)):
        raise OptionError(
            f"option 'serverKey' has {len(keys)} keys, and 'server' has {len(servers)}",
            remedy="Give one key for all servers, or one for each, in the order of 'server'",
        )
    texts = tuple(public_text(key) for key in keys)
    return Through(
        names=tuple(name for name, _ in servers),
        addresses=tuple(address for _, address in servers),
        stream=given.required("stream", given.read("stream", values.stream_name)),
        identity=given.read("identity", endpoint_values.identity),
        server_keys=texts if len(texts) == len(servers) else texts * len(servers),
        handshake=given.choice("handshake"),
        aeron_dir=given.text("aeronDir"),
        connect_timeout_s=given.seconds("connectTimeout"),
        client=given.of_client(),
    )


def _only_through(given: Given) -> None:
    for name in given.names():
        if name in ("channel", "streamId", "archive"):
            raise OptionError(
                f"options 'server' and '{name}' are two ways to reach a stream, and only one can be taken",
                remedy="Give 'channel' and 'streamId' for the direct way, or 'server' and 'stream' for the way "
                "through a server",
            )
        if given.option(name).way is Way.DIRECT:
            raise OptionError(
                f"option '{name}' belongs to the direct way, and a stream of a server has no use for it",
                remedy="Leave it out, or leave 'server' out and give 'channel' and 'streamId'",
            )


def _only_direct(given: Given) -> None:
    of_server = [name for name in given.names() if given.option(name).way is Way.SERVER]
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
