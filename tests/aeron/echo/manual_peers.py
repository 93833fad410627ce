"""Media drivers, servers in threads, and clients and servers that a test controls message by message."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from aeron_spark.aeron import guard
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.publications import BytesPublication, PolledImage, PolledSubscription
from aeron_spark.echo import texts
from aeron_spark.echo.conversation import EchoEvent, serve
from aeron_spark.echo.echo1 import Server1
from aeron_spark.echo.echo2 import Server2
from aeron_spark.transport.addresses import HostPort
from aeron_spark.waiting import wait_for
from tests.nodes import new_aeron_dir

T = TypeVar("T")

TIMEOUT_S: Final = 60.0  # for an operation that is immediate on an idle machine
MAX_MESSAGE_BYTES: Final = 128 << 10  # in the messages that a manual client sends or receives


@contextmanager
def own_driver(run_name: str, *, has_guard: bool = False) -> Iterator[AeronClient]:
    """Run a small media driver in this process, with the guard if wanted; yield an Aeron client of it."""
    aeron_dir = new_aeron_dir(run_name)
    context = jclass("io.aeron.driver.MediaDriver$Context")()
    context.aeronDirectoryName(str(aeron_dir)).dirDeleteOnShutdown(True)
    context.threadingMode(jclass("io.aeron.driver.ThreadingMode").SHARED)
    context.sharedIdleStrategy(jclass("org.agrona.concurrent.SleepingMillisIdleStrategy")(1))
    context.counterValuesBufferLength(1 << 20)
    context.timerIntervalNs(20_000_000)  # the driver frees closed channels sooner, which makes tests faster
    if has_guard:
        for method, supplier in guard.suppliers().items():
            getattr(context, method)(supplier)
    driver = jclass("io.aeron.driver.MediaDriver").launch(context)
    try:
        client = AeronClient(str(aeron_dir))
        try:
            yield client
        finally:
            client.close()
    finally:
        driver.close()
        shutil.rmtree(aeron_dir, ignore_errors=True)


class Events:
    """Collects the events that a server or client reports."""

    def __init__(self) -> None:
        self.events: list[EchoEvent] = []

    def __call__(self, event: EchoEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def serving(server: Server1 | Server2) -> Iterator[None]:
    """Poll ``server`` in a thread. At the end, close it and raise the thread's exception."""
    stopped = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            serve(server.poll, stopped.is_set)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="echo server")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(TIMEOUT_S)
        server.close()
        if errors:
            raise errors[0]


def wait_until(poll: Callable[[], T | None], condition: str, seconds: float = TIMEOUT_S) -> T:
    """Poll until ``poll()`` returns a true value, and return it. Fail after ``seconds``."""
    return wait_for(lambda: poll() or None, seconds, condition)


def send(publication: BytesPublication, *messages: bytes) -> None:
    """Publish each message; wait for room."""
    for message in messages:
        wait_until(lambda message=message: publication.offer(message) is None, f"{message[:20]!r} to be published")


def open_sender(
    client: AeronClient, to: HostPort, *, session_id: int | None = None, source: str | None = None
) -> BytesPublication:
    """Open a publication for long messages; with ``source``, it sends from that loopback address."""
    session = secrets.randbelow(2**31 - 1) + 1 if session_id is None else session_id
    parameters = f"session-id={session}|term-length=1m|sparse=true|linger=100ms"
    if source is None:
        return BytesPublication(client, f"aeron:udp?endpoint={to}|{parameters}", texts.STREAM_ID)
    publication = BytesPublication(
        client, f"aeron:udp?control={source}:0|control-mode=manual|{parameters}", texts.STREAM_ID
    )
    publication._publication.addDestination(f"aeron:udp?endpoint={to}")
    return publication


class ManualClient:
    """An Echo 2.0 client that a test controls message by message."""

    def __init__(self, client: AeronClient, listen: HostPort, control_port: int, *, source: str | None = None) -> None:
        self.client = client
        self.host = listen.host
        self.source = source
        self.subscription = self._listen(control_port)
        self.publication = open_sender(client, listen, source=source)
        self.session_id = self.publication.session_id
        self.opened: list[Any] = [self.subscription, self.publication]
        self._responses: list[bytes] = []
        wait_until(lambda: self.publication.connected and bool(self.subscription.images()), "the server")

    def request(self, text: str) -> bytes:
        """Send ``text`` to all-clients and return the response to it without the session id."""
        send(self.publication, text.encode())
        return self.next_response()

    def next_response(self) -> bytes:
        prefix = b"%d " % self.session_id
        while True:
            found = wait_until(lambda: self._next(self.subscription), "a response")
            if found.startswith(prefix):
                return found.removeprefix(prefix)

    def request_duologue(self, key: int = 0xDEADBEEF) -> texts.EchoAddress:
        response = self.request(f"HELLO {key:X}")
        found = texts.decode_response(b"%d %s" % (self.session_id, response), self.session_id, key)
        assert isinstance(found, texts.EchoAddress), response
        return found

    def join(
        self, duologue: texts.EchoAddress, *, source: str | None = None
    ) -> tuple[PolledSubscription, BytesPublication]:
        """Open both channels of a duologue and wait until they are connected."""
        pair = self.try_to_join(duologue, source=source or self.source)
        wait_until(lambda: pair[1].connected and bool(pair[0].images()), "the duologue")
        return pair

    def try_to_join(
        self, duologue: texts.EchoAddress, *, source: str | None = None
    ) -> tuple[PolledSubscription, BytesPublication]:
        """Open both channels of a duologue."""
        pair = (
            self._listen(duologue.control_port, duologue.session_id),
            open_sender(
                self.client, HostPort(self.host, duologue.data_port), session_id=duologue.session_id, source=source
            ),
        )
        self.opened += pair
        return pair

    def close(self) -> None:
        for one in self.opened:
            one.close()

    def _listen(self, control_port: int, session_id: int | None = None) -> PolledSubscription:
        channel = texts.join_channel(HostPort(self.host, control_port), session_id)
        return PolledSubscription(self.client, channel, texts.STREAM_ID, MAX_MESSAGE_BYTES)

    def _next(self, subscription: PolledSubscription) -> bytes | None:
        self._responses += messages(subscription)
        return self._responses.pop(0) if self._responses else None


def messages(subscription: PolledSubscription) -> list[bytes]:
    """Return the messages that have arrived."""
    return [message for image in subscription.images() for message in image.poll(100) if message is not None]


def receive(subscription: PolledSubscription, count: int = 1) -> list[bytes]:
    """Wait for ``count`` messages and return all that arrived."""
    found: list[bytes] = []

    def poll() -> bool:
        found.extend(messages(subscription))
        return len(found) >= count

    wait_until(poll, f"{count} messages")
    return found


def receives_nothing(subscription: PolledSubscription, seconds: float) -> bool:
    """Return whether no message arrives within ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if messages(subscription):
            return False
        time.sleep(0.01)
    return True


def stays_false(poll: Callable[[], bool], seconds: float) -> bool:
    """Return whether ``poll`` returns False for ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if poll():
            return False
        time.sleep(0.01)
    return True


class FakeServer:
    """An Echo 2.0 server whose responses a test chooses."""

    def __init__(self, client: AeronClient, listen: HostPort, control_port: int) -> None:
        control = HostPort(listen.host, control_port)
        self.client = client
        self.publication = BytesPublication(client, texts.fan_out_channel(control, 77), texts.STREAM_ID)
        self.subscription = PolledSubscription(
            client, texts.receive_channel(listen), texts.STREAM_ID, MAX_MESSAGE_BYTES
        )

    def hello(self) -> tuple[PolledImage, bytes] | None:
        """Return the image and the text of the next HELLO, or None."""
        for image in self.subscription.images():
            for message in image.poll(1):
                if message is not None:
                    return image, message
        return None

    def close(self) -> None:
        self.subscription.close()
        self.publication.close()
