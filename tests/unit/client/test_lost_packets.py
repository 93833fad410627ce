"""Attempts that fail after the server has accepted DONE: one session remains, which both ends know and report once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import AeronSparkError, WaitTimeout
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID, ChannelPair, ChannelSettings, LinkIds, SenderUnavailable
from tests.memory_transport import MemoryClientTransport, MemoryPublication
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import (
    ADDRESS,
    TIMEOUT_S,
    World,
    client_options,
    kept_for,
    server_options,
    wait_for,
)

ONE: Final[dict[str, Any]] = {"max_connections": 1, "max_sessions": 1, "max_connections_per_key": 1}
DONE_ACK = 4  # types of handshake packets
SHORT_TIMEOUT_S = 0.3  # of a connect without a reply


def is_done_ack(publication: MemoryPublication, message: bytes) -> bool:
    return message[:2] == b"AS" and message[3] == DONE_ACK and publication.key[0] == "response"


def is_frame_to_server(publication: MemoryPublication, message: bytes) -> bool:
    return publication.key[0] == "in" and publication.key[-1] != HANDSHAKE_STREAM_ID


def is_frame_to_client(publication: MemoryPublication, message: bytes) -> bool:
    return publication.key[0] == "out"


class Losing:
    """Loses the next ``count`` messages of a kind. ``answered`` are the links on which the server sent a frame.

    On a busy machine a client may end an attempt whose reply is only late. That attempt counts as answered, too.
    """

    def __init__(self, world: World, kind: Callable[[MemoryPublication, bytes], bool], count: int = 1) -> None:
        self.remaining = count
        self.answered: set[object] = set()
        self._kind = kind
        world.network.change = self._change

    def _change(self, publication: MemoryPublication, message: bytes) -> tuple[bytes, ...]:
        if is_frame_to_client(publication, message):
            self.answered.add(publication.key)
        if self.remaining and self._kind(publication, message):
            self.remaining -= 1
            return ()
        return (message,)

    @property
    def resumes(self) -> list[str]:
        """The server's events after the connect: each further attempt resumes the session."""
        return ["resume"] * (len(self.answered) - 1)


def impatient_client(**changes: Any) -> ClientOptions:
    """Return the options of a client that ends an attempt long before the server does."""
    timing = ClientTiming(hello_ack_s=2.0, done_ack_s=0.15)
    return client_options(
        **{"setup_timeout": 0.15, "timing": timing, "first_pause": 0.01, "longest_pause": 0.02, **changes}
    )


def a_server(world: World, **changes: Any) -> MessageServer:
    """Start a server with room for one client and one session, which sends "hello" to each client."""
    server = world.server(server_options(**ONE, **changes))
    server.on_connect(lambda connection: connection.send("hello"))
    return server


def a_client(world: World, options: ClientOptions | None = None, **arguments: Any) -> tuple[Client, list[object]]:
    """Return a client that is not connected, and the list of its received texts."""
    client = world.client(options or impatient_client(), connect=False, **arguments)
    received: list[object] = []
    client.on_message(str, received.append)
    return client, received


def check_one_session(world: World, server: MessageServer, client: Client) -> None:
    """Check that failed attempts left nothing, and that both ends have the same session."""
    counts = server.statistics
    assert {name: counts[name] for name in ("connections", "admitted", "session_ids", "stream_ids")} == {
        "connections": 1, "admitted": 1, "session_ids": 2, "stream_ids": 2,
    }  # fmt: skip
    wait_for(lambda: server.statistics["sessions"] == 1)  # updated at each tick
    wait_for(lambda: server.statistics["pending"] == server.statistics["handshakes"] == 0)
    (server_connection,) = server.connections
    assert server_connection.label == client.connection.label
    for end in (server, client):
        recorded = world.recorded[end]
        wait_for(lambda recorded=recorded: "connect" in recorded.names)  # type: ignore[misc]
        assert recorded.names[:2] == ["init", "connect"]
        assert recorded.count("init") == recorded.count("connect") == 1
        assert not recorded.errors


def test_an_attempt_that_ended_before_its_acceptance_is_not_an_error_of_the_server(world: World) -> None:
    server = a_server(world)
    listening = server.endpoint.transport
    open_link, errors = listening.open_link, [SenderUnavailable("the sender of a handshake is not connected")]

    def open_later(*arguments: Any) -> ChannelPair:
        if errors:
            raise errors.pop()
        return open_link(*arguments)

    listening.open_link = open_later
    client, _ = a_client(world)
    client.connect(TIMEOUT_S)
    assert not errors
    check_one_session(world, server, client)


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_done_ack_leaks_nothing(world: World, times: int) -> None:
    server = a_server(world)
    losing = Losing(world, is_done_ack, times)
    client, received = a_client(world)
    client.connect(TIMEOUT_S)
    assert losing.remaining == 0
    check_one_session(world, server, client)
    wait_for(lambda: world.recorded[server].names == ["init", "connect", *losing.resumes])
    wait_for(lambda: received == ["hello"])


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_first_frame_leaks_nothing(world: World, times: int) -> None:
    server = a_server(world)
    losing = Losing(world, is_frame_to_server, times)
    client, received = a_client(world)
    client.connect(TIMEOUT_S)
    assert losing.remaining == 0
    check_one_session(world, server, client)
    wait_for(lambda: world.recorded[server].names == ["init", "connect", *losing.resumes])
    wait_for(lambda: received == ["hello"])


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_reply_to_the_first_frame_is_a_resume_on_the_server_only(world: World, times: int) -> None:
    server = a_server(world)
    losing = Losing(world, is_frame_to_client, 2 * times)  # OPEN, and the text after it
    client, received = a_client(world)
    client.connect(TIMEOUT_S)
    assert losing.remaining == 0
    check_one_session(world, server, client)
    assert len(losing.answered) > times
    wait_for(lambda: world.recorded[server].names == ["init", "connect", *losing.resumes])
    wait_for(lambda: world.recorded[client].names == ["init", "connect"])
    wait_for(lambda: received == ["hello"])
    client.ping()
    assert received == ["hello"]


class KillingTransport(MemoryClientTransport):
    """Ends the link that the server has just opened: its publication, or the media driver."""

    remaining = 1
    driver = False

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        pair = super().open_link(ids, channel_settings)
        if type(self).remaining:
            type(self).remaining -= 1
            if self.driver:
                self.network.lose_driver(self.inbox)
            else:
                assert isinstance(pair.publication, MemoryPublication)
                pair.publication.failure = "killed"
        return pair


@pytest.mark.parametrize("driver", [False, True])
def test_a_link_that_fails_before_open_leaks_nothing(world: World, driver: bool) -> None:
    class Killed(KillingTransport):
        remaining = 2

    Killed.driver = driver
    server = a_server(world)
    client, _ = a_client(world, dial=lambda: Killed(world.network, ADDRESS))
    client.connect(TIMEOUT_S)
    assert Killed.remaining == 0
    check_one_session(world, server, client)
    assert world.recorded[server].count("resume") == 0


def events_without_resumes(world: World, server: MessageServer) -> list[str]:
    """Return the server's events but for resumes."""
    return [name for name in world.recorded[server].names if name != "resume"]


def connect_repeatedly(client: Client, until: Callable[[], bool]) -> list[str]:
    """Connect with a short timeout until ``until`` is true; return the texts of the errors."""
    errors = []

    def times_out() -> bool:
        with pytest.raises(WaitTimeout) as raised:
            client.connect(SHORT_TIMEOUT_S)
        errors.append(raised.value.what)
        return until()

    wait_for(times_out, "an attempt that reaches the server")
    return errors


def test_the_next_connect_continues_the_session_of_one_that_timed_out(world: World) -> None:
    server = a_server(world)
    losing = Losing(world, is_frame_to_client, 1_000)
    client, received = a_client(world)
    errors = connect_repeatedly(client, lambda: events_without_resumes(world, server) == ["init", "connect"])
    assert any("link" in error for error in errors)
    losing.remaining = 0
    client.connect(TIMEOUT_S)
    check_one_session(world, server, client)
    wait_for(lambda: received == ["hello"])
    wait_for(lambda: world.recorded[client].names == ["init", "connect"])


def test_a_session_that_only_the_server_knew_and_lost_is_not_reported_to_the_client(world: World) -> None:
    short = kept_for(0.4)
    server = a_server(world, **short)
    losing = Losing(world, is_frame_to_client, 1_000)
    client, _ = a_client(world, impatient_client(**{**short, "times": replace(short["times"], setup_seconds=0.15)}))
    connect_repeatedly(client, lambda: world.recorded[server].count("connect") == 1)
    wait_for(lambda: world.recorded[server].count("disconnect") == 1)
    wait_for(lambda: server.statistics["sessions"] == 0)
    losing.remaining = 0
    client.connect(TIMEOUT_S)
    wait_for(lambda: events_without_resumes(world, server) == ["init", "connect", "disconnect", "init", "connect"])
    wait_for(lambda: world.recorded[client].names == ["init", "connect"])
    assert not world.recorded[client].errors
    (server_connection,) = server.connections
    assert server_connection.label == client.connection.label


KINDS = [is_done_ack, is_frame_to_server, is_frame_to_client]


@pytest.mark.parametrize("kind", KINDS)
def test_losses_during_a_resume_do_not_lose_the_session(
    world: World, kind: Callable[[MemoryPublication, bytes], bool]
) -> None:
    server = a_server(world)
    client, _ = a_client(world)
    client.connect(TIMEOUT_S)
    (server_connection,) = server.connections
    received: list[object] = []
    server.on_message(int, lambda _, message: received.append(message))
    for number in range(6):  # more often than unused tickets are valid
        before = [client.connection, server_connection]
        client.connection.close(keep_session=True)
        wait_for(lambda: not server_connection.connected)
        losing = Losing(world, kind)
        client.connect(TIMEOUT_S)
        assert losing.remaining == 0
        client.send(number, acknowledge=True)
        assert [client.connection, *server.connections] == before
    assert received == list(range(6))
    check_one_session(world, server, client)


def test_repeated_attempts_to_resume_count_as_one_connection(world: World) -> None:
    """An attempt to resume counts as a connection; later attempts of that client must not exceed the limit."""
    server = a_server(world, setup_timeout=30.0)
    client, _ = a_client(world)
    client.connect(TIMEOUT_S)
    client.connection.close(keep_session=True)
    wait_for(lambda: server.statistics["admitted"] == 0)
    losing = Losing(world, is_frame_to_server, 3)
    client.connect(TIMEOUT_S)
    assert losing.remaining == 0
    check_one_session(world, server, client)


def test_other_clients_with_the_same_key_are_not_affected(world: World) -> None:
    server = world.server(server_options())
    store = MemoryPeerStore()
    first = world.client(impatient_client(), store=store)
    losing = Losing(world, is_done_ack)
    second = world.client(impatient_client(), store=store, source="192.0.2.8:4000")
    assert losing.remaining == 0
    first.ping()
    second.ping()
    wait_for(lambda: len(server.connections) == 2)
    assert server.statistics["session_ids"] == 4
    wait_for(lambda: world.recorded[first].names == ["init", "connect"])


class Counted(Connection):
    made = 0

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        type(self).made += 1
        if type(self).made == 2:
            raise ValueError("not this one")


def test_a_connection_class_that_fails_at_the_second_session_leaks_nothing(world: World) -> None:
    server = a_server(world)
    Losing(world, is_frame_to_client, 1_000)
    client, _ = a_client(world, connection_class=Counted)
    with pytest.raises(AeronSparkError, match="not this one"):
        client.connect(TIMEOUT_S)
    world.network.change = None
    client.connect(TIMEOUT_S)
    check_same_session(server, client)


def check_same_session(server: MessageServer, client: Client) -> None:
    wait_for(lambda: server.statistics["session_ids"] == 2)
    (server_connection,) = server.connections
    assert server_connection.label == client.connection.label


def test_one_session_remains_after_random_losses_while_connecting(world: World, rng: random.Random) -> None:
    server = a_server(world, expiry=20.0)
    for _ in range(8):
        kinds = [(rng.choice(KINDS), rng.randrange(1, 3)) for _ in range(rng.randrange(1, 4))]
        losses = [[kind, count] for kind, count in kinds]

        def change(
            publication: MemoryPublication, message: bytes, losses: list[list[object]] = losses
        ) -> tuple[bytes, ...]:
            if losses and losses[0][0](publication, message):  # type: ignore[operator]
                losses[0][1] -= 1  # type: ignore[operator]
                if not losses[0][1]:
                    losses.pop(0)
                return ()
            return (message,)

        world.network.change = change
        client, received = a_client(world)
        client.connect(TIMEOUT_S)
        world.network.change = None
        wait_for(lambda received=received: received == ["hello"], f"the text after {kinds}")  # type: ignore[misc]
        client.ping()
        check_same_session(server, client)
        assert world.recorded[client].names[:2] == ["init", "connect"]
        assert received == ["hello"]
        client.close()
        wait_for(lambda: not any(server.statistics[name] for name in ("admitted", "session_ids", "sessions")))
    recorded = world.recorded[server]
    wait_for(lambda: recorded.count("disconnect") == 8)
    assert recorded.count("init") == recorded.count("connect") == 8
