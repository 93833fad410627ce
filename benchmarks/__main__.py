"""``python -m benchmarks``: run all benchmarks, or some of them, and write their figures."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.measure import ROUNDS, Figure, describe_machine
from benchmarks.published import Results
from benchmarks.quiet import BusyMachineError, wait_for_quiet

# Comparisons with the peers, then the details. "memory" runs before all that write with Spark: a worker keeps the
# publications that it wrote to, and their log buffers stay mapped.
NAMES: Final = (
    "memory", "reading_peers", "query_peers", "writing_peers", "server_peers", "ethernet_peers", "sbe_decoding",
    "transactions", "connecting", "commands", "growth", "many_readers",
    "starting", "reading", "latency", "writing", "secure", "idle_clients", "costs", "request_costs", "server_route",
)  # fmt: skip


def main() -> int:
    """Run the benchmarks; return 1 if a figure missed its target, 2 if the machine is busy."""
    parser = _parser()
    args = parser.parse_args()
    if args.update and (args.quick or args.output or not args.only):
        parser.error("--update needs --only, and cannot be combined with --quick or --output")
    if args.rounds < ROUNDS and not args.quick:
        parser.error(f"a published median needs at least {ROUNDS} rounds; fewer are possible with --quick")
    if sys.flags.optimize:
        parser.error("-O disables the assertions that check the measured programs: run without -O")
    if sys.dont_write_bytecode:
        parser.error("each new Python process would compile the sources again: run without PYTHONDONTWRITEBYTECODE")
    measured_on = describe_machine()
    if not args.quick:
        try:
            measured_on["load before"] = round(wait_for_quiet(_load, time.monotonic, time.sleep), 2)
        except BusyMachineError as error:
            print(error, file=sys.stderr)
            return 2
    figures = _measure(args)
    results = Results((measured_on,), tuple(figures))
    if args.output:
        report.write_json(args.output, results)
        return 0
    if args.quick or (args.only and not args.update):
        return 0
    report.write_document(report.read_json(report.RESULTS).updated(measured_on, figures) if args.update else results)
    missed = [figure.name for figure in figures if figure.met is False]
    for name in missed:
        print(f"target missed: {name}", file=sys.stderr)
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=NAMES, action="append", help="run only this benchmark (may be repeated)")
    parser.add_argument(
        "--quick", action="store_true", help="use tiny sizes: shows that the benchmarks run, the figures mean nothing"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measured rounds of each case (default %(default)s)")
    parser.add_argument(
        "--output", type=Path, help="write the figures to this JSON file, and do not change docs/performance/figures.md"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="with --only: replace the figures of these benchmarks in docs/performance/figures.md, and keep "
        "the others; each has the machine that it was measured on",
    )
    return parser


def _load() -> float:
    return os.getloadavg()[0]


def _measure(args: argparse.Namespace) -> list[Figure]:
    from benchmarks.environment import benchmark_environment

    figures: list[Figure] = []
    with benchmark_environment(quick=args.quick, rounds=args.rounds) as env:
        for name in [name for name in NAMES if name in (args.only or NAMES)]:
            started = time.monotonic()
            print(f"{name}:", flush=True)
            for figure in importlib.import_module(f"benchmarks.{name}").run(env):
                print(f"  {report.figure_line(figure)}", flush=True)
                figures.append(figure)
            print(f"  ({time.monotonic() - started:.0f} s)", flush=True)
    return figures


if __name__ == "__main__":
    sys.exit(main())
