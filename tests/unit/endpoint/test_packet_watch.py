"""Notices that a network does not carry the packets of a bulk link any more, in virtual time."""

from __future__ import annotations

from aeron_spark.endpoint.packet_watch import (
    FIRST_INTERVAL_S,
    INTERVAL_S,
    MAX_RECENT,
    SILENCE_S,
    PacketWatch,
    RecentMtus,
    alive_times,
)
from aeron_spark.protocol.liveness import Times
from aeron_spark.transport.api import MTU_BYTES
from aeron_spark.transport.packet_sizes import NetworkPath

TURN_S = 0.01


class Link:
    """A watched bulk link, whose event loop turns each 10 ms."""

    def __init__(self) -> None:
        self.now = 100.0
        self.mtu: int | None = 8_960
        self.received = 0
        self.looks = 0
        self.watch = PacketWatch(8_960, self._find, self.now)

    def run(self, seconds: float, *, is_reading: bool = True, bytes_each_turn: int = 0) -> str:
        """Turn for some seconds; return the error with the time at which it came, or an empty text."""
        start, end = self.now, self.now + seconds
        while self.now < end:
            self.now += TURN_S
            self.received += bytes_each_turn
            error = self.watch.check(self.received, self.now, is_reading=is_reading)
            if error is not None:
                return f"{self.now - start:.1f} s: {error.what}"
        return ""

    def _find(self) -> int | None:
        self.looks += 1
        return self.mtu


def test_silence_ends_a_bulk_link_that_reads() -> None:
    link = Link()
    assert link.run(60.0, bytes_each_turn=1) == ""
    assert link.run(60.0).startswith(f"{SILENCE_S:.1f} s: nothing arrived for 10 s")


def test_a_bulk_link_that_does_not_read_hears_nothing_and_goes_on() -> None:
    link = Link()
    assert link.run(600.0, is_reading=False) == ""
    assert link.run(SILENCE_S - 0.1) == "", "the silence begins when it reads again"
    assert link.run(1.0).startswith("0.1 s: ")


def test_a_program_that_stood_still_has_frames_to_read_first() -> None:
    link = Link()
    assert link.run(SILENCE_S - 0.1) == ""
    link.now += 30.0
    assert link.run(SILENCE_S - 0.1) == ""
    assert link.run(1.0) != ""


def test_a_network_that_carries_less_than_before_ends_a_bulk_link_within_a_second() -> None:
    link = Link()
    assert link.run(30.0, bytes_each_turn=1) == ""
    link.mtu = None  # for a moment there is no way to the peer
    assert link.run(3.0, bytes_each_turn=1) == ""
    link.mtu = 16_384
    assert link.run(3.0, bytes_each_turn=1) == ""
    link.mtu = 1_472
    found = link.run(INTERVAL_S + TURN_S, bytes_each_turn=1)
    assert found.endswith("the network carries packets of 1472 bytes now, and no more of 8960")


def test_a_report_about_the_first_packets_is_seen_at_once() -> None:
    link = Link()
    assert link.run(0.5) == ""
    link.mtu = 1_472
    assert link.run(FIRST_INTERVAL_S + TURN_S) != ""


def test_the_network_is_looked_at_once_a_second() -> None:
    link = Link()
    link.run(1.0, bytes_each_turn=1)
    first, link.looks = link.looks, 0
    assert 30 <= first <= 50
    link.run(100.0, bytes_each_turn=1)
    assert 98 <= link.looks <= 101


def test_many_bulk_links_to_one_host_look_at_its_network_once() -> None:
    now, looks = 100.0, []

    def find(host: str) -> NetworkPath | None:
        looks.append(host)
        return NetworkPath("a", host, 8_960) if host == "b" else None

    recent = RecentMtus(find, lambda: now)
    assert [recent.mtu_bytes("b") for _ in range(3)] == [8_960] * 3
    assert [recent.mtu_bytes("c") for _ in range(3)] == [None] * 3
    assert looks == ["b", "c"]
    now += 2 * FIRST_INTERVAL_S
    assert recent.mtu_bytes("b") == 8_960
    assert looks == ["b", "c", "b"]


def test_the_known_networks_do_not_grow_with_the_hosts_of_a_server() -> None:
    recent = RecentMtus(lambda host: None, lambda: 0.0)
    for number in range(3 * MAX_RECENT):
        recent.mtu_bytes(str(number))
    assert len(recent._found) <= MAX_RECENT


def test_packets_that_pass_every_network_are_not_watched() -> None:
    assert PacketWatch.of("127.0.0.1", MTU_BYTES, 0.0) is None
    watch = PacketWatch.of("127.0.0.1", 16_384, 0.0)
    assert watch is not None
    assert watch.check(0, 0.01, is_reading=True) is None


def test_a_peer_that_is_watched_sends_a_frame_each_second() -> None:
    assert alive_times(Times()).keep_alive_seconds == 1.0
    assert alive_times(Times(keep_alive_seconds=0.2)).keep_alive_seconds == 0.2
