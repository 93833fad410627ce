"""A server listens on all its addresses, or on none."""

from __future__ import annotations

import pytest

from aeron_spark.errors import InUseError, TransportError, UsageError
from aeron_spark.transport.api import ServerAddress
from tests.unit.endpoint.endpoints import World

FIRST = ServerAddress("udp", "198.51.100.1", 20121, 20122)
SECOND = ServerAddress("udp", "198.51.100.1", 20131, 20132)


def test_a_server_with_one_address_in_use_listens_on_none(world: World) -> None:
    world.server(addresses=[SECOND])
    refused = world.server(start=False)
    with pytest.raises(InUseError) as error:
        refused.start([FIRST, SECOND])
    assert str(error.value) == (
        "cannot listen on 198.51.100.1:20131: the address is in use. "
        "Stop the program that has it, or choose another port"
    )
    world.server(addresses=[FIRST])


def test_a_server_that_could_not_listen_can_start_again_and_one_that_listens_cannot(world: World) -> None:
    first, second = world.server(addresses=[SECOND]), world.server(start=False)
    with pytest.raises(InUseError):
        second.start([FIRST, SECOND])
    first.close()
    second.start([FIRST, SECOND])
    assert second.addresses == (FIRST, SECOND)
    with pytest.raises(UsageError, match="the server listens already"):
        second.start([FIRST])


def test_a_server_with_one_address_that_fails_does_not_start(world: World) -> None:
    world.network.refusal = "there is no such address"
    with pytest.raises(TransportError, match="there is no such address"):
        world.server(addresses=[FIRST])


def test_a_server_without_an_address_does_not_start(world: World) -> None:
    with pytest.raises(UsageError, match="no address to listen at"):
        world.server(addresses=[])
