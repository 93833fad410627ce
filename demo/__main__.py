"""``python -m demo``: ends with exit code 0 and a last line ``demo ok: ...``, or with 1 and the reason."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from rich.console import Console

from aeron_spark.errors import AeronSparkError
from demo import DemoError
from demo.flights import TOTAL
from demo.run import ACTS, run
from demo.stopping import StopSignals

INTERRUPTED = 130


def main() -> int:
    """Run the demo and print its result. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="demo",
        description="Send flights through Aeron and Spark into Delta and back; then through a secure server.",
    )
    parser.add_argument(
        "--rows", type=int, default=TOTAL, help="number of flights to publish (default: all %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        help="seconds over which each act sends the flights (default: %(default)s)",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("demo-output/flights.png"),
        help="file for the chart (default: %(default)s)",
    )
    parser.add_argument("--act", choices=ACTS, action="append", help="run only this act; repeatable (default: both)")
    args = parser.parse_args()
    if not 0 < args.rows <= TOTAL:
        parser.error(f"--rows is {args.rows}, expected 1 to {TOTAL}")
    stopping = StopSignals()
    stopping.install()
    console = Console(highlight=False, soft_wrap=True)
    try:
        last_lines = run(args.rows, args.seconds, args.picture, console, stopping, args.act or ACTS)
    except KeyboardInterrupt:
        print("demo stopped", file=sys.stderr)
        return INTERRUPTED
    except (DemoError, AeronSparkError, PySparkException, Py4JError, OSError, ValueError) as error:
        if stopping.requested:
            print("demo stopped", file=sys.stderr)
            return INTERRUPTED
        print(f"demo failed: {str(error).strip().split(chr(10))[0] or type(error).__name__}", file=sys.stderr)
        return 1
    print("\n".join(last_lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
