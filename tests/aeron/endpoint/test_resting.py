"""An inbox with nothing to do rests: it takes no processor time, and is called when something has come."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.transport.api import ChannelPair, Inbox, MessageArrived, TransportEvent
from tests.aeron.endpoint.drivers import AeronWorld, Driver
from tests.transport_contract import SETTINGS, Open, send, some_ids, until
from tests.transport_contract import TIMEOUT_S as PATIENCE

WOKEN = 300  # times that a thread may wake in two seconds' rest; looking each 0.2 ms it would wake 10,000 times
REST = 2.0


@pytest.fixture
def opened(serving: Driver, dialling: Driver) -> Iterator[Open]:
    one = Open(AeronWorld(serving, dialling, "127.0.0.1"))
    quiet(one.client_transport.inbox)
    yield one
    one.close()


def quiet(inbox: Inbox) -> None:
    """Poll until it has had nothing for a while: the way out of the handshake is no longer awaited, and it rests."""
    while inbox.poll(0.2):
        pass


def later(work: Callable[[], object]) -> threading.Thread:
    """Do ``work`` while this thread rests."""
    thread = threading.Timer(0.3, work)
    thread.start()
    return thread


def polled(inbox: Inbox) -> list[TransportEvent]:
    """What a poll gives that would wait for very long; it must end before that."""
    begun = time.monotonic()
    found = inbox.poll(PATIENCE)
    assert time.monotonic() - begun < PATIENCE
    return found


def test_an_inbox_at_rest_takes_no_processor_time(opened: Open) -> None:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    assert opened.client_transport.inbox.poll(REST) == []
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < WOKEN


def test_a_message_ends_the_rest(opened: Open) -> None:
    sending = later(lambda: send(opened.at_server.publication, b"good morning"))
    [event] = polled(opened.client_transport.inbox)
    assert isinstance(event, MessageArrived)
    assert (event.token, bytes(event.payload)) == (opened.at_client.token, b"good morning")
    sending.join()


def test_a_call_ends_the_rest(opened: Open) -> None:
    calling = later(opened.client_transport.inbox.wake)
    assert polled(opened.client_transport.inbox) == []
    calling.join()


def test_a_new_way_in_ends_the_rest_and_hears(opened: Open) -> None:
    """Images of ways that were added while the inbox rested are polled, too."""
    ids, pairs = some_ids(), list[ChannelPair]()

    def open_another() -> None:
        pairs.append(opened.server_transport.open_link(opened.image.image, ids, SETTINGS))
        until(lambda: opened.server_transport.inbox.ready(pairs[0].token) and pairs[0].publication.ready, opened.server)
        pairs.append(opened.client_transport.open_link(ids, SETTINGS))

    opening = later(open_another)
    end = time.monotonic() + PATIENCE
    while not (len(pairs) == 2 and pairs[0].publication.connected) and time.monotonic() < end:
        opened.client.poll(REST)
    opening.join()
    send(pairs[0].publication, b"hello", reading=(opened.client,))  # the driver may have no room for it yet
    until(lambda: opened.client.of(pairs[1].token) == [b"hello"], opened.client)


def test_what_was_held_up_ends_the_rest_once_it_may_come(opened: Open) -> None:
    inbox = opened.client_transport.inbox
    inbox.pause(opened.at_client.token)
    send(opened.at_server.publication, b"later")
    assert inbox.poll(0.5) == []
    resuming = later(lambda: inbox.resume(opened.at_client.token))
    [event] = polled(inbox)
    assert isinstance(event, MessageArrived)
    resuming.join()


def test_the_lookout_serves_many_inboxes_at_once(serving: Driver, dialling: Driver) -> None:
    world = AeronWorld(serving, dialling, "127.0.0.1")
    dialings: list[AeronClientTransport] = []
    polls: list[list[TransportEvent] | None] = [None] * 20
    try:
        for _ in polls:
            dialings.append(world.client_transport())

        def rest(number: int) -> None:
            polls[number] = polled(dialings[number].inbox)

        threads = [threading.Thread(target=rest, args=(number,)) for number in range(len(polls))]
        for thread in threads:
            thread.start()
        time.sleep(0.2)  # most of them rest by now; whoever does not is called all the same
        for dialing in dialings:
            dialing.inbox.wake()
        for thread in threads:
            thread.join(PATIENCE)
        assert polls == [[]] * len(polls)
    finally:
        for dialing in dialings:
            dialing.close()
