"""The two routes, and the errors for options that fit neither."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import OptionReader, Where
from aeron_spark.options.routes import DirectRoute, ServerEntry, ServerRoute, direct_route, parse_servers_file, route_of
from aeron_spark.options.values import parse_public_key

KEY = "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
OTHER = "aeron-spark:BwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
SERVER = {"server": "feeds.example:20121", "stream": "flights", "serverKey": KEY}
GOOD = {"channel": "aeron:udp?endpoint=localhost:40123", "streamId": "1001"}


def test_the_defaults_of_the_direct_route() -> None:
    route = DirectRoute.read(OptionReader(GOOD, Where.READ_STREAM))
    assert route == DirectRoute("aeron:udp?endpoint=localhost:40123", 1001)
    assert route.embedded


def test_all_options_of_the_direct_route() -> None:
    options = {
        **GOOD,
        "archive": "aeron:udp?endpoint=archive:8010",
        "aeronDir": "/dev/shm/desk",
        "responseChannel": "response",
        "replayChannel": "aeron:udp?endpoint=me:0",
        "credentialsFile": "/etc/secret",
        "connectTimeout": "2500ms",
    }
    route = DirectRoute.read(OptionReader(options, Where.READ_BATCH))
    assert route == DirectRoute(
        "aeron:udp?endpoint=localhost:40123",
        1001,
        ("aeron:udp?endpoint=archive:8010",),
        "/dev/shm/desk",
        "response",
        "aeron:udp?endpoint=me:0",
        "/etc/secret",
        2.5,
    )
    assert not route.embedded
    assert "secret" not in repr(route)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {},
            "no stream is named: option 'channel' is required, with 'streamId'. For example .option('channel', 'aeron:",
        ),
        ({"archive": "embedded"}, "no stream is named"),
        ({"channel": "aeron:ipc"}, "option 'streamId' is required. For example .option('streamId', '1001')"),
        ({"streamId": "7"}, "option 'channel' is required. For example .option('channel', 'aeron:"),
        ({**GOOD, "streamId": "x"}, "option 'streamId' must be a whole number from -2147483648 to 2147483647, not 'x'"),
        ({**GOOD, "channel": "udp://h:1"}, "option 'channel': the channel 'udp://h:1' does not begin with 'aeron:'"),
        ({"channel": "aeron:ipc", "streamId": "10"}, "option 'streamId': stream 10 of aeron:ipc is a control stream"),
        (
            {"server": "h:1", **GOOD},
            "option 'server' selects the route through a server, and 'channel' the direct route",
        ),
        ({"server": "h:1", "stream": "s", "streamId": "7"}, "and 'streamId' the direct route"),
        ({"server": "h:1", "stream": "s", "archive": "embedded"}, "and 'archive' the direct route"),
        ({"server": "h:1"}, "option 'server' needs 'stream', the name of a stream on that server"),
        ({"server": "h:1", "stream": "s"}, "option 'server' needs 'serverKey', the server's public key: executors"),
        ({**GOOD, "stream": "s"}, "option 'stream' is only for the route through a server, and 'server' is missing"),
        ({**GOOD, "identity": "env:KEY"}, "option 'identity' is only for the route through a server"),
        ({**GOOD, "serverKey": "k"}, "option 'serverKey' is only for the route through a server"),
        ({**GOOD, "handshake": "worker"}, "option 'handshake' is only for the route through a server"),
        ({**GOOD, "tag": "x"}, "option 'tag' is only for the route through a server, and 'server' is missing"),
        ({**SERVER, "responseChannel": "response"}, "option 'responseChannel' is only for the direct route"),
        ({**SERVER, "credentialsFile": "/x"}, "option 'credentialsFile' is only for the direct route"),
        ({**SERVER, "record": "never"}, "option 'record' is only for the direct route"),
        ({**SERVER, "server": "feeds.example"}, "option 'server': the address 'feeds.example' has no port"),
        ({**SERVER, "server": "a:1,"}, "option 'server': the address '' is not host:port"),
        ({**SERVER, "server": "ipc:"}, "option 'server': the address 'ipc:' is not valid on other machines"),
        ({**SERVER, "server": "localhost:7,127.0.0.1:7:9"}, "the server 127.0.0.1:7 is given twice"),
        ({**SERVER, "stream": "../x"}, "option 'stream' must be the name of a stream: at most 128 letters"),
        ({**SERVER, "stream": "x" * 129}, "option 'stream' must be the name of a stream"),
        ({**SERVER, "serverKey": "k"}, "option 'serverKey': 'k' is not a public key"),
        (
            {**SERVER, "serverKey": f"{KEY},{OTHER}"},
            "option 'serverKey' has 2 keys, expected 1 or 1: one for each server",
        ),
        ({**SERVER, "handshake": "task"}, "option 'handshake' must be worker or partition, not 'task'"),
        ({**SERVER, "connectTimeout": "0"}, "option 'connectTimeout' must be a duration above zero"),
        (
            {**SERVER, "identity": "env:"},
            "option 'identity': the text after 'env:' is not the name of an environment variable",
        ),
        ({**SERVER, "identity": KEY}, "option 'identity': the value is a public key"),
    ],
)
def test_options_that_fit_no_route_have_their_own_error(options: dict[str, object], sentence: str) -> None:
    assert route_of(OptionReader(GOOD, Where.WRITE_STREAM)) == DirectRoute(GOOD["channel"], 1001)
    assert isinstance(route_of(OptionReader(SERVER, Where.WRITE_STREAM)), ServerRoute)
    for where in (Where.READ_STREAM, Where.WRITE_BATCH):
        with pytest.raises(OptionError) as caught:
            route_of(OptionReader(options, where))
        assert sentence in str(caught.value)
        assert caught.value.remedy


def test_a_spy_channel_can_only_be_read() -> None:
    options = {"channel": "aeron-spy:aeron:udp?endpoint=localhost:40123", "streamId": "1001"}
    assert DirectRoute.read(OptionReader(options, Where.READ_STREAM)).channel == options["channel"]
    with pytest.raises(OptionError, match="a spy"):
        DirectRoute.read(OptionReader(options, Where.WRITE_STREAM))


def test_the_defaults_of_the_route_through_a_server() -> None:
    route = route_of(OptionReader(SERVER, Where.READ_STREAM))
    assert route == ServerRoute(
        server=(("feeds.example:20121", "feeds.example:20121:20122"),),
        stream="flights",
        server_key=(parse_public_key(KEY),),
    )
    assert route.servers == (ServerEntry("feeds.example:20121", "feeds.example:20121:20122", KEY),)
    assert route.label == "stream 'flights' of feeds.example:20121"


def test_all_options_of_the_route_through_servers() -> None:
    options = {
        "server": "LocalHost:20121:20200, [0::1]:20121",
        "stream": "flights-2.x_y",
        "serverKey": f"{KEY}, {OTHER}",
        "identity": "env:MY_KEY",
        "handshake": "Partition",
        "aeronDir": "/dev/shm/desk",
        "connectTimeout": "2500ms",
        "tag": "desk-7",
        "mtu": "8k",
    }
    for where in (Where.READ_BATCH, Where.WRITE_STREAM):
        assert route_of(OptionReader(options, where)) == ServerRoute(
            server=(("127.0.0.1:20121", "127.0.0.1:20121:20200"), ("[::1]:20121", "[::1]:20121:20122")),
            server_key=(parse_public_key(KEY), parse_public_key(OTHER)),
            stream="flights-2.x_y",
            identity="env:MY_KEY",
            handshake="partition",
            aeron_dir="/dev/shm/desk",
            connect_timeout=2.5,
            client=(("mtu", "8k"), ("tag", "desk-7")),
        )


def test_one_key_applies_to_all_servers() -> None:
    route = route_of(OptionReader({**SERVER, "server": "a:1,b:1,c:1"}, Where.READ_STREAM))
    assert isinstance(route, ServerRoute)
    assert [one.key for one in route.servers] == [KEY, KEY, KEY]


def test_a_file_may_list_the_servers() -> None:
    options = {"server": "@/etc/aeron-spark/servers", "stream": "flights"}
    route = route_of(OptionReader(options, Where.READ_STREAM))
    assert isinstance(route, ServerRoute)
    assert (route.servers, route.servers_file) == ((), "/etc/aeron-spark/servers")
    assert route.label == "stream 'flights' of the servers in /etc/aeron-spark/servers"
    found = parse_servers_file(f"# ours\n\n a.example:20121:20200 {KEY}\n[::1]:20121 {OTHER} \n")
    assert found == (
        ServerEntry("a.example:20121", "a.example:20121:20200", KEY),
        ServerEntry("[::1]:20121", "[::1]:20121:20122", OTHER),
    )
    assert route.with_servers(found).names == ("a.example:20121", "[::1]:20121")
    assert route.with_servers(found).servers == found
    assert route.with_servers(found).servers_file is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "the file lists no server"),
        ("# none yet\n", "the file lists no server"),
        ("a:1", "line 1: the line is not 'host:port key'"),
        (f"a:1 {KEY}\nb:1 {OTHER} backup", "line 2: the line is not 'host:port key'"),
        (f"a {KEY}", "line 1: .*port"),
        ("a:1 nothing", "line 1: .*key"),
        (f"a:1,b:1 {KEY}", "line 1: the line is not 'host:port key'"),
        (f"a:1 {KEY}\n\na:1:7 {OTHER}", "line 3: the server a:1 is given twice"),
        (f"ipc {KEY}", "line 1: "),
    ],
)
def test_the_error_for_a_wrong_servers_file_names_the_line(text: str, error: str) -> None:
    with pytest.raises(OptionError, match=error):
        parse_servers_file(text)


def test_a_servers_file_needs_a_path_and_excludes_server_key() -> None:
    with pytest.raises(OptionError, match="'server' names a file, which also has the servers' keys"):
        route_of(OptionReader({**SERVER, "server": "@servers"}, Where.READ_STREAM))
    with pytest.raises(OptionError, match="option 'server': the path after '@' is missing"):
        route_of(OptionReader({"server": "@ ", "stream": "flights"}, Where.READ_STREAM))


SECRETS = [
    "Q0FGRUJBQkVDQUZFQkFCRUNBRkVCQUJFQ0FGRUJBQkU=",  # base64 of 32 bytes
    "/0FGRUJBQkVDQUZFQkFCRUNBRkVCQUJFQ0FGRUJBQkU=",
    "Q0FGRUJBQkVDQUZFQkFCRUNBRkVCQUJFQ0FGRUJBQkU",
    "Q0FGRUJB/kVDQUZFQkFCRUNBRkVCQUJFQ0FGRUJBQkU",
    "cafebabe" * 8,
    "aeron-spark identity 1\nprivate: Q0FGRUJB\npublic: x",
    "private: Q0FGRUJBQkVDQUZFQkFCRUNBRkVCQUJFQ0FGRUJBQkU=",
    "-----BEGIN PRIVATE KEY-----",
    "env:Q0FGRUJBQkVDQUZFQkFCRUNBRkVCQUJFQ0FGRUJBQkU=",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_key_as_an_options_value_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(OptionError) as caught:
        route_of(OptionReader({**SERVER, "identity": secret}, Where.READ_STREAM))
    assert "spark.addFile" in caught.value.remedy
    assert "Q0FGRUJB" not in str(caught.value)
    assert "cafebabe" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["me.key", "/etc/keys/me", "~/me", "env:KEY_1", "./" + "a" * 43, "k" * 42, "/" + "k" * 42]
)
def test_identity_accepts_the_location_of_a_key(text: str) -> None:
    route = route_of(OptionReader({**SERVER, "identity": text}, Where.READ_STREAM))
    assert isinstance(route, ServerRoute)
    assert route.identity == text


def test_direct_route_refuses_the_route_through_a_server() -> None:
    route = route_of(OptionReader(GOOD, Where.READ_STREAM))
    assert direct_route(route) is route
    with pytest.raises(OptionError, match=r"stream 'flights' of .* is reached through a server"):
        direct_route(route_of(OptionReader(SERVER, Where.READ_STREAM)))
