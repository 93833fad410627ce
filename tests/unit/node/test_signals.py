"""A stop request ends the wait, at whichever instruction of the wait the signal arrives."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from aeron_spark.node.keeper import KeeperStop

TIMEOUT_S = 60.0
SHORT_WAIT_S = 0.001


def ends(wait: Callable[[], object], handler: Callable[[], object], line: int) -> bool | None:
    """Run ``handler`` before the given line of ``wait``, as a signal does.

    Returns whether ``wait`` ended, or None if it has fewer lines.
    """
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == line:
                sys.settrace(None)
                handler()
        return trace

    def run() -> None:
        sys.settrace(trace)
        wait()
        sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if thread.is_alive():
        return False
    return True if lines >= line else None


def test_a_request_before_any_line_of_the_wait_is_noticed() -> None:
    """A ``threading.Event`` would deadlock: the waiting thread has locked its lock when the handler sets it."""
    for line in range(1, 100):
        request = KeeperStop()
        ended = ends(lambda request=request: request.wait(SHORT_WAIT_S), lambda request=request: request.make(15), line)
        noticed = request.wait(0.0)
        request.close()
        if ended is None:
            assert line > 2
            return
        assert ended
        assert noticed
    pytest.fail("the wait has more than 100 lines")


def test_a_request_ends_the_wait_before_its_timeout() -> None:
    request = KeeperStop()
    thread = threading.Thread(target=request.wait, args=(3600.0,))
    thread.start()
    request.make(signal.SIGTERM)
    request.make(signal.SIGINT)
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert request.number == signal.SIGTERM
    assert request.wait(3600.0)
    request.close()


def test_a_wait_without_a_request_times_out_and_a_full_pipe_does_not_lose_the_request() -> None:
    request = KeeperStop()
    assert not request.wait(SHORT_WAIT_S)
    assert request.number is None
    for _ in range(100_000):
        request.make(signal.SIGTERM)
    assert request.wait(3600.0)
    read, write = request._read, request._write
    request.close()
    for descriptor in (read, write):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
