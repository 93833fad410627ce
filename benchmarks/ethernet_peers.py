"""Repeats the reads of :mod:`benchmarks.server_peers` in a network namespace, in which the MTU is 1,500 bytes.

There TCP and the connector have packets of the size that Ethernet carries. A namespace needs root.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.environment import Environment, benchmark_environment
from benchmarks.measure import ROOT, Figure
from benchmarks.programs import await_end
from benchmarks.published import Results
from benchmarks.server_peers import ETHERNET, run_on

MTU: Final = 1_500
TIMEOUT_S: Final = 3_600.0
IN_NAMESPACE: Final = f'ip link set lo mtu {MTU} up && exec "$0" "$@"'


def run(env: Environment) -> Iterator[Figure]:
    """Run the comparisons in a namespace, and return their figures."""
    output = env.folder / "ethernet.json"
    arguments = [str(output), str(int(env.quick)), str(env.rounds)]
    command = [
        "unshare", "--net", "sh", "-c", IN_NAMESPACE, sys.executable, "-m", "benchmarks.ethernet_peers", *arguments,
    ]  # fmt: skip
    try:
        process = subprocess.Popen(command, cwd=ROOT)
    except FileNotFoundError as error:
        raise RuntimeError(f"no network namespace can be made: {error}") from error
    try:
        code = process.wait(TIMEOUT_S)
    except BaseException:
        process.terminate()  # it removes what it made
        await_end(process)
        raise
    if code:
        raise RuntimeError(
            f"the comparison in a network namespace exited with {code}. A namespace needs root and the "
            "commands unshare and ip; leave this part out with --only."
        )
    yield from report.read_json(output).figures


def main() -> None:
    """Measure in this namespace, and write the figures as JSON."""
    output, quick, rounds = sys.argv[1:]
    with benchmark_environment(quick=bool(int(quick)), rounds=int(rounds)) as env:
        report.write_json(Path(output), Results(({},), tuple(run_on(env, ETHERNET))))


if __name__ == "__main__":
    main()
