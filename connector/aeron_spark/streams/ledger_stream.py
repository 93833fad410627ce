"""The requests to a stream that its ledger answers, without a change of the recordings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.errors import DataLossError
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.journal import JournaledLedger
from aeron_spark.streams.model import StreamSettings, StreamView
from aeron_spark.streams.reads import ReadableStream
from aeron_spark.wire.stream_admin_rpc import StreamWriterId


class LedgerStream(ReadableStream):
    """A readable stream with its ledger, which ``journal`` persists. Thread-safe.

    ``clock`` returns seconds, monotonic, and ``wall`` ns since 1970. ``_state`` guards the ledger.
    """

    def __init__(
        self, definition: Definition, address: ArchiveAddress, settings: StreamSettings, view: StreamView,
        journal: JournaledLedger, clock: Callable[[], float], wall: Callable[[], int],
    ) -> None:  # fmt: skip
        self._journal = journal
        self._ledger = journal.ledger
        self._clock = clock
        self._wall = wall
        self._state = threading.Lock()
        self._recovery_loss: DataLossError | None = None  # found by the recovery; it makes the stream read-only
        super().__init__(definition, address, settings, view)

    # For readers

    def position_at(self, time_ns: int) -> list[int]:
        """Return, by partition, the start of the first transaction committed at or after ``time_ns``, or its end.

        ``time_ns`` is ns since 1970 by this server's clock. Only the time index in the ledger is searched.
        """
        self._refuse_closed()
        with self._state:
            found = self._ledger.position_at(time_ns)
            return [max(position, start) for position, start in zip(found, self._ledger.starts, strict=True)]

    def lags_ns(self, positions: Mapping[int, int]) -> dict[int, int]:
        """Return, by partition, how long ago the first byte from a reader's position on was committed, in ns.

        0 without such a byte. By this server's clock. Only the time index in the ledger is searched. Raises OptionError
        for an unknown partition.
        """
        self._refuse_closed()
        for partition in positions:
            self.check_partition(partition)
        now_ns = self._wall()
        with self._state:
            times = {partition: self._ledger.committed_at(partition, at) for partition, at in positions.items()}
        return {partition: 0 if at is None else max(0, now_ns - at) for partition, at in times.items()}

    # For writers

    def claim_writer(self, writer: str, owner: str, *, is_granted: bool = False) -> None:
        """Give a writer id that has no owner to a client's key.

        Raises RefusedError if it belongs to another key, unless it ``is_granted`` to this one by name.
        """
        with self._state:
            record = self._ledger.owners.prepare(writer, owner, max(self._wall(), 0), is_granted=is_granted)
            if record is not None:
                self._refuse_unwritable()
                self._journal.write(record)

    def last_transaction(self, writer: str, producer: str = "") -> int:
        """Return the last committed transaction of the writer, or of one of its producers; -1 for none."""
        with self._state:
            self._refuse_closed()
            return self._ledger.last_transaction(writer, producer)

    def last_transaction_with_token(self, writer: str, producer: str) -> tuple[int, str]:
        """Return the producer's last committed transaction, or -1, and its token, or ""."""
        with self._state:
            self._refuse_closed()
            return self._ledger.last_transaction(writer, producer), self._ledger.token(writer, producer)

    def first_lost(self, writer: str, acknowledged: int, stamp: str) -> int | None:
        """Return the writer's first transaction up to ``acknowledged`` that this stream lacks, or None.

        See ``Stream.begin`` for the arguments.
        """
        with self._state:
            self._refuse_closed()
            return self._ledger.first_lost(writer, acknowledged, stamp)

    # For the operator

    def writers(self) -> list[StreamWriterId]:
        """Return the writer ids that have a run or an owner, by name."""
        with self._state:
            self._refuse_closed()
            return self._ledger.owners.known_writers(self._ledger.writers)

    def release_writer(self, writer: str) -> None:
        """Forget the owner of a writer id, if it has one. Raises OptionError for an unknown id."""
        with self._state:
            self._refuse_unwritable()
            record = self._ledger.owners.prepare_release(writer, self._ledger.writers)
            if record is not None:
                self._journal.write(record)

    def _refuse_unwritable(self) -> None:
        self._refuse_closed()
        if self._recovery_loss is not None:
            raise self._recovery_loss
        self._journal.check_writable()
