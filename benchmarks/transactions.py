"""Measures durable transactions of one row at one server, and the processor time that each costs the server."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Final

import psutil

from benchmarks.environment import Environment
from benchmarks.measure import Figure, cpu_seconds
from benchmarks.programs import run_program
from benchmarks.samples import spread_warning
from benchmarks.secure_server import SecureServer, run_server

# concurrent writers: transactions of a turn, and the bar for the rate
WRITERS: Final = {1: (400, ">= 150"), 8: (1_600, ">= 600"), 100: (4_000, ">= 1200")}
QUICK_TRANSACTIONS: Final = 2  # of each writer
CPU_BAR: Final = "<= 0.8"
RECORDING_SLOTS: Final = 2 * max(WRITERS)  # the streams of earlier turns keep theirs until others need them


def run(env: Environment) -> Iterator[Figure]:
    """Commit with 1, 8 and 100 writers, in turns."""
    with (
        # recordings of other parts, which Spark's workers keep open, take no slots of this node
        env.on_another_node("transactions", max_recordings=RECORDING_SLOTS) as own,
        run_server(own, "transactions") as server,
    ):
        connection = server.connection
        arguments = (connection["server"], connection["serverKey"], connection["identity"], connection["aeronDir"])
        with run_program("benchmarks.transaction_clients", *arguments) as request:
            millis: dict[int, list[float]] = {writers: [] for writers in WRITERS}
            cases = {
                str(writers): _turn(env, server, request, writers, count, millis[writers])
                for writers, (count, _) in WRITERS.items()
            }
            rates = env.take_turns(cases)
        for writers, (_, bar) in WRITERS.items():
            # the cost was measured in the warm turns, too
            yield from _figures(writers, bar, rates[str(writers)], millis[writers][-env.rounds :])


def _turn(
    env: Environment,
    server: SecureServer,
    request: Callable[[str], str],
    writers: int,
    count: int,
    millis: list[float],
) -> Callable[[], float]:
    """Return a function that commits the transactions of a turn, and returns their rate.

    It appends their cost to ``millis``: the processor time of the server's process, in milliseconds a transaction.
    """
    count = writers * (QUICK_TRANSACTIONS if env.quick else count // writers)
    process = psutil.Process(server.pid)

    def turn() -> float:
        stream = server.new_stream(writers)
        before = cpu_seconds(process)
        seconds = float(request(f"{stream} {writers} {count}"))
        transactions = count + writers  # and the first one of each writer
        millis.append(1e3 * (cpu_seconds(process) - before) / transactions)
        if (rows := int(request(stream))) != transactions:
            raise RuntimeError(f"stream {stream} has {rows} rows, expected {transactions}")
        return count / seconds

    return turn


def _figures(writers: int, bar: str, rates: list[float], millis: list[float]) -> Iterator[Figure]:
    noun = "writer" if writers == 1 else "writers"
    name = f"durable transactions of one row, {writers} {noun}"
    warning = spread_warning("this case", rates)
    detail = f"median of {len(rates)} turns, {min(rates):.3g} to {max(rates):.3g}; one client over loopback UDP"
    yield Figure(
        name, statistics.median(rates), "a second", bar, "; ".join(filter(None, (detail, warning))), {"rates": rates}
    )
    yield Figure(
        f"{name}, cost at the server",
        statistics.median(millis),
        "ms of processor time a transaction",
        CPU_BAR,
        f"{min(millis):.2g} to {max(millis):.2g}; the server's process with its JVM",
        {"milliseconds": millis},
    )
