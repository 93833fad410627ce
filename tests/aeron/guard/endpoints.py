"""Subscriptions and publications that are closed at the end of a block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jpype

from aeron_spark.aeron.guard import GuardRules, guarded
from aeron_spark.waiting import Deadline, wait_for
from tests.aeron.guard.drivers import TIMEOUT_S, Driver
from tests.aeron.guard.frames import FrameSender
from tests.ports import free_port


class CollectingSubscription:
    """A subscription and its received messages; ``port`` is 0 if it has no separate port."""

    def __init__(self, driver: Driver, channel: str, stream: int, port: int = 0) -> None:
        self.driver = driver
        self.port = port
        self.stream = stream
        self.channel = channel
        self.subscription = driver.client.subscription(channel, stream)
        self.messages: list[bytes] = []
        handler = jpype.JProxy("io.aeron.logbuffer.FragmentHandler", dict={"onFragment": self._take})
        self._assembler = jpype.JClass("io.aeron.FragmentAssembler")(handler)

    def _take(self, buffer: Any, offset: int, length: int, header: Any) -> None:
        value = jpype.JArray(jpype.JByte)(int(length))
        buffer.getBytes(offset, value)
        self.messages.append(bytes(b & 0xFF for b in value))

    def poll(self) -> list[bytes]:
        """Poll the subscription until it is empty; return all messages so far."""
        while self.subscription.poll(self._assembler, 64) > 0:
            pass
        return self.messages

    def wait_for_messages(self, count: int) -> list[bytes]:
        wait_for(lambda: len(self.poll()) >= count, TIMEOUT_S, f"{count} messages")
        return self.messages

    def image(self, session: int) -> Any:
        """Return the image of an Aeron session id, or None."""
        return self.subscription.imageBySessionId(session)

    def wait_for_image(self, session: int) -> Any:
        """Wait for the image of an Aeron session id, and return it."""
        return wait_for(lambda: self.image(session), TIMEOUT_S, f"image {session}")


def send_until(
    sender: FrameSender, frame: bytes, has_effect: Callable[[], object], what: str, *, after: bytes = b""
) -> None:
    """Send a frame until it has its effect, because UDP may lose it. ``after`` is sent before the frame each time."""
    deadline = Deadline(TIMEOUT_S, what)
    sent_at = 0.0
    while not has_effect():
        if time.monotonic() - sent_at > 0.2:
            sender.send(*filter(None, (after, frame)))
            sent_at = time.monotonic()
        deadline.idle()


@contextmanager
def subscription_on_free_port(
    driver: Driver, stream: int, rules: GuardRules | None
) -> Iterator[CollectingSubscription]:
    """Subscribe on a free port, with a guard if there are rules; then wait until the driver has freed the memory."""
    port = free_port()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    before = driver.images()
    with subscription_to(driver, channel if rules is None else guarded(channel, rules), stream, port) as opened:
        yield opened
    wait_for(lambda: driver.images() <= before, TIMEOUT_S, "the images' memory to be free")


@contextmanager
def subscription_to(driver: Driver, channel: str, stream: int, port: int = 0) -> Iterator[CollectingSubscription]:
    opened = CollectingSubscription(driver, channel, stream, port)
    try:
        yield opened
    finally:
        opened.subscription.close()


@contextmanager
def publication_to(driver: Driver, channel: str, stream: int) -> Iterator[Any]:
    """Open an exclusive publication."""
    publication = driver.client.exclusive_publication(channel, stream)
    try:
        yield publication
    finally:
        publication.close()


def await_connected(publication: Any) -> Any:
    """Wait until the publication has a subscriber, and return it."""
    wait_for(lambda: bool(publication.isConnected()), TIMEOUT_S, "the publication to be connected")
    return publication
