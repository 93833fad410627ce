"""A program learns that its client is connected again, has lost a session with its messages, or has given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.deliveries import UnconfirmedTransfer
from aeron_spark.errors import AeronSparkError, EndedError, IdentityError, RefusedError, SessionLost
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import (
    TIMEOUT_S,
    World,
    client_options,
    kept_for,
    quick_client,
    server_options,
    wait_for,
)

QUICK: Final = quick_client(tag="desk-7")


class Told:
    """Records what a client tells its program, in order."""

    def __init__(self, client: Client) -> None:
        self.events: list[tuple[object, ...]] = []
        client.on_lost(lambda connection, error: self.events.append(("lost", connection, error)))
        client.on_reconnect(lambda connection, resumed: self.events.append(("reconnect", connection, resumed)))
        client.on_stopped(lambda error: self.events.append(("stopped", error)))

    @property
    def names(self) -> list[object]:
        return [event[0] for event in self.events]

    @property
    def unconfirmed(self) -> list[object]:
        errors = [event[2] for event in self.events if event[0] == "lost"]
        return [message for error in errors if isinstance(error, AeronSparkError) for message in error.unconfirmed]


def forgetful(world: World, seconds: float = 0.4) -> tuple[MessageServer, Client, list[object], Told]:
    """Return a server and its client, whose sessions are kept for ``seconds``, with what both of them received."""
    both, received = kept_for(seconds), list[object]()
    server = world.server(server_options(**both))
    server.on_message(object, lambda _, message: received.append(message))
    client = world.client(quick_client(tag="desk-7", **both), connect=False)
    told = Told(client)
    client.connect(TIMEOUT_S)
    return server, client, received, told


def lose_session(world: World, client: Client) -> Connection:
    """Cut the network until the client's session has ended; return its connection."""
    connection = client.connection
    world.network.cut()
    wait_for(lambda: connection.closed, "the session to end")
    world.network.heal()
    return connection


def test_a_client_that_resumed_its_session_is_told_as_reconnected(world: World) -> None:
    world.server()
    client = world.client(QUICK)
    told, connection = Told(client), client.connection
    world.network.cut()
    wait_for(lambda: not client.connected, "the link to be lost")
    world.network.heal()
    wait_for(lambda: told.events, "the notice")
    assert told.events == [("reconnect", connection, True)]


def test_a_lost_session_is_told_with_its_unconfirmed_messages_before_the_new_connection(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "prices.csv"
    file.write_bytes(bytes(3000))
    _, client, received, told = forgetful(world)
    client.send("confirmed", acknowledge=True)
    lost = client.connection
    world.network.cut()
    wait_for(lambda: not client.connected, "the link to be lost")
    large = bytes(lost.max_message + 1)
    for message in ("first", {"n": 2}, b"three", large):
        client.send(message)
    client.send_file(file)
    client.send_many([4, b"five"])
    client.remote("service").oneway.run()  # a call is not a message
    wait_for(lambda: lost.closed, "the session to end")
    world.network.heal()
    wait_for(lambda: len(told.events) == 2, "the notices")
    (_, first, error), (_, second, resumed) = told.events
    assert isinstance(error, SessionLost)
    assert error.unconfirmed == (
        "first", {"n": 2}, b"three", UnconfirmedTransfer("", len(large)), UnconfirmedTransfer("prices.csv", 3000),
        4, b"five",
    )  # fmt: skip
    assert (first, second, resumed) == (lost, client.connection, False)
    assert second is not lost
    client.send("after", acknowledge=True)
    assert received == ["confirmed", "after"]


@pytest.mark.threads
def test_a_message_with_acknowledge_raises_in_send_and_is_not_told(world: World) -> None:
    _, client, _, told = forgetful(world)
    raised = list[BaseException]()

    def send(message: object) -> None:
        try:
            client.send(message, acknowledge=True)
        except AeronSparkError as error:
            raised.append(error)

    world.network.cut()
    wait_for(lambda: not client.connected, "the link to be lost")
    large = bytes(client.connection.max_message + 1)
    senders = [threading.Thread(target=send, args=(message,)) for message in ("small", large)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(TIMEOUT_S)
    world.network.heal()
    wait_for(lambda: "lost" in told.names, "the notice")
    assert [type(error) for error in raised] == [SessionLost, SessionLost]
    assert told.unconfirmed == []


def test_each_accepted_message_arrives_or_is_told(world: World) -> None:
    """The network is cut while messages are under way; a message may arrive and be told, too."""
    _, client, received, told = forgetful(world, 0.3)
    rounds, accepted = 4, list[int]()
    for first in range(0, rounds * 200, 200):
        connection = client.connection
        for number in range(first, first + 200):
            if number == first + 100:
                world.network.cut()
            client.send(number)
            accepted.append(number)
        wait_for(lambda ended=connection: ended.closed, "the session to end")
        world.network.heal()
        wait_for(lambda: client.connected, "the next session")
    client.send("last", acknowledge=True)
    wait_for(lambda: told.names.count("lost") == rounds, "the notices")
    assert len(received) == len(set(received))
    assert {*received, *told.unconfirmed} == {*accepted, "last"}
    assert told.unconfirmed == [one for one in accepted if one in told.unconfirmed]  # in their order


def test_messages_that_a_close_leaves_unconfirmed_are_told(world: World) -> None:
    _, client, _, told = forgetful(world, 30.0)
    world.network.cut()
    wait_for(lambda: not client.connected, "the link to be lost")
    client.send("unsent")
    client.close()
    wait_for(lambda: told.events, "the notice")
    ((_, _, error),) = told.events
    assert isinstance(error, EndedError)
    assert error.unconfirmed == ("unsent",)


def test_a_close_that_confirms_all_messages_is_not_told(world: World) -> None:
    _, client, received, told = forgetful(world, 30.0)
    client.send("sent")
    client.close()
    client._endpoint.loop.pool.shutdown(wait=True)
    assert received == ["sent"]
    assert told.events == []


def test_a_client_that_gives_up_is_told_once(world: World) -> None:
    world.server()
    client = world.client(client_options(server_key=bytes(32)), connect=False)
    told = Told(client)
    for _ in range(2):
        with pytest.raises(IdentityError):
            client.connect(TIMEOUT_S)
    wait_for(lambda: len(told.events) == 2, "both notices")
    for _, error in told.events:
        assert isinstance(error, IdentityError)
        assert error.remedy.endswith("client.connect() tries again")


def test_a_client_whose_server_ends_the_connection_is_told_of_the_loss_and_the_stop(world: World) -> None:
    server, client, _, told = forgetful(world)
    wait_for(lambda: server.connections, "the server's connection")
    refused = RefusedError("you may not", reason="not-permitted")
    server.endpoint.disconnect(server.sessions[0], keep_session=False, error=refused)
    wait_for(lambda: len(told.events) == 2, "the notices")
    assert told.names == ["lost", "stopped"]
    assert client.state == "stopped"


def test_a_listener_that_fails_is_reported_and_delays_no_other(world: World) -> None:
    world.server()
    client = world.client(QUICK, connect=False)

    def fail(connection: Connection, resumed: bool) -> None:
        raise LookupError("of the program")

    client.on_reconnect(fail)
    told = Told(client)
    client.connect(TIMEOUT_S)
    client.reconnect(TIMEOUT_S)
    wait_for(lambda: told.events, "the notice")
    assert told.names == ["reconnect"]
    assert len(world.recorded[client].errors_of(LookupError)) == 1


@pytest.mark.parametrize("name", ["on_lost", "on_reconnect", "on_stopped"])
def test_the_methods_can_be_used_as_decorators(world: World, name: str) -> None:
    client = world.client(QUICK, connect=False)

    def listener(*arguments: object) -> None:
        pass

    add: Callable[..., object] = getattr(client, name)
    assert add(listener) is listener
