"""Java's CRC-32 equals zlib's for any bytes at any offset."""

from __future__ import annotations

import random
import zlib

import pyarrow as pa
import pytest

from aeron_spark.aeron import jvm
from aeron_spark.aeron.checksum import MIN_JAVA_BYTES, crc32


@pytest.mark.parametrize("size", [0, 1, MIN_JAVA_BYTES - 1, MIN_JAVA_BYTES, MIN_JAVA_BYTES + 1, 100_003, 2 << 20])
def test_the_checksum_equals_that_of_zlib(size: int, rng: random.Random) -> None:
    jvm.start()
    data = rng.randbytes(size + 8)
    for value in (0, 1, 2**31 - 1, 2**31, 2**32 - 1):
        for begin in (0, 1, 8):
            part = data[begin : begin + size]
            assert crc32(part, value) == crc32(memoryview(data)[begin : begin + size], value) == zlib.crc32(part, value)
            assert crc32(pa.py_buffer(data).slice(begin, size), value) == zlib.crc32(part, value)


def test_the_checksum_can_be_computed_in_parts(rng: random.Random) -> None:
    jvm.start()
    data = rng.randbytes(300_000)
    found = 0
    for begin in range(0, len(data), 70_001):
        found = crc32(data[begin : begin + 70_001], found)
    assert found == zlib.crc32(data)
