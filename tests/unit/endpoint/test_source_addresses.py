"""Every link of a client comes from the client's address, in any spelling."""

from __future__ import annotations

import pytest

from aeron_spark.errors import AeronSparkError
from tests.internals import core_of
from tests.unit.endpoint.endpoints import World, client_options, server_options


@pytest.mark.parametrize("source", ["[fe80::1%eth0]:4000", "[::ffff:192.0.2.7]:4000", "[2001:DB8:0:0:0:0:0:1]:4000"])
def test_a_client_opens_bulk_links_with_any_spelling_of_its_address(world: World, source: str) -> None:
    server = world.server()
    client = world.client(source=source)
    mine = client.bulk_link(5.0)
    (connection,) = server.connections
    theirs = server._endpoint.bulk_links.of(core_of(connection), mine.number)
    mine.send(b"over the bulk link", timeout=5.0)
    assert bytes(theirs.receive(5.0) or b"") == b"over the bulk link"


def test_a_bulk_link_from_another_address_is_refused(world: World) -> None:
    world.server(server_options(expiry=5.0, setup_timeout=0.3))
    client = world.client(client_options(expiry=5.0, setup_timeout=0.3), source="[fe80::1%eth0]:4000")
    client._endpoint.transport.source = "[fe80::2%eth0]:4000"  # type: ignore[attr-defined]
    with pytest.raises(AeronSparkError):
        client.bulk_link(1.0)
