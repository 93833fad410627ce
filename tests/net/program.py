"""One program in a namespace: a media driver, a server, or clients. It does what it is told in JSON lines.

    python -m tests.net.program driver|server|clients '{…}'

Messages are numbers with padding: whoever receives them says whether one is missing, came twice or out of order.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Protocol

from aeron_spark.aeron import jvm
from aeron_spark.aeron.client import client_of, close_all
from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.driver import DRIVER_JVM_ARGUMENTS, EmbeddedDriver
from aeron_spark.aeron.guard import read_drops
from aeron_spark.aeron.jvm import jclass
from aeron_spark.waiting import wait_for
from tests.net import sides

ANSWER: Final = "answer: "
NUMBER_BYTES: Final = 8
BATCH: Final = 500
PLAIN_STREAM: Final = 1234
SYSTEM: Final = 0  # type of the driver's own counters
QUICK_COMPILER: Final = "-XX:TieredStopAtLevel=1"  # these programs end before a better one would pay


class Sequence:
    """Numbered messages from one sender."""

    def __init__(self) -> None:
        self.next = self.bytes = 0
        self.wrong: list[tuple[int, int]] = []  # what was expected, and what came

    def add(self, message: bytes) -> None:
        number = int.from_bytes(message[:NUMBER_BYTES], "big")
        self.bytes += len(message)
        if number != self.next:
            self.wrong.append((self.next, number))
        self.next = number + 1


class Journal:
    """What has happened to one side: events by tag, and the messages of each tag."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str, str]] = []
        self.errors: list[str] = []
        self.received: defaultdict[str, Sequence] = defaultdict(Sequence)

    def listen(self, endpoint: Any, tag: str | None = None) -> None:
        """Write down what an endpoint tells; ``tag`` where its connections do not say it."""
        for name in ("init", "connect", "resume", "disconnect"):
            getattr(endpoint, f"on_{name}")(lambda who, name=name: self._note(name, tag or who.tag))
        endpoint.on_error(lambda _, error: self.errors.append(f"{type(error).__name__}: {error}"))

    def told(self) -> dict[str, Any]:
        """All of it, for an answer."""
        received = {
            tag: {"count": one.next, "bytes": one.bytes, "wrong": one.wrong[:5]} for tag, one in self.received.items()
        }
        return {"events": self.events, "errors": self.errors[-20:], "received": received}

    def _note(self, name: str, tag: str) -> None:
        self.events.append((time.monotonic(), name, tag))


def numbered(first: int, count: int, size: int, marker: str) -> list[bytes]:
    """Messages ``first`` to ``first + count``, each of ``size`` bytes at least, with a text in them."""
    rest = marker.encode()
    return [(number.to_bytes(NUMBER_BYTES, "big") + rest).ljust(size, b".") for number in range(first, first + count)]


def send_all(send_many: Callable[..., None], order: dict[str, Any]) -> None:
    """Send numbered messages; with ``rate``, that many a second."""
    first, count, rate = order.get("first", 0), order["count"], order.get("rate")
    begun = time.monotonic()
    batch = BATCH if rate is None else 1
    for start in range(first, first + count, batch):
        some = min(batch, first + count - start)
        send_many(numbered(start, some, order.get("size", 64), order.get("marker", "")), timeout=order.get("timeout"))
        if rate is not None:
            time.sleep(max(0.0, begun + (start - first + 1) / rate - time.monotonic()))


class Side(Protocol):
    """What a program is."""

    def __init__(self, options: dict[str, Any]) -> None: ...

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order, and return the answer."""

    def close(self) -> None:
        """End in order."""


class Driver:
    """A media driver as the package starts it; in a process of its own, or in that of a server or of clients."""

    def __init__(self, options: dict[str, Any]) -> None:
        properties = (f"-D{name}={value}" for name, value in options.get("properties", {}).items())
        jvm.start(*DRIVER_JVM_ARGUMENTS, QUICK_COMPILER, *properties)
        # Aeron's debug endpoints, which lose packets, are asked for by properties; the others are the package's own
        settings = {
            "aeronDirectoryName": options["dir"],
            "threadingMode": "SHARED",
            "dirDeleteOnShutdown": True,
            "dirDeleteOnStart": True,
            "termBufferSparseFile": True,
        }
        self._dir = options["dir"]
        self._driver = EmbeddedDriver(settings, None)

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "counters":
                return {
                    "received_bytes": self._count("Bytes received"),
                    "retransmits": self._count("Retransmits sent"),
                    "drops": read_drops(self._dir),
                }
        raise LookupError(order["do"])

    def close(self) -> None:
        self._driver.close()

    def _count(self, name: str) -> int:
        return next(
            one.value for one in read_counters(self._dir) if one.type_id == SYSTEM and one.label.startswith(name)
        )


class ServerSide:
    """A server that writes down what it receives, and says what it is told to."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._dir = options["dir"]
        self._plain: Any = None
        self._sending = threading.Thread()
        self.journal = Journal()
        self.server = sides.server(options)
        self.journal.listen(self.server)
        self.server.on_message(bytes, lambda connection, message: self.journal.received[connection.tag].add(message))
        self.server.start()

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "send":
                send_all(self._to(order["tag"]).send_many, order)
                return {}
            case "begin_send":  # to somebody who may not take it
                sending = (self._to(order["tag"]).send_many, order)
                self._sending = threading.Thread(target=send_all, args=sending)
                self._sending.start()
                return {}
            case "end_send":
                self._sending.join()
                return {}
            case "send_to_all":
                connections = self.server.connections
                for connection in connections:  # one after the other: all at once, they would drown each other
                    send_all(connection.send_many, order)
                return {"to": len(connections)}
            case "ping":
                to = self._to(order["tag"])
                return {"seconds": [to.ping(order.get("timeout", 10)) for _ in range(order.get("count", 1))]}
            case "listen_plain":
                self._plain = client_of(self._dir).subscription(order["channel"], PLAIN_STREAM)
                return {}
            case "statistics":
                addresses = {one.tag: [one.remote_address, one.remote_port] for one in self.server.connections}
                return {**self.journal.told(), "in_use": self.server.statistics, "addresses": addresses}
        raise LookupError(order["do"])

    def close(self) -> None:
        self.server.close()

    def _to(self, tag: str) -> Any:
        return next(one for one in self.server.connections if one.tag == tag)


class Clients:
    """Some clients of one driver, each with its tag and keys of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._dir = options["dir"]
        self._plain: Any = None
        self.journal = Journal()
        self.clients: dict[str, Any] = {}
        for tag in options["tags"]:
            client = self.clients[tag] = sides.client(options, tag)
            self.journal.listen(client, tag)
            client.on_message(bytes, self.journal.received[tag].add)
        self._round_trips: list[float] = []
        self._stop = threading.Event()
        self._pinging: threading.Thread | None = None

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        client = self.clients[order.get("tag", next(iter(self.clients)))]
        match order["do"]:
            case "connect":
                begun = time.monotonic()
                for one in self.clients.values():
                    one.connect(order.get("timeout", 20))
                return {"seconds": time.monotonic() - begun}
            case "send":
                send_all(client.send_many, order)
                return {}
            case "acknowledged":  # everything before it was received, too, and listeners have had it
                client.send(numbered(order["number"], 1, 64, "")[0], timeout=order.get("timeout", 20), acknowledge=True)
                return {}
            case "ping":
                return {"seconds": [client.ping(order.get("timeout", 10)) for _ in range(order.get("count", 1))]}
            case "branch":  # a further link of the connection
                bulk_link = client.bulk_link(order.get("timeout", 10))
                bulk_link.close()
                return {"number": bulk_link.number}
            case "begin_pings":
                self._round_trips, self._stop = [], threading.Event()
                self._pinging = threading.Thread(target=self._ping, args=(client, order.get("pause", 0.01)))
                self._pinging.start()
                return {}
            case "end_pings":
                self._stop.set()
                assert self._pinging is not None
                self._pinging.join()
                return {"seconds": self._round_trips}
            case "publish_plain":
                self._plain = client_of(self._dir).exclusive_publication(order["channel"], PLAIN_STREAM)
                wait_for(self._plain.isConnected, 10, "a subscriber")
                message = order["text"].encode()
                buffer = jclass("org.agrona.concurrent.UnsafeBuffer")(message)
                wait_for(lambda: self._plain.offer(buffer, 0, len(message)) > 0, 10, "room for a message")
                return {}
            case "statistics":
                return {**self.journal.told(), "connected": [tag for tag, one in self.clients.items() if one.connected]}
        raise LookupError(order["do"])

    def close(self) -> None:
        for client in self.clients.values():
            client.close()

    def _ping(self, client: Any, pause: float) -> None:
        while not self._stop.wait(pause):
            self._round_trips.append(client.ping(30))


class WithDriver:
    """A server or clients, and their driver in the same process."""

    def __init__(self, role: type[Side], options: dict[str, Any]) -> None:
        self._driver = Driver(options)
        self._side = role(options)

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        return self._driver.do(order) if order["do"] == "counters" else self._side.do(order)

    def close(self) -> None:
        self._side.close()
        close_all()
        self._driver.close()


def main() -> None:
    role, options = sys.argv[1], json.loads(sys.argv[2])
    gc.freeze()
    roles: dict[str, type[Side]] = {"driver": Driver, "server": ServerSide, "clients": Clients}
    if role != "driver" and not options.get("own_driver"):
        jvm.start(QUICK_COMPILER)
    side: Side = WithDriver(roles[role], options) if options.get("own_driver") else roles[role](options)
    _say({"ready": os.getpid()})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            _say(side.do(order))
        except Exception as error:
            _say({"raised": f"{type(error).__name__}: {error}"})
    side.close()
    _say({"closed": True})


def _say(answer: dict[str, Any]) -> None:
    print(ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
