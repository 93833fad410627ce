"""How long an agent waits: hardly while something is under way, and for long while nothing is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from aeron_spark.connection.loop import IDLE_AFTER_S, IDLE_WAIT_S, WAIT_S, EventLoop
from aeron_spark.transport.api import TransportEvent
from aeron_spark.transport.memory import MemoryInbox, MemoryNetwork
from aeron_spark.waiting import wait_for

PATIENCE = 20.0


class Noting(MemoryInbox):
    """Notes for how long it is asked to wait."""

    def __init__(self, network: MemoryNetwork) -> None:
        super().__init__(network)
        self.asked: list[float] = []

    def poll(self, timeout: float) -> list[TransportEvent]:
        self.asked.append(timeout)
        return super().poll(timeout)


class Idler:
    """An agent with nothing to do; ``busy`` is something that is under way."""

    def __init__(self) -> None:
        self.busy = threading.Event()
        self.inbox = Noting(MemoryNetwork())
        self.ticks = 0
        self.agent = EventLoop(
            "idler", lambda: self.inbox, lambda event, now: None, lambda now: False, self._tick,
            lambda: not self.busy.is_set(),
        )  # fmt: skip
        self.agent.start()

    def _tick(self, now: float) -> None:
        self.ticks += 1


@pytest.fixture
def idler() -> Iterator[Idler]:
    one = Idler()
    yield one
    assert one.agent.stop()
    one.inbox.close()
    assert one.agent.failed is None


def longest(idler: Idler) -> float:
    return max(idler.inbox.asked, default=0.0)


def test_an_agent_with_nothing_under_way_waits_for_long_and_still_ticks(idler: Idler) -> None:
    wait_for(lambda: longest(idler) == IDLE_WAIT_S, PATIENCE, "the agent to be calm")
    before = idler.ticks
    wait_for(lambda: idler.ticks >= before + 2, PATIENCE, "two ticks of a calm agent")


def test_while_something_is_under_way_it_looks_often(idler: Idler) -> None:
    idler.busy.set()
    idler.inbox.wake()
    seen = len(idler.inbox.asked)
    wait_for(lambda: len(idler.inbox.asked) > seen + 2 * IDLE_AFTER_S / WAIT_S, PATIENCE, "many polls")
    assert max(idler.inbox.asked[seen + 1 :]) == WAIT_S
    idler.busy.clear()
    wait_for(lambda: idler.inbox.asked[-1] == IDLE_WAIT_S, PATIENCE, "the agent to be calm")


def test_a_calm_agent_stops_at_once(idler: Idler) -> None:
    wait_for(lambda: longest(idler) == IDLE_WAIT_S, PATIENCE, "the agent to be calm")
    begun = time.monotonic()
    assert idler.agent.stop(PATIENCE)
    assert time.monotonic() - begun < PATIENCE
