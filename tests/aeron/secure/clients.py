"""Many clients in one process: ``python -m tests.aeron.secure.clients HOST DATA CONTROL AERON_DIR COUNT``.

It prints ``connected N`` when all are connected. Then it runs the commands of its input: ``send``, ``close``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from aeron_spark import node
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.client.client import Client
from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.access import ServerName
from aeron_spark.transport.api import ServerAddress

TIMEOUT_S = 240.0  # for two hundred clients of four processes on two busy cores


def main(host: str, data: int, control: int, aeron_dir: str, count: int) -> None:
    """Connect, then run the commands of the input."""
    with node.ensure(aeron_dir):
        aeron = client_of(aeron_dir)
        address = ServerAddress("udp", host, data, control)
        clients = [
            Client(
                ClientEndpoint(
                    lambda: AeronClientTransport(aeron, address, idle="sleeping"),
                    ServerName(host, data),
                    MemoryPeerStore(),
                    ClientOptions(tag=f"client {number}"),
                )
            )
            for number in range(count)
        ]
        echoed = [threading.Event() for _ in clients]
        for client, event in zip(clients, echoed, strict=True):
            client.on_message(bytes, lambda message, event=event: event.set())
        with ThreadPoolExecutor(count) as pool:
            started = time.monotonic()
            list(pool.map(lambda client: client.connect(TIMEOUT_S), clients))
            _print(f"connected {count} {time.monotonic() - started:.2f}")
            for line in sys.stdin:
                if line.strip() == "send":
                    _each(pool, clients, lambda client: client.send(b"hello", acknowledge=True))
                    assert all(event.wait(TIMEOUT_S) for event in echoed)
                    _print(f"sent {count}")
                elif line.strip() == "close":
                    break
            _each(pool, clients, lambda client: client.close())
        _print("closed")
        aeron.close()


def _each(pool: ThreadPoolExecutor, clients: list[Client], do: Callable[[Client], object]) -> None:
    list(pool.map(do, clients))


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
