"""One process that publishes the flights through Aeron, as fast as it is told: ``python -m demo.producer``.

Says how far it is in one JSON object a line. After its first flights it waits for the end of its standard input:
whoever started it closes it once the stream is being read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import pyarrow as pa

from aeron_spark.log.appender import Appender, Source
from aeron_spark.options import WriteOptions
from demo.flights import TOTAL, load

BATCHES_PER_SECOND = 20
FIRST_SHARE = 20  # a twentieth comes before the wait


class Publishing:
    """Publishes parts of a table, and tells how far it is."""

    def __init__(self, appender: Appender, say: Callable[[dict[str, float]], None]) -> None:
        self._appender = appender
        self._say = say

    def publish(self, flights: pa.Table, seconds: float) -> None:
        """Publish ``flights`` evenly over ``seconds``, and return once all of them are recorded."""
        size = max(1, round(flights.num_rows / max(seconds * BATCHES_PER_SECOND, 1)))
        began = time.time()
        for first in range(0, flights.num_rows, size):
            due = began + seconds * first / flights.num_rows
            time.sleep(max(0.0, due - time.time()))
            for batch in flights.slice(first, size).to_batches():
                self._appender.arrow(batch)
            self._say({"published": self._appender.rows})
        self._appender.finish()


def main() -> None:
    """Load, publish, and say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aeron-dir", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("--stream-id", required=True)
    parser.add_argument("--rows", type=int, default=TOTAL)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    options = {
        "aeronDir": args.aeron_dir,
        "channel": args.channel,
        "streamId": args.stream_id,
        "payload": "arrow",
        "record": "auto",
        "ack": "archive",
    }
    flights = load(args.rows)
    appender = Appender(WriteOptions.parse(options, streaming=False), Source("flights"))
    publishing = Publishing(appender, say)
    first = -(-args.rows // FIRST_SHARE)
    began = time.time()
    publishing.publish(flights.slice(0, first), 0.0)
    sys.stdin.read()
    resumed = time.time()
    publishing.publish(flights.slice(first), args.seconds)
    say({"published": appender.rows, "began": began, "resumed": resumed, "ended": time.time()})


def say(what: dict[str, float]) -> None:
    """Write one line to whoever started this process."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
