"""SIGTERM ends a command that writes files as SIGINT does, so that it removes them."""

from __future__ import annotations

import signal

import pytest

from aeron_spark.cli.signals import catch_termination


def test_a_termination_interrupts_the_command_and_the_handler_before_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with catch_termination(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
