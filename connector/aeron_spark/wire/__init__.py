"""The connector's wire format: chunks, groups of chunks, Arrow batches. docs/wire-format.md is normative."""

from __future__ import annotations

from aeron_spark.wire.arrow import conform, decode_batches, encode_batch, encode_parts, encoded_size, split_rows
from aeron_spark.wire.chunks import (
    MAX_WRITER_BYTES,
    Chunk,
    Content,
    DecodedChunk,
    Group,
    Header,
    Reassembler,
    decode,
    encode,
    encode_header,
    is_framed,
    payload_limit,
    split,
)
from aeron_spark.wire.values import Run, Values, decode_values, encode_values, read_groups, runs

__all__ = [
    "MAX_WRITER_BYTES",
    "Chunk",
    "Content",
    "DecodedChunk",
    "Group",
    "Header",
    "Reassembler",
    "Run",
    "Values",
    "conform",
    "decode",
    "decode_batches",
    "decode_values",
    "encode",
    "encode_batch",
    "encode_header",
    "encode_parts",
    "encode_values",
    "encoded_size",
    "is_framed",
    "payload_limit",
    "read_groups",
    "runs",
    "split",
    "split_rows",
]
