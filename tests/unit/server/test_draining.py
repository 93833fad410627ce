"""A draining server refuses new clients, finishes the calls that it received before, and asks clients to come again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aeron_spark.endpoint import client_attempt
from aeron_spark.errors import RefusedError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.keypair import keypair_from
from tests.unit.endpoint.endpoints import ADDRESS, TIMEOUT_S, World, wait_for


class Slow:
    """A remote object whose method waits until the test lets it return."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.release = threading.Event()

    def method(self) -> str:
        self.running.set()
        assert self.release.wait(TIMEOUT_S)
        return "done"


@pytest.mark.threads
def test_a_call_that_runs_finishes_while_new_clients_are_refused(world: World) -> None:
    server, slow = world.server(start=False), Slow()
    server.register("slow", slow, ["method"])
    server.start([ADDRESS])
    client = world.client()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.remote("slow").method)
        try:
            assert slow.running.wait(TIMEOUT_S)
            server.endpoint.begin_drain()
            assert server.endpoint.unfinished_calls == 1
            with pytest.raises(RefusedError) as refused:
                world.client(connect=False).connect(0.3)
            assert refused.value.reason == "shutdown"
        finally:
            slow.release.set()
        assert call.result(TIMEOUT_S) == "done"
    wait_for(lambda: server.endpoint.unfinished_calls == 0, "the end of the call")


def test_a_client_of_a_server_that_ended_for_a_restart_connects_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_attempt, "RESTART_PAUSE_S", 0.05)
    keys = MemoryPeerStore(keypair_from(b"s" * 32))
    server = world.server(store=keys)
    client = world.client()
    events = world.recorded[client]
    server.endpoint.begin_drain()
    server.close(RefusedError("the server is shutting down", reason="shutdown"))
    wait_for(lambda: events.count("disconnect") == 1, "the end of the session")
    world.server(store=keys)
    wait_for(lambda: events.count("connect") == 2, "the next session")
