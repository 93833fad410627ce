"""Measures connecting, the first time in a process and later, and pings of an idle connection."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from benchmarks.environment import Environment
from benchmarks.measure import ROOT, Figure
from benchmarks.secure_server import run_server

LATER_CONNECTS: Final = 20
PINGS: Final = 400
WARM_PINGS: Final = 50
PING_INTERVAL_S: Final = 0.005
TIMEOUT_S: Final = 600.0
PROGRAM: Final = """
import json, sys
from benchmarks.connecting import time_client
print(json.dumps(time_client(json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
"""


def run(env: Environment) -> Iterator[Figure]:
    """Measure in one new process for each round."""
    later, pings = (2, 5) if env.quick else (LATER_CONNECTS, PINGS)
    with run_server(env, "connecting") as server:
        runs = [_time_process(server.connection, later, pings) for _ in range(env.rounds)]
    firsts = [connects[0] for connects, _ in runs]
    laters = [1e3 * seconds for connects, _ in runs for seconds in connects[1:]]
    millis = [1e3 * seconds for _, round_trips in runs for seconds in round_trips]
    yield Figure(
        "first connect of a process, over loopback UDP",
        statistics.median(firsts),
        "s",
        "<= 0.4",
        f"{min(firsts):.2g} to {max(firsts):.2g} in {len(firsts)} processes; from the call of connect, with the JVM",
        {"seconds": firsts},
    )
    yield Figure(
        "a later connect of the process",
        statistics.median(laters),
        "ms",
        "<= 15",
        f"median of {len(laters)}, {min(laters):.3g} to {max(laters):.3g}",
        {"milliseconds": laters},
    )
    yield Figure(
        "ping of an idle connection over loopback UDP, default idle strategy",
        statistics.median(millis),
        "ms",
        "<= 0.5",
        f"median of {len(millis)}, one each {1e3 * PING_INTERVAL_S:g} ms; p99 {_percentile(millis, 0.99):.3g} ms",
        {"milliseconds": millis},
    )


def time_client(connection: dict[str, str], later: int, pings: int) -> tuple[list[float], list[float]]:
    """Return the seconds of a first connect and of ``later`` ones, and those of pings on the last connection."""
    import aeron_spark

    connects: list[float] = []
    round_trips: list[float] = []
    for number in range(1 + later):
        started = time.perf_counter()
        client = aeron_spark.connect(
            connection["server"],
            identity=connection["identity"],
            server_key=connection["serverKey"],
            aeron_dir=connection["aeronDir"],
            ipc="never",
        )
        connects.append(time.perf_counter() - started)
        with client:
            if number == later:
                for _ in range(WARM_PINGS + pings):
                    round_trips.append(client.ping())
                    time.sleep(PING_INTERVAL_S)
    return connects, round_trips[WARM_PINGS:]


def _time_process(connection: dict[str, str], later: int, pings: int) -> tuple[list[float], list[float]]:
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(connection), str(later), str(pings)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        cwd=ROOT,
    )
    connects, round_trips = json.loads(completed.stdout.splitlines()[-1])
    return connects, round_trips


def _percentile(samples: list[float], part: float) -> float:
    """Return the sample below which ``part`` of the samples are."""
    return sorted(samples)[min(len(samples) - 1, int(part * len(samples)))]
