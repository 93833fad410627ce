"""Finding C15: a client that does not try to connect says so, and never accepts a message that it will not send."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection, ConnectionOwner
from aeron_spark.connection.owner import PeerInfo
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
from aeron_spark.protocol.access import Filters, Grant
from aeron_spark.server.server import TransportServer
from aeron_spark.server.settings import ServerSettings
from tests.unit.connection.ends import FREE, LINK, PATIENCE, World, kept_for, wait_for

QUICK = ClientSettings(link=LINK, tag="desk-7", first_pause=0.01, longest_pause=0.05)


class Gate:
    """A server's filter that a test closes and opens."""

    def __init__(self) -> None:
        self.closed = False

    def __call__(self, candidate: object) -> bool:
        return self.closed


def guarded(world: World) -> tuple[TransportServer, Gate, list[object]]:
    """A server with a gate, and what its listeners got."""
    gate, got = Gate(), list[object]()
    server = world.server(ServerSettings(link=LINK, limits=FREE, filters=Filters(deny=[gate])))
    server.on_message(int, lambda _, message: got.append(message))
    return server, gate, got


def test_finding_c15_after_a_refused_reconnect_send_raises_the_refusal_and_connect_tries_again(world: World) -> None:
    _, gate, got = guarded(world)
    client = world.client(QUICK)
    connection = client.connection
    client.send(1, acknowledge=True)
    gate.closed = True
    with pytest.raises(RefusedError, match="not-permitted") as refused:
        client.reconnect(PATIENCE)
    assert client.state == "stopped"
    assert client.error is not None
    assert client.error.what == refused.value.what
    for send in (lambda: client.send(2), lambda: client.send_many([2]), lambda: connection.send(2)):
        with pytest.raises(RefusedError, match=r"not-permitted.* client\.connect\(\) tries again$"):
            send()
    gate.closed = False
    assert client.connect(PATIENCE) is connection  # the session was kept
    assert (client.state, client.error) == ("connected", None)
    client.send(3, acknowledge=True)
    assert got == [1, 3]


def test_finding_c15_after_a_reconnect_that_was_late_send_raises_the_time_out(world: World) -> None:
    _, _, got = guarded(world)
    client = world.client(QUICK)
    world.network.cut()
    with pytest.raises(WaitTimeout):
        client.reconnect(0.3)
    assert client.state == "stopped"
    with pytest.raises(WaitTimeout, match=r"client\.connect\(\) tries again$"):
        client.send(1)
    world.network.heal()
    assert client.state == "stopped"
    client.connect(PATIENCE)
    client.send(2, acknowledge=True)
    assert got == [2]


def test_finding_c15_a_client_that_is_refused_for_good_when_it_comes_back_stops(world: World) -> None:
    _, gate, got = guarded(world)
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
    client.connect(PATIENCE)
    client.send(3, acknowledge=True)
    assert got == [1, 3]  # what was accepted came, what was refused did not


def test_finding_c15_a_client_whose_server_has_another_key_stops(world: World) -> None:
    guarded(world)
    client = world.client(ClientSettings(link=LINK, server_key=bytes(32)), connect=False)
    with pytest.raises(IdentityError):
        client.connect(PATIENCE)
    assert client.state == "stopped"
    with pytest.raises(IdentityError, match=r"client\.connect\(\) tries again$"):
        client.send(1)


def test_finding_c15_a_client_that_its_server_put_aside_stops(world: World) -> None:
    server, _, got = guarded(world)
    client = world.client(QUICK)
    wait_for(lambda: server.connections, "the server's connection")
    server.connections[0].close(keep_session=True)
    wait_for(lambda: client.state == "stopped", "the client to stop")
    with pytest.raises(TransportError, match=r"the server closed the connection.* client\.connect\(\) tries again$"):
        client.send(1)
    client.connect(PATIENCE)
    client.send(2, acknowledge=True)
    assert got == [2]


@pytest.mark.parametrize("at", ["before it connects", "while it connects"])
def test_finding_c15_after_a_reconnect_that_is_interrupted_send_raises_and_connect_tries_again(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    _, _, got = guarded(world)
    client = world.client(QUICK)
    connection = client.connection

    def interrupted(*given: object, **more: object) -> object:
        raise KeyboardInterrupt

    def interrupted_once(*given: object, **more: object) -> object:
        monkeypatch.undo()
        raise KeyboardInterrupt

    if at == "before it connects":  # the link was left, and the agent was not told to connect
        monkeypatch.setattr(client, "_connect", interrupted)
    else:
        monkeypatch.setattr("aeron_spark.client.client.result_within", interrupted_once)
        world.network.change = lambda publication, message: ()  # so that it does not succeed first
    with pytest.raises(KeyboardInterrupt):
        client.reconnect(PATIENCE)
    assert client.state == "stopped"
    assert isinstance(client.error, ConnectError)
    with pytest.raises(ConnectError, match=r"interrupted by KeyboardInterrupt.* client\.connect\(\) tries again$"):
        client.send(1)
    monkeypatch.undo()
    world.network.change = None
    assert client.connect(PATIENCE) is connection  # the session was kept
    client.send(2, acknowledge=True)
    assert got == [2]


def test_finding_c15_what_is_sent_during_a_reconnect_that_succeeds_arrives_once_and_in_order(world: World) -> None:
    _, _, got = guarded(world)
    client = world.client(QUICK)
    over, sent = threading.Event(), 0

    def reconnect() -> None:
        for _ in range(5):
            client.reconnect(PATIENCE)
        over.set()

    reconnecting = threading.Thread(target=reconnect)
    reconnecting.start()
    while not over.is_set():
        client.send(sent, timeout=PATIENCE)
        sent += 1
        over.wait(0.001)
    reconnecting.join(PATIENCE)
    client.send(sent, acknowledge=True)
    assert got == list(range(sent + 1))


def test_finding_c15_a_client_says_its_state(world: World) -> None:
    client = world.client(QUICK, connect=False)
    assert (client.state, client.error) == ("stopped", None)
    with pytest.raises(ConnectError, match="there is no connection"):
        client.send(1)
    connecting = client.begin_connecting()
    assert client.state == "connecting"
    with pytest.raises(ConnectError, match="there is no connection"):
        client.send(1)
    guarded(world)
    connecting.result(PATIENCE)
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
    """Code of the server's own program that fails while ``happens`` is true, as a full disk or a lost service does."""

    def __init__(self) -> None:
        self.happens = False

    def check(self) -> None:
        if self.happens:
            raise OSError("a passing fault")

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

        class Kind(Connection):
            def __init__(self, home: ConnectionOwner, who: PeerInfo, number: int) -> None:
                fault.check()
                super().__init__(home, who, number)

        return Kind


def fault_met(world: World, server: TransportServer) -> None:
    """Wait until the server has met the fault twice: after the first time a client that stops has stopped."""
    wait_for(lambda: len(world.heard[server].errors_of(OSError)) >= 2, "the client to try again")


@pytest.mark.parametrize("place", ["filter", "clients file"])
def test_finding_c15_a_passing_fault_at_the_server_does_not_stop_a_client_that_comes_back(
    world: World, place: str
) -> None:
    fault, got = Fault(), list[object]()
    filters = Filters(deny=[fault.denies]) if place == "filter" else Filters()
    store = fault.store() if place == "clients file" else None
    server = world.server(ServerSettings(link=LINK, limits=FREE, filters=filters), store=store)
    server.on_message(int, lambda _, message: got.append(message))
    client = world.client(QUICK)
    fault.happens = True
    world.network.cut()
    wait_for(lambda: not client.connected, "the link to be lost")
    client.send(1)  # accepted: it must arrive
    world.network.heal()
    fault_met(world, server)
    assert client.state == "reconnecting"
    fault.happens = False
    wait_for(lambda: got == [1], "the message that was accepted")


def test_finding_c15_a_connection_class_that_fails_for_a_while_does_not_stop_a_client(world: World) -> None:
    fault, both = Fault(), kept_for(0.4)
    server = world.server(ServerSettings(link=both, limits=FREE), connection_class=fault.connection_class())
    client = world.client(replace(QUICK, link=both))
    wait_for(lambda: server.connections, "the server's connection")
    fault.happens = True
    world.network.cut()
    wait_for(lambda: world.heard[client].errors_of(SessionLost), "the session to be over")
    world.network.heal()
    fault_met(world, server)
    assert client.state in ("reconnecting", "connecting")
    fault.happens = False
    wait_for(lambda: client.connected, "the next connection")
