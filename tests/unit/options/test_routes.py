"""The two routes, and every combination that is none."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import Where
from aeron_spark.options.reader import OptionReader
from aeron_spark.options.routes import DirectRoute, ServerAt, ServerRoute, direct_route, listed, route_of
from aeron_spark.options.values import public_key

KEY = "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
OTHER = "aeron-spark:BwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
SERVER = {"server": "feeds.example:20121", "stream": "flights", "serverKey": KEY}
GOOD = {"channel": "aeron:udp?endpoint=localhost:40123", "streamId": "1001"}


def test_the_defaults_of_the_direct_way() -> None:
    way = DirectRoute.read(OptionReader(GOOD, Where.READ_STREAM))
    assert way == DirectRoute("aeron:udp?endpoint=localhost:40123", 1001)
    assert way.embedded


def test_everything_of_the_direct_way() -> None:
    options = {
        **GOOD,
        "archive": "aeron:udp?endpoint=archive:8010",
        "aeronDir": "/dev/shm/desk",
        "responseChannel": "response",
        "replayChannel": "aeron:udp?endpoint=me:0",
        "credentialsFile": "/etc/secret",
        "connectTimeout": "2500ms",
    }
    way = DirectRoute.read(OptionReader(options, Where.READ_BATCH))
    assert way == DirectRoute(
        "aeron:udp?endpoint=localhost:40123",
        1001,
        ("aeron:udp?endpoint=archive:8010",),
        "/dev/shm/desk",
        "response",
        "aeron:udp?endpoint=me:0",
        "/etc/secret",
        2.5,
    )
    assert not way.embedded
    assert "secret" not in repr(way)


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
        ({"server": "h:1", **GOOD}, "options 'server' and 'channel' are two ways to reach a stream"),
        ({"server": "h:1", "stream": "s", "streamId": "7"}, "options 'server' and 'streamId' are two ways"),
        ({"server": "h:1", "stream": "s", "archive": "embedded"}, "options 'server' and 'archive' are two ways"),
        ({"server": "h:1"}, "option 'server' needs 'stream', the name of a stream of that server"),
        ({"server": "h:1", "stream": "s"}, "option 'server' needs 'serverKey', the server's public key: executors"),
        ({**GOOD, "stream": "s"}, "option 'stream' belongs to the way through a server, and there is no 'server'"),
        ({**GOOD, "identity": "env:KEY"}, "option 'identity' belongs to the way through a server"),
        ({**GOOD, "serverKey": "k"}, "option 'serverKey' belongs to the way through a server"),
        ({**GOOD, "handshake": "worker"}, "option 'handshake' belongs to the way through a server"),
        ({**GOOD, "tag": "x"}, "option 'tag' belongs to the way through a server, and there is no 'server'"),
        ({**SERVER, "responseChannel": "response"}, "option 'responseChannel' belongs to the direct way"),
        ({**SERVER, "credentialsFile": "/x"}, "option 'credentialsFile' belongs to the direct way"),
        ({**SERVER, "record": "never"}, "option 'record' belongs to the direct way"),
        ({**SERVER, "server": "feeds.example"}, "option 'server': the address 'feeds.example' has no port"),
        ({**SERVER, "server": "a:1,"}, "option 'server': the address '' is not host:port"),
        ({**SERVER, "server": "ipc:"}, "option 'server': the address 'ipc:' names no server to other machines"),
        ({**SERVER, "server": "localhost:7,127.0.0.1:7:9"}, "the server 127.0.0.1:7 is given twice"),
        ({**SERVER, "stream": "../x"}, "option 'stream' must be the name of a stream: at most 128 letters"),
        ({**SERVER, "stream": "x" * 129}, "option 'stream' must be the name of a stream"),
        ({**SERVER, "serverKey": "k"}, "option 'serverKey': 'k' is not a public key"),
        ({**SERVER, "serverKey": f"{KEY},{OTHER}"}, "option 'serverKey' has 2 keys, and 'server' has 1"),
        ({**SERVER, "handshake": "task"}, "option 'handshake' must be worker or partition, not 'task'"),
        ({**SERVER, "connectTimeout": "0"}, "option 'connectTimeout' must be a duration above zero"),
        ({**SERVER, "identity": "env:"}, "option 'identity': what follows 'env:' is no name of a variable"),
        ({**SERVER, "identity": KEY}, "option 'identity': it is a public key"),
    ],
)
def test_what_is_no_way_has_its_own_sentence(options: dict[str, object], sentence: str) -> None:
    assert route_of(OptionReader(GOOD, Where.WRITE_STREAM)) == DirectRoute(GOOD["channel"], 1001)
    assert isinstance(route_of(OptionReader(SERVER, Where.WRITE_STREAM)), ServerRoute)
    for where in (Where.READ_STREAM, Where.WRITE_BATCH):
        with pytest.raises(OptionError) as caught:
            route_of(OptionReader(options, where))
        assert sentence in str(caught.value)
        assert caught.value.remedy


def test_a_spy_listens_and_cannot_be_written_to() -> None:
    options = {"channel": "aeron-spy:aeron:udp?endpoint=localhost:40123", "streamId": "1001"}
    assert DirectRoute.read(OptionReader(options, Where.READ_STREAM)).channel == options["channel"]
    with pytest.raises(OptionError, match="a spy"):
        DirectRoute.read(OptionReader(options, Where.WRITE_STREAM))


def test_the_defaults_of_the_way_through_a_server() -> None:
    way = route_of(OptionReader(SERVER, Where.READ_STREAM))
    assert way == ServerRoute(
        server=(("feeds.example:20121", "feeds.example:20121:20122"),), stream="flights", server_key=(public_key(KEY),)
    )
    assert way.servers == (ServerAt("feeds.example:20121", "feeds.example:20121:20122", KEY),)
    assert way.label == "stream 'flights' of feeds.example:20121"


def test_everything_of_the_way_through_servers() -> None:
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
            server_key=(public_key(KEY), public_key(OTHER)),
            stream="flights-2.x_y",
            identity="env:MY_KEY",
            handshake="partition",
            aeron_dir="/dev/shm/desk",
            connect_timeout=2.5,
            client=(("mtu", "8k"), ("tag", "desk-7")),
        )


def test_one_key_is_for_all_servers() -> None:
    way = route_of(OptionReader({**SERVER, "server": "a:1,b:1,c:1"}, Where.READ_STREAM))
    assert isinstance(way, ServerRoute)
    assert [one.key for one in way.servers] == [KEY, KEY, KEY]


def test_a_file_may_list_the_servers() -> None:
    options = {"server": "@/etc/aeron-spark/servers", "stream": "flights"}
    way = route_of(OptionReader(options, Where.READ_STREAM))
    assert isinstance(way, ServerRoute)
    assert (way.servers, way.servers_file) == ((), "/etc/aeron-spark/servers")
    assert way.label == "stream 'flights' of the servers in /etc/aeron-spark/servers"
    found = listed(f"# ours\n\n a.example:20121:20200 {KEY}\n[::1]:20121 {OTHER} \n")
    assert found == (
        ServerAt("a.example:20121", "a.example:20121:20200", KEY),
        ServerAt("[::1]:20121", "[::1]:20121:20122", OTHER),
    )
    assert way.at(found).names == ("a.example:20121", "[::1]:20121")
    assert way.at(found).servers == found
    assert way.at(found).servers_file is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it lists no server"),
        ("# none yet\n", "it lists no server"),
        ("a:1", "line 1: it is not 'host:port key'"),
        (f"a:1 {KEY}\nb:1 {OTHER} backup", "line 2: it is not 'host:port key'"),
        (f"a {KEY}", "line 1: .*port"),
        ("a:1 nothing", "line 1: .*key"),
        (f"a:1,b:1 {KEY}", "line 1: it is not 'host:port key'"),
        (f"a:1 {KEY}\n\na:1:7 {OTHER}", "line 3: the server a:1 is given twice"),
        (f"ipc {KEY}", "line 1: "),
    ],
)
def test_a_list_of_servers_that_is_none_names_the_line(text: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        listed(text)


def test_a_file_of_servers_has_their_keys_and_a_path() -> None:
    with pytest.raises(OptionError, match="names a file, which has the servers' keys, too"):
        route_of(OptionReader({**SERVER, "server": "@servers"}, Where.READ_STREAM))
    with pytest.raises(OptionError, match="option 'server': there is no path behind '@'"):
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
def test_a_key_in_an_options_text_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(OptionError) as caught:
        route_of(OptionReader({**SERVER, "identity": secret}, Where.READ_STREAM))
    assert "spark.addFile" in caught.value.remedy
    assert "Q0FGRUJB" not in str(caught.value)
    assert "cafebabe" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["me.key", "/etc/keys/me", "~/me", "env:KEY_1", "./" + "a" * 43, "k" * 42, "/" + "k" * 42]
)
def test_where_a_key_is_may_be_said(text: str) -> None:
    way = route_of(OptionReader({**SERVER, "identity": text}, Where.READ_STREAM))
    assert isinstance(way, ServerRoute)
    assert way.identity == text


def test_what_goes_one_way_only_says_so() -> None:
    way = route_of(OptionReader(GOOD, Where.READ_STREAM))
    assert direct_route(way) is way
    with pytest.raises(OptionError, match=r"stream 'flights' of .* is reached through a server"):
        direct_route(route_of(OptionReader(SERVER, Where.READ_STREAM)))
