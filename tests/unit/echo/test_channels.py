"""The channel URIs of Echo, literally."""

from __future__ import annotations

import random

import pytest

from aeron_spark.echo import texts
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.channel import ChannelUri

PUBLICATION = "term-length=65536|mtu=1184|sparse=true|linger=500000000"


def test_the_channel_uris() -> None:
    address = HostPort("127.0.0.1", 9000)
    assert texts.receive_channel(address) == "aeron:udp?endpoint=127.0.0.1:9000|reliable=true"
    assert texts.receive_channel(address, 5) == "aeron:udp?endpoint=127.0.0.1:9000|reliable=true|session-id=5"
    assert (
        texts.send_channel(address, 5) == f"aeron:udp?endpoint=127.0.0.1:9000|reliable=true|session-id=5|{PUBLICATION}"
    )
    assert texts.join_channel(address) == "aeron:udp?control=127.0.0.1:9000|control-mode=dynamic|reliable=true"
    assert texts.fan_out_channel(address, 5) == (
        f"aeron:udp?control=127.0.0.1:9000|control-mode=dynamic|fc=max|reliable=true|session-id=5|{PUBLICATION}"
    )


@pytest.mark.parametrize("host", ["::1", "2001:db8::7", "fe80::1%eth0"])
def test_ipv6_addresses_are_in_brackets(host: str) -> None:
    for uri in (texts.send_channel(HostPort(host, 9), 1), texts.fan_out_channel(HostPort(host, 9), 1)):
        assert f"=[{host}]:9|" in uri
        assert ChannelUri.parse(uri)


def test_session_ids_have_31_bits_and_are_never_0(rng: random.Random) -> None:
    drawn = {texts.random_session_id(rng.randbytes) for _ in range(10_000)}
    assert len(drawn) > 9_990
    assert min(drawn) > 0
    assert max(drawn) < 2**31 - 1
    assert texts.random_session_id(lambda count: bytes(count)) == 1
    assert 1 <= texts.random_session_id(lambda count: b"\xff" * count) <= 2**31 - 2
