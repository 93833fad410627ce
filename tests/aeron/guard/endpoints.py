"""Subscriptions and publications of a test, closed with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jpype

from aeron_spark.aeron.guard import GuardRules, guarded
from aeron_spark.waiting import Deadline, wait_for
from tests.aeron.guard.drivers import TIMEOUT_S, Driver, free_port
from tests.aeron.guard.frames import Stranger


class Listening:
    """A subscription and the messages it has got; ``port`` is 0 where it listens on none of its own."""

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
        """Return all messages so far, what is there now included."""
        while self.subscription.poll(self._assembler, 64) > 0:
            pass
        return self.messages

    def wait_for_messages(self, count: int) -> list[bytes]:
        """Return the messages as soon as there are so many."""
        wait_for(lambda: len(self.poll()) >= count, TIMEOUT_S, f"{count} messages")
        return self.messages

    def image(self, session: int) -> Any:
        """Return the image of this session, or None."""
        return self.subscription.imageBySessionId(session)

    def wait_for_image(self, session: int) -> Any:
        """Return the image of this session."""
        return wait_for(lambda: self.image(session), TIMEOUT_S, f"image {session}")


def insist(stranger: Stranger, frame: bytes, seen: Callable[[], object], what: str, *, after: bytes = b"") -> None:
    """Send a frame until it has had its effect: by UDP one may be lost. ``after`` is sent before it each time."""
    deadline = Deadline(TIMEOUT_S, what)
    sent = 0.0
    while not seen():
        if time.monotonic() - sent > 0.2:
            stranger.send(*filter(None, (after, frame)))
            sent = time.monotonic()
        deadline.idle()


@contextmanager
def listening(driver: Driver, stream: int, rules: GuardRules | None) -> Iterator[Listening]:
    """Subscribe on a free port, guarded where there are rules; wait for the driver to give the memory back."""
    port = free_port()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    before = driver.images()
    with listening_on(driver, channel if rules is None else guarded(channel, rules), stream, port) as opened:
        yield opened
    wait_for(lambda: driver.images() <= before, TIMEOUT_S, "the images' memory to be free")


@contextmanager
def listening_on(driver: Driver, channel: str, stream: int, port: int = 0) -> Iterator[Listening]:
    """Subscribe."""
    opened = Listening(driver, channel, stream, port)
    try:
        yield opened
    finally:
        opened.subscription.close()


@contextmanager
def publishing(driver: Driver, channel: str, stream: int) -> Iterator[Any]:
    """Publish, exclusively."""
    publication = driver.client.exclusive_publication(channel, stream)
    try:
        yield publication
    finally:
        publication.close()


def connected(publication: Any) -> Any:
    """Return the publication once somebody listens."""
    wait_for(lambda: bool(publication.isConnected()), TIMEOUT_S, "the publication to be connected")
    return publication
