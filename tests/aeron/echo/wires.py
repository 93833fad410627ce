"""Drivers of a test's own, servers on threads of their own, and hand-made ends of both protocols."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.polled_images import BytesPublication, PolledImage, PolledSubscription
from aeron_spark.echo import channels, texts
from aeron_spark.echo.conversation import serve
from aeron_spark.echo.echo1 import Server1
from aeron_spark.echo.echo2 import Server2
from aeron_spark.echo.reports import EchoEvent
from aeron_spark.transport.addresses import HostPort
from aeron_spark.waiting import wait_for
from tests.leaks import SHARED_MEMORY

T = TypeVar("T")

PATIENCE: Final = 60.0  # seconds for what happens at once on an idle machine
LARGEST: Final = 128 << 10  # bytes of a message that a hand-made end sends or takes


@contextmanager
def own_driver(run_name: str) -> Iterator[Client]:
    """A media driver in this process, as small as one can be, and a client of it."""
    aeron_dir = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    context = jclass("io.aeron.driver.MediaDriver$Context")()
    context.aeronDirectoryName(str(aeron_dir)).dirDeleteOnShutdown(True)
    context.threadingMode(jclass("io.aeron.driver.ThreadingMode").SHARED)
    context.sharedIdleStrategy(jclass("org.agrona.concurrent.SleepingMillisIdleStrategy")(1))
    context.counterValuesBufferLength(1 << 20)
    context.timerIntervalNs(20_000_000)  # what was closed is gone sooner, and so is the test
    driver = jclass("io.aeron.driver.MediaDriver").launch(context)
    try:
        client = Client(str(aeron_dir))
        try:
            yield client
        finally:
            client.close()
    finally:
        driver.close()
        shutil.rmtree(aeron_dir, ignore_errors=True)


class Seen:
    """The events that a server or client reported."""

    def __init__(self) -> None:
        self.events: list[EchoEvent] = []

    def __call__(self, event: EchoEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def serving(server: Server1 | Server2) -> Iterator[None]:
    """Poll ``server`` on a thread; what it raises is raised at the end. It is closed there."""
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            serve(server, over.is_set)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="echo server")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
        server.close()
        if failed:
            raise failed[0]


def until(poll: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """Return the first value of ``poll()`` that is not empty."""
    return wait_for(lambda: poll() or None, seconds, what)


def say(talking: BytesPublication, *messages: bytes) -> None:
    """Send each message once it can be sent."""
    for message in messages:
        until(lambda message=message: talking.offer(message) is None, f"{message[:20]!r} to be taken")


def sender(
    client: Client, to: HostPort, *, session_id: int | None = None, source: str | None = None
) -> BytesPublication:
    """A publication that takes long messages; with ``source`` from another loopback address."""
    session = secrets.randbelow(2**31 - 1) + 1 if session_id is None else session_id
    more = f"session-id={session}|term-length=1m|sparse=true|linger=100ms"
    if source is None:
        return BytesPublication(client, f"aeron:udp?endpoint={to}|{more}", texts.STREAM_ID)
    talking = BytesPublication(client, f"aeron:udp?control={source}:0|control-mode=manual|{more}", texts.STREAM_ID)
    talking._publication.addDestination(f"aeron:udp?endpoint={to}")
    return talking


class Hand:
    """An Echo 2.0 client line by line: what it is told to send, and what comes back."""

    def __init__(self, client: Client, listen: HostPort, control_port: int, *, source: str | None = None) -> None:
        self.client = client
        self.host = listen.host
        self.source = source
        self.listening = self._listen(control_port)
        self.talking = sender(client, listen, source=source)
        self.session_id = self.talking.session_id
        self.opened: list[Any] = [self.listening, self.talking]
        self._said: list[bytes] = []
        until(lambda: self.talking.connected and bool(self.listening.images()), "the server")

    def ask(self, text: str) -> bytes:
        """Send ``text`` to all-clients and return the answer to it without the session id."""
        say(self.talking, text.encode())
        return self.answer()

    def answer(self) -> bytes:
        """Return the next answer to this client."""
        prefix = b"%d " % self.session_id
        while True:
            found = until(lambda: self._next(self.listening), "an answer")
            if found.startswith(prefix):
                return found.removeprefix(prefix)

    def place(self, key: int = 0xDEADBEEF) -> texts.EchoAddress:
        """Ask for a duologue and return where it is."""
        answer = self.ask(f"HELLO {key:X}")
        found = texts.read_answer(b"%d %s" % (self.session_id, answer), self.session_id, key)
        assert isinstance(found, texts.EchoAddress), answer
        return found

    def join(
        self, place: texts.EchoAddress, *, source: str | None = None
    ) -> tuple[PolledSubscription, BytesPublication]:
        """Open both ways of a duologue and wait until they are connected."""
        pair = self.try_to_join(place, source=source or self.source)
        until(lambda: pair[1].connected and bool(pair[0].images()), "the duologue")
        return pair

    def try_to_join(
        self, place: texts.EchoAddress, *, source: str | None = None
    ) -> tuple[PolledSubscription, BytesPublication]:
        """Open both ways of a duologue."""
        pair = (
            self._listen(place.control_port, place.session_id),
            sender(self.client, HostPort(self.host, place.data_port), session_id=place.session_id, source=source),
        )
        self.opened += pair
        return pair

    def close(self) -> None:
        for one in self.opened:
            one.close()

    def _listen(self, control_port: int, session_id: int | None = None) -> PolledSubscription:
        channel = channels.joining(HostPort(self.host, control_port), session_id)
        return PolledSubscription(self.client, channel, texts.STREAM_ID, LARGEST)

    def _next(self, listening: PolledSubscription) -> bytes | None:
        self._said += messages(listening)
        return self._said.pop(0) if self._said else None


def messages(listening: PolledSubscription) -> list[bytes]:
    """Return what has come."""
    return [message for image in listening.images() for message in image.poll(100) if message is not None]


def come(listening: PolledSubscription, count: int = 1) -> list[bytes]:
    """Wait for ``count`` messages."""
    found: list[bytes] = []

    def poll() -> bool:
        found.extend(messages(listening))
        return len(found) >= count

    until(poll, f"{count} messages")
    return found


def nothing_comes(listening: PolledSubscription, seconds: float) -> bool:
    """Whether nothing comes within ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if messages(listening):
            return False
        time.sleep(0.01)
    return True


def never(poll: Callable[[], bool], seconds: float) -> bool:
    """Whether ``poll`` stays false for ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if poll():
            return False
        time.sleep(0.01)
    return True


class FakeServer:
    """An Echo 2.0 server that says what a test wants it to say."""

    def __init__(self, client: Client, listen: HostPort, control_port: int) -> None:
        control = HostPort(listen.host, control_port)
        self.client = client
        self.talking = BytesPublication(client, channels.fanning_out(control, 77), texts.STREAM_ID)
        self.listening = PolledSubscription(client, channels.receiving(listen), texts.STREAM_ID, LARGEST)

    def hello(self) -> tuple[PolledImage, bytes] | None:
        """Return the next HELLO and whose it is, or None."""
        for image in self.listening.images():
            for message in image.poll(1):
                if message is not None:
                    return image, message
        return None

    def close(self) -> None:
        self.listening.close()
        self.talking.close()
