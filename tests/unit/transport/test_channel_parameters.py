"""The parameters of a channel: names, similar names, and values that Aeron accepts or misreads without an error."""

from __future__ import annotations

import pytest

from aeron_spark.transport.channel import PARAMETERS
from tests.unit.transport.test_channel import UDP, parse, refusal


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("endpont", "endpoint"),
        ("Endpoint", "endpoint"),
        ("controlMode", "control-mode"),
        ("control_mode", "control-mode"),
        ("controlEndpoint", "control"),
        ("networkInterface", "interface"),
        ("mtu-length", "mtu"),
        ("MTU", "mtu"),
        ("termLength", "term-length"),
        ("term-lenght", "term-length"),
        ("initialTermId", "init-term-id"),
        ("sessionid", "session-id"),
        ("streamId", "stream-id"),
        ("flow-control", "fc"),
        ("spies-simulate-connection", "ssc"),
        ("rcvwnd", "rcv-wnd"),
        ("untethered-resting", "untethered-resting-timeout"),
    ],
)
def test_the_error_of_an_unknown_parameter_has_the_most_similar_name(name: str, meant: str) -> None:
    text = refusal(f"{UDP}|{name}=1")
    assert text == f"Aeron 1.51 has no channel parameter {name!r}. Did you mean {meant!r}?"


def test_the_error_of_an_unknown_parameter_without_a_similar_name_has_all_names() -> None:
    text = refusal(f"{UDP}|qqq=1")
    assert "Choose from alias, cc, channel-rcv-ts-offset, " in text
    assert all(name in text for name in PARAMETERS)


@pytest.mark.parametrize(
    "good",
    [
        "mtu=64", "mtu=1408", "mtu=8k", "mtu=65504",
        "term-length=64k", "term-length=65536", "term-length=16M", "term-length=1g", "term-length=1024m",
        "so-sndbuf=2m", "so-rcvbuf=131072", "rcv-wnd=128K", "pub-wnd=0",
        "session-id=-2147483648", "session-id=2147483647", "session-id=+5", "session-id=tag:9223372036854775807",
        "stream-id=-7", "init-term-id=-5|term-id=-4|term-offset=96",
        "init-term-id=2147483647|term-id=-2147483648|term-offset=0",
        "init-term-id=0|term-id=0|term-offset=65536|term-length=64k",
        "ttl=0", "ttl=255", "max-resend=1", "max-resend=256", "gtag=-9223372036854775808",
        "linger=0", "linger=5s", "linger=100ms", "nak-delay=10us", "untethered-linger-timeout=1000NS",
        "untethered-window-limit-timeout=5s", "untethered-resting-timeout=10s",
        "reliable=false", "sparse=true", "eos=false", "tether=true", "rejoin=false", "ssc=true",
        "group=true", "group=infer",
        "channel-rcv-ts-offset=reserved", "channel-snd-ts-offset=0", "media-rcv-ts-offset=8",
        "response-correlation-id=prototype", "response-correlation-id=17", "response-endpoint=localhost:3",
        "fc=tagged,g:101/2,t:5s", "cc=cubic", "alias=any text, even: this", "tags=7,8", "control-mode=manual",
        "control-mode=response|control=localhost:4",
    ],
)  # fmt: skip
def test_a_right_value_is_accepted(good: str) -> None:
    assert str(parse(f"{UDP}|{good}")) == f"{UDP}|{good}"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        *((f"mtu={value}", "is not a multiple of 32 from 64 to 65504") for value in ("0", "32", "65", "1400", "64k")),
        *((f"mtu={value}", "is not a size such as") for value in ("x", "-64", "1.5k", "64kb", "٣٢", "+64")),
        *(
            (f"term-length={value}", "is not a power of two from 64k to 1g")
            for value in ("0", "65535", "32k", "96k", "2g", "1025m")
        ),
        ("term-length=16mb", "is not a size"),
        ("rcv-wnd=lots", "is not a size"),
        ("session-id=2147483648", "is not a number from -2147483648 to 2147483647"),
        ("session-id=0x1", "is not a number"),
        ("session-id=tag:x", "is not a number from 0"),
        ("stream-id=1.0", "is not a number"),
        ("ttl=256", "is not a number from 0 to 255"),
        ("ttl=-1", "is not a number from 0 to 255"),
        ("max-resend=0", "is not a number from 1 to 256"),
        ("linger=5 s", "is not a duration such as 5s"),
        ("linger=5m", "is not a duration"),
        ("nak-delay=-1", "is not a duration"),
        ("reliable=yes", "is neither true nor false"),
        ("reliable=TRUE", "is neither true nor false"),
        ("control-mode=dynamc", "is not one of dynamic, manual, response"),
        ("group=maybe", "is not one of true, false, infer"),
        ("channel-rcv-ts-offset=front", "is not a number from 0 to 65504, nor reserved"),
        ("response-correlation-id=x", "is not a number from -1 to 9223372036854775807, nor prototype"),
    ],
)
def test_a_wrong_value_is_refused(bad: str, why: str) -> None:
    text = refusal(f"{UDP}|{bad}")
    assert f"the channel parameter {bad} {why}" in text


@pytest.mark.parametrize(
    ("text", "size"),
    [("aeron:ipc", None), ("aeron:ipc?term-length=65536", 65536), ("aeron:ipc?term-length=64K", 65536),
     ("aeron:ipc?term-length=16m", 16 << 20), ("aeron:ipc?term-length=1G", 1 << 30)],
)  # fmt: skip
def test_sizes_have_suffixes(text: str, size: int | None) -> None:
    assert parse(text).size("term-length") == size
