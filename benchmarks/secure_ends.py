"""The two ends of a secure connection, each a process of its own, told what to do by lines of JSON.

    python -m benchmarks.secure_ends server AERON_DIR PORT [IDLE]
    python -m benchmarks.secure_ends client AERON_DIR PORT [IDLE]

Each line of input is an object with the name of a method of :class:`ServerEnd` or :class:`ClientEnd` as ``do``, and its
arguments; each line of output the answer. An end ends when its input does.
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
from aeron_spark.aeron.publication import BatchPublication
from aeron_spark.client import Client, ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.noise import TAG_BYTES
from aeron_spark.server import MessageServer, ServerSettings
from aeron_spark.transport.api import ServerAddress
from benchmarks.measure import own_output

BARE: Final = "bare"  # the tag of a client whose frames are copied and not encrypted
HOST: Final = "127.0.0.1"
NO_TAG: Final = bytes(TAG_BYTES)
TIMEOUT: Final = 60.0
CLOSERS: Final = 16  # threads
SETTINGS: Final = ServerSettings(limits=Limits(exempt_loopback=True))  # all clients are here


class Copying:
    """In the place of a connection's cipher: the same bytes go the same way, and none of them is enciphered.

    Frames of before the change still come; they have a tag, which is opened.
    """

    def __init__(self, cipher: AESGCM) -> None:
        self.cipher = cipher

    def encrypt_into(self, nonce: bytes, data: memoryview, associated: bytes, into: memoryview) -> None:
        """Copy, and leave the tag zero."""
        into[: len(data)] = data

    def decrypt_into(self, nonce: bytes, data: memoryview, associated: bytes, into: bytearray) -> None:
        """Copy back."""
        if data[-TAG_BYTES:] == NO_TAG:
            into[:] = data[:-TAG_BYTES]
        else:
            self.cipher.decrypt_into(nonce, data, associated, into)


def decrypt_nothing(connection: Connection) -> None:
    """Take frames that are not enciphered, too."""
    link = connection.sender.link
    assert link is not None
    direction = link.decryptor._direction
    direction.cipher = Copying(direction.cipher)  # type: ignore[assignment]


def encrypt_nothing(connection: Connection) -> None:
    """Encipher nothing any more; the other end must take that by now."""
    link = connection.sender.link
    assert link is not None
    direction = link._encryptor._direction
    direction.cipher = Copying(direction.cipher)  # type: ignore[assignment]


class End:
    """What both have in common."""

    def __init__(self, aeron_dir: str, port: str, idle: str = "backoff") -> None:
        self.aeron = client_of(aeron_dir)
        self.aeron_dir = aeron_dir
        self.idle = idle
        self.places = {"udp": ServerAddress("udp", HOST, int(port), int(port) + 1), "ipc": ServerAddress("ipc")}

    def cpu(self) -> float:
        """Processor seconds that this process has taken, all its threads together."""
        return time.process_time()


class ServerEnd(End):
    """Counts what comes."""

    def __init__(self, aeron_dir: str, port: str, idle: str = "backoff") -> None:
        super().__init__(aeron_dir, port, idle)
        self.messages = 0
        self.size = 0
        self.server = MessageServer(lambda: AeronServerTransport(self.aeron, idle=idle), MemoryPeerStore(), SETTINGS)
        self.server.on_connect(self._came)
        self.server.on_message(str, lambda connection, _: encrypt_nothing(connection))
        self.server.on_message(bytes, self._message)
        self.server.start([self.places["udp"], self.places["ipc"]])

    def statistics(self) -> dict[str, int]:
        """What the server says of itself."""
        return self.server.statistics

    def close(self) -> None:
        """End."""
        self.server.close()
        self.aeron.close()

    def _came(self, connection: Connection) -> None:
        if connection.tag == BARE:
            decrypt_nothing(connection)

    def _message(self, connection: Connection, message: bytes) -> None:
        self.messages += 1
        self.size += len(message)


class ClientEnd(End):
    """Sends."""

    def __init__(self, aeron_dir: str, port: str, idle: str = "backoff") -> None:
        super().__init__(aeron_dir, port, idle)
        self.store = MemoryPeerStore()
        self.clients: dict[str, Client] = {}
        self.plain: dict[str, BatchPublication] = {}

    def connect(self, name: str, media: str, bare: bool = False) -> int:
        """Connect, and keep the connection under ``name``; return its number."""
        client = self._client(media, BARE if bare else name)
        connection = client.connect(TIMEOUT)
        if bare:
            decrypt_nothing(connection)
            connection.send("bare", acknowledge=True)
            encrypt_nothing(connection)
        self.clients[name] = client
        return connection.id

    def send(self, name: str, size: int, count: int) -> float:
        """Send messages one by one, and return the seconds until the other end's listener has had the last."""
        client, message = self.clients[name], bytes(size)
        begun = time.perf_counter()
        for _ in range(count - 1):
            client.send(message)
        client.send(message, acknowledge=True, timeout=TIMEOUT)
        return time.perf_counter() - begun

    def send_many(self, name: str, size: int, count: int) -> float:
        """The same with ``send_many``."""
        client, messages = self.clients[name], [bytes(size)] * 10_000
        begun = time.perf_counter()
        for first in range(0, count, len(messages)):
            client.send_many(messages[: count - first])
        client.send(messages[0], acknowledge=True, timeout=TIMEOUT)
        return time.perf_counter() - begun

    def publish(self, name: str, channel: str, stream: int) -> bool:
        """Open a plain publication, and wait for its subscriber."""
        self.plain[name] = BatchPublication(self.aeron, channel, stream)
        end = time.monotonic() + TIMEOUT
        while not self.plain[name].connected and time.monotonic() < end:
            time.sleep(0.01)
        return self.plain[name].connected

    def offer(self, name: str, size: int, count: int) -> float:
        """Offer messages to a plain publication, and return the seconds until it had taken the last."""
        out, message, nothing = self.plain[name], pa.py_buffer(bytes(size)), pa.py_buffer(b"")
        begun = time.perf_counter()
        for _ in range(count):
            while out.offer_gathered(nothing, message) is not None:
                pass
        return time.perf_counter() - begun

    def ping(self, name: str, count: int, pause: float = 0.0) -> list[float]:
        """Return round trips in seconds, one after the other."""
        found = []
        for _ in range(count):
            found.append(self.clients[name].ping(TIMEOUT))
            time.sleep(pause)
        return found

    def handshakes(self, media: str, count: int, at_once: int) -> dict[str, list[Any]]:
        """Connect and close ``count`` times, some at a time: the seconds of each connect, and what failed."""
        found: dict[str, list[Any]] = {"seconds": [], "failed": []}
        left = iter(range(count))

        def some() -> None:
            for _ in left:
                client = self._client(media, "")
                begun = time.perf_counter()
                try:
                    client.connect(TIMEOUT)
                    found["seconds"].append(time.perf_counter() - begun)
                except AeronSparkError as error:
                    found["failed"].append(str(error))
                finally:
                    client.close()

        threads = [threading.Thread(target=some) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def gather(self, count: int, at_once: int) -> list[str]:
        """Connect ``count`` clients, some at a time, and keep them; return what failed."""

        def come(number: int) -> str:
            client = self._client("udp", f"{number}", MemoryPeerStore())  # a server takes few sessions of one key
            self.clients[f"crowd {number}"] = client
            try:
                client.connect(TIMEOUT)
            except AeronSparkError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(at_once) as pool:
            return [text for text in pool.map(come, range(count)) if text]

    def disperse(self) -> None:
        """Close them all."""
        with ThreadPoolExecutor(CLOSERS) as pool:
            list(pool.map(Client.close, self.clients.values()))
        self.clients.clear()

    def close(self) -> None:
        """End."""
        self.disperse()
        self.aeron.close()

    def _client(self, media: str, tag: str, store: MemoryPeerStore | None = None) -> Client:
        place = self.places[media]
        name = ServerName(HOST, place.data_port or 1)
        settings = ClientSettings(tag=tag)

        def dial() -> AeronClientTransport:
            return AeronClientTransport(self.aeron, place, idle=self.idle)

        return Client(dial, name, store or self.store, settings, is_ipc=media == "ipc")


def main(kind: str, *arguments: str) -> None:
    """Do what the lines of input say."""
    answers = own_output()
    end: Any = {"server": ServerEnd, "client": ClientEnd}[kind](*arguments)
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(end, asked.pop("do"))(**asked)), file=answers)
    end.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
