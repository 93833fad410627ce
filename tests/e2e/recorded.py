"""Reads all messages of a stream from an archive, without Spark and its planning.

    python -m tests.e2e.recorded AERON_DIR STREAM_ID FILE

writes an Arrow file of (recording, position, value). It is a separate process, so that a test needs no JVM.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import StreamAddress, embedded, hold_node
from aeron_spark.log.api import Range
from aeron_spark.log.inspection import last_message

SCHEMA = pa.schema([("recording", pa.int64()), ("position", pa.int64()), ("value", pa.binary())])


def messages(aeron_dir: str, stream_id: int) -> pa.Table:
    """Read all messages of a stream."""
    log = ArchiveLog(StreamAddress("aeron:ipc", stream_id, (embedded(hold_node(aeron_dir, wait_s=10.0)),)))
    batches = []
    for state in log.states():
        end = last_message(log, state)
        if end > state.start:
            wanted = Range(state.key, state.fingerprint, state.start, end, end, state.term_length)
            for rows in log.read(wanted):
                ids = pa.array([state.recording_id] * len(rows), pa.int64())
                batches.append(pa.RecordBatch.from_arrays([ids, rows.positions, rows.values], schema=SCHEMA))
    return pa.Table.from_batches(batches, SCHEMA)


def main(aeron_dir: str, stream_id: str, path: str) -> None:
    """Write the file."""
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, SCHEMA) as out:
        out.write_table(messages(aeron_dir, int(stream_id)))


if __name__ == "__main__":
    main(*sys.argv[1:])
