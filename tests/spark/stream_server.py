"""Runs a server with streams in the tests' process, and makes the options with which Spark connects to it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import TransportError
from aeron_spark.keys.stores import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.pool import POOL
from aeron_spark.protocol.keypair import public_text
from aeron_spark.server.server import Server
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from tests.aeron.ended import check_remains
from tests.aeron.stream_store import rows as staging
from tests.aeron.streams import numbered
from tests.ports import free_address
from tests.stream_requests import create_request

TIMEOUT_S: Final = 30.0


class StreamServer:
    """A running server, the keys of its clients, and the count of their handshakes."""

    def __init__(self, endpoint: Server, folder: Path) -> None:
        self.endpoint = endpoint
        self.folder = folder
        self._client_keys: list[bytes] = []  # one for each handshake
        endpoint.on_connect(self._add_handshake)

    def _add_handshake(self, connection: Connection) -> None:
        self._client_keys.append(connection.key)

    def count_handshakes(self, key: Path, at_least: int = 0) -> int:
        """Return how many handshakes used a key.

        Waits for ``at_least`` so many: the server notifies listeners a moment after the client is connected.
        """
        public = ensure_identity(key).public
        wait_for(
            lambda: self._client_keys.count(public) >= at_least,
            TIMEOUT_S,
            f"{at_least} handshakes",
            state=lambda: str(self._client_keys.count(public)),
        )
        return self._client_keys.count(public)

    @property
    def name(self) -> str:
        """The name of the server in the keys of offsets: its host and port."""
        return ":".join(self.endpoint.addresses[0].split(":")[:2])

    def key_file(self, name: str = "client") -> Path:
        """Return the identity file of a client; make the key if there is none."""
        path = self.folder / f"{name}.key"
        ensure_identity(path)
        return path

    def create_stream(self, partitions: int = 1, **more: Any) -> Stream:
        """Create a stream that no other test uses."""
        return self.endpoint.streams.create(create_request(f"s-{secrets.token_hex(4)}", partitions, **more))

    def options(self, stream: Stream | str, **more: object) -> dict[str, str]:
        """Return the options with which Spark reads or writes a stream; ``more`` replaces and adds some."""
        values = {
            "server": self.endpoint.addresses[0],
            "stream": stream if isinstance(stream, str) else stream.definition.name,
            "identity": self.key_file(),
            "serverKey": public_text(self.endpoint.public_key),
            "aeronDir": self.endpoint.aeron_dir,
            "connectTimeout": "60s",
            **more,
        }
        return {name: str(value) for name, value in values.items()}


@contextmanager
def run_server(node: NodeHandle, folder: Path, *, address: str = "", **options: Any) -> Iterator[StreamServer]:
    """Run a server on a node while the block lasts, on free ports unless an ``address`` is given.

    At the end of the block, the connections of this process close before the server does. The ended server must keep
    nothing of what came and went.
    """
    settings = {"handshakes_per_second": 0, "identity": str(folder / "server.key"), **options}
    settings.setdefault("allow_any_key", "authorized_keys" not in settings)
    with Server(address or free_address(), aeron_dir=node.aeron_dir, **settings) as endpoint:
        _ = endpoint.streams  # opens the store now: otherwise its thread would count as a leak of the first test
        yield StreamServer(endpoint, folder)
        POOL.close()
    check_remains([endpoint])


def read_frame(spark: SparkSession, options: Mapping[str, str], **more: object) -> DataFrame:
    """Return a DataFrame of the committed rows of a stream."""
    texts = {name: str(value) for name, value in more.items()}
    return spark.read.format("aeron").options(**options, **texts).load()


def write_frame(rows: DataFrame, options: Mapping[str, str], **more: object) -> None:
    """Append a DataFrame to a stream, in one transaction."""
    texts = {name: str(value) for name, value in more.items()}
    rows.write.format("aeron").mode("append").options(**options, **texts).save()


def make_numbered_rows(spark: SparkSession, count: int, tasks: int, *, first: int = 0, length: int = 50) -> DataFrame:
    """Return a DataFrame of values that begin with their numbers, in order, for this count of tasks."""
    return spark.range(first, first + count, 1, tasks).selectExpr(f"rpad(concat(id, '.'), {length}, '-') as value")


def commit_values(stream: Stream, first: int, last: int, *, partition: int = 0, length: int = 50) -> None:
    """Commit numbered values to a partition, without a client: for tests that are not about writing."""
    staging.write(stream, first, {partition: numbered(first, last, length)}, writer=secrets.token_hex(4))


def format_server_list(*servers: StreamServer) -> str:
    """Return the text of a file of servers: a line with address and public key for each."""
    return "".join(f"{one.endpoint.addresses[0]} {public_text(one.endpoint.public_key)}\n" for one in servers)


class FailingCommit:
    """Replaces a stream's ``commit``: the first call fails, before or after the transaction is committed."""

    def __init__(self, commit: Callable[..., Any], *, after_commit: bool) -> None:
        self._commit = commit
        self._after_commit = after_commit
        self.has_failed = False

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        if self.has_failed:
            return self._commit(*arguments, **more)
        self.has_failed = True
        if self._after_commit:
            self._commit(*arguments, **more)
        raise TransportError("the commit failed, for a test")
