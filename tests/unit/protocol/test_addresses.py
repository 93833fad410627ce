"""Sources have one canonical form: one host never counts as two, nor two hosts as one."""

from __future__ import annotations

import ipaddress
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.sources import IpcSource, UdpSource, canonical_address, limit_key, parse_source


@pytest.mark.parametrize(
    ("identity", "source", "text"),
    [
        ("10.0.0.1:4000", UdpSource(ip_address("10.0.0.1"), 4000), "10.0.0.1:4000"),
        ("[::ffff:10.0.0.1]:4000", UdpSource(ip_address("10.0.0.1"), 4000), "10.0.0.1:4000"),
        ("[0:0:0:0:0:FFFF:a00:1]:4000", UdpSource(ip_address("10.0.0.1"), 4000), "10.0.0.1:4000"),
        ("[2001:DB8:0:0:0:0:0:1]:65535", UdpSource(ip_address("2001:db8::1"), 65535), "[2001:db8::1]:65535"),
        ("[0:0:0:0:0:0:0:1%lo]:7", UdpSource(ip_address("::1"), 7), "[::1]:7"),
        ("[fe80:0:0:0:0:0:0:1%eth0]:7", UdpSource(ip_address("fe80::1"), 7, "eth0"), "[fe80::1%eth0]:7"),
        ("[::ffff:127.0.0.1%1]:7", UdpSource(ip_address("127.0.0.1"), 7), "127.0.0.1:7"),
    ],
)
def test_a_source_has_one_canonical_form(identity: str, source: UdpSource, text: str) -> None:
    assert parse_source(identity) == source
    assert str(source) == text
    assert parse_source(text) == source


def test_shared_memory_has_no_address() -> None:
    assert parse_source("aeron:ipc") == IpcSource()
    assert str(IpcSource()) == "aeron:ipc"


@pytest.mark.parametrize(
    "identity",
    ["", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.01:1", "10.0.0:1", "host:1", "/10.0.0.1:1",
     "::1:1", "[::1]", "[10.0.0.1]:1", "[::1%]:1", "[::1%a b]:1", "[::1]:\u0661", "aeron:ipc ",
     "[" + "1" * 5000 + "]:1"],
)  # fmt: skip
def test_text_that_is_not_a_source_is_refused(identity: str) -> None:
    with pytest.raises(DataFormatError, match="is not an address"):
        parse_source(identity)


def test_one_link_local_address_in_two_zones_is_two_hosts() -> None:
    assert parse_source("[fe80::1%eth0]:7") != parse_source("[fe80::1%eth1]:7")


def test_loopback_is_recognised_in_every_form() -> None:
    for identity in ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"):
        source = parse_source(identity)
        assert isinstance(source, UdpSource)
        assert source.is_loopback
    assert not UdpSource(ip_address("10.0.0.1"), 1).is_loopback


def test_row_34_two_addresses_of_one_64_have_one_limit_key() -> None:
    assert limit_key(ip_address("2001:db8:1:2::1")) == limit_key(ip_address("2001:db8:1:2:ffff:ffff:ffff:ffff"))
    assert limit_key(ip_address("2001:db8:1:2::1")) != limit_key(ip_address("2001:db8:1:3::1"))
    assert limit_key(ip_address("2001:db8:1:2::1")) == ip_network("2001:db8:1:2::/64")
    assert limit_key(ip_address("10.0.0.1")) != limit_key(ip_address("10.0.0.2"))


@given(st.ip_addresses(v=4), st.integers(1, 65535))
def test_mapped_ipv4_has_the_canonical_form_of_ipv4(address: ipaddress.IPv4Address, port: int) -> None:
    mapped = ipaddress.IPv6Address(0xFFFF_0000_0000 | int(address))
    plain = UdpSource(address, port)
    for spelling in (str(address), f"[{mapped}]", f"[{mapped.exploded}]", f"[{mapped}%eth0]"):
        assert parse_source(f"{spelling}:{port}") == plain
    assert canonical_address(str(mapped)) == address
    assert limit_key(mapped) == plain.limit_key == address


@given(st.ip_addresses(v=6), st.integers(1, 65535))
def test_ipv6_has_one_canonical_form_long_short_and_with_a_zone(address: ipaddress.IPv6Address, port: int) -> None:
    source = parse_source(f"[{address.exploded.upper()}]:{port}")
    assert source == parse_source(f"[{address}]:{port}")
    assert parse_source(str(source)) == source
    assert isinstance(source, UdpSource)
    zoned = parse_source(f"[{address}%eth0]:{port}")
    assert isinstance(zoned, UdpSource)
    assert (zoned.address, zoned.limit_key) == (source.address, source.limit_key)
    if source.address.version == 6:
        assert source.address in source.limit_key  # type: ignore[operator]
