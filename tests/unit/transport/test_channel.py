"""Channel URIs: valid ones, ones that Aeron 1.51 would misread without an error, and identities of streams."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import OptionError
from aeron_spark.transport.channel import MAX_URI_LENGTH, ChannelUri, StreamIdentity, refuse_archive_streams

UDP = "aeron:udp?endpoint=127.0.0.1:40123"


def parse(text: str) -> ChannelUri:
    return ChannelUri.parse(text)


def refusal(text: str) -> str:
    with pytest.raises(OptionError) as raised:
        parse(text)
    assert raised.value.remedy
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "channel"),
    [
        ("aeron:ipc", ChannelUri("ipc")),
        ("aeron-spy:aeron:ipc", ChannelUri("ipc", spy=True)),
        ("aeron:ipc?term-length=64K|alias=a=b", ChannelUri("ipc", (("term-length", "64K"), ("alias", "a=b")))),
        ("aeron:udp?endpoint=localhost:40123", ChannelUri("udp", (("endpoint", "localhost:40123"),))),
        ("aeron:udp?endpoint=host-1.example.:0", ChannelUri("udp", (("endpoint", "host-1.example.:0"),))),
        ("aeron:udp?endpoint=[::1]:65535", ChannelUri("udp", (("endpoint", "[::1]:65535"),))),
        ("aeron:udp?endpoint=[fe80::1%lo]:1", ChannelUri("udp", (("endpoint", "[fe80::1%lo]:1"),))),
        ("aeron:udp?tags=1,2", ChannelUri("udp", (("tags", "1,2"),))),
        ("aeron:udp?control-mode=manual", ChannelUri("udp", (("control-mode", "manual"),))),
        (
            "aeron-spy:aeron:udp?endpoint=224.10.9.9:4|interface=localhost/24|ttl=4",
            ChannelUri("udp", (("endpoint", "224.10.9.9:4"), ("interface", "localhost/24"), ("ttl", "4")), spy=True),
        ),
        (
            "aeron:udp?control-mode=dynamic|control=localhost:2",
            ChannelUri("udp", (("control-mode", "dynamic"), ("control", "localhost:2"))),
        ),
    ],
)
def test_a_parsed_channel_has_its_original_text(text: str, channel: ChannelUri) -> None:
    assert parse(text) == channel
    assert str(channel) == text
    assert pickle.loads(pickle.dumps(channel)) == channel


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin with 'aeron:'"),
        ("aeron", "does not begin with 'aeron:'"),
        ("AERON:ipc", "does not begin with 'aeron:'"),
        (" aeron:ipc", "does not begin with 'aeron:'"),
        ("localhost:40123", "does not begin with 'aeron:'"),
        ("aeron-spy:ipc", "does not begin with 'aeron:'"),
        ("aeron-spy:aeron-spy:aeron:ipc", "does not begin with 'aeron:'"),
        ("aeron:", "the unknown medium ''. Write a channel such as aeron:udp?endpoint=host:40123"),
        ("aeron:tcp?endpoint=localhost:1", "the unknown medium 'tcp'"),
        ("aeron:upd?endpoint=localhost:1", "the unknown medium 'upd'. Did you mean 'aeron:udp'?"),
        ("aeron:UDP?endpoint=localhost:1", "the unknown medium 'UDP'. Did you mean 'aeron:udp'?"),
        ("aeron:udp:localhost:1", "the unknown medium 'udp:localhost:1'"),
        ("aeron:ipc?", "has '', expected name=value. Write each parameter as name=value"),
        (UDP + "|", "has '', expected name=value"),
        (UDP + "||mtu=64", "has '', expected name=value"),
        (UDP + "|mtu", "has 'mtu', expected name=value"),
        (UDP + "|=1", "has '=1', expected name=value"),
        (UDP + "|alias=", "the channel parameter 'alias' has the value ''"),
        (UDP + "|mtu=64|mtu=64", "gives the parameter 'mtu' twice"),
        ("aeron:ipc?alias=" + "x" * MAX_URI_LENGTH, "longer than 4095 bytes"),
        ("aeron:ipc?alias=" + "é" * 2040, "longer than 4095 bytes"),
        ("aeron:udp", "has no address to send to or to listen on. Add ?endpoint=host:port"),
        ("aeron:udp?mtu=64", "has no address to send to or to listen on"),
        ("aeron:udp?endpoint=localhost", "endpoint=localhost of the channel"),
        ("aeron:udp?endpoint=localhost:", "is not host:port, or [address]:port for IPv6"),
        ("aeron:udp?endpoint=localhost:x", "is not host:port"),
        ("aeron:udp?endpoint=localhost:1&mtu=64", "is not host:port"),
        ("aeron:udp?endpoint=::1:40123", "is not host:port"),
        ("aeron:udp?endpoint=localhost:65536", "has the port 65536, above 65535"),
        ("aeron:udp?endpoint=[localhost]:1", "has no IPv6 address in its brackets"),
        ("aeron:udp?endpoint=[10.0.0.1]:1", "has no IPv6 address in its brackets"),
        ("aeron:udp?endpoint= localhost:1", "has a host that is neither an address nor a name"),
        ("aeron:udp?endpoint=a_b-:1", "has a host that is neither an address nor a name"),
        ("aeron:udp?endpoint=127.1:1", "is not four numbers of 0 to 255 without leading zeros"),
        ("aeron:udp?endpoint=010.0.0.1:1", "is not four numbers of 0 to 255 without leading zeros"),
        ("aeron:udp?endpoint=1.2.3.256:1", "is not four numbers of 0 to 255 without leading zeros"),
        ("aeron:udp?control-mode=dynamic|control=x", "control=x of the channel"),
        (UDP + "|interface=1.2.3.4/33", "has the prefix length '33', expected 0 to 32"),
        (UDP + "|interface=[::1]/129", "has the prefix length '129', expected 0 to 128"),
        (UDP + "|interface=eth0/x", "has the prefix length 'x', expected 0 to 128"),
        (UDP + "|interface=::1", "has an IPv6 address without brackets"),
        (UDP + "|interface={lo}:0/8", "has a host that is neither an address nor a name"),
        (UDP + "|interface=a b", "has a host that is neither an address nor a name"),
        ("aeron:udp?endpoint=224.10.9.8:1", "the multicast address 224.10.9.8 of the channel"),
        ("aeron:udp?endpoint=224.10.9.8:1", "Use 224.10.9.9, or another odd address"),
        ("aeron:udp?endpoint=[ff02::2]:1", "Use ff02::3, or another odd address"),
        ("aeron:udp?control=localhost:1", "has control= without control-mode=, which Aeron refuses since 1.43"),
        ("aeron:udp?control=localhost:1|endpoint=localhost:2", "Add |control-mode=dynamic for multi-destination-cast"),
        ("aeron:udp?control-mode=dynamic", "control-mode=dynamic without control=. Add |control=host:port"),
        ("aeron:udp?control=a:1|control-mode=dynamc", "control-mode=dynamc is not one of dynamic, manual, response"),
        (UDP + "|term-id=1|init-term-id=1", "gives an initial position without term-offset"),
        (UDP + "|term-id=4|init-term-id=5|term-offset=0", "is before its init-term-id"),
        (UDP + "|term-offset=32", "gives an initial position without init-term-id and term-id"),
        (UDP + "|term-id=1|init-term-id=1|term-offset=33", "term-offset=33 of the channel"),
        (
            UDP + "|term-id=1|init-term-id=1|term-offset=65568|term-length=64k",
            "is not a multiple of 32 within its term",
        ),
    ],
)  # fmt: skip
def test_a_wrong_channel_is_refused_with_a_remedy(text: str, why: str) -> None:
    assert why in refusal(text)


def test_a_foreign_channel_is_parsed_without_checks() -> None:
    text = "aeron:udp?endpoint=nowhere|control=h:1|reliable=yes|made-up=1|mtu=64|mtu=huge"
    channel = ChannelUri.parse(text, foreign=True)
    assert str(channel) == text
    assert channel.get("mtu") == "huge", "Aeron takes the last"
    assert channel.identity == StreamIdentity("udp", "nowhere", "h:1", "dynamic", None)
    assert not channel.is_multicast
    assert not channel.is_unicast_elsewhere([])
    assert str(channel.without("made-up", "mtu")) == "aeron:udp?endpoint=nowhere|control=h:1|reliable=yes"
    with pytest.raises(OptionError, match=r"mtu=huge of the channel .* is not a size"):
        channel.size("mtu")
    with pytest.raises(OptionError, match="does not begin with"):
        ChannelUri.parse("nonsense", foreign=True)


def test_a_changed_parameter_keeps_its_position() -> None:
    channel = parse("aeron:udp?endpoint=localhost:1|mtu=1408|alias=x")
    assert str(channel.with_params(mtu="8k", term_length=65536, reliable=False, session_id=-5)) == (
        "aeron:udp?endpoint=localhost:1|mtu=8k|alias=x|term-length=65536|reliable=false|session-id=-5"
    )
    assert str(channel) == "aeron:udp?endpoint=localhost:1|mtu=1408|alias=x"
    assert str(parse("aeron-spy:aeron:ipc").with_params(**{"term-length": "64k"})) == (
        "aeron-spy:aeron:ipc?term-length=64k"
    )


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"mtu": 1400}, "is not a multiple of 32"),
        ({"sesion_id": 5}, "Did you mean 'session-id'?"),
        ({"control": "localhost:2"}, "has control= without control-mode="),
        ({"alias": "a|mtu=64"}, "expected a text without '|'"),
        ({"alias": ""}, "expected a text"),
    ],
)
def test_a_wrong_parameter_is_refused(values: dict[str, str | int], why: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse("aeron:udp?endpoint=localhost:1").with_params(**values)
    assert why in str(raised.value)


def test_parameters_are_removed() -> None:
    channel = parse("aeron:udp?endpoint=localhost:1|mtu=1408|session-id=4")
    assert str(channel.without("mtu", "session_id", "alias")) == "aeron:udp?endpoint=localhost:1"
    assert str(parse("aeron:ipc?mtu=64").without("mtu")) == "aeron:ipc"
    assert channel.without() == channel
    with pytest.raises(OptionError, match="Did you mean 'mtu'"):
        channel.without("mtuu")
    with pytest.raises(OptionError, match="has no address"):
        channel.without("endpoint")


SAME = [
    ("aeron:ipc", "aeron:ipc?term-length=64k|alias=x|session-id=5"),
    ("aeron:ipc", "aeron-spy:aeron:ipc"),
    ("aeron:udp?endpoint=localhost:1", "aeron:udp?endpoint=127.0.0.1:1"),
    ("aeron:udp?endpoint=localhost:1", "aeron:udp?endpoint=LocalHost:01"),
    ("aeron:udp?endpoint=Feeds.Example.:1", "aeron:udp?endpoint=feeds.example:1"),
    ("aeron:udp?endpoint=[::1]:1", "aeron:udp?endpoint=[0:0:0:0:0:0:0:1]:1"),
    ("aeron:udp?endpoint=[::ffff:10.0.0.1]:1", "aeron:udp?endpoint=10.0.0.1:1"),
    ("aeron:udp?endpoint=[FE80::1%lo]:1", "aeron:udp?endpoint=[fe80:0::1%lo]:1"),
    ("aeron:udp?endpoint=10.0.0.1:1", "aeron-spy:aeron:udp?mtu=8k|endpoint=10.0.0.1:1|rcv-wnd=2m"),
    ("aeron:udp?endpoint=10.0.0.1:1", "aeron:udp?endpoint=10.0.0.1:1|interface=0.0.0.0"),
    ("aeron:udp?endpoint=10.0.0.1:1", "aeron:udp?endpoint=10.0.0.1:1|interface=[::]:0"),
    ("aeron:udp?endpoint=224.0.1.1:1|interface=localhost", "aeron:udp?interface=127.0.0.1/32|endpoint=224.0.1.1:1"),
    ("aeron:udp?endpoint=224.0.1.1:1|interface=localhost:0", "aeron:udp?interface=127.0.0.1|endpoint=224.0.1.1:1"),
    ("aeron:udp?endpoint=224.0.1.1:1|interface=10.1.2.3/8", "aeron:udp?endpoint=224.0.1.1:1|interface=10.9.9.9/8"),
    ("aeron:udp?endpoint=224.0.1.1:1|interface=[::1]", "aeron:udp?endpoint=224.0.1.1:1|interface=[::1]/128"),
    (
        "aeron:udp?endpoint=224.0.1.1:1|interface=[fe80::7%lo]:0/64",
        "aeron:udp?endpoint=224.0.1.1:1|interface=[fe80::]/64",
    ),
    ("aeron:udp?endpoint=224.0.1.1:1|interface={eth0}", "aeron:udp?endpoint=224.0.1.1:1|interface={eth0}:0"),
    ("aeron:udp?endpoint=224.0.1.1:1|interface=ETH-Host/24", "aeron:udp?endpoint=224.0.1.1:1|interface=eth-host/24"),
    ("aeron:udp?control=localhost:1|control-mode=dynamic", "aeron:udp?control-mode=dynamic|control=127.0.0.1:1"),
]
OTHER = [
    ("aeron:ipc", "aeron:udp?endpoint=localhost:1"),
    ("aeron:udp?endpoint=localhost:4012", "aeron:udp?endpoint=localhost:40123"),
    ("aeron:udp?endpoint=localhost:1", "aeron:udp?endpoint=[::1]:1"),
    ("aeron:udp?endpoint=localhost:1", "aeron:udp?endpoint=localhost.localdomain:1"),
    ("aeron:udp?endpoint=[fe80::1%lo]:1", "aeron:udp?endpoint=[fe80::1%eth0]:1"),
    ("aeron:udp?endpoint=a:1", "aeron:udp?endpoint=a:1|control=b:2|control-mode=dynamic"),
    ("aeron:udp?control=b:2|control-mode=dynamic", "aeron:udp?control=b:2|control-mode=response"),
    ("aeron:udp?control=b:2|control-mode=dynamic", "aeron:udp?control=b:3|control-mode=dynamic"),
    ("aeron:udp?endpoint=a:1", "aeron:udp?endpoint=a:1|control-mode=manual"),
    ("aeron:udp?endpoint=224.0.1.1:1", "aeron:udp?endpoint=224.0.1.1:1|interface=10.0.0.1"),
    ("aeron:udp?endpoint=224.0.1.1:1|interface=10.0.0.1/8", "aeron:udp?endpoint=224.0.1.1:1|interface=10.0.0.1/9"),
    ("aeron:udp?endpoint=224.0.1.1:1|interface={lo}", "aeron:udp?endpoint=224.0.1.1:1|interface={eth0}"),
]


@pytest.mark.parametrize(
    ("one", "other", "same"), [(*pair, True) for pair in SAME] + [(*pair, False) for pair in OTHER]
)
def test_two_channels_are_the_same_stream_by_their_addresses(one: str, other: str, same: bool) -> None:
    assert parse(one).matches(parse(other)) is same
    assert parse(other).matches(parse(one)) is same
    assert (len({parse(one).identity, parse(other).identity}) == 1) is same


def test_an_old_channel_with_only_control_is_dynamic() -> None:
    old = ChannelUri.parse("aeron:udp?control=localhost:1", foreign=True)
    assert old.matches(parse("aeron:udp?control=localhost:1|control-mode=dynamic"))


def test_an_identity_is_canonical() -> None:
    channel = parse("aeron:udp?endpoint=[0::1]:05|control=Host:6|control-mode=dynamic|interface=localhost/8")
    assert channel.identity == StreamIdentity("udp", "[::1]:5", "host:6", "dynamic", "127.0.0.0/8")
    assert parse("aeron:ipc").identity == StreamIdentity("ipc", None, None, None, None)


@pytest.mark.parametrize(
    ("text", "multicast"),
    [
        ("aeron:udp?endpoint=224.0.1.1:1", True), ("aeron:udp?endpoint=[ff02::1]:1", True),
        ("aeron:udp?endpoint=10.0.0.1:1", False), ("aeron:udp?endpoint=feeds:1", False), ("aeron:ipc", False),
        ("aeron:udp?control=localhost:1|control-mode=dynamic", False),
    ],
)  # fmt: skip
def test_a_multicast_channel_is_recognised(text: str, multicast: bool) -> None:
    assert parse(text).is_multicast is multicast


MINE = ["10.0.0.5", "fd00:0::5", "this-host", "not an address"]


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("aeron:ipc", False),
        ("aeron:udp?endpoint=10.0.0.6:1", True),
        ("aeron-spy:aeron:udp?endpoint=10.0.0.6:1", False),
        ("aeron:udp?endpoint=10.0.0.5:1", False),
        ("aeron:udp?endpoint=[::ffff:10.0.0.5]:1", False),
        ("aeron:udp?endpoint=[fd00::5]:1", False),
        ("aeron:udp?endpoint=[fd00::6]:1", True),
        ("aeron:udp?endpoint=localhost:1", False),
        ("aeron:udp?endpoint=127.7.7.7:1", False),
        ("aeron:udp?endpoint=[::1]:1", False),
        ("aeron:udp?endpoint=0.0.0.0:1", False),
        ("aeron:udp?endpoint=224.0.1.1:1", False),
        ("aeron:udp?endpoint=This-Host:1", False),
        ("aeron:udp?endpoint=also-this:1", False),
        ("aeron:udp?endpoint=both:1", False),
        ("aeron:udp?endpoint=other:1", True),
        ("aeron:udp?endpoint=unknown:1", False),
        ("aeron:udp?control=10.0.0.6:1|control-mode=dynamic", False),
        ("aeron:udp?endpoint=10.0.0.6:1|control=10.0.0.7:1|control-mode=dynamic", True),
    ],
)
def test_a_unicast_stream_to_another_host_is_recognised(text: str, elsewhere: bool) -> None:
    names = {"also-this": ["127.0.1.1"], "both": ["10.0.0.9", "10.0.0.5"], "other": ["10.0.0.9", "a b"], "unknown": []}
    assert parse(text).is_unicast_elsewhere(MINE, names.__getitem__) is elsewhere


def test_an_unresolved_name_is_regarded_as_local() -> None:
    assert not parse("aeron:udp?endpoint=other:1").is_unicast_elsewhere(MINE)


@pytest.mark.parametrize(
    ("text", "stream_id"),
    [
        ("aeron:ipc", 10),
        ("aeron:ipc", 20),
        ("aeron:ipc?term-length=64k|session-id=9", 10),
        ("aeron-spy:aeron:ipc", 20),
        ("aeron:udp?endpoint=127.0.0.1:8010", 10),
        ("aeron:udp?endpoint=localhost:8010|mtu=8k", 77),
    ],
)
def test_the_control_streams_of_an_archive_are_refused(text: str, stream_id: int) -> None:
    control = parse("aeron:udp?endpoint=localhost:8010")
    with pytest.raises(
        OptionError, match=f"stream {stream_id} of .* is a control stream of an Aeron Archive"
    ) as raised:
        refuse_archive_streams(parse(text), stream_id, [(control, 10), (control, 77)])
    assert "Choose another streamId" in raised.value.remedy


@pytest.mark.parametrize(
    ("text", "stream_id"),
    [("aeron:ipc", 11), ("aeron:ipc", 100), ("aeron:ipc", -10), ("aeron:udp?endpoint=localhost:8010", 11),
     ("aeron:udp?endpoint=localhost:8011", 10)],
)  # fmt: skip
def test_other_streams_are_not_refused(text: str, stream_id: int) -> None:
    refuse_archive_streams(parse(text), stream_id, [(parse("aeron:udp?endpoint=localhost:8010"), 10)])
    assert not any(parse(text).matches(parse("aeron:ipc")) and stream_id == taken for taken in (10, 20))


@given(st.text(max_size=60) | st.text("aeronudpic:?=|[]./%0123456789-", max_size=60).map("aeron:udp?endpoint=".__add__))
def test_each_text_is_a_channel_or_an_option_error(text: str) -> None:
    try:
        channel = parse(text)
    except OptionError as error:
        assert error.remedy  # noqa: PT017
    else:
        assert str(channel) == text
        assert parse(str(channel)).matches(channel)
    try:
        foreign = ChannelUri.parse(text, foreign=True)
    except OptionError:
        return
    assert foreign.matches(foreign)
    assert foreign.is_unicast_elsewhere([]) in (True, False)
