"""Requests of a client, for tests that call a stream without a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aeron_spark.wire.stream_requests import (
    CommitEmptyTransaction,
    CommitPart,
    CommitTransaction,
    CreateStream,
    OpenStage,
    Transaction,
)

SECONDS = 600.0  # no test waits for so long: a stream's own limit is shorter


def create_request(
    name: str, partitions: int = 1, *, retention_bytes: int = 0, retention_seconds: float = 0.0,
    segment_bytes: int = 0, schema_policy: str = "strict", schema: bytes = b"",
) -> CreateStream:  # fmt: skip
    """Return the request for a new stream."""
    return CreateStream(name, partitions, retention_bytes, retention_seconds, segment_bytes, schema_policy, schema)


def stage_request(
    writer: str, run: str, number: int, partition: int, task: int, content: str, schema: bytes | None = None,
    **identity: Any,
) -> OpenStage:  # fmt: skip
    """Return the request for a stage, whose rows do not come with it. ``identity`` has more of the transaction."""
    return OpenStage("s", Transaction(writer, run, number, **identity), partition, task, content, schema or b"", 0, 0)


def commit_request(
    writer: str, run: str, number: int, parts: Sequence[CommitPart], rows: int | None = None, **identity: Any
) -> CommitTransaction:
    """Return the request for a commit of these parts; ``rows`` is the sum of theirs unless given."""
    count = sum(part.rows for part in parts) if rows is None else rows
    return CommitTransaction("s", Transaction(writer, run, number, **identity), tuple(parts), count, SECONDS)


def known_run_request(
    stream: str, transaction: Transaction, parts: Sequence[CommitPart], rows: int, *, evolve_schema: bool = False
) -> CommitTransaction:
    """Return the request for a commit that a server refuses if it does not know the transaction's run."""
    known = transaction.of_known_run()
    return CommitTransaction(stream, known, tuple(parts), rows, SECONDS, evolve_schema=evolve_schema)


def empty_request(writer: str, run: str, number: int, **identity: Any) -> CommitEmptyTransaction:
    """Return the request for a commit without rows."""
    return CommitEmptyTransaction("s", Transaction(writer, run, number, **identity), SECONDS)
