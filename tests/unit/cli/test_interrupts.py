"""A signal sets the stop request of a command."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from aeron_spark.cli.signals import catch_sigint


def test_the_signal_handler_takes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the handler of SIGINT set a threading.Event, whose lock the interrupted thread may hold."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("an object with a lock was created")

    before = signal.getsignal(signal.SIGINT)
    for name in ("Event", "Condition", "Semaphore"):
        monkeypatch.setattr(threading, name, refuse)
    with catch_sigint() as stopped:
        stopped.start_polling()
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
