"""The transport within one process: the contract of all transports, and the faults it can be told to have."""

from __future__ import annotations

import itertools

import pytest

from aeron_spark.errors import InUseError, TransportError
from aeron_spark.transport.api import (
    ChannelSettings,
    ClientTransport,
    DriverLost,
    OfferResult,
    ServerAddress,
    ServerTransport,
    SubscriptionFailed,
)
from aeron_spark.transport.memory import MemoryClientTransport, MemoryNetwork, MemoryServerTransport
from tests.transport_contract import Open, Reading, TransportContract, send, until


class MemoryWorld:
    silence = 0.05  # this network hands on what is sent at once

    def __init__(self, place: ServerAddress) -> None:
        self.place = place
        self.network = MemoryNetwork()
        self._ports = itertools.count(40_000)

    def listening(self) -> ServerTransport:
        return MemoryServerTransport(self.network)

    def dialing(self) -> ClientTransport:
        return MemoryClientTransport(self.network, self.place, source=f"10.0.0.1:{next(self._ports)}")


@pytest.fixture(
    params=[
        ServerAddress("udp", "127.0.0.1", 20_000, 20_001),
        ServerAddress("udp", "::1", 20_000, 20_001),
        ServerAddress("ipc"),
    ]
)
def world(request: pytest.FixtureRequest) -> MemoryWorld:
    return MemoryWorld(request.param)


class TestMemory(TransportContract):
    """The contract."""


@pytest.fixture
def opened() -> Open:
    return Open(MemoryWorld(ServerAddress("udp", "127.0.0.1", 20_000, 20_001)))


def network_of(opened: Open) -> MemoryNetwork:
    assert isinstance(opened.listening, MemoryServerTransport)
    return opened.listening.network


def test_an_interruption_ends_every_image_and_its_end_makes_new_ones(opened: Open) -> None:
    network_of(opened).cut()
    assert not opened.at_client.publication.connected
    assert opened.at_client.publication.offer(b"x") is OfferResult.NOT_CONNECTED
    until(lambda: opened.server.left(opened.at_server.token), opened.server)
    network_of(opened).heal()
    send(opened.at_client.publication, b"again", reading=(opened.server,))
    until(lambda: opened.server.of(opened.at_server.token) == [b"again"], opened.server)
    first, second = opened.server.joined(opened.at_server.token)
    assert first.image != second.image


def test_messages_are_lost_repeated_and_forged_as_wished(opened: Open) -> None:
    answers = iter([[], [b"one", b"one"], [b"0ne"]])
    network_of(opened).change = lambda _, message: next(answers)
    for _ in range(3):
        assert opened.at_client.publication.offer(b"one") is None
    until(lambda: len(opened.server.of(opened.at_server.token)) == 3, opened.server)
    assert opened.server.of(opened.at_server.token) == [b"one", b"one", b"0ne"]


def test_a_delay_is_how_long_a_message_travels() -> None:
    now = 100.0
    world = MemoryWorld(ServerAddress("ipc"))
    world.network = MemoryNetwork(clock=lambda: now)
    opened = Open(world)
    world.network.delay = 2.5
    send(opened.at_client.publication, b"slow")
    now = 102.4
    opened.server.poll(0)
    assert opened.server.of(opened.at_server.token) == []
    now = 102.6
    opened.server.poll(0)
    assert opened.server.of(opened.at_server.token) == [b"slow"]


def test_a_publication_can_be_held_back(opened: Open) -> None:
    publication = opened.at_client.publication
    publication.held = True  # type: ignore[attr-defined]
    assert publication.offer(b"x", timeout_s=0.01) is OfferResult.BACK_PRESSURED
    publication.held = False  # type: ignore[attr-defined]
    assert publication.offer(b"x") is None


def test_what_cannot_be_opened_says_why(opened: Open) -> None:
    network_of(opened).refusal = "no space left"
    pair = opened.dialing.open_path()
    assert pair.publication.closed
    assert pair.publication.failure == "no space left"
    opened.client.poll(0)
    assert SubscriptionFailed(pair.token, "no space left") in opened.client.events
    with pytest.raises(TransportError, match="no space left"):
        opened.listening.listen(ServerAddress("udp", "127.0.0.1", 1, 2), ChannelSettings())


def test_a_lost_driver_closes_what_was_opened_through_it(opened: Open) -> None:
    dialing = opened.dialing
    assert isinstance(dialing, MemoryClientTransport)
    network_of(opened).lose_driver(dialing.inbox, "gone")
    opened.client.poll(0)
    assert opened.client.events[-1] == DriverLost("gone")
    assert dialing.inbox.closed
    assert opened.at_client.publication.closed
    assert not opened.at_server.publication.connected
    with pytest.raises(TransportError, match="closed"):
        dialing.open_path()


def test_a_second_server_at_one_place_is_refused(opened: Open) -> None:
    other = MemoryServerTransport(network_of(opened))
    with pytest.raises(InUseError, match="in use"):
        other.listen(ServerAddress("udp", "127.0.0.1", 20_000, 20_001), ChannelSettings())


def test_a_listener_on_all_addresses_hears_those_of_its_family() -> None:
    network = MemoryNetwork()
    listening = MemoryServerTransport(network)
    token = listening.listen(ServerAddress("udp", "0.0.0.0", 20_000, 20_001), ChannelSettings())
    four = MemoryClientTransport(network, ServerAddress("udp", "127.0.0.1", 20_000, 20_001), source="10.0.0.1:1")
    six = MemoryClientTransport(network, ServerAddress("udp", "::1", 20_000, 20_001), source="[fe80::1]:1")
    pairs = [four.open_path(), six.open_path()]
    reading = Reading(listening.inbox)
    until(lambda: reading.joined(token), reading)
    assert [pair.publication.connected for pair in pairs] == [True, False]
