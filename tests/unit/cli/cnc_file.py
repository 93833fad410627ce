"""Writes the files of a media driver, for tests of commands that read them without a JVM."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from aeron_spark.aeron import counters

VALUES = 4 * counters.COUNTER_LENGTH


def text(value: str) -> bytes:
    return struct.pack("<i", len(value)) + value.encode("ascii")


def padded(entry: bytes, alignment: int) -> bytes:
    return entry.ljust(-(-len(entry) // alignment) * alignment, b"\0")


def counter(type_id: int, label: str, key: bytes = b"", state: int = counters.ALLOCATED) -> bytes:
    record = bytearray(counters.META_LENGTH)
    struct.pack_into("<ii", record, 0, state, type_id)
    record[counters.KEY_OFFSET : counters.KEY_OFFSET + len(key)] = key
    record[counters.LABEL_OFFSET : counters.LABEL_OFFSET + 4 + len(label)] = text(label)
    return bytes(record)


def stream_key(registration: int, session_id: int, stream_id: int, channel: str) -> bytes:
    return counters.STREAM_KEY.pack(registration, session_id, stream_id) + text(channel)


def error(observations: int, first_ms: int, last_ms: int, what: str) -> bytes:
    length = counters.ERROR.size + len(what)
    entry = counters.ERROR.pack(length, observations, last_ms, first_ms) + what.encode()
    return padded(entry, counters.ERROR_ALIGNMENT)


def write_driver(folder: Path, meta: Sequence[bytes], values: Sequence[tuple[int, int, int]], errors: bytes) -> None:
    """Write the CnC file of a closed driver of process 77. ``values``: value, registration, owner of each counter."""
    folder.mkdir(parents=True, exist_ok=True)
    to_driver = bytes(1024 + counters.RING_TRAILER_LENGTH)
    described = b"".join(meta).ljust(4 * counters.META_LENGTH, b"\0")
    counted = b"".join(counters.VALUE.pack(*one).ljust(counters.COUNTER_LENGTH, b"\0") for one in values)
    counted = counted.ljust(VALUES, b"\0")
    log = errors.ljust(1024, b"\0")
    lengths = (len(described), len(counted), len(log))
    header = counters.CNC_HEADER.pack(512, len(to_driver), 0, *lengths, 10**10, 60_000, 77)
    file = header.ljust(counters.CNC_META_LENGTH, b"\0") + to_driver + described + counted + log
    (folder / counters.CNC_FILE).write_bytes(file)


def write_losses(folder: Path, *losses: tuple[int, int, int, int, int, int, str, str]) -> None:
    """Write a loss report: observations, bytes, first and last (ms), session, stream, channel, source."""
    report = b""
    for *numbers, channel, source in losses:
        entry = counters.LOSS.pack(*numbers) + padded(text(channel), 4) + text(source)
        report += padded(entry, counters.LOSS_ALIGNMENT)
    (folder / counters.LOSS_FILE).write_bytes(report.ljust(4096, b"\0"))
