"""The facts of a store that a server's log and metrics show. Streams notify an observer; they do not log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aeron_spark.errors import AeronSparkError


@dataclass(frozen=True, slots=True)
class StreamRecovery:
    """The recovery of a stream after a start.

    ``torn_bytes`` is the incomplete record at the end of the journal, which was removed. ``truncated`` has by partition
    the end of the recording before, and the committed end at which it was truncated. ``loss`` is why the stream is
    read-only, or None. ``restored_from_ns`` is the time of the backup from which the stream was restored, in ns since
    1970, if nothing was changed since; else 0.
    """

    stream: str
    partitions: int
    torn_bytes: int
    truncated: Mapping[int, tuple[int, int]]
    loss: AeronSparkError | None
    seconds: float
    restored_from_ns: int = 0


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A committed transaction, and the seconds of each phase of its commit.

    ``stage_s``: finding and checking the stages; ``publish_s``: publishing their rows; ``record_s``: waiting until the
    archive had recorded them; ``journal_s``: writing the journal.
    """

    stream: str
    writer: str
    transaction: int
    rows: int
    bytes: int
    stage_s: float
    publish_s: float
    record_s: float
    journal_s: float

    @property
    def seconds(self) -> float:
        """The duration of the commit."""
        return self.stage_s + self.publish_s + self.record_s + self.journal_s


class StreamObserver:
    """Learns the facts of a store. Its methods return soon and do not raise. This class does nothing.

    Methods are called on the threads that use the store, some of them while they hold a lock of the stream.
    """

    def recovered(self, recovery: StreamRecovery) -> None:
        """A stream is open."""

    def not_opened(self, stream: str, error: AeronSparkError) -> None:
        """A stream could not be opened; if ``error`` is not retriable, it is damaged. Repeated for another error."""

    def read_only(self, stream: str, error: AeronSparkError) -> None:
        """A commit found that a stream has lost rows."""

    def recording_stopped(self, stream: str, partition: int, recording_id: int, error: AeronSparkError) -> None:
        """The archive has stopped recording a partition to which the store publishes. The next commit continues it."""

    def committed(self, transaction: CommittedTransaction) -> None:
        """A transaction was committed."""

    def aborted(self, stream: str) -> None:
        """A transaction was aborted."""

    def fenced(self, stream: str, writer: str) -> None:
        """A run of a writer has fenced the run before it."""

    def schema_changed(self, stream: str, writer: str) -> None:
        """A transaction has changed the schema of a stream."""

    def trimmed(self, stream: str, size: int) -> None:
        """Retention or a purge has removed the first bytes of a stream."""

    def delete_pending(self, stream: str, why: str) -> None:
        """Recordings and files of a deleted stream still exist a minute after its deletion."""

    def lease_overridden(self, stream: str, readers: Sequence[str]) -> None:
        """Retention has removed rows that these readers had leased for too long."""
