"""How a command learns that a signal asks it to stop."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from aeron_spark.cli.signals import interruption


def test_finding_c11_the_handler_of_an_interrupt_takes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding C11: the handler of SIGINT set a threading.Event, whose lock the interrupted thread may hold."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("an object with a lock is made for a signal handler")

    before = signal.getsignal(signal.SIGINT)
    for name in ("Event", "Condition", "Semaphore"):
        monkeypatch.setattr(threading, name, refuse)
    with interruption() as stopped:
        stopped.begin()
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
