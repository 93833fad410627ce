"""Attempts that fail after the server took their DONE: one session remains, known to both ends and told once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aeron_spark.client.client import Client
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import AeronSparkError, WaitTimeout
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.limits import Limits
from aeron_spark.server.server import TransportServer
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID, ChannelPair, ChannelSettings, LinkIds, SenderUnavailable
from aeron_spark.transport.memory import MemoryClientTransport, MemoryPublication
from tests.unit.connection.ends import FREE, LINK, PATIENCE, PLACE, World, kept_for, link, wait_for

ONE = Limits(connections=1, handshakes_per_second=0, pending_per_address=0)
DONE_ACK = 4  # types of handshake packets
IN_VAIN = 0.3  # seconds of a connect that no answer comes back to


def is_done_ack(publication: MemoryPublication, message: bytes) -> bool:
    return message[:2] == b"AS" and message[3] == DONE_ACK and publication.key[0] == "answer"


def is_frame_to_server(publication: MemoryPublication, message: bytes) -> bool:
    return publication.key[0] == "in" and publication.key[-1] != HANDSHAKE_STREAM_ID


def is_frame_to_client(publication: MemoryPublication, message: bytes) -> bool:
    return publication.key[0] == "out"


class Losing:
    """Loses the next ``count`` messages of a kind. ``answered`` are the duologues that the server said something on.

    A client on a busy machine may give up an attempt whose answer is not lost but late. That attempt, too, is answered.
    """

    def __init__(self, world: World, kind: Callable[[MemoryPublication, bytes], bool], count: int = 1) -> None:
        self.left = count
        self.answered: set[object] = set()
        self._kind = kind
        world.network.change = self._change

    def _change(self, publication: MemoryPublication, message: bytes) -> tuple[bytes, ...]:
        if is_frame_to_client(publication, message):
            self.answered.add(publication.key)
        if self.left and self._kind(publication, message):
            self.left -= 1
            return ()
        return (message,)

    @property
    def resumes(self) -> list[str]:
        """What the server's listeners hear after the connect: the session was known each further time."""
        return ["resume"] * (len(self.answered) - 1)


def impatient(of: LinkSettings = LINK, **changes: object) -> ClientSettings:
    """A client that gives an attempt up long before the server does."""
    times = replace(of.times, setup_seconds=0.15)
    return ClientSettings(
        link=replace(of, times=times), timing=ClientTiming(hello_ack_s=2.0, done_ack_s=0.15), first_pause=0.01,
        longest_pause=0.02, **changes,  # type: ignore[arg-type]
    )  # fmt: skip


def a_server(world: World, **changes: object) -> TransportServer:
    """One that has room for one client and one session of a key, and greets whoever connects."""
    given: dict[str, object] = {"link": LINK, "limits": ONE, "max_sessions": 1, "max_sessions_per_key": 1, **changes}
    server = world.server(ServerSettings(**given))  # type: ignore[arg-type]
    server.on_connect(lambda connection: connection.send("hello"))
    return server


def a_client(world: World, settings: ClientSettings | None = None, **given: Any) -> tuple[Client, list[object]]:
    """One that is not connected yet, and what it will have been sent."""
    client = world.client(settings or impatient(), connect=False, **given)
    got: list[object] = []
    client.on_message(str, got.append)
    return client, got


def one_session(world: World, server: TransportServer, client: Client) -> None:
    """Nothing is left of what was begun and not ended, without any wait; and both ends speak of the same session."""
    held = server.statistics
    assert {name: held[name] for name in ("connections", "places", "session_ids", "stream_ids")} == {
        "connections": 1, "places": 1, "session_ids": 2, "stream_ids": 2,
    }  # fmt: skip
    wait_for(lambda: server.statistics["sessions"] == 1)  # it is counted at each tick
    wait_for(lambda: server.statistics["pending"] == server.statistics["handshakes"] == 0)
    (there,) = server.connections
    assert there.label == client.connection.label
    for end in (server, client):
        heard = world.heard[end]
        wait_for(lambda heard=heard: "connect" in heard.names)  # type: ignore[misc]
        assert heard.names[:2] == ["init", "connect"]
        assert heard.count("init") == heard.count("connect") == 1
        assert not heard.errors


def test_a_client_that_gave_up_before_it_was_accepted_is_no_error_of_the_servers(world: World) -> None:
    server = a_server(world)
    listening = server._runner.transport
    open_link, gone = listening.open_link, [SenderUnavailable("the sender of a handshake has gone")]

    def open_later(*given: Any) -> ChannelPair:
        if gone:
            raise gone.pop()
        return open_link(*given)

    listening.open_link = open_later
    client, _ = a_client(world)
    client.connect(PATIENCE)
    assert not gone
    one_session(world, server, client)


@pytest.mark.parametrize("times", [1, 3])
def test_a_done_ack_that_is_lost_leaves_nothing_behind(world: World, times: int) -> None:
    server = a_server(world)
    losing = Losing(world, is_done_ack, times)
    client, got = a_client(world)
    client.connect(PATIENCE)
    assert losing.left == 0
    one_session(world, server, client)
    assert world.heard[server].names == ["init", "connect", *losing.resumes]  # of those before it nobody heard
    wait_for(lambda: got == ["hello"])


@pytest.mark.parametrize("times", [1, 3])
def test_a_first_frame_that_is_lost_leaves_nothing_behind(world: World, times: int) -> None:
    server = a_server(world)
    losing = Losing(world, is_frame_to_server, times)
    client, got = a_client(world)
    client.connect(PATIENCE)
    assert losing.left == 0
    one_session(world, server, client)
    assert world.heard[server].names == ["init", "connect", *losing.resumes]
    wait_for(lambda: got == ["hello"])


@pytest.mark.parametrize("times", [1, 3])
def test_an_answer_to_the_first_frame_that_is_lost_is_a_resume_on_the_server_alone(world: World, times: int) -> None:
    server = a_server(world)
    losing = Losing(world, is_frame_to_client, 2 * times)  # OPEN, and the greeting behind it
    client, got = a_client(world)
    client.connect(PATIENCE)
    assert losing.left == 0
    one_session(world, server, client)
    assert len(losing.answered) > times
    wait_for(lambda: world.heard[server].names == ["init", "connect", *losing.resumes])
    assert world.heard[client].names == ["init", "connect"]
    wait_for(lambda: got == ["hello"])
    client.ping()
    assert got == ["hello"]


class Killing(MemoryClientTransport):
    """Kills the duologue that the server has just made: its way out, or the media driver."""

    left = 1
    driver = False

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        pair = super().open_link(ids, channel_settings)
        if type(self).left:
            type(self).left -= 1
            if self.driver:
                self.network.lose_driver(self.inbox)
            else:
                assert isinstance(pair.publication, MemoryPublication)
                pair.publication.failure = "killed"
        return pair


@pytest.mark.parametrize("driver", [False, True])
def test_a_duologue_that_is_killed_before_open_leaves_nothing_behind(world: World, driver: bool) -> None:
    class Killed(Killing):
        left = 2

    Killed.driver = driver
    server = a_server(world)
    client, _ = a_client(world, dial=lambda: Killed(world.network, PLACE))
    client.connect(PATIENCE)
    assert Killed.left == 0
    one_session(world, server, client)
    assert world.heard[server].count("resume") == 0


def told_apart_from_resumes(world: World, server: TransportServer) -> list[str]:
    """What a server told, but that another attempt of the same client came to its session."""
    return [name for name in world.heard[server].names if name != "resume"]


def connect_in_vain(client: Client, until: Callable[[], bool]) -> list[str]:
    """Connect, and give up, until the server was come to; return what the errors say."""
    errors = []

    def gave_up() -> bool:
        with pytest.raises(WaitTimeout) as raised:
            client.connect(IN_VAIN)
        errors.append(raised.value.what)
        return until()

    wait_for(gave_up, "an attempt that comes to the server")
    return errors


def test_a_connect_that_gave_up_is_continued_by_the_next(world: World) -> None:
    server = a_server(world)
    losing = Losing(world, is_frame_to_client, 1_000)
    client, got = a_client(world)
    errors = connect_in_vain(client, lambda: told_apart_from_resumes(world, server) == ["init", "connect"])
    assert any("link" in error for error in errors)
    losing.left = 0
    client.connect(PATIENCE)
    one_session(world, server, client)
    wait_for(lambda: got == ["hello"])
    assert world.heard[client].names == ["init", "connect"]


def test_a_session_that_the_server_has_told_of_and_lost_meanwhile_is_none_for_the_client(world: World) -> None:
    short = kept_for(0.4)
    server = a_server(world, link=short)
    losing = Losing(world, is_frame_to_client, 1_000)
    client, _ = a_client(world, impatient(short))
    connect_in_vain(client, lambda: world.heard[server].count("connect") == 1)
    wait_for(lambda: world.heard[server].count("disconnect") == 1)
    wait_for(lambda: server.statistics["sessions"] == 0)
    losing.left = 0
    client.connect(PATIENCE)
    wait_for(lambda: told_apart_from_resumes(world, server) == ["init", "connect", "disconnect", "init", "connect"])
    wait_for(lambda: world.heard[client].names == ["init", "connect"])
    assert not world.heard[client].errors
    (there,) = server.connections
    assert there.label == client.connection.label


KINDS = [is_done_ack, is_frame_to_server, is_frame_to_client]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_lost_while_coming_back_loses_no_session(
    world: World, kind: Callable[[MemoryPublication, bytes], bool]
) -> None:
    server = a_server(world)
    client, _ = a_client(world)
    client.connect(PATIENCE)
    (there,) = server.connections
    got: list[object] = []
    server.on_message(int, lambda _, message: got.append(message))
    for number in range(6):  # more often than tickets that were offered and never used are good
        before = [client.connection, there]
        client.connection.close(keep_session=True)
        wait_for(lambda: not there.connected)
        losing = Losing(world, kind)
        client.connect(PATIENCE)
        assert losing.left == 0
        client.send(number, acknowledge=True)
        assert [client.connection, *server.connections] == before
    assert got == list(range(6))
    one_session(world, server, client)


def test_a_client_that_cannot_come_back_takes_one_place(world: World) -> None:
    """Each attempt of a client that has given its place back takes one again, and must not be in its own way."""
    server = a_server(world, link=link(times=replace(LINK.times, setup_seconds=30.0)))
    client, _ = a_client(world)
    client.connect(PATIENCE)
    client.connection.close(keep_session=True)
    wait_for(lambda: server.statistics["places"] == 0)
    losing = Losing(world, is_frame_to_server, 3)
    client.connect(PATIENCE)
    assert losing.left == 0
    one_session(world, server, client)


def test_other_clients_of_the_same_key_are_left_alone(world: World) -> None:
    server = world.server(ServerSettings(link=LINK, limits=FREE))
    store = MemoryPeerStore()
    first = world.client(impatient(), store=store)
    losing = Losing(world, is_done_ack)
    second = world.client(impatient(), store=store, source="192.0.2.8:4000")
    assert losing.left == 0
    first.ping()
    second.ping()
    wait_for(lambda: len(server.connections) == 2)
    assert server.statistics["session_ids"] == 4
    assert world.heard[first].names == ["init", "connect"]


class Counted(Connection):
    made = 0

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        type(self).made += 1
        if type(self).made == 2:
            raise ValueError("not this one")


def test_a_connection_class_that_raises_the_second_time_is_an_error_and_leaks_nothing(world: World) -> None:
    server = a_server(world)
    Losing(world, is_frame_to_client, 1_000)
    client, _ = a_client(world, connection_class=Counted)
    with pytest.raises(AeronSparkError, match="not this one"):
        client.connect(PATIENCE)
    world.network.change = None
    client.connect(PATIENCE)
    one_session_of(server, client)


def one_session_of(server: TransportServer, client: Client) -> None:
    wait_for(lambda: server.statistics["session_ids"] == 2)
    (there,) = server.connections
    assert there.label == client.connection.label


def test_whatever_is_lost_while_connecting_there_is_one_session_in_the_end(world: World, rng: random.Random) -> None:
    server = a_server(world, link=link(times=replace(LINK.times, expiry_seconds=20.0)))
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
        client, got = a_client(world)
        client.connect(PATIENCE)
        world.network.change = None
        wait_for(lambda got=got: got == ["hello"], f"the greeting after {kinds}")  # type: ignore[misc]
        client.ping()
        one_session_of(server, client)
        assert world.heard[client].names[:2] == ["init", "connect"]
        assert got == ["hello"]
        client.close()
        wait_for(lambda: not any(server.statistics[name] for name in ("places", "session_ids", "sessions")))
    heard = world.heard[server]
    wait_for(lambda: heard.count("disconnect") == 8)
    assert heard.count("init") == heard.count("connect") == 8
