"""Computes CRC-32 like zlib, in Java if the JVM runs: ten times as fast as most builds of zlib."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Final

import pyarrow as pa

from aeron_spark.aeron.jvm import enter_java, jclass, started

Data = bytes | bytearray | memoryview | pa.Buffer

MIN_JAVA_BYTES: Final = 4096  # for less data zlib is faster than the call to Java


def crc32(data: Data, value: int = 0, /) -> int:
    """Return the CRC-32 of ``data``, continued from ``value``, as ``zlib.crc32`` does."""
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    update = _update() if buffer.size >= MIN_JAVA_BYTES and started() else None
    if update is None:
        return zlib.crc32(buffer, value)
    enter_java()
    # Java's int is signed, zlib's is unsigned.
    return int(update(value - 2**32 if value >= 2**31 else value, buffer.address, buffer.size)) & 0xFFFFFFFF


def is_in_java() -> bool:
    """Whether the JVM runs and computes CRC-32. It is False in the JVM of a program that forbids access to it."""
    return started() and _update() is not None


@cache
def _update() -> Callable[[int, int, int], int] | None:
    import jpype  # not at the module's import: a process that only plans a query starts no JVM

    try:
        found: Callable[[int, int, int], int] = jclass("io.aeronspark.checksum.Crc32").update
        found(0, 0, 0)
    except jpype.JException:  # the JVM of a user's program may forbid access to the class
        return None
    return found
