"""Programs that write or read one large value through the log, and print the memory that they used."""

from __future__ import annotations

from typing import Final

# Reads lines `payload size stream-id` from its input; prints its peak memory without the value, in KiB.
COMMON: Final = """
import re, sys
import pyarrow as pa
from pathlib import Path

def memory_kib(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1))

def new_value(size):
    # one block is copied repeatedly, so that making the value needs no more memory
    block = bytes(range(256)) * 4096
    value = pa.allocate_buffer(size)
    view = memoryview(value).cast("B")
    for at in range(0, size, len(block)):
        part = at.to_bytes(8, "little") + block[8:]
        view[at : at + len(part)] = part[: size - at]
    return value

def reset_peak():
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")

def print_peak(size):
    print(memory_kib("VmHWM") - size // 1024, flush=True)
"""

WRITER: Final = (
    COMMON
    + """
from aeron_spark.direct.writing import DirectAppender
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions

def write(payload, size, stream_id):
    options = {"channel": "aeron:ipc", "streamId": stream_id, "aeronDir": sys.argv[1], "record": "auto"}
    appender = DirectAppender(WriteOptions.parse(options, streaming=False), Source("sizes"))
    value = new_value(size)
    offsets = pa.array([0, size], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, value])
    if payload == "framed":
        appender.framed(column)
    else:
        appender.arrow(pa.record_batch({"value": column}))
    appender.finish()

for line in sys.stdin:
    payload, size, stream_id = line.split()
    reset_peak()
    write(payload, int(size), stream_id)
    print_peak(int(size))
"""
)

READER: Final = (
    COMMON
    + """
from pyspark.sql.types import BinaryType, StructField, StructType
from aeron_spark.spark.source import AeronDataSource

def read(payload, size, stream_id):
    options = {"channel": "aeron:ipc", "streamId": stream_id, "aeronDir": sys.argv[1], "payload": payload}
    source = AeronDataSource(options)
    reader = source.reader(StructType([StructField("value", BinaryType())]))
    rows = 0
    for partition in reader.partitions():
        for batch in reader.read(partition):
            rows += batch.num_rows
            column = batch.column(0)
            begin, end = memoryview(column.buffers()[1]).cast("i")[column.offset : column.offset + 2]
            data = memoryview(column.buffers()[2]).cast("B")[begin:end]
            assert end - begin == size, (begin, end)
            block = (bytes(range(256)) * 4096)[8:]
            for at in range(0, size, 1 << 20):
                assert data[at : at + 8] == at.to_bytes(8, "little")[: size - at], at
                assert data[at + 8 : at + (1 << 20)] == block[: max(0, size - at - 8)], at
    assert rows == 1, rows

for line in sys.stdin:
    payload, size, stream_id = line.split()
    reset_peak()
    read(payload, int(size), stream_id)
    print_peak(int(size))
"""
)
