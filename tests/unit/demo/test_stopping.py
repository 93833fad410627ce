"""Being stopped by a signal, at a moment that leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from demo.stopping import SIGNALS, Stopping


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    stopping = Stopping()
    stopping.listen()
    yield stopping
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts(stopping: Stopping, number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_a_second_signal_does_not_interrupt_the_cleaning_up(stopping: Stopping) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)


def test_what_is_held_is_finished_first(stopping: Stopping) -> None:
    started = []

    def start() -> None:
        with stopping.held():
            signal.raise_signal(signal.SIGTERM)
            started.append("something that must be ended")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started


def test_without_a_signal_holding_changes_nothing(stopping: Stopping) -> None:
    with stopping.held():
        pass
