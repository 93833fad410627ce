"""One function compares the source of an image with an address."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.protocol.sources import is_from_address


@pytest.mark.parametrize(
    ("source", "owner"),
    [
        ("10.0.0.1:4000", "10.0.0.1"),
        ("10.0.0.1:4001", "10.0.0.1"),
        ("[2001:db8::1]:4000", "2001:db8::1"),
        ("[2001:DB8:0:0:0:0:0:1]:9", "2001:db8::1"),
        ("[fe80::1%eth0]:4000", "fe80::1"),
        ("[fe80:0:0:0:0:0:0:1%wlp0s20f3]:4000", "fe80::1"),
        ("[fe80::1%eth0]:4000", "fe80::1%eth0"),
        ("[fe80::1]:4000", "fe80::1%eth0"),
        ("[::ffff:10.0.0.1]:4000", "10.0.0.1"),
        ("10.0.0.1:4000", "::ffff:10.0.0.1"),
        ("[::1%lo]:4000", "::1"),
        ("aeron:ipc", ""),
        ("10.0.0.1:4000", ""),
        ("anything", ""),
    ],
)
def test_another_encoding_port_or_zone_is_the_same_address(source: str, owner: str) -> None:
    assert is_from_address(source, owner)


@pytest.mark.parametrize(
    ("source", "owner"),
    [
        ("10.0.0.2:4000", "10.0.0.1"),
        ("10.0.0.1:4000", "10.0.0.11"),
        ("[fe80::2%eth0]:4000", "fe80::1"),
        ("[fe80::1%eth0]:4000", "10.0.0.1"),
        ("[::10.0.0.1]:4000", "10.0.0.1"),  # not a mapped address
        ("aeron:ipc", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1:0", "10.0.0.1"),
        ("fe80::1%eth0:4000", "fe80::1"),
        ("", "10.0.0.1"),
        ("10.0.0.1:4000", "localhost"),
    ],
)
def test_another_address_or_an_invalid_one_is_not_the_same_address(source: str, owner: str) -> None:
    assert not is_from_address(source, owner)


@given(first=st.integers(0, 2**32 - 1), second=st.integers(0, 2**32 - 1), port=st.integers(1, 65535))
def test_sources_are_compared_by_their_canonical_addresses(first: int, second: int, port: int) -> None:
    one, other = ipaddress.IPv4Address(first), ipaddress.IPv4Address(second)
    assert is_from_address(f"[::ffff:{one}]:{port}", str(one))
    assert is_from_address(f"{one}:{port}", str(other)) is (one == other)
