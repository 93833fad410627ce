"""One process beyond the NAT that sends the flights into a stream of the server: ``python -m demo.sender``.

It knows the server's address and key, and has a key of its own. It says how far it is, and waits, as the producer of
the first act does; what it calls published is committed: on the server's disk, and to be seen by readers.
"""

from __future__ import annotations

import argparse
import sys
import time

import pyarrow as pa

import aeron_spark
from aeron_spark.stream_client.writer import StreamWriter
from demo.flights import TOTAL, load
from demo.pacing import first_rows, paced
from demo.producer import say

TRANSACTIONS_PER_SECOND = 5
CONNECT_SECONDS = 60.0


class Sending:
    """Sends parts of a table, each as one transaction, and tells how far it is."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer
        self.rows = 0

    def send(self, flights: pa.Table, seconds: float) -> None:
        """Send ``flights`` evenly over ``seconds``, and return once all of them are committed."""
        for part in paced(flights, seconds, TRANSACTIONS_PER_SECOND):
            self._writer.write(part)
            self._writer.commit()
            self.rows += part.num_rows
            say({"published": self.rows})


def main() -> None:
    """Connect, make the streams, send, and say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--server", "--server-key", "--identity", "--aeron-dir", "--stream"):
        parser.add_argument(name, required=True)
    parser.add_argument("--make", action="append", default=[], metavar="NAME=PARTITIONS", help="a stream to make first")
    parser.add_argument("--rows", type=int, default=TOTAL)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    flights = load(args.rows)
    with aeron_spark.connect(
        args.server, identity=args.identity, server_key=args.server_key, aeron_dir=args.aeron_dir, tag="sender",
        timeout=CONNECT_SECONDS,
    ) as client:  # fmt: skip
        for name, _, partitions in (made.partition("=") for made in args.make):
            client.create_stream(name, int(partitions))
        with client.writer(args.stream, writer_id="sender") as writer:
            sending = Sending(writer)
            first = first_rows(args.rows)
            began = time.time()
            sending.send(flights.slice(0, first), 0.0)
            sys.stdin.read()
            resumed = time.time()
            sending.send(flights.slice(first), args.seconds)
            say({"published": sending.rows, "began": began, "resumed": resumed, "ended": time.time()})


if __name__ == "__main__":
    main()
