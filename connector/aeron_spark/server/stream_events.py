"""Reports the facts of a server's streams as events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.server.event_table import Level
from aeron_spark.server.events import ServerEvents
from aeron_spark.streams.observer import CommittedTransaction, StreamObserver, StreamRecovery
from aeron_spark.streams.time_index import SECOND_NS

SLOW_COMMIT_S: Final = 1.0


class StreamEvents(StreamObserver):
    """Reports recoveries, damage, slow commits, fenced writers and changes of streams."""

    def __init__(self, events: ServerEvents) -> None:
        self._events: Final = events

    def recovered(self, recovery: StreamRecovery) -> None:
        """Report what was cut off at the recovery, and rows that are lost."""
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
            self.read_only(recovery.stream, recovery.loss)

    def not_opened(self, stream: str, error: AeronSparkError) -> None:
        """Report a damaged stream, or one that the server tries to open again."""
        if error.retriable:
            self._events.report(
                "error", error_type=type(error).__name__,
                error=f"stream {stream!r} could not be opened, and is tried again: {error.what}", remedy=error.remedy,
            )  # fmt: skip
        else:
            self.read_only(stream, error)

    def read_only(self, stream: str, error: AeronSparkError) -> None:
        """Report a stream that takes no more rows, or cannot be used."""
        self._events.report("stream_damaged", stream=stream, error=error.what, remedy=error.remedy or None)

    def recording_stopped(self, stream: str, partition: int, recording_id: int, error: AeronSparkError) -> None:
        """Report that the archive records a partition no longer."""
        self._events.report(
            "recording_stopped", stream=stream, partition=partition, recording=recording_id, error=error.what,
        )  # fmt: skip

    def committed(self, transaction: CommittedTransaction) -> None:
        """Report a slow commit with its phases."""
        if transaction.seconds > SLOW_COMMIT_S:
            self._events.report(
                "commit_slow", stream=transaction.stream, writer=transaction.writer,
                transaction=transaction.transaction, seconds=transaction.seconds, stage_s=transaction.stage_s,
                publish_s=transaction.publish_s, record_s=transaction.record_s, journal_s=transaction.journal_s,
            )  # fmt: skip

    def fenced(self, stream: str, writer: str) -> None:
        """Report that an older run of a writer cannot write any more."""
        self._events.report("writer_fenced", stream=stream, writer=writer)

    def schema_changed(self, stream: str, writer: str) -> None:
        """Report a new schema."""
        self._events.report("schema_changed", stream=stream, writer=writer)

    def delete_pending(self, stream: str, why: str) -> None:
        """Report that a deleted stream still takes space."""
        self._events.report("delete_pending", stream=stream, error=why)

    def lease_overridden(self, stream: str, readers: Sequence[str]) -> None:
        """Report the readers that lost their rows."""
        for reader in readers:
            self._events.report("lease_overridden", stream=stream, reader=reader)


class StreamObservers(StreamObserver):
    """Notifies several observers, in the order in which they were added."""

    def __init__(self, *observers: StreamObserver) -> None:
        self._observers: Final = list(observers)

    def add(self, observer: StreamObserver) -> None:
        """Add an observer, before the store is opened."""
        self._observers.append(observer)

    def _each(self, notify: Callable[[StreamObserver], None]) -> None:
        for observer in self._observers:
            notify(observer)

    def recovered(self, recovery: StreamRecovery) -> None:
        """Notify each observer."""
        self._each(lambda one: one.recovered(recovery))

    def not_opened(self, stream: str, error: AeronSparkError) -> None:
        """Notify each observer."""
        self._each(lambda one: one.not_opened(stream, error))

    def read_only(self, stream: str, error: AeronSparkError) -> None:
        """Notify each observer."""
        self._each(lambda one: one.read_only(stream, error))

    def recording_stopped(self, stream: str, partition: int, recording_id: int, error: AeronSparkError) -> None:
        """Notify each observer."""
        self._each(lambda one: one.recording_stopped(stream, partition, recording_id, error))

    def committed(self, transaction: CommittedTransaction) -> None:
        """Notify each observer."""
        self._each(lambda one: one.committed(transaction))

    def aborted(self, stream: str) -> None:
        """Notify each observer."""
        self._each(lambda one: one.aborted(stream))

    def fenced(self, stream: str, writer: str) -> None:
        """Notify each observer."""
        self._each(lambda one: one.fenced(stream, writer))

    def schema_changed(self, stream: str, writer: str) -> None:
        """Notify each observer."""
        self._each(lambda one: one.schema_changed(stream, writer))

    def trimmed(self, stream: str, size: int) -> None:
        """Notify each observer."""
        self._each(lambda one: one.trimmed(stream, size))

    def delete_pending(self, stream: str, why: str) -> None:
        """Notify each observer."""
        self._each(lambda one: one.delete_pending(stream, why))

    def lease_overridden(self, stream: str, readers: Sequence[str]) -> None:
        """Notify each observer."""
        self._each(lambda one: one.lease_overridden(stream, readers))
