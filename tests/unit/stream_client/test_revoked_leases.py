"""Leases of a key that is not admitted any more end, also those that it took over earlier connections."""

from __future__ import annotations

import gc
from typing import Any

from aeron_spark.endpoint.server_sessions import GrantChanged
from aeron_spark.errors import RefusedError
from aeron_spark.wire.stream_requests import RenewLease
from tests.unit.stream_client.joined import World

LEASE = RenewLease("s", "reader", ((0, 0),), 300.0)
BANNED = RefusedError("the key is banned", reason="banned")


def revoke(world: World) -> None:
    assert world.server is not None
    connection: Any = world.session
    world.server.service.facts.emit(GrantChanged(connection, BANNED))


def leases(world: World, name: str = "s") -> int:
    assert world.server is not None
    return world.server.store.get(name).usage().leases


def test_a_revoked_key_loses_the_lease_of_its_connection(world: World) -> None:
    world.stream_session().call(LEASE)
    assert leases(world) == 1
    revoke(world)
    assert leases(world) == 0


def test_a_revoked_key_loses_the_lease_of_an_earlier_connection(world: World) -> None:
    """Regression: the lease of a client that had connected again delayed the retention for 300 s more."""
    session = world.stream_session()
    session.call(LEASE)
    world._disconnect()
    world.connect(1.0)
    assert leases(world) == 1
    revoke(world)
    assert leases(world) == 0


def test_a_revoked_key_loses_the_lease_of_a_stream_that_was_renamed(world: World) -> None:
    world.stream_session().call(LEASE)
    assert world.server is not None
    world.server.store.rename("s", "renamed")
    gc.collect()  # the object of the stream before the rename
    assert leases(world, "renamed") == 1
    revoke(world)
    assert leases(world, "renamed") == 0


def test_a_key_that_is_revoked_before_its_first_request_has_no_lease_to_lose(world: World) -> None:
    world.connect(1.0)
    revoke(world)
    assert leases(world) == 0
