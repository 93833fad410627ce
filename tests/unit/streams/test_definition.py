"""Tests of the definition of a stream: names, sizes and the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aeron_spark.errors import DataFormatError, DataLossError, OptionError, TransportError
from aeron_spark.streams.definition import (
    DEFINITION_FILE,
    MAX_PARTITIONS,
    Definition,
    check_name,
    check_segment_bytes,
    default_segment_bytes,
    ended_stream,
    read_definition,
    unknown_stream,
    write_definition,
)

FLIGHTS = Definition("flights", 2, (101, 102), 1 << 20, 1 << 30, 3600.5, 1_700_000_000_000_000_000)


def test_a_definition_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_definition(tmp_path, FLIGHTS)
    assert read_definition(tmp_path) == FLIGHTS
    assert '"version": 1' in (tmp_path / DEFINITION_FILE).read_text()
    write_definition(tmp_path, msgspec.structs.replace(FLIGHTS, retention_bytes=0))
    assert read_definition(tmp_path).retention_bytes == 0
    assert [path.name for path in tmp_path.iterdir()] == [DEFINITION_FILE]


@pytest.mark.parametrize("name", ["a", "9", "Flights.2013_x-y", "x" * 128])
def test_valid_names_are_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "_a", "a/b", "a b", "a\n", "ä", "a\0", "x" * 129, "٣"])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="invalid stream name"):
        check_name(name)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "../x"}, "invalid stream name"),
        ({"partitions": 0}, "cannot have 0 partitions"),
        ({"partitions": MAX_PARTITIONS + 1}, "cannot have 10001 partitions"),
        ({"stream_ids": (1,)}, "the stream ids"),
        ({"stream_ids": (1, 1)}, "the stream ids"),
        ({"stream_ids": (1, 2, 2)}, "the stream ids"),
        ({"term_bytes": 3 << 16}, "terms of 196608 bytes"),
        ({"term_bytes": 1 << 15}, "terms of"),
        ({"term_bytes": 1 << 31}, "terms of"),
        ({"partitions": True}, "cannot have True partitions"),
        ({"retention_bytes": -1}, "a retention of -1 bytes"),
        ({"retention_bytes": True}, "a retention of True bytes"),
        ({"retention_bytes": 1.5}, "a retention of 1.5 bytes"),
        ({"retention_bytes": 2**63}, "a retention of 9223372036854775808 bytes"),
        ({"retention_seconds": -0.5}, "a retention of -0.5 seconds"),
        ({"retention_seconds": float("nan")}, "a retention of nan seconds"),
        ({"retention_seconds": float("inf")}, "a retention of inf seconds"),
        ({"retention_seconds": False}, "a retention of False seconds"),
        ({"schema_policy": "loose"}, "the schema policy 'loose'"),
    ],
)
def test_invalid_definitions_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        msgspec.structs.replace(FLIGHTS, **change)


@pytest.mark.parametrize(
    ("known", "remedy"),
    [
        (["flights", "weather"], "Did you mean 'flights'?"),
        (["xyz", "abc"], "'aeron-spark streams list' shows the streams"),
        ([], "The server has no streams; create it"),
    ],
)
def test_the_error_for_an_unknown_stream_suggests_similar_names(known: list[str], remedy: str) -> None:
    error = unknown_stream("fligths", known)
    assert "unknown stream 'fligths'" in str(error)
    assert remedy in error.remedy
    assert error.reason == "unknown-stream"


def test_a_definition_of_an_earlier_release_is_additive_and_takes_rows(tmp_path: Path) -> None:
    fields = {name: getattr(FLIGHTS, name) for name in ("name", "partitions", "stream_ids", "term_bytes")}
    (tmp_path / DEFINITION_FILE).write_bytes(msgspec.json.encode({"version": 1, "stream": fields}))
    found = read_definition(tmp_path)
    assert (found.schema_policy, found.is_ended, found.former_names) == ("additive", False, ())
    assert found.original_name == "flights"


def test_an_ended_definition_keeps_the_time_of_its_end_until_it_is_reopened() -> None:
    ended = FLIGHTS.ended(5)
    assert (ended.is_ended, ended.ended(9)) == (True, ended)
    assert ended.reopened() == FLIGHTS
    error = ended_stream(FLIGHTS.ended(1_700_000_000 * 10**9))
    assert error.reason == "ended"
    assert "stream 'flights' was ended at 2023-11-14T22:13:20Z" in error.what


def test_invalid_files_of_definitions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataLossError, match="cannot be read: No such file"):
        read_definition(tmp_path)
    write_definition(tmp_path, FLIGHTS)
    path = tmp_path / DEFINITION_FILE
    whole = path.read_text()
    for text, why in (
        ("", "does not define a stream"),
        ("[]", "has version None"),
        ('{"version": 2}', "has version 2"),
        ('{"version": 1}', "missing required field"),
        (whole.replace("1048576", "5"), "terms of 5 bytes"),
        (whole.replace("retention_bytes", "later_field"), "unknown field"),
        (whole.replace(": 1073741824", ": -1"), "cannot have a retention of -1 bytes"),
        ("[" * 100_000, "does not define a stream"),
        (whole.replace('"ended_ns": 0', f'"ended_ns": {1 << 63}'), "does not define a stream"),
        (whole.replace('"stream_ids": [', f'"stream_ids": [{1 << 31},'), "does not define a stream"),
    ):
        path.write_text(text)
        with pytest.raises(DataFormatError, match=why) as raised:
            read_definition(tmp_path)
        assert str(path) in raised.value.what
    for length in range(len(whole.rstrip())):
        path.write_text(whole[:length])
        with pytest.raises(DataFormatError):
            read_definition(tmp_path)


def test_a_failed_write_leaves_the_old_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_definition(tmp_path, FLIGHTS)

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(TransportError, match="cannot be written: Input/output error"):
            write_definition(tmp_path, msgspec.structs.replace(FLIGHTS, created_ns=5))
    assert read_definition(tmp_path) == FLIGHTS
    assert [path.name for path in tmp_path.iterdir()] == [DEFINITION_FILE]


def test_segments_are_an_eighth_of_the_retention_by_size_within_limits() -> None:
    assert default_segment_bytes(0) == 16 << 20
    sizes = (1, 8 << 20, (16 << 20) - 1, 16 << 20, 64 << 20, 100 << 20, 128 << 20, 1 << 40)
    assert [default_segment_bytes(size) >> 20 for size in sizes] == [1, 1, 1, 2, 8, 8, 16, 16]


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 19, 3 << 20, 1 << 31, True, -1])
def test_other_segments_are_refused(size: int) -> None:
    with pytest.raises(OptionError, match=r"stream 's' cannot have segments of .* bytes\. Choose a power"):
        check_segment_bytes("s", size)


@pytest.mark.parametrize("size", [1 << 20, 2 << 20, 1 << 30])
def test_segments_are_powers_of_two(size: int) -> None:
    check_segment_bytes("s", size)
