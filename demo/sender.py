"""Sends the flights into a stream of the server, from behind the NAT: ``python -m demo.sender``.

It has its own key, and knows the server's address and key. It prints its progress and waits like the producer of the
first act. "published" counts committed rows: they are on the server's disk and visible to readers.
"""

from __future__ import annotations

import argparse
import sys
import time

import pyarrow as pa

import aeron_spark
from aeron_spark import node
from aeron_spark.stream_client.writer import StreamWriter
from demo.flights import TOTAL, load
from demo.pacing import first_rows, paced
from demo.producer import print_progress

TRANSACTIONS_PER_SECOND = 5
CONNECT_TIMEOUT_S = 60.0


class FlightSender:
    """Sends parts of a table, each as one transaction, and prints the progress."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer
        self.rows = 0

    def send(self, flights: pa.Table, seconds: float) -> None:
        """Send ``flights`` evenly over ``seconds``, and wait until all of them are committed."""
        for part in paced(flights, seconds, TRANSACTIONS_PER_SECOND):
            self._writer.write(part)
            self._writer.commit()
            self.rows += part.num_rows
            print_progress({"published": self.rows})


def main() -> None:
    """Connect, create the streams, send the flights, and print the progress."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--server", "--server-key", "--identity", "--aeron-dir", "--stream"):
        parser.add_argument(name, required=True)
    parser.add_argument("--make", action="append", default=[], metavar="NAME=PARTITIONS", help="stream to create first")
    parser.add_argument("--rows", type=int, default=TOTAL)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    flights = load(args.rows)
    with node.ensure(args.aeron_dir), aeron_spark.connect(
        args.server, identity=args.identity, server_key=args.server_key, aeron_dir=args.aeron_dir, tag="sender",
        timeout=CONNECT_TIMEOUT_S,
    ) as client:  # fmt: skip
        for name, _, partitions in (text.partition("=") for text in args.make):
            client.create_stream(name, int(partitions))
        with client.writer(args.stream, writer_id="sender") as writer:
            sender = FlightSender(writer)
            first = first_rows(args.rows)
            start = time.time()
            sender.send(flights.slice(0, first), 0.0)
            sys.stdin.read()
            resumed = time.time()
            sender.send(flights.slice(first), args.seconds)
            print_progress({"published": sender.rows, "start": start, "resumed": resumed, "ended": time.time()})


if __name__ == "__main__":
    main()
