"""Grants of connected clients: messages and files that they cover, their changes, and the end of a removed key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint.server_sessions import GrantChanged
from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.facts import Bus
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.grants import EVERYTHING, Grant
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.server.clients import ClientsWatcher
from aeron_spark.server.event_log import EventLog
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, quick_client, server_options, wait_for

KEYS = keypair_from(b"k" * 32)


class Granted:
    """A server, and a connected client whose grant a test changes."""

    def __init__(self, world: World, grant: Grant) -> None:
        self.store = MemoryPeerStore()
        self.store.authorize(KEYS.public, grant)
        self.server: MessageServer = world.server(server_options(allow_any_key=False), store=self.store)
        self.received: list[object] = []
        self.server.on_message(object, lambda _, message: self.received.append(message))
        self.client: Client = world.client(quick_client(), store=MemoryPeerStore(KEYS))
        self.reported: list[BaseException] = []
        self.client.on_error(lambda _, error: self.reported.append(error))

    def change(self, grant: Grant | None) -> None:
        self.store.authorize(KEYS.public, grant)
        self.server.endpoint.apply_grants()


def test_a_message_of_a_key_without_the_grant_is_refused_and_not_delivered(world: World) -> None:
    granted = Granted(world, Grant(sends_files=True))
    with pytest.raises(RefusedError, match="your key may not send messages") as refused:
        granted.client.send("acknowledged", acknowledge=True, timeout=TIMEOUT_S)
    assert refused.value.reason == "not-permitted"
    granted.client.send("not acknowledged")
    wait_for(lambda: granted.reported)
    assert [str(error).split(".")[0] for error in granted.reported] == ["your key may not send messages"]
    with pytest.raises(RefusedError, match="your key may not send messages"):
        granted.client.send(b"x" * (4 << 20), acknowledge=True, timeout=TIMEOUT_S)  # as a transfer
    assert granted.received == []
    granted.change(Grant(messages=frozenset({"send"})))
    granted.client.send("now", acknowledge=True, timeout=TIMEOUT_S)
    assert granted.received == ["now"]


def test_a_file_of_a_key_without_the_grant_is_refused_at_its_announcement(world: World, tmp_path: Path) -> None:
    granted = Granted(world, Grant(messages=frozenset({"send"})))
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    try:
        granted.client.send_file(path, timeout=TIMEOUT_S)
    except RefusedError as refusal:  # it arrived before the whole file was sent
        granted.reported.append(refusal)
    wait_for(lambda: granted.reported)
    assert "the peer refused the transfer: your key may not send files" in str(granted.reported[0])
    granted.change(Grant(sends_files=True))
    granted.client.send_file(path, timeout=TIMEOUT_S)
    wait_for(lambda: [type(one).__name__ for one in granted.received] == ["ReceivedFile"])


def test_a_key_without_grants_may_open_bulk_links(world: World) -> None:
    """The messages on a bulk link need grants of their own."""
    granted = Granted(world, Grant())
    granted.client.bulk_link(TIMEOUT_S).close()


def test_a_server_may_send_messages_to_a_key_without_grants(world: World) -> None:
    granted = Granted(world, Grant())
    received: list[object] = []
    granted.client.on_message(object, received.append)
    [connection] = granted.server.connections
    connection.send("from the server", acknowledge=True, timeout=TIMEOUT_S)
    assert received == ["from the server"]


def test_a_removed_key_ends_its_connection_with_the_reason_and_cannot_connect_again(world: World) -> None:
    granted = Granted(world, EVERYTHING)
    connection = granted.client.connection
    granted.change(None)
    wait_for(lambda: connection.closed)
    with pytest.raises(RefusedError, match="does not know your key") as refused:
        granted.client.send("more", timeout=TIMEOUT_S)
    assert refused.value.reason == "key"
    with pytest.raises(RefusedError, match="does not know your key"):
        granted.client.connect(TIMEOUT_S)
    wait_for(lambda: granted.server.statistics["admitted"] == 0)
    granted.change(EVERYTHING)
    granted.client.connect(TIMEOUT_S)


def test_a_key_that_expires_while_it_is_connected_ends_its_connection(world: World) -> None:
    granted = Granted(world, Grant(expires=4e9))
    granted.server.endpoint.apply_grants()
    connection = granted.client.connection
    assert connection.connected
    granted.change(Grant(expires=1.0))
    wait_for(lambda: connection.closed)


@pytest.mark.parametrize(("grant", "reason"), [(Grant(tags=(("desk-*",),)), "tag")])
def test_a_condition_that_a_client_does_not_meet_any_more_ends_its_connection(
    world: World, grant: Grant, reason: str
) -> None:
    granted = Granted(world, EVERYTHING)
    connection = granted.client.connection
    granted.change(grant)
    wait_for(lambda: connection.closed)
    with pytest.raises(RefusedError) as refused:
        granted.client.ping(TIMEOUT_S)
    assert refused.value.reason == reason


def test_observers_are_called_for_changed_and_revoked_grants_only(world: World) -> None:
    granted = Granted(world, Grant(calls=("a.b",)))
    reasons: list[str] = []
    granted.server.facts.on(
        GrantChanged, lambda fact: reasons.append("changed" if fact.refusal is None else fact.refusal.reason)
    )
    granted.server.endpoint.apply_grants()
    assert reasons == []
    granted.change(Grant(calls=("a.b",), comment="only the comment"))
    assert reasons == []
    granted.change(Grant(calls=("a.c",)))
    assert reasons == ["changed"]
    granted.change(None)
    assert reasons == ["changed", "key"]


def test_the_watcher_applies_the_grants_even_if_the_file_is_wrong_and_reports_that_once() -> None:
    class Table:
        def __init__(self) -> None:
            self.errors: list[AeronSparkError] = [RefusedError("line 3 is wrong", remedy="Correct it.")]

        def refresh(self, *, force: bool = False) -> None:
            if self.errors:
                raise self.errors.pop()

    applied: list[int] = []
    reported: list[str] = []
    table: Any = Table()
    watcher = ClientsWatcher(
        table, lambda: applied.append(1), lambda _, error: reported.append(str(error)), EventLog(Bus())
    )
    watcher._check()
    watcher._check()
    assert len(applied) == 2
    assert reported == ["line 3 is wrong; the last good version of the file stays in use. Correct it."]


def test_filters_do_not_decide_again_on_a_connected_client(world: World) -> None:
    denied: list[str] = []
    settings = server_options(deny=(lambda one: one.tag in denied,))
    server = world.server(settings)
    client = world.client()
    denied.append("desk-7")
    server.endpoint.apply_grants()
    client.ping(TIMEOUT_S)
