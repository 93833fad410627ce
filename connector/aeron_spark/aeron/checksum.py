"""CRC-32 as zlib computes it, by Java where it runs already: ten times as fast as most builds of zlib."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Final

import jpype
import pyarrow as pa

from aeron_spark.aeron.jvm import jclass, started

Data = bytes | bytearray | memoryview | pa.Buffer

WORTH_A_CALL: Final = 4096  # bytes; fewer are done before Java is reached


def crc32(data: Data, value: int = 0, /) -> int:
    """Return the CRC-32 of ``data``, continued from ``value``, as ``zlib.crc32`` does."""
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    update = _update() if buffer.size >= WORTH_A_CALL and started() else None
    if update is None:
        return zlib.crc32(buffer, value)
    # Java's int has a sign, and zlib's number has none.
    return int(update(value - 2**32 if value >= 2**31 else value, buffer.address, buffer.size)) & 0xFFFFFFFF


@cache
def _update() -> Callable[[int, int, int], int] | None:
    try:
        found: Callable[[int, int, int], int] = jclass("io.aeronspark.checksum.Crc32").update
        found(0, 0, 0)
    except jpype.JException:  # a program's own JVM may be closed to it
        return None
    return found
