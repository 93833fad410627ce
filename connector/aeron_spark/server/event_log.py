"""Reports the facts of a server's streams as events."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.facts import Bus
from aeron_spark.server.event_table import Level
from aeron_spark.server.events import ServerEvents
from aeron_spark.streams.model import (
    CommittedTransaction,
    DeletePending,
    LeaseOverridden,
    RecordingStopped,
    SchemaChanged,
    StreamNotOpened,
    StreamReadOnly,
    StreamRecovery,
    WriterFenced,
)
from aeron_spark.streams.time_index import SECOND_NS

SLOW_COMMIT_S: Final = 1.0


class EventLog:
    """Reports recoveries, damage, slow commits, fenced writers and changes of streams."""

    def __init__(self, events: ServerEvents, facts: Bus) -> None:
        self._events: Final = events
        facts.on(StreamRecovery, self._on_recovery)
        facts.on(StreamNotOpened, self._on_not_opened)
        facts.on(StreamReadOnly, self._on_read_only)
        facts.on(RecordingStopped, self._on_recording_stopped)
        facts.on(CommittedTransaction, self._on_commit)
        facts.on(WriterFenced, self._on_fenced)
        facts.on(SchemaChanged, self._on_schema_changed)
        facts.on(DeletePending, self._on_delete_pending)
        facts.on(LeaseOverridden, self._on_lease_overridden)

    def _on_recovery(self, recovery: StreamRecovery) -> None:
        # what was cut off, and rows that are lost
        cut = [(f"partition {index}: {end} to {was}", was - end) for index, (was, end) in recovery.truncated.items()]
        if recovery.torn_bytes:
            cut.insert(0, ("the end of the journal", recovery.torn_bytes))
        self._events.report(
            "recovered", level=Level.WARNING if cut else None, stream=recovery.stream,
            partitions=recovery.partitions, seconds=recovery.seconds,
            cut=tuple(where for where, _ in cut) or None, cut_bytes=sum(size for _, size in cut),
        )  # fmt: skip
        if recovery.restored_from_ns:
            copied = datetime.fromtimestamp(recovery.restored_from_ns // SECOND_NS, timezone.utc)
            self._events.report("restored", stream=recovery.stream, copied_at=f"{copied:%Y-%m-%dT%H:%M:%SZ}")
        if recovery.loss is not None:
            self._report_damage(recovery.stream, recovery.loss)

    def _on_not_opened(self, fact: StreamNotOpened) -> None:
        error = fact.error
        if error.retriable:
            self._events.report(
                "error", error_type=type(error).__name__,
                error=f"stream {fact.stream!r} could not be opened, and is tried again: {error.what}",
                remedy=error.remedy,
            )  # fmt: skip
        else:
            self._report_damage(fact.stream, error)

    def _on_read_only(self, fact: StreamReadOnly) -> None:
        self._report_damage(fact.stream, fact.error)

    def _report_damage(self, stream: str, error: AeronSparkError) -> None:
        self._events.report("stream_damaged", stream=stream, error=error.what, remedy=error.remedy or None)

    def _on_recording_stopped(self, fact: RecordingStopped) -> None:
        self._events.report(
            "recording_stopped", stream=fact.stream, partition=fact.partition, recording=fact.recording_id,
            error=fact.error.what,
        )  # fmt: skip

    def _on_commit(self, transaction: CommittedTransaction) -> None:
        if transaction.seconds > SLOW_COMMIT_S:
            self._events.report(
                "commit_slow", stream=transaction.stream, writer=transaction.writer,
                transaction=transaction.transaction, seconds=transaction.seconds, stage_s=transaction.stage_s,
                publish_s=transaction.publish_s, record_s=transaction.record_s, journal_s=transaction.journal_s,
            )  # fmt: skip

    def _on_fenced(self, fact: WriterFenced) -> None:
        self._events.report("writer_fenced", stream=fact.stream, writer=fact.writer)

    def _on_schema_changed(self, fact: SchemaChanged) -> None:
        self._events.report("schema_changed", stream=fact.stream, writer=fact.writer)

    def _on_delete_pending(self, fact: DeletePending) -> None:
        self._events.report("delete_pending", stream=fact.stream, error=fact.why)

    def _on_lease_overridden(self, fact: LeaseOverridden) -> None:
        for reader in fact.readers:
            self._events.report("lease_overridden", stream=fact.stream, reader=reader)
