"""Canonical spellings of addresses. test_channel.py tests their use in channels."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.transport.addresses import HostPort, canonical_host, canonical_interface, ip_of


@pytest.mark.parametrize(
    ("text", "endpoint", "canonical"),
    [
        ("localhost:00001", HostPort("127.0.0.1", 1), "127.0.0.1:1"),
        ("10.0.0.1:65535", HostPort("10.0.0.1", 65535), "10.0.0.1:65535"),
        ("Host_1.Example.:0", HostPort("host_1.example", 0), "host_1.example:0"),
        ("[0:0::1]:8", HostPort("::1", 8), "[::1]:8"),
        ("[::FFFF:a00:1]:8", HostPort("10.0.0.1", 8), "10.0.0.1:8"),
        ("[FE80::1%Lo]:8", HostPort("fe80::1%Lo", 8), "[fe80::1%Lo]:8"),
    ],
)
def test_host_and_port_have_one_spelling(text: str, endpoint: HostPort, canonical: str) -> None:
    assert HostPort.parse(text) == endpoint
    assert str(endpoint) == canonical
    assert HostPort.parse(canonical) == endpoint


@pytest.mark.parametrize(
    "text",
    ["", ":", ":1", "a:", "a", "a:-1", "a:1 ", "a:\u0661", "a:65536", "a:100000", "::1:1", "[::1]", "[]:1", "[a]:1",
     "[10.0.0.1]:1", "[::1]]:1", "a]:1", "-a:1", "a-:1", "1.2.3:1", "1.2.3.4.5:1", "256.0.0.1:1", "...:1", "é:1"],
)  # fmt: skip
def test_an_invalid_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(is|has) "):
        HostPort.parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0.0.0.0", None), ("0.0.0.0/0", None), ("[::]:5/64", None), ("localhost", "127.0.0.1"),
        ("127.0.0.9:5/24", "127.0.0.0/24"), ("[::1]:5", "::1"), ("[fe80::7%lo]/64", "fe80::/64"), ("::1%lo/x", ""),
        ("Eth/07", "eth/7"), ("10.0.0.1/32", "10.0.0.1"), ("{Eth0}", "{Eth0}"), ("{Eth0}:4", "{Eth0}"), ("{}", ""),
        ("10.0.0.1/1000", ""),
    ],
)  # fmt: skip
def test_an_interface_has_one_spelling_or_is_invalid(text: str, canonical: str | None) -> None:
    if canonical == "":
        with pytest.raises(ValueError, match=r"^has "):
            canonical_interface(text)
    else:
        assert canonical_interface(text) == canonical


@given(st.ip_addresses())
def test_the_canonical_spelling_of_an_address_is_stable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    text = canonical_host(str(address))
    assert canonical_host(text) == text
    mapped = getattr(address, "ipv4_mapped", None)
    assert ip_of(text) == (mapped or address)
    if address.version == 6:
        assert canonical_host(address.exploded) == text
