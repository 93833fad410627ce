"""BulkLinks: further duologues of a connection, without a handshake of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from aeron_spark.client.client import Client
from aeron_spark.connection.bulk_links import WAITING_BYTES, BulkLink, BulkLinks
from aeron_spark.errors import AeronSparkError, RemoteError, TransportError, UsageError, WaitTimeout
from aeron_spark.server.server import TransportServer
from aeron_spark.server.settings import ServerSettings
from tests.unit.connection.ends import FREE, LINK, World, wait_for


def both_ends(world: World, **settings: Any) -> tuple[TransportServer, Client, BulkLink, BulkLink]:
    server = world.server(ServerSettings(link=LINK, limits=FREE, **settings))
    client = world.client()
    bulk_link = client.bulk_link(5.0)
    (connection,) = server.connections
    return server, client, bulk_link, server._runtime.bulk_links.of(connection, bulk_link.number)


def test_messages_go_both_ways_in_order(world: World) -> None:
    _, _, mine, theirs = both_ends(world)
    for index in range(300):
        mine.send(index.to_bytes(4, "big"), bytes(index), timeout=5.0)
        theirs.send(b"back", index.to_bytes(4, "big"), timeout=5.0)
    assert [bytes(theirs.receive(5.0) or b"") for _ in range(300)] == [
        index.to_bytes(4, "big") + bytes(index) for index in range(300)
    ]
    assert [bytes(mine.receive(5.0) or b"")[4:] for _ in range(300)] == [n.to_bytes(4, "big") for n in range(300)]
    assert mine.receive(0.0) is None


def test_it_needs_no_second_handshake_and_has_ids_of_its_own(world: World) -> None:
    server, client, first, _ = both_ends(world)
    second = client.bulk_link(5.0)
    assert first.number != second.number
    assert world.heard[server].count("init") == 1
    assert server._runtime.bulk_links.opened == 2
    assert server.statistics["session_ids"] == 2 * 3
    first.close()
    second.close()
    wait_for(lambda: server.statistics["session_ids"] == 2, "the ids of both")
    wait_for(lambda: len(server._runtime.bulk_links) == len(client._runtime.bulk_links) == 0, "both ends of both")


def test_what_is_not_taken_holds_the_sender_up(world: World) -> None:
    _, _, mine, theirs = both_ends(world)
    message = bytes(mine.room)
    sent = 0

    def fill() -> None:
        nonlocal sent
        while sent < 8 * WAITING_BYTES:
            mine.send(message, timeout=0.3)
            sent += len(message)

    with pytest.raises(WaitTimeout, match="took no more in time"):
        fill()
    assert WAITING_BYTES <= sent < 4 * WAITING_BYTES
    taken = 0
    while taken < sent:
        came = theirs.receive(5.0)
        assert came is not None
        taken += len(came)
    mine.send(b"again", timeout=5.0)
    # the one that timed out was sealed, and goes out before any other
    assert [len(theirs.receive(5.0) or b"") for _ in range(2)] == [len(message), len(b"again")]


def test_a_reader_that_catches_up_while_it_is_being_held_up_is_not_held_up_for_good(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent finds too much waiting, and before it says so the reader has taken all of it."""
    server, _, mine, theirs = both_ends(world)
    said: list[str] = []
    pause, resume = server._runtime.bulk_links.pause, server._runtime.bulk_links.resume
    readers: list[threading.Thread] = []

    def slow_pause(token: int) -> None:
        readers.append(threading.Thread(target=take_all))
        readers[0].start()
        readers[0].join(0.5)  # enough for a reader that nothing keeps from it
        pause(token)
        said.append("pause")

    def noted_resume(token: int) -> None:
        resume(token)
        said.append("resume")

    def take_all() -> None:
        while theirs.receive(0.0) is not None:
            pass

    monkeypatch.setattr(server._runtime.bulk_links, "pause", slow_pause)
    monkeypatch.setattr(server._runtime.bulk_links, "resume", noted_resume)
    for _ in range(WAITING_BYTES // mine.room + 2):
        mine.send(bytes(mine.room), timeout=5.0)
    wait_for(lambda: len(said) == 2, "it to be held up and let go")
    readers[0].join()
    assert said == ["pause", "resume"]
    mine.send(b"more", timeout=5.0)
    wait_for(lambda: bytes(theirs.receive(0.1) or b"") == b"more", "what was sent later")


def test_closing_one_ends_it_at_the_other_end_after_what_was_sent(world: World) -> None:
    _, client, mine, theirs = both_ends(world)
    mine.send(b"last words", timeout=5.0)
    mine.close()
    assert theirs.receive(5.0) == b"last words"
    with pytest.raises(UsageError, match="the other side closed bulk link"):
        theirs.receive(5.0)
    with pytest.raises(UsageError, match="is closed"):
        mine.send(b"more", timeout=1.0)
    client.send("the connection goes on", acknowledge=False)
    assert client.connected


def test_it_ends_with_its_connection(world: World) -> None:
    server, client, mine, theirs = both_ends(world)
    waiting: list[BaseException] = []

    def wait() -> None:
        try:
            theirs.receive(20.0)
        except AeronSparkError as error:
            waiting.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    client.close()
    thread.join(10.0)
    assert waiting
    assert mine.closed
    wait_for(lambda: len(server._runtime.bulk_links) == 0, "the server's end")


def test_a_forged_frame_ends_it_and_nothing_of_it_is_delivered(world: World) -> None:
    _, _, mine, theirs = both_ends(world)
    world.network.change = lambda _, message: [message[:-1] + bytes([message[-1] ^ 1])]
    mine.send(b"original", timeout=5.0)
    wait_for(lambda: theirs.closed, "the branch to end")
    world.network.change = None
    with pytest.raises(AeronSparkError, match="was rejected"):
        theirs.receive(5.0)


def test_nobody_has_more_than_the_server_allows(world: World) -> None:
    server, client, first, _ = both_ends(world, max_bulk_links=2)
    client.bulk_link(5.0)
    with pytest.raises(RemoteError, match="has 2 bulk links, and the server allows no more") as refused:
        client.bulk_link(5.0)
    assert (refused.value.reason, refused.value.retriable) == ("full", True)
    first.close()
    wait_for(lambda: len(server._runtime.bulk_links) == 1, "the place of the first")
    client.bulk_link(5.0).close()


def test_a_lost_driver_ends_all(world: World) -> None:
    server, _, mine, theirs = both_ends(world)
    world.network.lose_driver(server._runner.transport.inbox)  # type: ignore[arg-type]
    wait_for(lambda: theirs.closed, "the server's end")
    with pytest.raises(TransportError, match="driver is gone"):
        theirs.receive(1.0)
    wait_for(lambda: mine.closed, "the client's end")


def test_a_number_that_is_no_branch_is_said(world: World) -> None:
    server, _, _, _ = both_ends(world)
    (connection,) = server.connections
    with pytest.raises(UsageError, match="has no branch 7"):
        server._runtime.bulk_links.of(connection, 7)


def test_a_client_sends_nothing_useful_as_its_part(world: World) -> None:
    _, client, _, _ = both_ends(world)
    from aeron_spark.connection.bulk_links import SERVICE

    with pytest.raises(Exception, match="7 random bytes for"):
        client.remote(SERVICE).open(bytes(7))


class LateOwner:
    """An owner of bulk links that runs its jobs when the test does."""

    def __init__(self, client: Client) -> None:
        self.inbox = client._runtime.inbox
        self.jobs: list[Callable[[], None]] = []
        self.run_on_loop = self.jobs.append


def test_the_removal_of_an_old_bulk_link_leaves_a_new_one_with_the_same_token(world: World) -> None:
    _, client, used, _ = both_ends(world)
    owner = LateOwner(client)
    bulk_links = BulkLinks(owner)
    # a new inbox counts its tokens from 1 again
    old, new = (
        BulkLink(bulk_links, used.connection, used.link, used.number, label, begins=True)
        for label in ("the old", "the new")
    )
    bulk_links.add(old)
    bulk_links.fail_all(TransportError("the media driver is gone"))
    bulk_links.add(new)
    for job in owner.jobs:
        job()
    assert bulk_links.of(new.connection, new.number) is new
