"""Reads the rows of :mod:`benchmarks.flight_server`; Spark's workers get this module by value."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight


def flight_batches(port: int, columns: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a server as a client, with exactly the types of ``schema``."""
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        for chunk in client.do_get(flight.Ticket(json.dumps(columns).encode())):
            batch = chunk.data
            assert batch is not None  # this server sends no chunk of metadata alone
            yield batch if batch.schema == schema else pa.RecordBatch.from_arrays(batch.columns, schema=schema)
