"""Tests of the rates of a key at a server: its connections are read later and sent to later, and lose nothing."""

from __future__ import annotations

import os
from dataclasses import replace

from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.grants import EVERYTHING, KeyLimits
from aeron_spark.protocol.keypair import new_keypair
from tests.internals import core_of
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, server_options, wait_for

RATE: int = 25_000  # at which ten messages take three seconds, in which the test sees that their client is held
SIZE: int = 10_000


def test_a_client_that_sends_faster_than_its_key_may_waits_and_loses_nothing(world: World) -> None:
    server = world.server(server_options(bytes_in=RATE))
    fast = world.client()
    sizes: list[int] = []
    server.on_message(bytes, lambda _, message: sizes.append(len(message)))
    fast.send(bytes(SIZE), acknowledge=True)
    for _ in range(9):
        fast.send(bytes(SIZE), timeout=TIMEOUT_S)
    wait_for(lambda: bool(server.endpoint.holds.throttled))
    fast.send(b"end", timeout=TIMEOUT_S, acknowledge=True)
    assert sizes == [SIZE] * 10 + [3]
    wait_for(lambda: not server.endpoint.holds.throttled)


def test_the_limit_in_the_line_of_a_key_replaces_that_of_all_keys_and_others_do_not_wait(world: World) -> None:
    limited, free = new_keypair(os.urandom), new_keypair(os.urandom)
    store = MemoryPeerStore()
    store.authorize(limited.public, replace(EVERYTHING, limits=KeyLimits(messages_in=5)))
    store.authorize(free.public, EVERYTHING)
    server = world.server(server_options(allow_any_key=False), store=store)
    slow, good = (world.client(store=MemoryPeerStore(keys)) for keys in (limited, free))
    counted: dict[bytes, int] = {limited.public: 0, free.public: 0}

    def count(connection: object, _: bytes) -> None:
        counted[connection.key] += 1  # type: ignore[attr-defined]

    server.on_message(bytes, count)
    for client in (slow, good):
        client.send_many([b"x"] * 20, timeout=TIMEOUT_S)
    wait_for(lambda: [one.peer.key for one in server.endpoint.holds.throttled] == [limited.public])
    good.send(b"x", timeout=TIMEOUT_S, acknowledge=True)
    assert counted[free.public] == 21
    slow.send(b"x", timeout=TIMEOUT_S, acknowledge=True)
    assert counted[limited.public] == 21


def test_a_server_that_sends_faster_than_its_key_may_get_waits_and_loses_nothing(world: World) -> None:
    server = world.server(server_options(bytes_out=RATE))
    client = world.client()
    received: list[int] = []
    client.on_message(bytes, lambda message: received.append(len(message)))
    (connection,) = server.connections
    for _ in range(10):
        connection.send(bytes(SIZE), timeout=TIMEOUT_S)
    wait_for(lambda: core_of(connection) in server.endpoint.holds.throttled)
    connection.send(b"end", timeout=TIMEOUT_S, acknowledge=True)
    assert received == [SIZE] * 10 + [3]


def test_a_client_that_gets_data_later_gets_acknowledgements_and_pongs_at_once(world: World) -> None:
    """Regression: while its key had used up bytesOut, a client could send only as much as its buffer took."""
    server = world.server(server_options(bytes_out=1000))
    client = world.client()
    (connection,) = server.connections
    connection.send(bytes(200_000), timeout=TIMEOUT_S)  # more than the rate allows in three minutes
    wait_for(lambda: core_of(connection) in server.endpoint.holds.throttled)
    connection.send(b"later", timeout=TIMEOUT_S)
    client.send(b"one", timeout=TIMEOUT_S)
    wait_for(lambda: not core_of(client.connection).unacknowledged_bytes, "the acknowledgement")
    client.ping(TIMEOUT_S)
    assert core_of(connection) in server.endpoint.holds.throttled
    assert core_of(connection).unacknowledged_bytes > 0
