"""One process that publishes the flights through Aeron, as fast as it is told: ``python -m demo.producer``.

Says how far it is in one JSON object a line. After its first flights it waits for the end of its standard input:
whoever started it closes it once the stream is being read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import pyarrow as pa

from aeron_spark.direct.appender import DirectAppender
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from demo.flights import TOTAL, load
from demo.pacing import first_rows, paced

BATCHES_PER_SECOND = 20


def publish(appender: DirectAppender, flights: pa.Table, seconds: float) -> None:
    """Publish ``flights`` evenly over ``seconds``, and return once all of them are recorded."""
    for part in paced(flights, seconds, BATCHES_PER_SECOND):
        for batch in part.to_batches():
            appender.arrow(batch)
        say({"published": appender.rows})
    appender.finish()


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
    appender = DirectAppender(WriteOptions.parse(options, streaming=False), Source("flights"))
    first = first_rows(args.rows)
    began = time.time()
    publish(appender, flights.slice(0, first), 0.0)
    sys.stdin.read()
    resumed = time.time()
    publish(appender, flights.slice(first), args.seconds)
    say({"published": appender.rows, "began": began, "resumed": resumed, "ended": time.time()})


def say(what: dict[str, float]) -> None:
    """Write one line to whoever started this process."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
