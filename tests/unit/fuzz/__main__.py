"""Fuzzes decoders: ``python -m tests.unit.fuzz [--seed N] [--count N] [--long] [NAME...]``; without names, all."""

from __future__ import annotations

import argparse
import time

from tests.unit.fuzz.decoders import DECODERS
from tests.unit.fuzz.fuzzing import growth_faults, run, run_long


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.unit.fuzz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--long", action="store_true", help="long inputs, of 64 KiB and 1 MiB")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    total = 0
    for decoder in DECODERS:
        if given.names and decoder.name not in given.names:
            continue
        begin = time.process_time()
        if given.long:
            outcome = run_long(decoder, given.seed)
            faults = outcome.faults + growth_faults(decoder, given.seed)
        else:
            outcome = run(decoder, given.seed, given.count // decoder.share)
            faults = outcome.faults
        seconds = time.process_time() - begin
        print(
            f"{decoder.name}: {seconds:.1f} s, {outcome.accepted} accepted, slowest {1_000 * outcome.slowest_s:.2f} ms "
            f"({outcome.slowest_name}): {outcome.slowest[:40].hex()} ({len(outcome.slowest)} bytes)",
            flush=True,
        )
        for fault in faults:
            print(f"  {fault}"[:700], flush=True)
        total += len(faults)
    return min(total, 100)


if __name__ == "__main__":
    raise SystemExit(main())
