"""An idle inbox waits without processor time, and an event ends its wait."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.transport.api import ChannelPair, Inbox, MessageArrived, SubscriptionFailed, TransportEvent
from tests.aeron.endpoint.drivers import AeronWorld, Driver
from tests.transport_contract import SETTINGS, TIMEOUT_S, Open, Reading, send, some_ids, until
from tests.waiting import suspend

MAX_WAKE_UPS = 300  # of a thread in two seconds; polling every 0.2 ms it would wake 10,000 times
WAIT_S = 2.0
QUIET_S = 0.2
STOP_S = 4.0  # shorter than the timeout of a driver's clients


@pytest.fixture
def opened(serving: Driver, dialling: Driver) -> Iterator[Open]:
    one = Open(AeronWorld(serving, dialling, "127.0.0.1"))
    until(lambda: one.open_path.publication.connected, one.client)
    drain(one.client_transport.inbox)
    yield one
    one.close()


def drain(inbox: Inbox) -> None:
    """Poll until a poll ends by its timeout: the progress of a publication ends one, too, without an event."""
    started = time.monotonic()
    while inbox.poll(QUIET_S) or time.monotonic() - started < QUIET_S:
        started = time.monotonic()


def later(work: Callable[[], object]) -> threading.Thread:
    """Do ``work`` while this thread waits."""
    thread = threading.Timer(0.3, work)
    thread.start()
    return thread


def polled(inbox: Inbox) -> list[TransportEvent]:
    """Return the events of a poll with a long timeout, which must end earlier."""
    started = time.monotonic()
    found = inbox.poll(TIMEOUT_S)
    assert time.monotonic() - started < TIMEOUT_S
    return found


def wake_ups(inbox: Inbox) -> int:
    """Poll for WAIT_S seconds without an event; return how often this thread woke up."""
    before, end = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, time.monotonic() + WAIT_S
    while time.monotonic() < end:  # the progress of a publication ends a poll, too
        assert inbox.poll(end - time.monotonic()) == []
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before


def test_an_idle_inbox_takes_no_processor_time(opened: Open) -> None:
    assert wake_ups(opened.client_transport.inbox) < MAX_WAKE_UPS


def test_an_inbox_that_waits_for_its_server_takes_no_processor_time(dialling: Driver, serving: Driver) -> None:
    """The poller of idle inboxes looks for the driver's responses, and opens the subscription again."""
    dialing = AeronWorld(serving, dialling, "127.0.0.1").client_transport()
    try:
        link = dialing.open_link(some_ids(), SETTINGS)
        until(lambda: link.publication.ready, Reading(dialing.inbox))
        assert wake_ups(dialing.inbox) < MAX_WAKE_UPS
        assert not link.publication.connected
    finally:
        dialing.close()


def test_a_subscriber_ends_the_wait_for_it(dialling: Driver, serving: Driver) -> None:
    """Each poll with a long timeout ends at one step of a path that a server accepts later."""
    world = AeronWorld(serving, dialling, "127.0.0.1")
    dialing, listening = world.client_transport(), world.server_transport()
    try:
        path = dialing.open_path()
        until(lambda: path.publication.ready, Reading(dialing.inbox))
        starting = later(lambda: listening.listen(world.address, SETTINGS))
        while not path.publication.connected:
            polled(dialing.inbox)
        starting.join()
    finally:
        dialing.close()
        listening.close()


def test_a_stopped_driver_does_not_hold_up_an_inbox_of_another_driver(dialling: Driver, serving: Driver) -> None:
    """A call to the stopped driver holds the lock of its Aeron client, and that client's poller waits for the lock."""
    idle = AeronWorld(serving, dialling, "127.0.0.1").client_transport()
    waiting = AeronWorld(dialling, serving, "127.0.0.1").client_transport()
    link = waiting.open_link(some_ids(), SETTINGS)  # the poller opens its subscription again, which takes the lock
    until(lambda: link.publication.ready, Reading(waiting.inbox))
    drain(idle.inbox)
    suspend(serving.process.pid)
    resume = threading.Timer(STOP_S, serving.process.send_signal, [signal.SIGCONT])  # if the idle inbox is held up
    resume.start()
    has_ended = threading.Event()
    calling = threading.Thread(target=lambda: serving.client.subscription("aeron:ipc", 77).close())

    def poll_until_the_driver_continues() -> None:
        while not has_ended.is_set():
            waiting.inbox.poll(0.2)

    polling = threading.Thread(target=poll_until_the_driver_continues)
    try:
        calling.start()
        polling.start()
        for _ in range(5):
            idle.inbox.poll(0.2)
        assert resume.is_alive()
        assert calling.is_alive()
    finally:
        resume.cancel()
        resume.join()
        serving.process.send_signal(signal.SIGCONT)
        has_ended.set()
        calling.join()
        polling.join()
        idle.close()
        waiting.close()


def test_a_refused_subscription_ends_the_wait(dialling: Driver, serving: Driver) -> None:
    inbox = AeronWorld(serving, dialling, "127.0.0.1").client_transport().inbox
    try:
        adding = later(lambda: inbox.add("aeron:udp?endpoint=256.0.0.1:40123", 9, 1000, drop_fragmented=False))
        assert any(isinstance(event, SubscriptionFailed) for event in polled(inbox) or polled(inbox))
        adding.join()
    finally:
        inbox.close()


def test_a_message_ends_the_wait(opened: Open) -> None:
    sending = later(lambda: send(opened.at_server.publication, b"good morning"))
    [event] = polled(opened.client_transport.inbox)
    assert isinstance(event, MessageArrived)
    assert (event.token, bytes(event.payload)) == (opened.at_client.token, b"good morning")
    sending.join()


def test_wake_ends_the_wait(opened: Open) -> None:
    calling = later(opened.client_transport.inbox.wake)
    assert polled(opened.client_transport.inbox) == []
    calling.join()


def test_a_new_subscription_ends_the_wait_and_receives(opened: Open) -> None:
    """Images of subscriptions that were added during a wait are polled, too."""
    ids, pairs = some_ids(), list[ChannelPair]()

    def open_another() -> None:
        pairs.append(opened.server_transport.open_link(opened.image.image, ids, SETTINGS))
        until(lambda: opened.server_transport.inbox.ready(pairs[0].token) and pairs[0].publication.ready, opened.server)
        pairs.append(opened.client_transport.open_link(ids, SETTINGS))

    opening = later(open_another)
    end = time.monotonic() + TIMEOUT_S
    while not (len(pairs) == 2 and pairs[0].publication.connected) and time.monotonic() < end:
        opened.client.poll(WAIT_S)
    opening.join()
    send(pairs[0].publication, b"hello", reading=(opened.client,))  # the driver may have no room for it yet
    until(lambda: opened.client.of(pairs[1].token) == [b"hello"], opened.client)


def test_resuming_a_paused_image_ends_the_wait(opened: Open) -> None:
    inbox = opened.client_transport.inbox
    inbox.pause(opened.at_client.token)
    send(opened.at_server.publication, b"later")
    assert inbox.poll(0.5) == []
    resuming = later(lambda: inbox.resume(opened.at_client.token))
    [event] = polled(inbox)
    assert isinstance(event, MessageArrived)
    resuming.join()


def test_one_waking_thread_serves_many_inboxes(serving: Driver, dialling: Driver) -> None:
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
        time.sleep(0.2)  # by now most of them wait; the others get the call, too
        for dialing in dialings:
            dialing.inbox.wake()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert polls == [[]] * len(polls)
    finally:
        for dialing in dialings:
            dialing.close()
