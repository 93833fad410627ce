"""The choice of the packet size of bulk links, in virtual time, and what Linux knows of a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.transport import packet_sizes
from aeron_spark.transport.api import MTU_BYTES
from aeron_spark.transport.packet_sizes import (
    MAX_PACKET_BYTES,
    RETRY_LOST_S,
    NetworkPath,
    PacketSizes,
    network_path,
    open_bytes,
    packet_bytes,
    whole_packets,
)


@pytest.mark.parametrize(
    ("network_mtu", "ipv4", "ipv6"),
    [
        (65_536, MAX_PACKET_BYTES, MAX_PACKET_BYTES),  # loopback
        (9_000, 8_960, 8_928),
        (1_500, 1_472, 1_440),
        (1_420, 1_376, 1_344),  # WireGuard
        (1_280, 1_248, 1_216),
        (576, MTU_BYTES, MTU_BYTES),  # handshakes, too, are larger
    ],
)
def test_a_packet_fits_its_network_with_its_headers(network_mtu: int, ipv4: int, ipv6: int) -> None:
    assert packet_bytes(network_mtu, is_ipv6=False) == ipv4
    assert packet_bytes(network_mtu, is_ipv6=True) == ipv6
    assert (ipv4 % 32, ipv6 % 32) == (0, 0)


def test_a_first_message_fills_one_packet() -> None:
    assert open_bytes(8_960) == 8_960 - 32


def test_the_size_of_the_network_is_tried_first_and_then_smaller_ones_down_to_that_of_handshakes() -> None:
    sizes, path = PacketSizes(), NetworkPath("10.0.0.1", "10.0.0.2", 16_384)
    tried = [sizes.choose(path, 0.0)]
    for _ in range(4):
        sizes.add_lost(path, tried[-1], 0.0)
        tried.append(sizes.choose(path, 0.0))
    assert tried == [16_384, 8_192, 1_408, MTU_BYTES, MTU_BYTES]


def test_a_network_that_is_known_to_carry_less_than_the_lost_size_is_believed() -> None:
    sizes = PacketSizes()
    sizes.add_lost(NetworkPath("a", "b", 8_960), 8_960, 0.0)
    assert sizes.choose(NetworkPath("a", "b", 1_472), 1.0) == 1_472


def test_a_lost_size_counts_for_one_way_only_and_for_ten_minutes() -> None:
    sizes, path = PacketSizes(), NetworkPath("a", "b", 8_960)
    sizes.add_lost(path, 8_960, 0.0)
    sizes.add_lost(path, 8_192, 5.0)
    sizes.add_lost(path, 8_960, 6.0)  # another thread had tried it, too
    assert sizes.choose(path, 6.0) == 1_408
    assert sizes.choose(NetworkPath("a", "c", 8_960), 6.0) == 8_960
    assert sizes.choose(NetworkPath("d", "b", 8_960), 6.0) == 8_960
    assert sizes.choose(path, 5.9 + RETRY_LOST_S) == 1_408
    assert sizes.choose(path, 6.0 + RETRY_LOST_S) == 8_960
    sizes.add_lost(path, 8_960, 6.0 + RETRY_LOST_S)
    assert sizes.choose(path, 6.0 + RETRY_LOST_S) == 8_192, "the network may carry more than before"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_loopback_carries_the_largest_packets(host: str) -> None:
    path = network_path(host)
    assert path == NetworkPath(host, host, MAX_PACKET_BYTES)


def test_an_unknown_host_has_no_network_path() -> None:
    assert network_path("no-such-host.invalid") is None


def test_a_host_with_several_addresses_has_the_smallest_packets_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    mtus = {"10.0.0.2": 9_000, "2001:db8::2": 1_500, "10.0.0.3": None}

    def path_of(family: int, address: tuple[str, int]) -> NetworkPath | None:
        mtu = mtus[address[0]]
        return None if mtu is None else NetworkPath("own", address[0], packet_bytes(mtu, is_ipv6=":" in address[0]))

    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (one, 9)) for one in mtus])
    monkeypatch.setattr(packet_sizes, "_path_of", path_of)
    assert network_path("feeds.example") == NetworkPath("own", "2001:db8::2", 1_440)


def test_devices_that_are_down_or_gone_are_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, flags, mtu in (("up", "0x1003", "9000"), ("down", "0x1002", "1500"), ("odd", "", "1500")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags").write_text(flags)
        (tmp_path / name / "mtu").write_text(mtu)
    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(packet_sizes, "DEVICES", tmp_path)
    assert packet_sizes.device_mtus() == {"up": 9_000}


@pytest.mark.parametrize(
    ("content", "is_whole"), [("0\n", True), ("1\n", False), ("2\n", False), ("3\n", True), (None, False)]
)
def test_a_machine_that_lets_routers_cut_packets_uses_small_ones(
    content: str | None, is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = tmp_path / "ip_no_pmtu_disc"
    if content is not None:
        setting.write_text(content)
    monkeypatch.setattr(packet_sizes, "NO_DISCOVERY", setting)
    assert packet_sizes.may_be_fragmented() is not is_whole
    assert network_path("127.0.0.1") == NetworkPath("127.0.0.1", "127.0.0.1", MAX_PACKET_BYTES), "without a router"


@pytest.mark.parametrize(
    ("longest", "payload", "expected"),
    [(262_144, 16_352, 261_632), (262_144, 1_152, 261_504), (16_352, 16_352, 16_352), (16_384, 32_736, 16_384)],
)
def test_the_longest_message_leaves_no_packet_partly_empty(longest: int, payload: int, expected: int) -> None:
    assert whole_packets(longest, payload) == expected
