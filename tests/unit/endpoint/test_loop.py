"""The waits of an event loop: short while it is busy, long while it is idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from aeron_spark.endpoint.loop import BUSY_WAIT_S, IDLE_AFTER_S, IDLE_WAIT_S, WAIT_S, Loop
from aeron_spark.transport.api import ImageUnavailable, TransportEvent
from aeron_spark.waiting import wait_for
from tests.memory_transport import MemoryInbox, MemoryNetwork

TIMEOUT_S = 20.0


class RecordingInbox(MemoryInbox):
    """Records the timeouts of its polls."""

    def __init__(self, network: MemoryNetwork) -> None:
        super().__init__(network)
        self.timeouts: list[float] = []
        self.next_events: list[TransportEvent] = []

    def poll(self, timeout: float) -> list[TransportEvent]:
        self.timeouts.append(timeout)
        events, self.next_events = self.next_events, []
        return events or super().poll(timeout)


class LoopWithoutWork:
    """An event loop without work; while ``busy`` is set, it is not idle."""

    def __init__(self) -> None:
        self.busy = threading.Event()
        self.inbox = RecordingInbox(MemoryNetwork())
        self.ticks = 0
        self.loop = Loop("idle")
        self.loop.endpoint = self
        self.loop.start()

    def handle_event(self, event: TransportEvent, now: float) -> None:
        pass

    def work(self, now: float) -> bool:
        return False

    def tick(self, now: float) -> None:
        self.ticks += 1

    def is_idle(self, now: float) -> bool:
        return not self.busy.is_set()


@pytest.fixture
def looping() -> Iterator[LoopWithoutWork]:
    looping = LoopWithoutWork()
    yield looping
    assert looping.loop.stop()
    looping.inbox.close()
    assert looping.loop.failed is None


def longest_timeout(looping: LoopWithoutWork) -> float:
    return max(looping.inbox.timeouts, default=0.0)


def test_an_idle_event_loop_waits_long_and_still_ticks(looping: LoopWithoutWork) -> None:
    wait_for(lambda: longest_timeout(looping) == IDLE_WAIT_S, TIMEOUT_S, "the event loop to be idle")
    before = looping.ticks
    wait_for(lambda: looping.ticks >= before + 2, TIMEOUT_S, "two ticks of an idle event loop")


def test_a_poll_after_an_event_waits_as_long_as_usual(looping: LoopWithoutWork) -> None:
    """The inbox ends the wait itself at the next event; further short polls cost processor time."""
    wait_for(lambda: longest_timeout(looping) == IDLE_WAIT_S, TIMEOUT_S, "the event loop to be idle")
    looping.inbox.timeouts.clear()
    looping.inbox.next_events = [ImageUnavailable(1, 1)]
    looping.inbox.wake()
    wait_for(lambda: WAIT_S in looping.inbox.timeouts, TIMEOUT_S, "a poll after the event")
    assert BUSY_WAIT_S not in looping.inbox.timeouts


def test_a_busy_event_loop_polls_often(looping: LoopWithoutWork) -> None:
    looping.busy.set()
    looping.inbox.wake()
    polls = len(looping.inbox.timeouts)
    wait_for(lambda: len(looping.inbox.timeouts) > polls + 2 * IDLE_AFTER_S / WAIT_S, TIMEOUT_S, "many polls")
    assert max(looping.inbox.timeouts[polls + 1 :]) == WAIT_S
    looping.busy.clear()
    wait_for(lambda: looping.inbox.timeouts[-1] == IDLE_WAIT_S, TIMEOUT_S, "the event loop to be idle")


def test_an_idle_event_loop_stops_at_once(looping: LoopWithoutWork) -> None:
    wait_for(lambda: longest_timeout(looping) == IDLE_WAIT_S, TIMEOUT_S, "the event loop to be idle")
    started = time.monotonic()
    assert looping.loop.stop(TIMEOUT_S)
    assert time.monotonic() - started < TIMEOUT_S
