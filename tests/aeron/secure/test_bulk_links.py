"""Bulk links of a connection on real media drivers."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest

from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.driver import RECEIVE_CHANNEL_TYPE
from aeron_spark.client.client import Client
from aeron_spark.endpoint.bulk_links import DATA, BulkLink
from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.frame_cipher import OVERHEAD_BYTES
from aeron_spark.transport.channel import MTU_MAX_BYTES
from aeron_spark.transport.packet_sizes import MAX_PACKET_BYTES
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S, World
from tests.message_server import MessageServer

MIB = 1 << 20


def open_bulk_link(server: MessageServer, client: Client) -> tuple[BulkLink, BulkLink]:
    bulk_link = client.bulk_link(TIMEOUT_S)
    (connection,) = server.sessions
    return bulk_link, server._endpoint.bulk_links.of(connection, bulk_link.number)


def transfer(sender: BulkLink, receiver: BulkLink, size: int) -> float:
    """Send ``size`` bytes, check that they arrive, and return the duration in seconds."""
    pattern = bytes(range(256)) * (sender.room // 256)
    sent, arrived = hashlib.blake2b(), hashlib.blake2b()

    def send() -> None:
        remaining = size
        while remaining:
            message = pattern[: min(remaining, len(pattern))]
            sent.update(message)
            sender.send(message, timeout=TIMEOUT_S)
            remaining -= len(message)

    started = time.monotonic()
    thread = threading.Thread(target=send)
    thread.start()
    received = 0
    while received < size:
        message = receiver.receive(TIMEOUT_S)
        assert message is not None
        arrived.update(message)
        received += len(message)
    thread.join(TIMEOUT_S)
    assert arrived.digest() == sent.digest()
    return time.monotonic() - started


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "ipc"])
def test_a_bulk_link_carries_data_in_both_directions(world: World, host: str) -> None:
    address = world.free_address(host)
    server = world.server(address)
    client = world.connected(address)
    mine, theirs = open_bulk_link(server, client)
    for one in (mine, theirs):
        found = None if one.watch is None else one.watch.mtu_bytes
        assert found == (None if host == "ipc" else MAX_PACKET_BYTES), "loopback carries the largest packets"
        longest = one.room + len(DATA) + OVERHEAD_BYTES
        assert longest == (8 * (MTU_MAX_BYTES - 32) if host == "ipc" else 16 * (MAX_PACKET_BYTES - 32)), "full packets"
    for sender, receiver in ((mine, theirs), (theirs, mine)):
        transfer(sender, receiver, 64 * MIB)
    mine.close()
    wait_for(
        lambda: not len(server._endpoint.bulk_links) and not len(client._endpoint.bulk_links),
        TIMEOUT_S,
        "both ends to go",
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_each_bulk_link_of_a_client_receives_on_another_socket(world: World, host: str) -> None:
    # On one socket, the packets of forty readers filled its buffer again and again: none of them reached its end.
    address = world.free_address(host)
    server = world.server(address)
    client = world.connected(address)
    before = receiving_sockets(world)
    bulk_links = [client.bulk_link(TIMEOUT_S) for _ in range(3)]
    assert len(receiving_sockets(world) - before) == len(bulk_links)
    (connection,) = server.sessions
    for mine in bulk_links:
        transfer(server._endpoint.bulk_links.of(connection, mine.number), mine, MIB)


def receiving_sockets(world: World) -> set[int]:
    """Return the ids of the driver's counters of sockets that receive."""
    counters = read_counters(world.dialling.aeron_dir, {RECEIVE_CHANNEL_TYPE})
    return {counter.id for counter in counters}


def test_a_repeated_set_up_request_loses_no_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # A subscription is opened again to repeat its set-up request. The driver may create its image at the same moment.
    # With this interval that happens often; with the usual one it happens on overloaded machines.
    monkeypatch.setattr("aeron_spark.aeron.inbox.SETUP_RETRY_NS", 1_000_000)
    address = world.free_address()
    server = world.server(address)
    client = world.connected(address)
    for _ in range(12):
        mine, theirs = open_bulk_link(server, client)
        theirs.send(b"first", timeout=TIMEOUT_S)
        assert mine.receive(TIMEOUT_S) == b"first"
        mine.close()
    for _ in range(4):
        world.connected(address).close()
    assert client.tampered == server.tampered == 0


def test_a_bulk_link_opens_quickly_on_a_connection(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    client = world.connected(address)
    durations = []
    for _ in range(8):
        started = time.monotonic()
        bulk_link, _ = open_bulk_link(server, client)
        durations.append(time.monotonic() - started)
        bulk_link.close()
    assert server._endpoint.bulk_links.opened == 8


def test_with_mdc_each_bulk_link_has_a_separate_control_port(world: World) -> None:
    from tests.ports import free_ports

    first = free_ports()[0]
    address = world.free_address()
    server = world.server(address, reply_channel="mdc", mdc_ports=(first, first + 2))
    client = world.connected(address)
    mine, theirs = open_bulk_link(server, client)
    transfer(theirs, mine, 4 * MIB)
    assert mine.watch.mtu_bytes == MAX_PACKET_BYTES
    assert server.statistics["ports"] == 2
    mine.close()
    wait_for(lambda: server.statistics["ports"] == 1, TIMEOUT_S, "its port to be released")


def test_bulk_links_of_one_connection_do_not_mix(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    client = world.connected(address)
    (connection,) = server.sessions
    bulk_links = [client.bulk_link(TIMEOUT_S) for _ in range(16)]
    for bulk_link in bulk_links:
        server._endpoint.bulk_links.of(connection, bulk_link.number).send(
            str(bulk_link.number).encode(), timeout=TIMEOUT_S
        )
    for bulk_link in bulk_links:
        assert bulk_link.receive(TIMEOUT_S) == str(bulk_link.number).encode()


def test_the_bulk_links_of_a_closed_client_end(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    client = world.connected(address)
    _, theirs = open_bulk_link(server, client)
    client.close()
    wait_for(lambda: not len(server._endpoint.bulk_links), TIMEOUT_S, "the bulk link to end")
    with pytest.raises(AeronSparkError):
        theirs.receive(TIMEOUT_S)
    wait_for(lambda: server.statistics["session_ids"] == 0, TIMEOUT_S, "its ids to be released")
