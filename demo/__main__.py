"""``python -m demo``: exit code 0 and a last line that begins with ``demo ok``, or 1 and a sentence that says why."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from rich.console import Console

from aeron_spark.errors import AeronSparkError
from demo import Failed
from demo.flights import TOTAL
from demo.run import ACTS, run
from demo.stopping import Stopping

INTERRUPTED = 130


def main() -> int:
    """Run the demo, and tell how it ended."""
    parser = argparse.ArgumentParser(
        prog="demo",
        description="Real flights through Aeron and Spark into Delta, and back; then through a secure server.",
    )
    parser.add_argument("--rows", type=int, default=TOTAL, help="flights to publish (default: all %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long sending them takes, in each act (default: %(default)s)"
    )
    parser.add_argument("--picture", type=Path, default=Path("demo-output/flights.png"), help="default: %(default)s")
    parser.add_argument("--act", choices=ACTS, action="append", help="play this one only")
    args = parser.parse_args()
    if not 0 < args.rows <= TOTAL:
        parser.error(f"--rows is one of 1 to {TOTAL}")
    stopping = Stopping()
    stopping.listen()
    console = Console(highlight=False, soft_wrap=True)
    try:
        last_lines = run(args.rows, args.seconds, args.picture, console, stopping, args.act or ACTS)
    except KeyboardInterrupt:
        print("demo stopped", file=sys.stderr)
        return INTERRUPTED
    except (Failed, AeronSparkError, PySparkException, Py4JError, OSError, ValueError) as error:
        if stopping.asked:
            print("demo stopped", file=sys.stderr)
            return INTERRUPTED
        print(f"demo failed: {str(error).strip().split(chr(10))[0] or type(error).__name__}", file=sys.stderr)
        return 1
    print("\n".join(last_lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
