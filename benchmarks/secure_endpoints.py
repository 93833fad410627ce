"""The two endpoints of a secure connection, each in a separate process, which execute requests in lines of JSON.

    python -m benchmarks.secure_endpoints server AERON_DIR PORT [IDLE]
    python -m benchmarks.secure_endpoints client AERON_DIR PORT [IDLE]

Each line of input is an object with the name of a method of :class:`BenchmarkServer` or :class:`BenchmarkClients` as
``method``, and its arguments. Each line of output is the response. A process exits at the end of its input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.endpoint_transport import AeronClientTransport, AeronServerTransport
from aeron_spark.aeron.publications import BatchPublication
from aeron_spark.client import Client
from aeron_spark.endpoint.access import ClientAccess
from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.errors import AeronSparkError
from aeron_spark.facts import Bus
from aeron_spark.keys.bans import StoredBans
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import ClientOptions, LiveOptions, ServerOptions
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.noise import TAG_BYTES
from aeron_spark.transport.api import ServerAddress
from benchmarks.measure import take_over_output

UNENCRYPTED: Final = "unencrypted"  # the tag of a client whose frames are copied instead of encrypted
HOST: Final = "127.0.0.1"
NO_TAG: Final = bytes(TAG_BYTES)
TIMEOUT_S: Final = 60.0
CLOSING_THREADS: Final = 16
OPTIONS: Final = ServerOptions(exempt_loopback=True, allow_any_key=True)  # all clients are on this machine


class CopyCipher:
    """Replaces a connection's cipher: copies the bytes instead of encrypting them, and leaves the tag zero.

    Frames from before the replacement may still arrive; they have a tag, and are decrypted.
    """

    def __init__(self, cipher: AESGCM) -> None:
        self.cipher = cipher

    def encrypt_into(self, nonce: bytes, data: memoryview, associated: bytes, into: memoryview) -> None:
        """Copy ``data``, and leave the tag zero."""
        into[: len(data)] = data

    def decrypt_into(self, nonce: bytes, data: memoryview, associated: bytes, into: bytearray) -> None:
        """Copy a frame without a tag; decrypt one that has a tag."""
        if data[-TAG_BYTES:] == NO_TAG:
            into[:] = data[:-TAG_BYTES]
        else:
            self.cipher.decrypt_into(nonce, data, associated, into)


class BenchmarkConnection(Connection):
    """A connection whose frames can be without encryption, so that its cost can be measured."""

    def accept_unencrypted(self) -> None:
        """Accept frames that are not encrypted, as well as encrypted ones."""
        direction = self._link.decryptor._direction
        direction.cipher = CopyCipher(direction.cipher)  # type: ignore[assignment]

    def stop_encrypting(self) -> None:
        """Send frames without encryption from now on; the peer must accept them already."""
        direction = self._link._encryptor._direction
        direction.cipher = CopyCipher(direction.cipher)  # type: ignore[assignment]

    @property
    def _link(self) -> Link:
        link = self._core.sender.link
        assert link is not None
        return link


class BenchmarkEndpoint:
    """Common state of both endpoints: the Aeron client and the server's addresses."""

    def __init__(self, aeron_dir: str, port: str, idle: str = "backoff") -> None:
        self.aeron = client_of(aeron_dir)
        self.aeron_dir = aeron_dir
        self.idle = idle
        self.addresses = {"udp": ServerAddress("udp", HOST, int(port), int(port) + 1), "ipc": ServerAddress("ipc")}

    def cpu(self) -> float:
        """Return the processor seconds that this process has used with all its threads."""
        return time.process_time()


class BenchmarkServer(BenchmarkEndpoint):
    """Counts the messages that arrive."""

    def __init__(self, aeron_dir: str, port: str, idle: str = "backoff") -> None:
        super().__init__(aeron_dir, port, idle)
        self.messages = 0
        self.size = 0
        options, loop = LiveOptions(OPTIONS), Loop("aeron-spark-server")
        self.server = ServerEndpoint(
            loop,
            lambda: AeronServerTransport(self.aeron, idle=idle),
            ClientAccess(MemoryPeerStore(), options, StoredBans(), loop),
            options,
            Bus(),
            BenchmarkConnection,
        )
        self.server.listeners.add("connect", self._connected)
        self.server.message_listeners.add(str, self._stop_encrypting)
        self.server.message_listeners.add(bytes, self._count)
        self.server.start([self.addresses["udp"], self.addresses["ipc"]])

    def statistics(self) -> dict[str, int]:
        """Return the server's own statistics."""
        return self.server.statistics

    def close(self) -> None:
        """Close the server and the Aeron client."""
        self.server.close()
        self.aeron.close()

    def _connected(self, connection: BenchmarkConnection) -> None:
        if connection.tag == UNENCRYPTED:
            connection.accept_unencrypted()

    def _stop_encrypting(self, connection: Connection, message: str) -> None:
        assert isinstance(connection, BenchmarkConnection)
        connection.stop_encrypting()

    def _count(self, connection: Connection, message: bytes) -> None:
        self.messages += 1
        self.size += len(message)


class BenchmarkClients(BenchmarkEndpoint):
    """Connects clients, and sends messages with them and with plain publications."""

    def __init__(self, aeron_dir: str, port: str, idle: str = "backoff") -> None:
        super().__init__(aeron_dir, port, idle)
        self.store = MemoryPeerStore()
        self.clients: dict[str, Client] = {}
        self.publications: dict[str, BatchPublication] = {}

    def connect(self, name: str, media: str, encrypted: bool = True) -> int:
        """Connect a client, and keep it under ``name``; return the number of its connection."""
        client = self._new_client(media, name if encrypted else UNENCRYPTED)
        connection = client.connect(TIMEOUT_S)
        if not encrypted:
            assert isinstance(connection, BenchmarkConnection)
            connection.accept_unencrypted()
            connection.send("stop encrypting", acknowledge=True)
            connection.stop_encrypting()
        self.clients[name] = client
        return connection.id

    def send(self, name: str, size: int, count: int) -> float:
        """Send messages one by one; return the seconds until the server's listener has received the last."""
        client, message = self.clients[name], bytes(size)
        started = time.perf_counter()
        for _ in range(count - 1):
            client.send(message)
        client.send(message, acknowledge=True, timeout=TIMEOUT_S)
        return time.perf_counter() - started

    def send_many(self, name: str, size: int, count: int) -> float:
        """Send messages with ``send_many``; return the seconds until the server's listener has received the last."""
        client, messages = self.clients[name], [bytes(size)] * 10_000
        started = time.perf_counter()
        for first in range(0, count, len(messages)):
            client.send_many(messages[: count - first])
        client.send(messages[0], acknowledge=True, timeout=TIMEOUT_S)
        return time.perf_counter() - started

    def publish(self, name: str, channel: str, stream: int) -> bool:
        """Open a plain publication, wait for its subscriber, and return whether it came."""
        self.publications[name] = publication = BatchPublication(self.aeron, channel, stream)
        deadline = time.monotonic() + TIMEOUT_S
        while not publication.connected and time.monotonic() < deadline:
            time.sleep(0.01)
        return publication.connected

    def offer(self, name: str, size: int, count: int) -> float:
        """Offer messages to a plain publication; return the seconds until it has accepted the last."""
        publication, message, no_header = self.publications[name], pa.py_buffer(bytes(size)), pa.py_buffer(b"")
        started = time.perf_counter()
        for _ in range(count):
            while publication.offer_gathered(no_header, message) is not None:
                pass
        return time.perf_counter() - started

    def ping(self, name: str, count: int, interval_s: float = 0.0) -> list[float]:
        """Ping ``count`` times, one after the other; return the round trips in seconds."""
        round_trips = []
        for _ in range(count):
            round_trips.append(self.clients[name].ping(TIMEOUT_S))
            time.sleep(interval_s)
        return round_trips

    def handshakes(self, media: str, count: int, concurrent: int) -> dict[str, list[Any]]:
        """Connect and close ``count`` clients, ``concurrent`` at a time.

        Return the seconds of each connect, and the errors of those that failed.
        """
        results: dict[str, list[Any]] = {"seconds": [], "errors": []}
        remaining = iter(range(count))

        def connect_and_close() -> None:
            for _ in remaining:
                client = self._new_client(media, "")
                started = time.perf_counter()
                try:
                    client.connect(TIMEOUT_S)
                    results["seconds"].append(time.perf_counter() - started)
                except AeronSparkError as error:
                    results["errors"].append(str(error))
                finally:
                    client.close()

        threads = [threading.Thread(target=connect_and_close) for _ in range(concurrent)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def connect_many(self, count: int, concurrent: int) -> list[str]:
        """Connect ``count`` clients, ``concurrent`` at a time, and keep them; return the errors of failed ones."""

        def connect(number: int) -> str:
            client = self._new_client("udp", f"{number}", MemoryPeerStore())  # a server limits the sessions of one key
            self.clients[f"client {number}"] = client
            try:
                client.connect(TIMEOUT_S)
            except AeronSparkError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(concurrent) as pool:
            return [error for error in pool.map(connect, range(count)) if error]

    def close_clients(self) -> None:
        """Close all clients."""
        with ThreadPoolExecutor(CLOSING_THREADS) as pool:
            list(pool.map(Client.close, self.clients.values()))
        self.clients.clear()

    def close(self) -> None:
        """Close all clients and the Aeron client."""
        self.close_clients()
        self.aeron.close()

    def _new_client(self, media: str, tag: str, store: MemoryPeerStore | None = None) -> Client:
        address = self.addresses[media]
        name = ServerName(HOST, address.data_port or 1)
        options = ClientOptions(tag=tag)

        def open_transport() -> AeronClientTransport:
            return AeronClientTransport(self.aeron, address, idle=self.idle)

        return Client(ClientEndpoint(open_transport, name, store or self.store, options, BenchmarkConnection))


def main(role: str, *arguments: str) -> None:
    """Execute the requests that come on standard input."""
    output = take_over_output()
    endpoint: Any = {"server": BenchmarkServer, "client": BenchmarkClients}[role](*arguments)
    print(json.dumps("ready"), file=output)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(endpoint, request.pop("method"))(**request)), file=output)
    endpoint.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
