"""Many clients of one server: how fast they come and go, and what they cost while they say nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psutil

from aeron_spark.waiting import wait_for
from benchmarks.measure import Figure
from benchmarks.secure import PORTS, TIMEOUT, Say, cpu_of, end_of
from benchmarks.stage import Stage

PROCESSES: Final = 4  # with clients, each with a media driver of its own
CLIENTS: Final = 200
AT_ONCE: Final = 2  # of a process, that connect
SETTLING: Final = 5.0  # seconds until handshakes and their logs are forgotten
IDLE: Final = 20.0  # seconds


def run(stage: Stage) -> Iterator[Figure]:
    """Connect them all, let them be idle, then let them go."""
    each = 1 if stage.quick else CLIENTS // PROCESSES
    count = each * PROCESSES
    with _crowd(stage) as (server, clients, drivers):
        begun = time.perf_counter()
        failed = [text for texts in _all(clients, "gather", count=each, at_once=AT_ONCE) for text in texts]
        came = time.perf_counter() - begun
        assert not failed, failed[0]
        assert server("statistics")["connections"] == count
        time.sleep(0.5 if stage.quick else SETTLING)

        def spent() -> list[float]:
            return [server("cpu"), sum(client("cpu") for client in clients), sum(map(cpu_of, drivers))]

        before, since = spent(), time.perf_counter()
        time.sleep(0.5 if stage.quick else IDLE)
        seconds = time.perf_counter() - since
        at_server, at_clients, at_drivers = ((now - then) / seconds for now, then in zip(spent(), before, strict=True))
        begun = time.perf_counter()
        _all(clients, "disperse")
        wait_for(lambda: server("statistics")["connections"] == 0, TIMEOUT, "the server to have heard of each end")
        left = time.perf_counter() - begun
    yield Figure(
        f"secure, {CLIENTS} clients that say nothing, and their server",
        at_server + at_clients,
        "cores",
        "<= 0.5",
        f"{at_server:.2f} by the server, {at_clients:.2f} by {PROCESSES} processes with {count} clients; beside them "
        f"{at_drivers:.2f} by {PROCESSES + 1} media drivers. They came within {came:.1f} s, and left within "
        f"{left:.1f} s",
        {"server": [at_server], "clients": [at_clients], "drivers": [at_drivers]},
    )


@contextmanager
def _crowd(stage: Stage) -> Iterator[tuple[Say, list[Say], list[psutil.Process]]]:
    """A server, processes with clients, and all media drivers."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(stage.node_beside(f"crowd-{one}", archive=False)) for one in range(PROCESSES)]
        server = stack.enter_context(end_of("server", stage.node.aeron_dir, PORTS))
        clients = [stack.enter_context(end_of("client", one.aeron_dir, PORTS)) for one in nodes]
        yield server, clients, [psutil.Process(one.pid) for one in (stage.node, *nodes)]


def _all(clients: list[Callable[..., Any]], do: str, **given: object) -> list[Any]:
    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(lambda client: client(do, **given), clients))
