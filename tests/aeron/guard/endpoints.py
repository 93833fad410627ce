"""Subscriptions and publications of a test, closed with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jpype

from aeron_spark.aeron.guard import GuardRules, guarded
from aeron_spark.transport.waiting import wait_for
from tests.aeron.guard.drivers import PATIENCE, Driver, free_port


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
        wait_for(lambda: len(self.poll()) >= count, PATIENCE, f"{count} messages")
        return self.messages

    def wait_for_image(self, session: int) -> Any:
        """Return the image of this session."""
        return wait_for(lambda: self.subscription.imageBySessionId(session), PATIENCE, f"image {session}")


@contextmanager
def listening(driver: Driver, stream: int, rules: GuardRules | None) -> Iterator[Listening]:
    """Subscribe on a free port, guarded where there are rules; wait for the driver to give the memory back."""
    port = free_port()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    before = driver.images()
    with listening_on(driver, channel if rules is None else guarded(channel, rules), stream, port) as opened:
        yield opened
    wait_for(lambda: driver.images() <= before, PATIENCE, "the images' memory to be free")


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
    wait_for(lambda: bool(publication.isConnected()), PATIENCE, "the publication to be connected")
    return publication
