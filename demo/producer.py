"""Publishes the flights through Aeron over a given time: ``python -m demo.producer``.

Prints its progress as one JSON object per line. After the first flights it waits for the end of its standard input,
which the demo closes when Spark has read them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import pyarrow as pa

from aeron_spark.direct.writing import DirectAppender
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from demo.flights import TOTAL, load
from demo.pacing import first_rows, paced

BATCHES_PER_SECOND = 20


def publish(appender: DirectAppender, flights: pa.Table, seconds: float) -> None:
    """Publish ``flights`` evenly over ``seconds``, and wait until all of them are recorded."""
    for part in paced(flights, seconds, BATCHES_PER_SECOND):
        for batch in part.to_batches():
            appender.arrow(batch)
        print_progress({"published": appender.rows})
    appender.finish()


def main() -> None:
    """Load and publish the flights, and print the progress."""
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
    appender = DirectAppender(WriteOptions.parse(options, streaming=False), Source("flights"))
    first = first_rows(args.rows)
    start = time.time()
    publish(appender, flights.slice(0, first), 0.0)
    sys.stdin.read()
    resumed = time.time()
    publish(appender, flights.slice(first), args.seconds)
    print_progress({"published": appender.rows, "start": start, "resumed": resumed, "ended": time.time()})


def print_progress(values: dict[str, float]) -> None:
    """Print one JSON object as one line."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
