"""Signals interrupt the demo, but not between the start of a process and the registration of its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from demo.stopping import SIGNALS, StopSignals


@pytest.fixture
def stopping() -> Iterator[StopSignals]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    stopping = StopSignals()
    stopping.install()
    yield stopping
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts(stopping: StopSignals, number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_a_second_signal_does_not_interrupt_the_clean_up(stopping: StopSignals) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_is_deferred_to_the_end_of_the_block(stopping: StopSignals) -> None:
    started = []

    def start() -> None:
        with stopping.deferred():
            signal.raise_signal(signal.SIGTERM)
            started.append("a process")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started


def test_a_deferred_block_without_a_signal_does_not_raise(stopping: StopSignals) -> None:
    with stopping.deferred():
        pass
