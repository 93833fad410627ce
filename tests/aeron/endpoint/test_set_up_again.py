"""A subscription that repeats its set-up request at the moment when its image becomes available."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import jpype
import pytest

from aeron_spark.aeron import client as clients
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.endpoint_transport import AeronClientTransport, AeronServerTransport
from aeron_spark.aeron.jvm import jclass
from tests.aeron.endpoint.drivers import AeronWorld, Driver
from tests.transport_contract import SETTINGS, Reading, send, some_ids, until
from tests.waiting import suspend

REPETITIONS = 12
LOCK_DELAY_S = 0.005
MAX_STOP_S = 3.0
RESPONSE_DELAY_S = 0.5  # of the driver


class LateLock:
    """The lock of an Aeron client that is acquired late to close a subscription, so that other threads go first."""

    def __init__(self) -> None:
        self._lock = jclass("java.util.concurrent.locks.ReentrantLock")()
        self._thread = jclass("java.lang.Thread")
        self._closer = threading.get_ident()  # the test's thread, which polls; the client's own thread is not slowed
        self.delays = 0

    def lock(self) -> None:
        if threading.get_ident() == self._closer and self._removes_subscription():
            self.delays += 1
            time.sleep(LOCK_DELAY_S)
        self._lock.lock()

    def _removes_subscription(self) -> bool:
        frames = self._thread.currentThread().getStackTrace()
        return any(str(frame.getMethodName()) == "removeSubscription" for frame in frames)

    def lockInterruptibly(self) -> None:
        self._lock.lockInterruptibly()

    def tryLock(self, *arguments: Any) -> bool:
        return bool(self._lock.tryLock(*arguments))

    def unlock(self) -> None:
        self._lock.unlock()

    def newCondition(self) -> Any:
        return self._lock.newCondition()


@pytest.fixture
def lock() -> LateLock:
    return LateLock()


@pytest.fixture
def dialling_late(dialling: Driver, lock: LateLock, monkeypatch: pytest.MonkeyPatch) -> Iterator[AeronClient]:
    def jclass_with_lock(name: str) -> Any:
        found = jclass(name)
        proxy = jpype.JProxy("java.util.concurrent.locks.Lock", inst=lock)
        return (lambda: found().clientLock(proxy)) if name == "io.aeron.Aeron$Context" else found

    with monkeypatch.context() as patch:
        patch.setattr(clients, "jclass", jclass_with_lock)
        client = AeronClient(str(dialling.aeron_dir))
    with closing(client):
        yield client


def test_an_image_of_a_subscription_that_is_being_replaced_is_not_reported(
    serving: Driver, dialling: Driver, dialling_late: AeronClient, lock: LateLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aeron_spark.aeron.inbox.SETUP_RETRY_NS", 1_000_000)
    place = AeronWorld(serving, dialling, "127.0.0.1").address
    with (
        closing(AeronServerTransport(serving.client)) as listening,
        closing(AeronClientTransport(dialling_late, place)) as dialing,
    ):
        server, client = Reading(listening.inbox), Reading(dialing.inbox)
        token = listening.listen(place, SETTINGS)
        dialing.open_path()
        until(lambda: server.available(token), server, client)
        for _ in range(REPETITIONS):
            available, unavailable = _opened(
                serving, server, client, listening, dialing, server.available(token)[0].image, lock
            )
            assert (available, unavailable) == (1, 0)
        assert lock.delays > 0


def test_a_driver_that_responds_slowly_is_given_time_to_create_the_image(
    serving: Driver, dialling: Driver, dialling_late: AeronClient, lock: LateLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that is opened again too early starts its set-up from the beginning: no image would ever come."""
    monkeypatch.setattr("aeron_spark.aeron.inbox.SETUP_RETRY_NS", 1_000_000)
    place = AeronWorld(serving, dialling, "127.0.0.1").address
    with closing(AeronClientTransport(dialling_late, place)) as dialing:
        client = Reading(dialing.inbox)
        suspend(dialling.process.pid)
        try:
            theirs = dialing.open_link(some_ids(), SETTINGS)
            time.sleep(RESPONSE_DELAY_S)
        finally:
            dialling.process.send_signal(signal.SIGCONT)
        until(lambda: dialing.inbox.ready(theirs.token), client)
        end = time.monotonic() + RESPONSE_DELAY_S  # the interval before the next request is four times as long
        while time.monotonic() < end:
            client.poll()
        assert lock.delays == 0


def _opened(
    serving: Driver,
    server: Reading,
    client: Reading,
    listening: AeronServerTransport,
    dialing: AeronClientTransport,
    image: int,
    lock: LateLock,
) -> tuple[int, int]:
    """Open a link whose set-up is late, receive from it, and return the counts of its image events."""
    ids = some_ids()
    mine = listening.open_link(image, ids, SETTINGS)
    until(lambda: listening.inbox.ready(mine.token) and mine.publication.ready, server)
    before = lock.delays
    suspend(serving.process.pid)
    try:
        theirs = dialing.open_link(ids, SETTINGS)
        # a driver that is stopped for 10 s is lost for its clients; on a busy machine a repetition may wait that long
        end = time.monotonic() + MAX_STOP_S
        until(lambda: lock.delays > before or time.monotonic() > end, client)
    finally:
        serving.process.send_signal(signal.SIGCONT)
    until(lambda: client.available(theirs.token), client)
    send(mine.publication, b"received", reading=(server, client))
    until(lambda: client.of(theirs.token), server, client)
    return len(client.available(theirs.token)), len(client.unavailable(theirs.token))
