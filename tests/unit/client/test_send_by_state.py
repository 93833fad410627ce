"""``send`` in each state of a client: the message is accepted, or the call raises; never a silent success."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    IdentityError,
    RefusedError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.protocol.message_types import TYPE_ID
from aeron_spark.protocol.session import RECORD_COST
from tests.internals import core_of
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, flood, quick_client, server_options, wait_for

LARGE: Final = 300_000  # bytes, more than one record takes
BUFFER_BYTES: Final = 1 << 20
AT_ONCE_S: Final = 2.0  # much less than the time that a send may wait, which is SHORT["send_timeout"]

Send = Callable[[Client, Path], object]
SENDS: Final[dict[str, Send]] = {
    "value": lambda client, file: client.send({"n": 1}),
    "bytes": lambda client, file: client.send(b"one"),
    "many": lambda client, file: client.send_many([1, b"two"]),
    "acknowledged": lambda client, file: client.send("three", acknowledge=True),
    "large": lambda client, file: client.send(bytes(LARGE)),
    "file": lambda client, file: client.send_file(file),
}


@pytest.fixture(params=sorted(SENDS))
def send(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Client], object]:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    chosen = SENDS[request.param]
    return lambda client: chosen(client, file)


class Peer:
    """A server that counts what it receives, and refuses new handshakes while ``is_closed``."""

    def __init__(self, world: World, **changes: Any) -> None:
        self.is_closed = False
        self.received = 0
        self.server = world.server(server_options(**changes, deny=(lambda candidate: self.is_closed,)))
        self.server.on_message(object, lambda connection, message: self._count())

    def _count(self) -> None:
        self.received += 1


def client_of(world: World, *, connect: bool = True, key: bytes | None = None, **changes: Any) -> Client:
    return world.client(quick_client(**changes, server_key=key), connect=connect)


def cut(world: World, client: Client) -> None:
    world.network.cut()
    wait_for(lambda: client.state == "reconnecting", "the link to be lost")


def raises_at_once(client: Client, send: Callable[[Client], object], kind: type[AeronSparkError], text: str) -> None:
    begin = time.monotonic()
    with pytest.raises(kind, match=text):
        send(client)
    assert time.monotonic() - begin < AT_ONCE_S


def test_connected_a_message_is_accepted_and_arrives(world: World, send: Callable[[Client], object]) -> None:
    peer, client = Peer(world), client_of(world)
    send(client)
    wait_for(lambda: peer.received, "the message")
    assert core_of(client.connection).sender.error is None


def test_reconnecting_a_message_is_accepted_and_arrives_after_the_outage(world: World) -> None:
    peer, client = Peer(world), client_of(world)
    cut(world, client)
    for name in ("value", "bytes", "large"):
        SENDS[name](client, Path())
    assert peer.received == 0
    world.network.heal()
    wait_for(lambda: peer.received == 3, "the messages")


def test_reconnecting_a_full_buffer_makes_send_wait_until_its_timeout(world: World) -> None:
    both: dict[str, Any] = {"buffer_bytes": BUFFER_BYTES, "send_timeout": 0.2}
    peer, client = Peer(world, **both), client_of(world, **both)
    cut(world, client)
    begin = world.clock()
    with pytest.raises(WaitTimeout, match="the peer is not connected"):
        flood(client, 50_000, timeout=both["send_timeout"])
    assert world.clock() - begin >= both["send_timeout"]
    world.network.heal()
    client.send("last", acknowledge=True, timeout=TIMEOUT_S)
    assert peer.received == BUFFER_BYTES // (50_000 + RECORD_COST + TYPE_ID.size) + 1


def test_reconnecting_without_buffering_send_raises_at_once(world: World, send: Callable[[Client], object]) -> None:
    peer, client = Peer(world, buffering=False), client_of(world, buffering=False)
    cut(world, client)
    raises_at_once(client, send, ConnectError, "is not connected, and option 'buffering' is off")
    world.network.heal()
    wait_for(lambda: client.connected, "the session to be resumed")
    client.send("after", acknowledge=True)
    assert peer.received == 1


def refuse(world: World, peer: Peer) -> Client:
    """Return a client whose server refuses it for good during an outage."""
    client = client_of(world)
    peer.is_closed = True
    cut(world, client)
    world.network.heal()
    wait_for(lambda: client.state == "stopped", "the refusal")
    return client


def test_a_client_is_stopped_only_when_sending_raises_the_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    peer, client = Peer(world), client_of(world)
    sender = core_of(client.connection).sender
    refuse_records, states = sender.refuse, list[str]()

    def refuse_later(error: AeronSparkError | None) -> None:
        states.append(client.state)  # another thread could send now, and would wait for its timeout
        refuse_records(error)

    monkeypatch.setattr(sender, "refuse", refuse_later)
    peer.is_closed = True
    cut(world, client)
    world.network.heal()
    wait_for(lambda: client.state == "stopped", "the refusal")
    assert states == ["reconnecting"]


def fail_reconnect(world: World, peer: Peer) -> Client:
    client = client_of(world)
    peer.is_closed = True
    with pytest.raises(RefusedError):
        client.reconnect(TIMEOUT_S)
    return client


def show_wrong_key(world: World, peer: Peer) -> Client:
    client = client_of(world, connect=False, key=bytes(32))
    with pytest.raises(IdentityError):
        client.connect(TIMEOUT_S)
    return client


@pytest.mark.parametrize(
    ("stop", "kind"), [(refuse, RefusedError), (fail_reconnect, RefusedError), (show_wrong_key, IdentityError)]
)
def test_stopped_send_raises_the_stored_error_at_once(
    world: World, send: Callable[[Client], object], stop: Callable[[World, Peer], Client], kind: type[AeronSparkError]
) -> None:
    peer = Peer(world)
    client = stop(world, peer)
    assert client.state == "stopped"
    assert isinstance(client.error, kind)
    raises_at_once(client, send, kind, r"client\.connect\(\) tries again$")
    assert peer.received == 0


def test_stopped_connect_tries_again(world: World, send: Callable[[Client], object]) -> None:
    peer = Peer(world)
    client = fail_reconnect(world, peer)
    peer.is_closed = False
    client.connect(TIMEOUT_S)
    assert (client.state, client.error) == ("connected", None)
    send(client)
    wait_for(lambda: peer.received, "the message")


def test_before_the_first_connect_send_raises_at_once(world: World, send: Callable[[Client], object]) -> None:
    client = client_of(world, connect=False)
    raises_at_once(client, send, ConnectError, "there is no connection")


def test_closed_send_raises_at_once(world: World, send: Callable[[Client], object]) -> None:
    Peer(world)
    client = client_of(world)
    client.close()
    raises_at_once(client, send, UsageError, "the client is closed")
