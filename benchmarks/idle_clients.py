"""Measures how fast many clients of one server connect and close, and their processor time while they are idle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psutil

from aeron_spark.waiting import wait_for
from benchmarks.environment import Environment
from benchmarks.measure import Figure, cpu_seconds
from benchmarks.secure import FIRST_PORT, TIMEOUT_S, Request, run_endpoint

PROCESSES: Final = 4  # with clients, each with its own media driver
CLIENTS: Final = 200
CONCURRENT: Final = 2  # clients of a process that connect at the same time
SETTLING_S: Final = 5.0  # until the state and the log buffers of handshakes are released
IDLE_S: Final = 20.0


def run(env: Environment) -> Iterator[Figure]:
    """Connect all clients, measure them while they are idle, then close them."""
    per_process = 1 if env.quick else CLIENTS // PROCESSES
    count = per_process * PROCESSES
    with _server_and_clients(env) as (server, clients, drivers):
        started = time.perf_counter()
        errors = _request_all(clients, "connect_many", count=per_process, concurrent=CONCURRENT)
        connected_s = time.perf_counter() - started
        assert not any(errors), errors
        assert server("statistics")["connections"] == count
        time.sleep(0.5 if env.quick else SETTLING_S)

        def cpu_times() -> list[float]:
            return [server("cpu"), sum(client("cpu") for client in clients), sum(map(cpu_seconds, drivers))]

        before, started = cpu_times(), time.perf_counter()
        time.sleep(0.5 if env.quick else IDLE_S)
        seconds = time.perf_counter() - started
        server_cores, client_cores, driver_cores = (
            (now - then) / seconds for now, then in zip(cpu_times(), before, strict=True)
        )
        started = time.perf_counter()
        _request_all(clients, "close_clients")
        wait_for(lambda: server("statistics")["connections"] == 0, TIMEOUT_S, "the server to close all connections")
        closed_s = time.perf_counter() - started
    yield Figure(
        f"secure, {CLIENTS} idle clients and their server",
        server_cores + client_cores,
        "cores",
        "<= 0.5",
        f"{server_cores:.2f} by the server, {client_cores:.2f} by {PROCESSES} processes with {count} clients; "
        f"in addition {driver_cores:.2f} by {PROCESSES + 1} media drivers. All connected within {connected_s:.1f} s "
        f"and were closed within {closed_s:.1f} s",
        {"server": [server_cores], "clients": [client_cores], "drivers": [driver_cores]},
    )


@contextmanager
def _server_and_clients(env: Environment) -> Iterator[tuple[Request, list[Request], list[psutil.Process]]]:
    """Run a server and the processes with clients; yield their request functions and all media drivers."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(env.another_node(f"clients-{n}", archive=False)) for n in range(PROCESSES)]
        server = stack.enter_context(run_endpoint("server", env.node.aeron_dir, FIRST_PORT))
        clients = [stack.enter_context(run_endpoint("client", node.aeron_dir, FIRST_PORT)) for node in nodes]
        yield server, clients, [psutil.Process(node.pid) for node in (env.node, *nodes)]


def _request_all(clients: list[Request], method: str, **arguments: object) -> list[Any]:
    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(lambda client: client(method, **arguments), clients))
