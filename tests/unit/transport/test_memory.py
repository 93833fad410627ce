"""The transport within one process: the contract of all transports, and the faults it can be told to have."""

from __future__ import annotations

import itertools

import pytest

from aeron_spark.errors import InUseError, TransportError
from aeron_spark.transport.api import Dialing, Failed, Listening, Lost, OfferResult, Place, Wishes
from aeron_spark.transport.memory import MemoryDialing, MemoryListening, MemoryNetwork
from tests.transport_contract import Open, Reading, TransportContract, send, until


class MemoryWorld:
    silence = 0.05  # this network hands on what is sent at once

    def __init__(self, place: Place) -> None:
        self.place = place
        self.network = MemoryNetwork()
        self._ports = itertools.count(40_000)

    def listening(self) -> Listening:
        return MemoryListening(self.network)

    def dialing(self) -> Dialing:
        return MemoryDialing(self.network, self.place, source=f"10.0.0.1:{next(self._ports)}")


@pytest.fixture(params=[Place("udp", "127.0.0.1", 20_000, 20_001), Place("udp", "::1", 20_000, 20_001), Place("ipc")])
def world(request: pytest.FixtureRequest) -> MemoryWorld:
    return MemoryWorld(request.param)


class TestMemory(TransportContract):
    """The contract."""


@pytest.fixture
def opened() -> Open:
    return Open(MemoryWorld(Place("udp", "127.0.0.1", 20_000, 20_001)))


def network_of(opened: Open) -> MemoryNetwork:
    assert isinstance(opened.listening, MemoryListening)
    return opened.listening.network


def test_an_interruption_ends_every_image_and_its_end_makes_new_ones(opened: Open) -> None:
    network_of(opened).cut()
    assert not opened.at_client.outgoing.connected
    assert opened.at_client.outgoing.offer(b"x") is OfferResult.NOT_CONNECTED
    until(lambda: opened.server.left(opened.at_server.token), opened.server)
    network_of(opened).heal()
    send(opened.at_client.outgoing, b"again", reading=(opened.server,))
    until(lambda: opened.server.of(opened.at_server.token) == [b"again"], opened.server)
    first, second = opened.server.joined(opened.at_server.token)
    assert first.image != second.image


def test_messages_are_lost_repeated_and_forged_as_wished(opened: Open) -> None:
    answers = iter([[], [b"one", b"one"], [b"0ne"]])
    network_of(opened).change = lambda _, message: next(answers)
    for _ in range(3):
        assert opened.at_client.outgoing.offer(b"one") is None
    until(lambda: len(opened.server.of(opened.at_server.token)) == 3, opened.server)
    assert opened.server.of(opened.at_server.token) == [b"one", b"one", b"0ne"]


def test_a_delay_is_how_long_a_message_travels() -> None:
    now = 100.0
    world = MemoryWorld(Place("ipc"))
    world.network = MemoryNetwork(clock=lambda: now)
    opened = Open(world)
    world.network.delay = 2.5
    send(opened.at_client.outgoing, b"slow")
    now = 102.4
    opened.server.poll(0)
    assert opened.server.of(opened.at_server.token) == []
    now = 102.6
    opened.server.poll(0)
    assert opened.server.of(opened.at_server.token) == [b"slow"]


def test_a_publication_can_be_held_back(opened: Open) -> None:
    outgoing = opened.at_client.outgoing
    outgoing.held = True  # type: ignore[attr-defined]
    assert outgoing.offer(b"x", patience=0.01) is OfferResult.BACK_PRESSURED
    outgoing.held = False  # type: ignore[attr-defined]
    assert outgoing.offer(b"x") is None


def test_what_cannot_be_opened_says_why(opened: Open) -> None:
    network_of(opened).refusal = "no space left"
    pair = opened.dialing.knock()
    assert pair.outgoing.closed
    assert pair.outgoing.failure == "no space left"
    opened.client.poll(0)
    assert Failed(pair.token, "no space left") in opened.client.events
    with pytest.raises(TransportError, match="no space left"):
        opened.listening.listen(Place("udp", "127.0.0.1", 1, 2), Wishes())


def test_a_lost_driver_closes_what_was_opened_through_it(opened: Open) -> None:
    dialing = opened.dialing
    assert isinstance(dialing, MemoryDialing)
    network_of(opened).lose_driver(dialing.inbox, "gone")
    opened.client.poll(0)
    assert opened.client.events[-1] == Lost("gone")
    assert dialing.inbox.closed
    assert opened.at_client.outgoing.closed
    assert not opened.at_server.outgoing.connected
    with pytest.raises(TransportError, match="closed"):
        dialing.knock()


def test_a_second_server_at_one_place_is_refused(opened: Open) -> None:
    other = MemoryListening(network_of(opened))
    with pytest.raises(InUseError, match="in use"):
        other.listen(Place("udp", "127.0.0.1", 20_000, 20_001), Wishes())


def test_a_listener_on_all_addresses_hears_those_of_its_family() -> None:
    network = MemoryNetwork()
    listening = MemoryListening(network)
    token = listening.listen(Place("udp", "0.0.0.0", 20_000, 20_001), Wishes())
    four = MemoryDialing(network, Place("udp", "127.0.0.1", 20_000, 20_001), source="10.0.0.1:1")
    six = MemoryDialing(network, Place("udp", "::1", 20_000, 20_001), source="[fe80::1]:1")
    pairs = [four.knock(), six.knock()]
    reading = Reading(listening.inbox)
    until(lambda: reading.joined(token), reading)
    assert [pair.outgoing.connected for pair in pairs] == [True, False]
