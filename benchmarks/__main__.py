"""``python -m benchmarks``: run them all, or some, and write what came out."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.measure import ROUNDS, Figure, machine

# memory before writing: a worker keeps the publications it wrote to, and their log buffers are mapped
NAMES: Final = ("starting", "reading", "latency", "memory", "writing", "secure", "crowd", "costs", "through")


def main() -> int:
    """Run the benchmarks; the exit code is 1 where a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=NAMES, action="append", help="run this one only (may be repeated)")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that they run; the figures mean nothing"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measured rounds of each case (default %(default)s)")
    parser.add_argument(
        "--output", type=Path, help="write the figures there as JSON, and leave docs/performance.md alone"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="with --only: put these figures in the place of the old ones in docs/performance.md, and leave the rest",
    )
    given = parser.parse_args()
    if given.update and (given.quick or given.output or not given.only):
        parser.error("--update goes with --only, and with neither --quick nor --output")
    if sys.flags.optimize:
        parser.error("the benchmarks check what they measure with assert: run them without -O")

    from benchmarks.stage import stage

    about = machine()
    if given.update:
        try:
            report.check_same_machine(about)
        except ValueError as error:
            parser.error(str(error))
    figures: list[Figure] = []
    with stage(quick=given.quick, rounds=given.rounds) as built:
        for name in [name for name in NAMES if name in (given.only or NAMES)]:
            begun = time.monotonic()
            print(f"{name}:", flush=True)
            for figure in importlib.import_module(f"benchmarks.{name}").run(built):
                print(f"  {report.line(figure)}", flush=True)
                figures.append(figure)
            print(f"  ({time.monotonic() - begun:.0f} s)", flush=True)
    if given.output:
        report.write_json(given.output, about, figures)
        return 0
    if given.quick or (given.only and not given.update):
        return 0
    report.write_document(about, report.updated(figures) if given.update else figures)
    missed = [figure.name for figure in figures if figure.met is False]
    for name in missed:
        print(f"target missed: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
