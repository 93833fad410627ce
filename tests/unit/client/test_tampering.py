"""Frames that are altered, repeated, truncated or forged in transit."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from aeron_spark.errors import TamperedError
from tests.unit.endpoint.endpoints import World, wait_for


def _altered(how: str, message: bytes, earlier: list[bytes]) -> Iterable[bytes]:
    match how:
        case "tampered":
            return (message[:-1] + bytes([message[-1] ^ 1]),)
        case "replayed":
            return (message, message)
        case "reordered":
            return (earlier[-1],) if earlier else (message,)
        case "truncated":
            return (message[:-3],)
        case "lost":
            return ()
        case _:
            return (bytes(len(message)), message)


@pytest.mark.threads
@pytest.mark.parametrize("how", ["tampered", "replayed", "truncated", "foreign"])
def test_row_40_an_altered_frame_is_counted_and_reported_and_no_message_is_lost(world: World, how: str) -> None:
    server, client = world.pair(max_tampered=3)
    received: list[object] = []
    server.on_message(int, lambda c, m: received.append(m))
    for number in range(10):
        client.send(number, acknowledge=True)
    done = threading.Event()

    def change(publication: object, message: bytes) -> Iterable[bytes]:
        if done.is_set() or publication.inbox is not client._endpoint.transport.inbox:  # type: ignore[attr-defined]
            return (message,)
        done.set()
        return _altered(how, message, [])

    world.network.change = change
    started = world.clock()
    client.send(10)
    wait_for(lambda: world.recorded[server].errors_of(TamperedError))
    assert world.clock() - started < 5.0 or how == "foreign"
    for number in range(11, 20):
        client.send(number, acknowledge=True)
    assert received == list(range(20))
    assert server.statistics["tampered"] >= 1
    assert world.recorded[client].count("disconnect") == 0


def test_too_many_altered_frames_end_the_connection(world: World) -> None:
    server, client = world.pair(max_tampered=3)

    def change(publication: object, message: bytes) -> Iterable[bytes]:
        to_client = publication.inbox is server.endpoint.transport.inbox  # type: ignore[attr-defined]
        if to_client and publication.key[0] == "out" and int.from_bytes(message[8:16], "big") > 1:  # type: ignore[attr-defined]
            return (message[:-1] + bytes([message[-1] ^ 1]),)
        return (message,)

    world.network.change = change
    server.on_message(object, lambda c, m: c.send(m))
    connection = client.connection
    client.send(1)
    wait_for(lambda: connection.closed)
    wait_for(lambda: len(world.recorded[client].errors_of(TamperedError)) == 3)
    wait_for(lambda: world.recorded[client].count("disconnect") == 1)
    assert world.recorded[client].count("connect") == 1
    with pytest.raises(TamperedError):
        connection.send(1)
