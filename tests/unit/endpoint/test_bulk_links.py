"""Bulk links of a connection."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint.bulk_links import MAX_RECEIVED_BYTES, BulkLink, BulkLinks
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.loop import Loop
from aeron_spark.errors import AeronSparkError, RemoteError, TransportError, UsageError, WaitTimeout
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.liveness import Times
from aeron_spark.transport.api import MAX_MESSAGE_BYTES, ImageUnavailable, TransportEvent
from tests.internals import core_of
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import World, server_options, wait_for


def both_ends(world: World, options: LiveOptions | None = None) -> tuple[MessageServer, Client, BulkLink, BulkLink]:
    server = world.server(options)
    client = world.client()
    bulk_link = client.bulk_link(5.0)
    (connection,) = server.connections
    return server, client, bulk_link, server._endpoint.bulk_links.of(core_of(connection), bulk_link.number)


def test_messages_arrive_in_order_in_both_directions(world: World) -> None:
    _, _, mine, theirs = both_ends(world)
    for index in range(300):
        mine.send(index.to_bytes(4, "big"), bytes(index), timeout=5.0)
        theirs.send(b"back", index.to_bytes(4, "big"), timeout=5.0)
    assert [bytes(theirs.receive(5.0) or b"") for _ in range(300)] == [
        index.to_bytes(4, "big") + bytes(index) for index in range(300)
    ]
    assert [bytes(mine.receive(5.0) or b"")[4:] for _ in range(300)] == [n.to_bytes(4, "big") for n in range(300)]
    assert mine.receive(0.0) is None


def test_a_bulk_link_needs_no_second_handshake_and_has_separate_ids(world: World) -> None:
    server, client, first, _ = both_ends(world)
    second = client.bulk_link(5.0)
    assert first.number != second.number
    assert world.recorded[server].count("init") == 1
    assert server._endpoint.bulk_links.opened == 2
    assert server.statistics["session_ids"] == 2 * 3
    first.close()
    second.close()
    wait_for(lambda: server.statistics["session_ids"] == 2, "the ids of both")
    wait_for(lambda: len(server._endpoint.bulk_links) == len(client._endpoint.bulk_links) == 0, "both ends of both")


def test_a_bulk_link_that_is_to_close_later_closes_at_both_ends(world: World) -> None:
    _, _, mine, theirs = both_ends(world)
    mine.close_after(0.05)
    wait_for(lambda: mine.closed and theirs.closed, "both ends to close")
    assert not mine.keep_open()


def test_a_bulk_link_that_is_kept_open_does_not_close(world: World) -> None:
    _, client, mine, theirs = both_ends(world)
    mine.close_after(0.2)
    assert mine.keep_open()
    other = client.bulk_link(5.0)
    other.close_after(0.3)
    wait_for(lambda: other.closed, "a bulk link that closes later than the first one would")
    assert not mine.closed
    mine.send(b"still open", timeout=5.0)
    assert theirs.receive(5.0) is not None


def test_a_bulk_link_that_the_peer_does_not_know_any_more_ends_with_the_reason(world: World) -> None:
    server, _, mine, _ = both_ends(world)
    inbox = server._endpoint.inbox
    (image,) = [one for one in world.network.images.values() if one.publication is mine.link.pair.publication]
    inbox.reject(image.id, "aeron-spark/1 FAILED unknown-session")
    wait_for(lambda: mine.closed, "its end")
    with pytest.raises(TransportError, match=r"left bulk link .* unknown-session"):
        mine.check()


class Ends:
    """Stands for the publication and the subscription of a bulk link."""

    token = 1


@pytest.mark.parametrize("end", ["is_open_sent", "closed"])
def test_the_event_loop_works_on_a_bulk_link_until_it_has_opened_or_ended(end: str) -> None:
    connection = SimpleNamespace(traffic=SimpleNamespace(add=lambda link: None))
    bulk_link: Any = SimpleNamespace(
        link=Ends(), connection=connection, number=1, is_open_sent=False, closed=False, work_opening=lambda now: True
    )
    bulk_links = BulkLinks(Loop("test"))
    bulk_links.add(bulk_link)
    assert [bulk_links.work(now) for now in (0.0, 1.0)] == [True, True]
    setattr(bulk_link, end, True)
    bulk_link.work_opening = None  # it is not called any more
    assert not bulk_links.work(2.0)
    assert not bulk_links._opening


def test_the_event_loop_repeats_the_offer_of_open_but_waits_for_events_before() -> None:
    """Regression: it turned 5,000 times a second for each bulk link that connected, and 100 took all processors."""
    offers = iter([False, True])

    def send_open(_received: int, _now: float) -> bool:
        link.has_offered_open = True
        return next(offers)

    link: Any = SimpleNamespace(
        connected=False, has_offered_open=False, pair=SimpleNamespace(publication=SimpleNamespace(failure="")),
        send_open=send_open, retry=lambda now: next(offers),
    )  # fmt: skip
    nothing: Any = None  # it is not used
    bulk_link = BulkLink(BulkLinks(Loop("test")), nothing, link, 1, "bulk link 1", begins=True)
    assert not bulk_link.work_opening(0.0)
    link.connected = True
    assert bulk_link.work_opening(1.0), "Aeron had no room for OPEN"
    assert not bulk_link.work_opening(2.0)
    assert bulk_link.is_open_sent


def test_a_sender_does_not_offer_open_that_the_event_loop_offers() -> None:
    """Regression: Aeron had taken OPEN, the event loop had not noted it, and a sender offered OPEN a second time."""
    offers: list[bytes] = []
    senders: list[threading.Thread] = []

    def offer(frame: memoryview, timeout_s: float) -> None:
        offers.append(bytes(frame))
        if not senders:  # the peer has OPEN, and requests data
            senders.append(threading.Thread(target=lambda: bulk_link.send(b"data", timeout=10.0)))
            senders[0].start()
            senders[0].join(0.5)  # long enough for a sender that is not blocked

    publication = SimpleNamespace(connected=True, failure="", max_message=MAX_MESSAGE_BYTES, offer=offer)
    pair: Any = SimpleNamespace(publication=publication, token=1)
    ids = itertools.count()
    encryptor: Any = SimpleNamespace(encrypt=lambda first, others: memoryview(b"frame %d" % next(ids)))
    nothing: Any = None  # it is not used
    link = Link(pair, encryptor, nothing, Times(), MAX_MESSAGE_BYTES, 0.0)
    link.image = 1
    connection: Any = SimpleNamespace(traffic=SimpleNamespace())
    bulk_link = BulkLink(BulkLinks(Loop("test")), connection, link, 1, "bulk link 1", begins=True)
    bulk_link.work_opening(0.0)
    senders[0].join(10.0)
    assert offers == [b"frame 0", b"frame 1"]


@pytest.mark.threads
def test_a_bulk_link_that_ends_does_not_wait_for_its_sender(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aeron_spark.endpoint.bulk_links.ROOM_TIMEOUT_S", 3_600.0)
    _, client, mine, _ = both_ends(world)
    publication: Any = mine.link.pair.publication
    offer, errors, waits = publication.offer, [], threading.Event()

    def recorded_offer(*parts: bytes, timeout_s: float) -> object:
        if timeout_s > 1.0:
            waits.set()
        return offer(*parts, timeout_s=timeout_s)

    def send() -> None:
        try:
            mine.send(b"waits for room", timeout=3_600.0)
        except AeronSparkError as error:
            errors.append(str(error))

    publication.held = True
    monkeypatch.setattr(publication, "offer", recorded_offer)
    bulk_links = client._endpoint.bulk_links
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    assert waits.wait(10.0)
    with monkeypatch.context() as patch:
        patch.setattr(bulk_links, "schedule_removal", lambda bulk_link: None)  # it would disconnect the publication
        mine.end(TransportError("the disk is full", remedy=""))
        sender.join(10.0)
        assert errors == ["the disk is full"]
    bulk_links.schedule_removal(mine)
    wait_for(lambda: not len(bulk_links), "the client's end to be removed")


def test_an_idle_client_closes_the_bulk_links_of_its_streams(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client, first, _ = both_ends(world)
    first.close()
    monkeypatch.setattr("aeron_spark.stream_client.session.IDLE_TIMEOUT_S", 0.05)
    with client._stream_session().bulk_link():
        assert len(client._endpoint.bulk_links) >= 1
    wait_for(
        lambda: len(server._endpoint.bulk_links) == len(client._endpoint.bulk_links) == 0, "the idle link to close"
    )
    assert client.connected


def test_a_receiver_that_takes_nothing_makes_the_sender_wait(world: World) -> None:
    _, _, mine, theirs = both_ends(world)
    message = bytes(mine.room)
    sent = 0

    def fill() -> None:
        nonlocal sent
        while sent < 8 * MAX_RECEIVED_BYTES:
            mine.send(message, timeout=0.3)
            sent += len(message)

    with pytest.raises(WaitTimeout, match=r"did not take a frame within 0\.3 s"):
        fill()
    assert MAX_RECEIVED_BYTES <= sent < 4 * MAX_RECEIVED_BYTES
    taken = 0
    while taken < sent:
        message_taken = theirs.receive(5.0)
        assert message_taken is not None
        taken += len(message_taken)
    mine.send(b"again", timeout=5.0)
    # the one that timed out was sealed, and goes out before any other
    assert [len(theirs.receive(5.0) or b"") for _ in range(2)] == [len(message), len(b"again")]


@pytest.mark.threads
def test_a_reader_that_catches_up_during_a_pause_is_resumed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop decides to pause; before it pauses, the reader takes all messages."""
    server, _, mine, theirs = both_ends(world)
    calls: list[str] = []
    pause, resume = server._endpoint.bulk_links.pause, server._endpoint.bulk_links.resume
    readers: list[threading.Thread] = []

    def slow_pause(token: int) -> None:
        readers.append(threading.Thread(target=take_all))
        readers[0].start()
        readers[0].join(0.5)  # long enough for a reader that is not blocked
        pause(token)
        calls.append("pause")

    def recorded_resume(token: int) -> None:
        resume(token)
        calls.append("resume")

    def take_all() -> None:
        while theirs.receive(0.0) is not None:
            pass

    monkeypatch.setattr(server._endpoint.bulk_links, "pause", slow_pause)
    monkeypatch.setattr(server._endpoint.bulk_links, "resume", recorded_resume)
    for _ in range(MAX_RECEIVED_BYTES // mine.room + 2):
        mine.send(bytes(mine.room), timeout=5.0)
    wait_for(lambda: len(calls) == 2, "the pause and the resume")
    readers[0].join()
    assert calls == ["pause", "resume"]
    mine.send(b"more", timeout=5.0)
    wait_for(lambda: bytes(theirs.receive(0.1) or b"") == b"more", "the later message")


def test_close_ends_the_peers_end_after_the_sent_messages(world: World) -> None:
    _, client, mine, theirs = both_ends(world)
    mine.send(b"last words", timeout=5.0)
    mine.close()
    assert theirs.receive(5.0) == b"last words"
    with pytest.raises(UsageError, match="the peer closed bulk link"):
        theirs.receive(5.0)
    with pytest.raises(UsageError, match="is closed"):
        mine.send(b"more", timeout=1.0)
    client.send("the connection continues", acknowledge=False)
    assert client.connected


@pytest.mark.threads
def test_a_closed_bulk_link_names_its_own_close_although_the_peer_has_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the peer left while close() ran, and the next send() raised TransportError, "the peer has left"."""
    _, _, mine, _ = both_ends(world)
    has_left = threading.Event()
    on_event, send = mine.on_event, mine.link.send

    def recorded(event: TransportEvent, now: float) -> None:
        on_event(event, now)
        if isinstance(event, ImageUnavailable):
            has_left.set()

    def slow_send(*arguments: Any) -> bool:
        is_taken = send(*arguments)
        assert has_left.wait(5.0)
        return is_taken

    monkeypatch.setattr(mine, "on_event", recorded)
    monkeypatch.setattr(mine.link, "send", slow_send)
    mine.close()
    assert has_left.is_set()
    with pytest.raises(UsageError, match="is closed"):
        mine.send(b"more", timeout=1.0)


@pytest.mark.threads
def test_a_bulk_link_ends_with_its_connection(world: World) -> None:
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
    wait_for(lambda: len(server._endpoint.bulk_links) == 0, "the server's end")


def test_a_forged_frame_ends_a_bulk_link_and_is_not_delivered(world: World) -> None:
    _, _, mine, theirs = both_ends(world)
    world.network.change = lambda _, message: [message[:-1] + bytes([message[-1] ^ 1])]
    mine.send(b"original", timeout=5.0)
    wait_for(lambda: theirs.closed, "the bulk link to end")
    world.network.change = None
    with pytest.raises(AeronSparkError, match="was rejected"):
        theirs.receive(5.0)


def test_the_server_refuses_more_bulk_links_than_it_allows(world: World) -> None:
    live = LiveOptions(server_options(max_bulk_links=2))
    server, client, first, _ = both_ends(world, live)
    client.bulk_link(5.0)
    with pytest.raises(RemoteError, match="has 2 bulk links, and the server allows no more") as refused:
        client.bulk_link(5.0)
    assert (refused.value.reason, refused.value.retriable) == ("full", True)
    first.close()
    wait_for(lambda: len(server._endpoint.bulk_links) == 1, "the first one to end")
    client.bulk_link(5.0).close()
    live.replace(server_options(max_bulk_links=1))
    wait_for(lambda: len(server._endpoint.bulk_links) == 1, "the second one to end")
    with pytest.raises(RemoteError, match="has 1 bulk links, and the server allows no more"):
        client.bulk_link(5.0)


def test_a_lost_driver_ends_all_bulk_links(world: World) -> None:
    server, _, mine, theirs = both_ends(world)
    world.network.lose_driver(server.endpoint.transport.inbox)  # type: ignore[arg-type]
    wait_for(lambda: theirs.closed, "the server's end")
    with pytest.raises(TransportError, match="the media driver was lost"):
        theirs.receive(1.0)
    wait_for(lambda: mine.closed, "the client's end")


def test_an_unknown_number_of_a_bulk_link_is_named(world: World) -> None:
    server, _, _, _ = both_ends(world)
    (connection,) = server.connections
    with pytest.raises(UsageError, match="has no bulk link 7"):
        server._endpoint.bulk_links.of(core_of(connection), 7)


def test_a_key_part_of_the_wrong_length_is_refused(world: World) -> None:
    _, client, _, _ = both_ends(world)
    from aeron_spark.endpoint.bulk_links import SERVICE

    with pytest.raises(Exception, match="7 random bytes for"):
        client.remote(SERVICE).open(bytes(7))
