"""The values of a stream that programs get from its server."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa

from aeron_spark.wire.stream_requests import (
    HeldBytes,
    StreamAlteration,
    StreamInfo,
    StreamLease,
    StreamPartition,
    StreamProperties,
    StreamWriterId,
    with_content,
)

AT_NS = 1_772_357_400_000_000_000
AT = datetime(2026, 3, 1, 9, 30, tzinfo=timezone.utc)
SCHEMA = pa.schema([("n", pa.int64())])
STREAM = StreamInfo(
    name="s", state="ok", problem="", content="arrow", encoded_schema=SCHEMA.serialize().to_pybytes(),
    created_ns=AT_NS, retention_bytes=0, retention_seconds=0.0, segment_bytes=1, file_bytes=2,
    partitions=(StreamPartition(0, 32, 96), StreamPartition(1, 0, 32)), schema_policy="strict", former_names=(),
    ended_ns=0, max_message_bytes=3,
)  # fmt: skip


def test_a_stream_has_its_times_its_schema_and_the_size_of_its_log() -> None:
    assert (STREAM.created, STREAM.ended, STREAM.schema, STREAM.bytes) == (AT, None, SCHEMA, 96)
    assert STREAM.schema is STREAM.schema, "it is decoded once"
    begun = with_content(STREAM, "raw")
    assert (begun.content, begun.name) == ("raw", "s")


def test_the_text_of_a_stream_has_what_a_program_reads() -> None:
    text = repr(STREAM)
    assert text.startswith(
        "StreamInfo(name='s', content='arrow', schema=n: int64, partitions=(StreamPartition(number=0"
    )
    assert "created=datetime.datetime(2026, 3, 1, 9, 30, tzinfo=datetime.timezone.utc)" in text
    assert "_ns" not in text


def test_times_are_in_utc_and_positions_are_by_partition() -> None:
    assert StreamWriterId("w", 7, AT_NS, "", False).changed == AT
    assert (HeldBytes(1, "lease", until_ns=AT_NS).until, HeldBytes(1, "segment").until) == (AT, None)
    assert StreamLease("r", "", ((0, 32), (1, 0)), 1.0).positions == {0: 32, 1: 0}


def test_an_alteration_never_makes_a_negative_number_of_bytes_unreadable() -> None:
    properties = StreamProperties(0, 0.0, "strict")
    assert StreamAlteration(properties, properties, (32, 64), (96, 32)).unreadable_bytes == (64, 0)
