"""The sender of a connection's frames, with links that a test controls."""

from __future__ import annotations

import threading
import time
from typing import Any

from aeron_spark.connection.frame_sender import FrameSender
from aeron_spark.protocol.connection_machine import ConnectionMachine
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.session import SessionLimits
from tests.ending import LONG_TIMEOUT_S, call_in_time


class Link:
    """A link with a frame that Aeron takes when the test allows it."""

    room = max_record_bytes = 1_000

    def __init__(self) -> None:
        self.is_blocked = True
        self.is_offering = threading.Event()
        self.is_allowed = threading.Event()

    def retry(self, now: float, timeout_s: float = 0.0) -> bool:
        self.is_offering.set()
        assert self.is_allowed.wait(LONG_TIMEOUT_S)
        self.is_blocked = False
        return True


def test_a_thread_that_sends_on_a_replaced_link_also_sends_the_first_frame_of_the_new_one() -> None:
    """The event loop attaches the new link and flushes, while the other thread has the lock for sending."""
    lock, old, new = threading.RLock(), Link(), Link()
    machine = ConnectionMachine(SessionLimits(), Times(), time.monotonic())
    sender = FrameSender(machine, lock, lambda: "the connection of the test", lambda: None)
    links: tuple[Any, Any] = old, new
    sender.attach(links[0], 0, time.monotonic())
    sending = threading.Thread(target=sender.flush)
    sending.start()
    assert old.is_offering.wait(LONG_TIMEOUT_S)
    new.is_allowed.set()
    sender.detach(time.monotonic())
    sender.attach(links[1], 0, time.monotonic())
    sender.flush()
    assert new.is_blocked
    old.is_allowed.set()
    call_in_time(sending.join, "the sending thread")
    assert not new.is_blocked
