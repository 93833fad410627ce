"""A pool's client that loses its link without use stops, and does not dial again."""

from __future__ import annotations

import threading

import pytest

from aeron_spark.client import aeron_dialer
from aeron_spark.client.client import Client, connect_for_pool
from tests.memory_transport import MemoryClientTransport
from tests.unit.endpoint.endpoints import ADDRESS, TIMEOUT_S, World, wait_for


class Use:
    """A pool's use of a client."""

    def __init__(self, world: World) -> None:
        self.dials = 0
        self.is_in_use = True
        self.ended = threading.Event()
        self._world = world
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(aeron_dialer, "make_aeron_endpoint", lambda *_: world.client_endpoint(dial=self._dial))
            self.client = connect_for_pool("", TIMEOUT_S, lambda: self.is_in_use, self._end, {})
        world.add(self.client)

    def _dial(self) -> MemoryClientTransport:
        self.dials += 1
        return MemoryClientTransport(self._world.network, ADDRESS, source="192.0.2.7:4000")

    def _end(self, client: Client) -> None:
        client.close()  # on a thread of the client
        self.ended.set()


def lose_driver(world: World, client: Client) -> None:
    world.network.lose_driver(client._endpoint.transport.inbox)


def test_a_client_that_loses_its_driver_without_use_ends_and_does_not_dial(world: World) -> None:
    world.server()
    use = Use(world)
    use.is_in_use = False
    lose_driver(world, use.client)
    wait_for(use.ended.is_set, "the end of its use")
    assert (use.client.state, use.dials) == ("closed", 1)


def test_a_client_whose_server_ends_without_use_ends(world: World) -> None:
    server = world.server()
    use = Use(world)
    use.is_in_use = False
    server.close()
    wait_for(use.ended.is_set, "the end of its use")
    assert (use.client.state, use.dials) == ("closed", 1)


def test_a_client_in_use_dials_and_resumes_its_session(world: World) -> None:
    world.server()
    use = Use(world)
    session = use.client.connection
    lose_driver(world, use.client)
    wait_for(lambda: use.dials == 2 and use.client.connected, "the client to connect again")
    assert use.client.connection is session


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_client_whose_use_ends_during_an_outage_ends(world: World, is_refused: bool) -> None:
    world.server()
    use = Use(world)
    if is_refused:
        world.network.refusal = "no driver"
    world.network.cut()
    lose_driver(world, use.client)
    wait_for(lambda: use.dials >= 2, "the client in use to dial again")
    assert not use.ended.is_set()
    use.is_in_use = False
    wait_for(use.ended.is_set, "the end of its use")
    assert use.client.state == "closed"
