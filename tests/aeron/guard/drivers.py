"""A media driver in a separate process, with the guard on its class path, as an Aeron user starts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aeron_spark.aeron import client as clients
from aeron_spark.aeron.counters import read_driver
from aeron_spark.aeron.guard import PACKAGE, read_drops
from aeron_spark.aeron.jvm import jclass
from aeron_spark.waiting import wait_for
from tests.aeron.endpoint.drivers import OPTIONS as DRIVER_OPTIONS
from tests.aeron.endpoint.drivers import Driver as PlainDriver
from tests.aeron.endpoint.drivers import driver_process

TIMEOUT_S: Final = 60.0
LIVENESS_TIMEOUT_S: Final = 1.0  # of silent images; Aeron's default of 10 s would make the tests long
OPTIONS: Final = (
    *DRIVER_OPTIONS,
    "-Daeron.term.buffer.sparse.file=false",  # so that the allocated bytes are the bytes that a log may need
    f"-Daeron.image.liveness.timeout={LIVENESS_TIMEOUT_S:g}s",
    "-Daeron.publication.linger.timeout=200ms",
    f"-Daeron.ReceiveChannelEndpoint.supplier={PACKAGE}.guard.GuardedReceiveChannelEndpointSupplier",
    f"-Daeron.SendChannelEndpoint.supplier={PACKAGE}.guard.GuardedSendChannelEndpointSupplier",
)


class Driver(PlainDriver):
    """A running driver, this process's client of it, and measurements of both."""

    def drops(self, reason: str) -> int:
        """Return how many frames the guard has dropped for this reason."""
        return read_drops(str(self.aeron_dir)).get(reason, 0)

    def image_bytes(self) -> int:
        """Return the bytes in /dev/shm that are allocated for logs of images."""
        total = 0
        for path in (self.aeron_dir / "images").glob("*.logbuffer"):
            try:
                total += path.stat().st_blocks * 512
            except FileNotFoundError:  # freed meanwhile
                continue
        return total

    def images(self) -> int:
        """Return the number of images for which the driver has memory."""
        return self.logs("images")

    def require_alive(self) -> None:
        """Fail if the process has ended or its conductor has stopped."""
        assert self.process.poll() is None
        before = read_driver(str(self.aeron_dir))
        assert before.heartbeat_age < 5


@contextmanager
def guarding_driver(aeron_dir: Path, *options: str) -> Iterator[Driver]:
    """Run a driver that has the guard, and remove its directory afterwards."""
    with driver_process(aeron_dir, *OPTIONS, *options) as process:
        driver = Driver(aeron_dir, process)
        try:
            yield driver
        finally:
            driver.client.close()
            clients.close_client(str(aeron_dir))


def offer(publication: Any, value: bytes, seconds: float = TIMEOUT_S) -> None:
    """Offer a message until the publication accepts it; raise WaitTimeout after ``seconds``."""
    buffer = jclass("org.agrona.concurrent.UnsafeBuffer")(jclass("java.nio.ByteBuffer").allocateDirect(len(value) or 1))
    buffer.putBytes(0, value)
    wait_for(lambda: publication.offer(buffer, 0, len(value)) > 0, seconds, "room to publish")
