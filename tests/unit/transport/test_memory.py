"""The transport within one process: the contract of all transports, and its simulated faults."""

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
from tests.memory_transport import MemoryClientTransport, MemoryNetwork, MemoryServerTransport
from tests.transport_contract import Open, Reading, TransportContract, send, until


class MemoryWorld:
    silence = 0.05  # this network delivers messages immediately

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.network = MemoryNetwork()
        self._ports = itertools.count(40_000)

    def server_transport(self) -> ServerTransport:
        return MemoryServerTransport(self.network)

    def client_transport(self) -> ClientTransport:
        return MemoryClientTransport(self.network, self.address, source=f"10.0.0.1:{next(self._ports)}")


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
    assert isinstance(opened.server_transport, MemoryServerTransport)
    return opened.server_transport.network


def test_an_interruption_ends_all_images_and_its_end_makes_new_ones(opened: Open) -> None:
    network_of(opened).cut()
    assert not opened.at_client.publication.connected
    assert opened.at_client.publication.offer(b"x") is OfferResult.NOT_CONNECTED
    until(lambda: opened.server.unavailable(opened.at_server.token), opened.server)
    network_of(opened).heal()
    send(opened.at_client.publication, b"again", reading=(opened.server,))
    until(lambda: opened.server.of(opened.at_server.token) == [b"again"], opened.server)
    first, second = opened.server.available(opened.at_server.token)
    assert first.image != second.image


def test_the_network_can_lose_repeat_and_change_messages(opened: Open) -> None:
    changes = iter([[], [b"one", b"one"], [b"0ne"]])
    network_of(opened).change = lambda _, message: next(changes)
    for _ in range(3):
        assert opened.at_client.publication.offer(b"one") is None
    until(lambda: len(opened.server.of(opened.at_server.token)) == 3, opened.server)
    assert opened.server.of(opened.at_server.token) == [b"one", b"one", b"0ne"]


def test_a_message_arrives_after_the_delay() -> None:
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


def test_a_publication_can_simulate_back_pressure(opened: Open) -> None:
    publication = opened.at_client.publication
    publication.held = True
    assert publication.offer(b"x", timeout_s=0.01) is OfferResult.BACK_PRESSURED
    publication.held = False
    assert publication.offer(b"x") is None


def test_the_reason_of_a_refused_opening_is_reported(opened: Open) -> None:
    network_of(opened).refusal = "no space left"
    pair = opened.client_transport.open_path()
    assert pair.publication.closed
    assert pair.publication.failure == "no space left"
    opened.client.poll(0)
    assert SubscriptionFailed(pair.token, "no space left") in opened.client.events
    with pytest.raises(TransportError, match="no space left"):
        opened.server_transport.listen(ServerAddress("udp", "127.0.0.1", 1, 2), ChannelSettings())


def test_a_lost_driver_closes_its_publications_and_subscriptions(opened: Open) -> None:
    dialing = opened.client_transport
    assert isinstance(dialing, MemoryClientTransport)
    network_of(opened).lose_driver(dialing.inbox, "gone")
    opened.client.poll(0)
    assert opened.client.events[-1] == DriverLost("gone")
    assert dialing.inbox.closed
    assert opened.at_client.publication.closed
    assert not opened.at_server.publication.connected
    with pytest.raises(TransportError, match="closed"):
        dialing.open_path()


def test_a_second_server_on_the_same_address_is_refused(opened: Open) -> None:
    other = MemoryServerTransport(network_of(opened))
    with pytest.raises(InUseError, match="in use"):
        other.listen(ServerAddress("udp", "127.0.0.1", 20_000, 20_001), ChannelSettings())


def test_a_server_on_the_ipv4_wildcard_receives_only_ipv4() -> None:
    network = MemoryNetwork()
    server = MemoryServerTransport(network)
    token = server.listen(ServerAddress("udp", "0.0.0.0", 20_000, 20_001), ChannelSettings())
    four = MemoryClientTransport(network, ServerAddress("udp", "127.0.0.1", 20_000, 20_001), source="10.0.0.1:1")
    six = MemoryClientTransport(network, ServerAddress("udp", "::1", 20_000, 20_001), source="[fe80::1]:1")
    pairs = [four.open_path(), six.open_path()]
    reading = Reading(server.inbox)
    until(lambda: reading.available(token), reading)
    assert [pair.publication.connected for pair in pairs] == [True, False]
