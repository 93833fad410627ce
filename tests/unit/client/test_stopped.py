"""A client that does not try to connect is stopped, and accepts no message that it will not send."""

from __future__ import annotations

import threading
from typing import Final

import pytest

from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.errors import (
    ConnectError,
    IdentityError,
    RefusedError,
    SessionLost,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.access import Filters
from aeron_spark.protocol.grants import Grant
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import (
    TIMEOUT_S,
    World,
    client_options,
    kept_for,
    quick_client,
    result_of,
    server_options,
    wait_for,
)

QUICK: Final = quick_client(tag="desk-7")


class Gate:
    """A server's filter, which denies all clients while it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def __call__(self, candidate: object) -> bool:
        return self.closed


def guarded(world: World) -> tuple[MessageServer, Gate, list[object]]:
    """Return a server with a gate, and the list of its received messages."""
    gate, got = Gate(), list[object]()
    server = world.server(server_options(deny=(gate,)))
    server.on_message(int, lambda _, message: got.append(message))
    return server, gate, got


def test_after_a_refused_reconnect_send_raises_the_refusal_and_connect_tries_again(world: World) -> None:
    _, gate, received = guarded(world)
    client = world.client(QUICK)
    connection = client.connection
    client.send(1, acknowledge=True)
    gate.closed = True
    with pytest.raises(RefusedError, match="not-permitted") as refused:
        client.reconnect(TIMEOUT_S)
    assert client.state == "stopped"
    assert client.error is not None
    assert client.error.what == refused.value.what
    for send in (lambda: client.send(2), lambda: client.send_many([2]), lambda: connection.send(2)):
        with pytest.raises(RefusedError, match=r"not-permitted.* client\.connect\(\) tries again$"):
            send()
    gate.closed = False
    assert client.connect(TIMEOUT_S) is connection  # the session was kept
    assert (client.state, client.error) == ("connected", None)
    client.send(3, acknowledge=True)
    assert received == [1, 3]


def test_after_a_reconnect_that_timed_out_send_raises_the_timeout(world: World) -> None:
    _, _, received = guarded(world)
    client = world.client(QUICK)
    world.network.cut()
    with pytest.raises(WaitTimeout):
        client.reconnect(0.3)
    assert client.state == "stopped"
    with pytest.raises(WaitTimeout, match=r"client\.connect\(\) tries again$"):
        client.send(1)
    world.network.heal()
    assert client.state == "stopped"
    client.connect(TIMEOUT_S)
    client.send(2, acknowledge=True)
    assert received == [2]


def test_a_client_whose_resume_is_refused_for_good_stops(world: World) -> None:
    _, gate, received = guarded(world)
    client = world.client(QUICK)
    gate.closed = True
    world.network.cut()
    wait_for(lambda: not client.connected, "the link to be lost")
    assert client.state == "reconnecting"
    client.send(1)  # accepted: the client still tries
    world.network.heal()
    wait_for(lambda: client.state == "stopped", "the client to be refused")
    with pytest.raises(RefusedError, match=r"not-permitted.* client\.connect\(\) tries again$"):
        client.send(2)
    gate.closed = False
    client.connect(TIMEOUT_S)
    client.send(3, acknowledge=True)
    assert received == [1, 3]  # the accepted messages arrived, the refused one did not


def test_a_client_whose_server_has_another_key_stops(world: World) -> None:
    guarded(world)
    client = world.client(client_options(server_key=bytes(32)), connect=False)
    with pytest.raises(IdentityError):
        client.connect(TIMEOUT_S)
    assert client.state == "stopped"
    with pytest.raises(IdentityError, match=r"client\.connect\(\) tries again$"):
        client.send(1)


def test_a_client_whose_server_closed_the_connection_and_kept_the_session_stops(world: World) -> None:
    server, _, received = guarded(world)
    client = world.client(QUICK)
    wait_for(lambda: server.connections, "the server's connection")
    server.connections[0].close(keep_session=True)
    wait_for(lambda: client.state == "stopped", "the client to stop")
    with pytest.raises(TransportError, match=r"the server closed the connection.* client\.connect\(\) tries again$"):
        client.send(1)
    client.connect(TIMEOUT_S)
    client.send(2, acknowledge=True)
    assert received == [2]


@pytest.mark.parametrize("at", ["before it connects", "while it connects"])
def test_after_an_interrupted_reconnect_send_raises_and_connect_tries_again(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    _, _, received = guarded(world)
    client = world.client(QUICK)
    connection = client.connection

    def interrupted(*arguments: object, **keywords: object) -> object:
        raise KeyboardInterrupt

    def interrupted_once(*arguments: object, **keywords: object) -> object:
        monkeypatch.undo()
        raise KeyboardInterrupt

    if at == "before it connects":  # the link is closed, and the event loop has not begun to connect
        monkeypatch.setattr(client, "_connect", interrupted)
    else:
        monkeypatch.setattr(client._endpoint.loop, "wait", interrupted_once)
        world.network.change = lambda publication, message: ()  # the connect must not succeed first
    with pytest.raises(KeyboardInterrupt):
        client.reconnect(TIMEOUT_S)
    assert client.state == "stopped"
    assert isinstance(client.error, ConnectError)
    with pytest.raises(ConnectError, match=r"interrupted by KeyboardInterrupt.* client\.connect\(\) tries again$"):
        client.send(1)
    monkeypatch.undo()
    world.network.change = None
    assert client.connect(TIMEOUT_S) is connection  # the session was kept
    client.send(2, acknowledge=True)
    assert received == [2]


@pytest.mark.threads
def test_messages_sent_during_a_reconnect_arrive_once_and_in_order(world: World) -> None:
    _, _, received = guarded(world)
    client = world.client(QUICK)
    finished, sent = threading.Event(), 0

    def reconnect() -> None:
        for _ in range(5):
            client.reconnect(TIMEOUT_S)
        finished.set()

    reconnecting = threading.Thread(target=reconnect)
    reconnecting.start()
    while not finished.is_set():
        client.send(sent, timeout=TIMEOUT_S)
        sent += 1
        finished.wait(0.001)
    reconnecting.join(TIMEOUT_S)
    client.send(sent, acknowledge=True)
    assert received == list(range(sent + 1))


def test_the_state_of_a_client_follows_its_connection(world: World) -> None:
    client = world.client(QUICK, connect=False)
    assert (client.state, client.error) == ("stopped", None)
    with pytest.raises(ConnectError, match="there is no connection"):
        client.send(1)
    connecting = client.begin_connecting()
    assert client.state == "connecting"
    with pytest.raises(ConnectError, match="there is no connection"):
        client.send(1)
    guarded(world)
    result_of(connecting)
    assert client.state == "connected"
    world.network.cut()
    wait_for(lambda: client.state == "reconnecting", "the link to be lost")
    world.network.heal()
    wait_for(lambda: client.state == "connected", "the session to be resumed")
    client.close()
    assert (client.state, client.error) == ("closed", None)
    with pytest.raises(UsageError, match="the client is closed"):
        client.send(1)


class Fault:
    """Code of the server's program that fails while ``happens`` is true, such as one that needs a full disk."""

    def __init__(self) -> None:
        self.happens = False

    def check(self) -> None:
        if self.happens:
            raise OSError("a temporary fault")

    def denies(self, candidate: object) -> bool:
        self.check()
        return False

    def store(self) -> MemoryPeerStore:
        fault = self

        class Store(MemoryPeerStore):
            def grant(self, client: bytes) -> Grant | None:
                fault.check()
                return super().grant(client)

        return Store()

    def connection_class(self) -> type[Connection]:
        fault = self

        class FaultyConnection(Connection):
            def __init__(self, core: ConnectionCore) -> None:
                fault.check()
                super().__init__(core)

        return FaultyConnection


def await_fault(world: World, server: MessageServer) -> None:
    """Wait until the fault has occurred twice: a client that stops would stop after the first time."""
    wait_for(lambda: len(world.recorded[server].errors_of(OSError)) >= 2, "the client to try again")


@pytest.mark.parametrize("source", ["filter", "clients file"])
def test_a_temporary_fault_of_the_server_does_not_stop_a_client_that_reconnects(world: World, source: str) -> None:
    fault, received = Fault(), list[object]()
    filters = Filters(deny=[fault.denies]) if source == "filter" else Filters()
    store = fault.store() if source == "clients file" else None
    server = world.server(server_options(filters=filters), store=store)
    server.on_message(int, lambda _, message: received.append(message))
    client = world.client(QUICK)
    fault.happens = True
    world.network.cut()
    wait_for(lambda: not client.connected, "the link to be lost")
    client.send(1)  # accepted: it must arrive
    world.network.heal()
    await_fault(world, server)
    assert client.state == "reconnecting"
    fault.happens = False
    wait_for(lambda: received == [1], "the accepted message")


def test_a_connection_class_that_fails_temporarily_does_not_stop_a_client(world: World) -> None:
    fault, both = Fault(), kept_for(0.4)
    server = world.server(server_options(**both), connection_class=fault.connection_class())
    client = world.client(quick_client(tag="desk-7", **both))
    wait_for(lambda: server.connections, "the server's connection")
    fault.happens = True
    world.network.cut()
    wait_for(lambda: world.recorded[client].errors_of(SessionLost), "the session to end")
    world.network.heal()
    await_fault(world, server)
    assert client.state in ("reconnecting", "connecting")
    fault.happens = False
    wait_for(lambda: client.connected, "the next connection")
