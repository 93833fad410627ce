"""A server with named streams in the tests' own process, and the options by which Spark reaches it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from aeron_spark.connection.connection import Connection
from aeron_spark.errors import TransportError
from aeron_spark.keys.identity import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.pool import POOL
from aeron_spark.protocol.keypair import public_text
from aeron_spark.server.program import Server
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from tests.aeron.endpoint.drivers import free_ports
from tests.aeron.stream_store import rows as staging
from tests.aeron.streams import numbered

TIMEOUT_S = 30.0


class Served:
    """A running server: its streams, the keys of its clients, and how many handshakes there were."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self._handshakes: list[bytes] = []  # the client's key of each
        server.on_connect(self._connected)

    def _connected(self, connection: Connection) -> None:
        self._handshakes.append(connection.key)

    def handshakes(self, key: Path, at_least: int = 0) -> int:
        """How many there were with a key; listeners hear of one a moment after its client has it."""
        public = ensure_identity(key).public
        wait_for(
            lambda: self._handshakes.count(public) >= at_least,
            TIMEOUT_S,
            f"{at_least} handshakes",
            state=lambda: str(self._handshakes.count(public)),
        )
        return self._handshakes.count(public)

    @property
    def name(self) -> str:
        """The server as keys of offsets name it."""
        return ":".join(self.server.addresses[0].split(":")[:2])

    def key(self, name: str = "me") -> Path:
        """The file of a client's key."""
        path = self.folder / f"{name}.key"
        ensure_identity(path)
        return path

    def stream(self, partitions: int = 1, **more: Any) -> Stream:
        """Make a stream that no other test has."""
        return self.server.streams.create(f"s-{secrets.token_hex(4)}", partitions, **more)

    def options(self, stream: Stream | str, **more: object) -> dict[str, str]:
        """The options that lead to a stream."""
        given = {
            "server": self.server.addresses[0],
            "stream": stream if isinstance(stream, str) else stream.definition.name,
            "identity": self.key(),
            "serverKey": public_text(self.server.public_key),
            "aeronDir": self.server.aeron_dir,
            "connectTimeout": "60s",
            **more,
        }
        return {name: str(value) for name, value in given.items()}


def free_address() -> str:
    """Return an address of this machine whose ports are free."""
    data, control = free_ports()
    return f"127.0.0.1:{data}:{control}"


@contextmanager
def serving(node: NodeHandle, folder: Path, *, address: str = "", **options: Any) -> Iterator[Served]:
    """Run a server on a node while the block lasts; this process's own connections end first.

    Without an ``address`` it listens on free ports.
    """
    given = {"ipc": True, "handshakes_per_second": 0, "identity": str(folder / "server.key"), **options}
    with Server(address or free_address(), aeron_dir=node.aeron_dir, **given) as server:
        _ = server.streams  # opened here: the thread that looks after them is this server's, and no test's
        yield Served(server, folder)
        POOL.close()


def read(spark: SparkSession, options: Mapping[str, str], **more: object) -> DataFrame:
    """Read what is committed now."""
    texts = {name: str(value) for name, value in more.items()}
    return spark.read.format("aeron").options(**options, **texts).load()


def write(rows: DataFrame, options: Mapping[str, str], **more: object) -> None:
    """Write all rows at once."""
    texts = {name: str(value) for name, value in more.items()}
    rows.write.format("aeron").mode("append").options(**options, **texts).save()


def numbered_rows(spark: SparkSession, count: int, tasks: int, *, first: int = 0, length: int = 50) -> DataFrame:
    """Values that say their number (see ``tests.aeron.streams.numbered``), in so many tasks, in order."""
    return spark.range(first, first + count, 1, tasks).selectExpr(f"rpad(concat(id, '.'), {length}, '-') as value")


def write_values(stream: Stream, first: int, last: int, *, partition: int = 0, length: int = 50) -> None:
    """Commit numbered values to a partition, in this process: for tests of what comes after them."""
    staging.write(stream, first, {partition: numbered(first, last, length)}, writer=secrets.token_hex(4))


def lines(*servers: Served) -> str:
    """Return what a file says of these servers."""
    return "".join(f"{one.server.addresses[0]} {public_text(one.server.public_key)}\n" for one in servers)


class Failing:
    """A stream's ``commit`` that fails once, before or after it is done."""

    def __init__(self, real: Callable[..., Any], *, done: bool) -> None:
        self.real, self.done = real, done
        self.failed = False

    def __call__(self, *given: Any, **more: Any) -> Any:
        if self.failed:
            return self.real(*given, **more)
        self.failed = True
        if self.done:
            self.real(*given, **more)
        raise TransportError("the commit failed, for a test")
