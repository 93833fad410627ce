"""A driver's counters are read from its file up to the first one that was never allocated, however many there are."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from aeron_spark.aeron.counters import (
    ALLOCATED,
    CNC_HEADER,
    CNC_META_LENGTH,
    COPIED_COUNTERS,
    COUNTER_LENGTH,
    META_LENGTH,
    RING_TRAILER_LENGTH,
    read_counters,
)

FREE = -1  # CountersReader.RECORD_RECLAIMED
RING = 1024 + RING_TRAILER_LENGTH
ROOM = 2 * COPIED_COUNTERS + 3  # not a multiple, so that the last piece is shorter


def write_driver(folder: Path, states: dict[int, int]) -> str:
    """Write the file of a driver whose counters have these states; the type of a counter is its number plus 100."""
    meta, values = bytearray(ROOM * META_LENGTH), bytearray(ROOM * COUNTER_LENGTH)
    for number, state in states.items():
        struct.pack_into("<ii", meta, number * META_LENGTH, state, number + 100)
        struct.pack_into("<q", values, number * COUNTER_LENGTH, 7 * number)
    header = CNC_HEADER.pack(512, RING, 0, len(meta), len(values), 0, 10**10, 1, os.getpid())
    (folder / "cnc.dat").write_bytes(header.ljust(CNC_META_LENGTH, b"\0") + bytes(RING) + meta + values)
    return str(folder)


@pytest.mark.parametrize("count", [0, 1, COPIED_COUNTERS - 1, COPIED_COUNTERS, COPIED_COUNTERS + 1, ROOM])
def test_all_allocated_counters_are_found(tmp_path: Path, count: int) -> None:
    found = read_counters(write_driver(tmp_path, dict.fromkeys(range(count), ALLOCATED)))
    assert [(one.id, one.type_id, one.value) for one in found] == [(n, n + 100, 7 * n) for n in range(count)]


def test_freed_counters_are_omitted_and_those_after_them_are_found(tmp_path: Path) -> None:
    last = COPIED_COUNTERS + 2
    states = {**dict.fromkeys(range(last), FREE), 5: ALLOCATED, last: ALLOCATED}
    assert [one.id for one in read_counters(write_driver(tmp_path, states))] == [5, last]


def test_nothing_is_read_after_a_counter_that_was_never_allocated(tmp_path: Path) -> None:
    states = {0: ALLOCATED, 2: ALLOCATED, COPIED_COUNTERS + 1: ALLOCATED}  # bytes after 1 are no counters
    assert [one.id for one in read_counters(write_driver(tmp_path, states))] == [0]
