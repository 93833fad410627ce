"""A request to stop that comes at any moment of the wait for it ends the wait."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from aeron_spark.node.signals import StopRequest

SECONDS = 60.0
SHORTEST = 0.001


def ends(wait: Callable[[], object], handler: Callable[[], object], line: int) -> bool | None:
    """Run ``handler`` before the given line of ``wait``, as a signal does. None: ``wait`` has fewer lines.

    Returns whether ``wait`` ended.
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
    thread.join(SECONDS)
    if thread.is_alive():
        return False
    return True if lines >= line else None


def test_a_request_before_any_line_of_the_wait_is_noticed() -> None:
    """An event deadlocks here: its lock is held while the handler sets it."""
    for line in range(1, 100):
        request = StopRequest()
        ended = ends(lambda request=request: request.wait(SHORTEST), lambda request=request: request.make(15), line)
        noticed = request.wait(0.0)
        request.close()
        if ended is None:
            assert line > 2
            return
        assert ended
        assert noticed
    pytest.fail("the wait has no end")


def test_a_wait_ends_with_the_request_and_not_at_its_time() -> None:
    request = StopRequest()
    thread = threading.Thread(target=request.wait, args=(3600.0,))
    thread.start()
    request.make(signal.SIGTERM)
    request.make(signal.SIGINT)
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert request.number == signal.SIGTERM
    assert request.wait(3600.0)
    request.close()


def test_without_a_request_the_wait_takes_its_time_and_no_more_requests_than_the_pipe_takes_are_lost() -> None:
    request = StopRequest()
    assert not request.wait(SHORTEST)
    assert request.number is None
    for _ in range(100_000):
        request.make(signal.SIGTERM)
    assert request.wait(3600.0)
    read, write = request._read, request._write
    request.close()
    for descriptor in (read, write):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
