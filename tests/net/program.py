"""One program in a namespace: a media driver, a server, or clients. It executes requests in JSON lines.

    python -m tests.net.program driver|server|clients '{…}'

Messages are numbers with padding, so that a receiver notices missing, repeated and reordered messages.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Protocol

from aeron_spark import node
from aeron_spark.aeron import jvm
from aeron_spark.aeron.client import client_of, close_client
from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.driver import DRIVER_JVM_ARGUMENTS, EmbeddedDriver
from aeron_spark.aeron.guard import read_drops
from aeron_spark.aeron.jvm import jclass
from aeron_spark.transport.api import MTU_BYTES
from aeron_spark.waiting import wait_for
from tests.net import endpoints
from tests.stream_requests import create_request

RESPONSE_PREFIX: Final = "response: "
NUMBER_BYTES: Final = 8
BATCH: Final = 500
PLAIN_STREAM: Final = 1234
SYSTEM_COUNTER: Final = 0  # type of the driver's system counters


class Sequence:
    """Numbered messages from one sender."""

    def __init__(self) -> None:
        self.next = self.bytes = 0
        self.wrong: list[tuple[int, int]] = []  # (expected, received)

    def add(self, message: bytes) -> None:
        number = int.from_bytes(message[:NUMBER_BYTES], "big")
        self.bytes += len(message)
        if number != self.next:
            self.wrong.append((self.next, number))
        self.next = number + 1


class Journal:
    """The events of one endpoint, and its received messages by tag."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str, str]] = []
        self.errors: list[str] = []
        self.received: defaultdict[str, Sequence] = defaultdict(Sequence)

    def listen(self, endpoint: Any, tag: str | None = None) -> None:
        """Record the events of an endpoint; ``tag`` replaces the tags of its connections."""
        for name in ("init", "connect", "resume", "disconnect"):
            getattr(endpoint, f"on_{name}")(lambda connection, name=name: self._record(name, tag or connection.tag))
        endpoint.on_error(lambda _, error: self.errors.append(f"{type(error).__name__}: {error}"))

    def as_json(self) -> dict[str, Any]:
        """Return all records for a response."""
        received = {
            tag: {"count": one.next, "bytes": one.bytes, "wrong": one.wrong[:5]} for tag, one in self.received.items()
        }
        return {"events": self.events, "errors": self.errors[-20:], "received": received}

    def _record(self, name: str, tag: str) -> None:
        self.events.append((time.monotonic(), name, tag))


def numbered(first: int, count: int, size: int, marker: str) -> list[bytes]:
    """Return ``count`` messages from number ``first`` on, of at least ``size`` bytes each, that contain ``marker``."""
    content = marker.encode()
    return [
        (number.to_bytes(NUMBER_BYTES, "big") + content).ljust(size, b".") for number in range(first, first + count)
    ]


def send_all(send_many: Callable[..., None], request: dict[str, Any]) -> None:
    """Send numbered messages; ``rate`` limits the messages per second."""
    first, count, rate = request.get("first", 0), request["count"], request.get("rate")
    start_time = time.monotonic()
    batch = BATCH if rate is None else 1
    for start in range(first, first + count, batch):
        size_of_batch = min(batch, first + count - start)
        send_many(
            numbered(start, size_of_batch, request.get("size", 64), request.get("marker", "")),
            timeout=request.get("timeout"),
        )
        if rate is not None:
            time.sleep(max(0.0, start_time + (start - first + 1) / rate - time.monotonic()))


class Role(Protocol):
    """The role of a program."""

    def __init__(self, options: dict[str, Any]) -> None: ...

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Execute a request, and return the response."""

    def close(self) -> None:
        """Close all resources."""


class Driver:
    """A media driver as the package starts it, in a separate process or in that of a server or clients."""

    def __init__(self, options: dict[str, Any]) -> None:
        properties = (f"-D{name}={value}" for name, value in options.get("properties", {}).items())
        jvm.start(*DRIVER_JVM_ARGUMENTS, *properties)
        # Aeron's debug endpoints, which lose packets, are configured by properties
        settings = {
            "aeronDirectoryName": options["dir"],
            "threadingMode": "SHARED",
            "dirDeleteOnShutdown": True,
            "dirDeleteOnStart": True,
            "termBufferSparseFile": True,
        }
        self._dir = options["dir"]
        self._driver = EmbeddedDriver(settings, None)

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "counters":
                return {
                    "received_bytes": self._count("Bytes received"),
                    "retransmits": self._count("Retransmits sent"),
                    "retransmitted_bytes": self._count("Retransmitted bytes"),
                    "drops": read_drops(self._dir),
                }
        raise LookupError(request["do"])

    def close(self) -> None:
        self._driver.close()

    def _count(self, name: str) -> int:
        return next(
            one.value
            for one in read_counters(self._dir)
            if one.type_id == SYSTEM_COUNTER and one.label.startswith(name)
        )


class ServerProgram:
    """A server that records received messages, and sends messages on request."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._dir = options["dir"]
        self._plain: Any = None
        self._sending = threading.Thread()
        self.journal = Journal()
        self.server = endpoints.make_server(options)
        self.journal.listen(self.server)
        self.server.on_message(bytes, lambda connection, message: self.journal.received[connection.tag].add(message))
        self.server.start()

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "send":
                send_all(self._to(request["tag"]).send_many, request)
                return {}
            case "begin_send":  # to a client that may not receive the messages
                sending = (self._to(request["tag"]).send_many, request)
                self._sending = threading.Thread(target=send_all, args=sending)
                self._sending.start()
                return {}
            case "end_send":
                self._sending.join()
                return {}
            case "send_to_all":
                connections = self.server.connections
                # one after the other, because simultaneous sending would overload the network
                for connection in connections:
                    send_all(connection.send_many, request)
                return {"to": len(connections)}
            case "create_stream":
                self.server.streams.create(create_request(request["name"], 1))
                return {}
            case "ping":
                to = self._to(request["tag"])
                return {"seconds": [to.ping(request.get("timeout", 10)) for _ in range(request.get("count", 1))]}
            case "listen_plain":
                self._plain = client_of(self._dir).subscription(request["channel"], PLAIN_STREAM)
                return {}
            case "statistics":
                addresses = {one.tag: [one.remote_address, one.remote_port] for one in self.server.connections}
                return {**self.journal.as_json(), "in_use": self.server.statistics, "addresses": addresses}
        raise LookupError(request["do"])

    def close(self) -> None:
        self.server.close()

    def _to(self, tag: str) -> Any:
        return next(one for one in self.server.connections if one.tag == tag)


def mtus_of(client: Any) -> list[int]:
    """Return the MTU of each open bulk link of a client that has searched for the largest one."""
    bulk_links = list(client._endpoint.bulk_links._by_token.values())
    return [MTU_BYTES if one.watch is None else one.watch.mtu_bytes for one in bulk_links if not one.closed]


class RowReading:
    """Reads the numbered rows of a stream, and waits in the middle until it is told to go on."""

    def __init__(self, client: Any, stream: str, pause_after: int) -> None:
        self._rows = Sequence()
        self._pause_after = pause_after
        self._error = ""
        self._paused, self._may_continue = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read, args=(client, stream))
        self._thread.start()

    def await_pause(self, timeout: float) -> int:
        """Wait until the reader waits; return how many rows it has read."""
        assert self._paused.wait(timeout), f"{self._rows.next} rows after {timeout:g} s: {self._error}"
        return self._rows.next

    def finish(self, timeout: float) -> dict[str, Any]:
        """Let the reader go on, and wait until it has read all rows."""
        start = time.monotonic()
        self._may_continue.set()
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"reading hangs after {self._rows.next} rows"
        taken = time.monotonic() - start
        return {"rows": self._rows.next, "wrong": self._rows.wrong, "error": self._error, "seconds": taken}

    def _read(self, client: Any, stream: str) -> None:
        try:
            for batch in client.reader(stream):
                for row in batch.column("value").to_pylist():
                    self._rows.add(row)
                if self._rows.next >= self._pause_after and not self._paused.is_set():
                    self._paused.set()
                    self._may_continue.wait()
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"


class Clients:
    """Clients on one driver, each with its tag and keys."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._dir = options["dir"]
        self._plain: Any = None
        self.journal = Journal()
        self.clients: dict[str, Any] = {}
        for tag in options["tags"]:
            client = self.clients[tag] = endpoints.make_client(options, tag)
            self.journal.listen(client, tag)
            client.on_message(bytes, self.journal.received[tag].add)
        self._round_trips: list[float] = []
        self._stop = threading.Event()
        self._reading: Any = None
        self._pinging: threading.Thread | None = None

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        client = self.clients[request.get("tag", next(iter(self.clients)))]
        match request["do"]:
            case "connect":
                start_time = time.monotonic()
                for one in self.clients.values():
                    one.connect(request.get("timeout", 20))
                return {"seconds": time.monotonic() - start_time}
            case "send":
                send_all(client.send_many, request)
                return {}
            case "acknowledged":  # the server's listeners have then handled all earlier messages
                client.send(
                    numbered(request["number"], 1, 64, "")[0], timeout=request.get("timeout", 20), acknowledge=True
                )
                return {}
            case "ping":
                return {"seconds": [client.ping(request.get("timeout", 10)) for _ in range(request.get("count", 1))]}
            case "open_bulk_link":
                bulk_link = client.bulk_link(request.get("timeout", 10))
                bulk_link.close()
                return {"number": bulk_link.number}
            case "write_rows":
                with client.writer(request["stream"], payload="raw") as out:
                    for first in range(0, request["count"], BATCH):
                        out.write(numbered(first, BATCH, request["size"], ""))
                return {"mtus": mtus_of(client)}
            case "mtus":
                return {"mtus": mtus_of(client)}
            case "begin_read":
                self._reading = RowReading(client, request["stream"], request["pause_after"])
                return {}
            case "await_pause":
                return {"rows": self._reading.await_pause(request.get("timeout", 30)), "mtus": mtus_of(client)}
            case "end_read":
                return self._reading.finish(request.get("timeout", 60)) | {"mtus": mtus_of(client)}
            case "begin_pings":
                self._round_trips, self._stop = [], threading.Event()
                self._pinging = threading.Thread(target=self._ping, args=(client, request.get("pause", 0.01)))
                self._pinging.start()
                return {}
            case "end_pings":
                self._stop.set()
                self._pinging.join()
                return {"seconds": self._round_trips}
            case "publish_plain":
                self._plain = client_of(self._dir).exclusive_publication(request["channel"], PLAIN_STREAM)
                wait_for(self._plain.isConnected, 10, "a subscriber")
                message = request["text"].encode()
                buffer = jclass("org.agrona.concurrent.UnsafeBuffer")(message)
                wait_for(lambda: self._plain.offer(buffer, 0, len(message)) > 0, 10, "room for a message")
                return {}
            case "statistics":
                return {
                    **self.journal.as_json(),
                    "connected": [tag for tag, one in self.clients.items() if one.connected],
                }
        raise LookupError(request["do"])

    def close(self) -> None:
        for client in self.clients.values():
            client.close()

    def _ping(self, client: Any, pause: float) -> None:
        while not self._stop.wait(pause):
            self._round_trips.append(client.ping(30))


class WithDriver:
    """A server or clients with their driver in the same process."""

    def __init__(self, role: type[Role], options: dict[str, Any]) -> None:
        self._dir = options["dir"]
        self._driver = Driver(options)
        self._role = role(options)

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._driver.do(request) if request["do"] == "counters" else self._role.do(request)

    def close(self) -> None:
        self._role.close()
        close_client(self._dir)
        self._driver.close()


def main() -> None:
    name, options = sys.argv[1], json.loads(sys.argv[2])
    gc.freeze()
    with node.ensure(options["dir"]) if options.get("own_node") else contextlib.nullcontext():
        _run(name, options)
    _print_response({"closed": True})


def _run(name: str, options: dict[str, Any]) -> None:
    roles: dict[str, type[Role]] = {"driver": Driver, "server": ServerProgram, "clients": Clients}
    if name != "driver" and not options.get("own_driver"):
        jvm.start()
    role: Role = WithDriver(roles[name], options) if options.get("own_driver") else roles[name](options)
    _print_response({"ready": os.getpid()})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _print_response(role.do(request))
        except Exception as error:
            _print_response({"raised": f"{type(error).__name__}: {error}"})
    role.close()


def _print_response(response: dict[str, Any]) -> None:
    print(RESPONSE_PREFIX + json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
