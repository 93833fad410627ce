"""An Arrow Flight server with the rows of one corpus prebuilt in memory; a Spark source reads them over TCP.

``python -m benchmarks.flight_server SHORTEST LONGEST ROWS BATCH_ROWS`` responds with its port to each line of its
standard input, and ends with it. A ticket is a JSON list of columns.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Final

import pyarrow as pa
from pyarrow import flight

from benchmarks.corpora import Corpus
from benchmarks.raw_batches import corpus_batches

LOCATION: Final = "grpc://127.0.0.1:0"


class PrebuiltServer(flight.FlightServerBase):  # type: ignore[misc,unused-ignore]  # pyarrow's stubs
    """Gives each client all rows, in prebuilt batches."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        super().__init__(LOCATION)
        self._batches = batches

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """Return the columns of the ticket."""
        columns = json.loads(ticket.ticket)
        batches = [batch.select(columns) for batch in self._batches]
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(batches[0].schema, batches))


def main() -> None:
    """Serve until the end of standard input."""
    shortest, longest, rows, batch_rows = map(int, sys.argv[1:])
    server = PrebuiltServer(list(corpus_batches(Corpus("", shortest, longest, rows), batch_rows)))
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(server.port, flush=True)
    server.shutdown()
    thread.join(10)


if __name__ == "__main__":
    main()
