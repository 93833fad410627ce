"""Branches of a connection on real media drivers: bulk in both directions, at the receiver's pace."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest

from aeron_spark.client.client import Client
from aeron_spark.connection.bulk_links import BulkLink
from aeron_spark.errors import AeronSparkError
from aeron_spark.server.server import TransportServer
from aeron_spark.server.settings import ServerSettings
from aeron_spark.waiting import wait_for
from tests.aeron.secure.ends import FREE, PATIENCE, World

MIB = 1 << 20


def opened(server: TransportServer, client: Client) -> tuple[BulkLink, BulkLink]:
    bulk_link = client.bulk_link(PATIENCE)
    (connection,) = server.connections
    return bulk_link, server._runtime.bulk_links.of(connection, bulk_link.number)


def carried(sender: BulkLink, receiver: BulkLink, size: int) -> float:
    """Send so many bytes, and look that they arrive; return the seconds it took."""
    pattern = bytes(range(256)) * (sender.room // 256)
    sent, came = hashlib.blake2b(), hashlib.blake2b()

    def send() -> None:
        left = size
        while left:
            piece = pattern[: min(left, len(pattern))]
            sent.update(piece)
            sender.send(piece, timeout=PATIENCE)
            left -= len(piece)

    begun = time.monotonic()
    thread = threading.Thread(target=send)
    thread.start()
    received = 0
    while received < size:
        message = receiver.receive(PATIENCE)
        assert message is not None
        came.update(message)
        received += len(message)
    thread.join(PATIENCE)
    assert came.digest() == sent.digest()
    return time.monotonic() - begun


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "ipc"])
def test_bulk_goes_both_ways(world: World, host: str) -> None:
    place = world.place(host)
    server = world.server(place)
    client = world.connected(place)
    mine, theirs = opened(server, client)
    for sender, receiver in ((mine, theirs), (theirs, mine)):
        seconds = carried(sender, receiver, 64 * MIB)
        print(f"{host}: {64 / seconds:.0f} MiB/s")
    mine.close()
    wait_for(
        lambda: not len(server._runtime.bulk_links) and not len(client._runtime.bulk_links), PATIENCE, "both ends to go"
    )


def test_asking_again_for_a_set_up_that_is_on_its_way_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A way in is opened anew to ask again. Between the look for its image and that, the driver may have made one: as
    # often as here that happens all the time, at the usual pace on machines with too much to do.
    monkeypatch.setattr("aeron_spark.aeron.inbox.SETUP_RETRY_NS", 1_000_000)
    place = world.place()
    server = world.server(place)
    client = world.connected(place)
    for _ in range(12):
        mine, theirs = opened(server, client)
        theirs.send(b"first", timeout=PATIENCE)
        assert mine.receive(PATIENCE) == b"first"
        mine.close()
    for _ in range(4):
        world.connected(place).close()
    assert client.tampered == server.tampered == 0


def test_it_is_there_at_once_on_a_connection_that_is(world: World) -> None:
    place = world.place()
    server = world.server(place)
    client = world.connected(place)
    taken = []
    for _ in range(8):
        begun = time.monotonic()
        bulk_link, _ = opened(server, client)
        taken.append(time.monotonic() - begun)
        bulk_link.close()
    print(f"a branch: {1000 * sorted(taken)[4]:.1f} ms")
    assert server._runtime.bulk_links.opened == 8


def test_by_multi_destination_each_has_a_control_port_of_its_own(world: World) -> None:
    from tests.aeron.endpoint.drivers import free_ports

    first = free_ports()[0]
    place = world.place()
    server = world.server(place, settings=ServerSettings(limits=FREE, reply_channel="mdc", mdc_ports=(first, 3)))
    client = world.connected(place)
    mine, theirs = opened(server, client)
    carried(theirs, mine, 4 * MIB)
    assert server.statistics["ports"] == 2
    mine.close()
    wait_for(lambda: server.statistics["ports"] == 1, PATIENCE, "its port")


def test_many_at_once_each_get_their_own(world: World) -> None:
    place = world.place()
    server = world.server(place)
    client = world.connected(place)
    (connection,) = server.connections
    bulk_links = [client.bulk_link(PATIENCE) for _ in range(16)]
    for bulk_link in bulk_links:
        server._runtime.bulk_links.of(connection, bulk_link.number).send(
            str(bulk_link.number).encode(), timeout=PATIENCE
        )
    for bulk_link in bulk_links:
        assert bulk_link.receive(PATIENCE) == str(bulk_link.number).encode()


def test_a_client_that_ends_leaves_none(world: World) -> None:
    place = world.place()
    server = world.server(place)
    client = world.connected(place)
    _, theirs = opened(server, client)
    client.close()
    wait_for(lambda: not len(server._runtime.bulk_links), PATIENCE, "the branch to go")
    with pytest.raises(AeronSparkError):
        theirs.receive(PATIENCE)
    wait_for(lambda: server.statistics["session_ids"] == 0, PATIENCE, "its ids")
