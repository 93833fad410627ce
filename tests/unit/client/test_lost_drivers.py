"""A client whose media drivers are lost at any point of opening, one after the other, connects with the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.errors import TransportError
from aeron_spark.transport.api import ChannelPair, ChannelSettings, LinkIds
from tests.memory_transport import MemoryClientTransport
from tests.unit.endpoint.endpoints import ADDRESS, TIMEOUT_S, World, wait_for

POINTS: Final = ("dial", "dialled", "path", "path opened", "reopened", "link", "link opened", "connected")


class Drivers:
    """A machine whose media drivers end at the given points, one driver after the other; later ones stay."""

    def __init__(self, world: World, points: Sequence[str]) -> None:
        self.world = world
        self.remaining = list(points)
        self.lost: list[str] = []

    def dial(self) -> MemoryClientTransport:
        if self.is_due("dial"):
            raise TransportError("the media driver ended while the client connected to it")
        opened = LosingTransport(self)
        opened.reach("dialled")
        return opened

    def is_due(self, point: str) -> bool:
        if not self.remaining or self.remaining[0] != point:
            return False
        self.lost.append(self.remaining.pop(0))
        return True


class LosingTransport(MemoryClientTransport):
    """A transport of a driver that ends."""

    def __init__(self, drivers: Drivers) -> None:
        super().__init__(drivers.world.network, ADDRESS)
        self._drivers = drivers

    def reach(self, point: str) -> None:
        if not self.inbox.lost and self._drivers.is_due(point):
            self.network.lose_driver(self.inbox)

    def open_path(self) -> ChannelPair:
        self.reach("path")
        pair = super().open_path()
        self.reach("path opened")
        return pair

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        self.reach("reopened")
        return super().reopen_path(pair)

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        self.reach("link")
        pair = super().open_link(ids, channel_settings)
        self.reach("link opened")
        return pair


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aeron_spark.endpoint.client_endpoint.REOPEN_SECONDS", 0.005)


@pytest.mark.parametrize("first", POINTS)
def test_a_client_connects_after_two_drivers_were_lost(world: World, first: str) -> None:
    """The second driver is lost at each of the points."""
    world.server()
    drivers = Drivers(world, [])
    client = world.client(dial=drivers.dial)
    for second in POINTS:
        drivers.remaining, drivers.lost = [first, second], []
        lose_driver_of(world, client)

        def is_connected_for_good() -> bool:
            if not client.connected or client._endpoint.transport.inbox.lost:
                return False
            if drivers.is_due("connected"):
                lose_driver_of(world, client)
            return not drivers.remaining and not client._endpoint.transport.inbox.lost

        wait_for(is_connected_for_good, f"the client to connect after {first} and {second}")
        assert drivers.lost == [first, second]
        client.ping()


def test_an_error_while_bulk_links_end_does_not_hide_the_loss_of_the_driver(world: World) -> None:
    """The inbox reports the loss once: a client that missed it would never connect again."""
    world.server()
    client = world.client()

    def fail() -> None:
        raise OSError("the disk is full")

    client.bulk_link(TIMEOUT_S).on_removed = fail
    lost = client._endpoint.transport
    lose_driver_of(world, client)
    wait_for(lambda: client._endpoint.transport is not lost and client.connected, "the client to connect")
    assert isinstance(client._endpoint.loop.failed, OSError)
    client._endpoint.loop.failed = None


def lose_driver_of(world: World, client: Client) -> None:
    """End the driver that a client uses now."""
    world.network.lose_driver(client._endpoint.transport.inbox)
