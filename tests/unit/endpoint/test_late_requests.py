"""A request whose transfer is complete only after the connection has ended does not run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import pytest

from aeron_spark.endpoint.peer_calls import PeerCalls
from tests.unit.endpoint.endpoints import World, wait_for

LARGE: Final = bytes(200_000)  # needs a transfer


class Counter:
    """An object of a client that its server calls."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self, data: bytes) -> int:
        self.calls += 1
        return self.calls


@pytest.mark.threads
@pytest.mark.parametrize("copies", [1, 100])  # 100 of them wait for a worker, in place of the event loop
def test_a_request_that_arrives_after_the_end_of_its_connection_is_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    taken: list[tuple[PeerCalls, Sequence[Any]]] = []
    take = PeerCalls.take

    def record(self: PeerCalls, requests: Sequence[Any]) -> None:
        taken.append((self, [(kind, bytes(payload)) for kind, payload in requests]))
        take(self, requests)

    monkeypatch.setattr(PeerCalls, "take", record)
    server, client = world.pair()
    counter, ended = Counter(), threading.Event()
    client.register("counter", counter, ["count"])
    client.connection.on_disconnect(lambda _: ended.set())
    (at_server,) = server.connections
    assert at_server.remote("counter").count(LARGE) == 1
    calls, requests = taken[-1]
    at_server.close()
    assert ended.wait(20.0), "the client was not disconnected"
    wait_for(lambda: calls._is_closed, "the end of the connection")
    pool = client._endpoint.worker_pool
    calls.take([*requests] * copies)
    assert (calls.running, calls.held_bytes) == (0, 0)
    wait_for(lambda: pool.unfinished(pool.mark()) == 0, "the work of the pool")
    assert counter.calls == 1


@pytest.mark.threads
def test_a_request_whose_connection_ends_before_a_worker_has_it_does_not_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = world.pair()
    counter = Counter()
    client.register("counter", counter, ["count"])
    (at_server,) = server.connections
    pool = client._endpoint.worker_pool
    submit, dropped = pool.submit, threading.Event()

    def end_and_submit(share: Any, work: Any, *, owner: Any, kind: Any = None) -> None:
        owner.close()
        monkeypatch.setattr(pool, "threads_per_share", lambda: 0)  # the work waits
        submit(share, work, owner=owner, kind=kind)

    monkeypatch.setattr(pool, "submit", end_and_submit)
    drop = pool.drop

    def drop_and_note(share: Any, owner: Any) -> int:
        count = drop(share, owner)
        if count:
            dropped.set()
        return count

    monkeypatch.setattr(pool, "drop", drop_and_note)
    at_server.remote("counter").oneway.count(b"")
    assert dropped.wait(20.0), "the request still waits"
    assert (pool.waiting(), counter.calls) == ({}, 0)
