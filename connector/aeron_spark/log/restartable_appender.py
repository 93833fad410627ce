"""Appends the rows of a task, and appends them again after a restart of their archive or server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from aeron_spark.log.restarts import Outages
from aeron_spark.log.writing import Appender
from aeron_spark.wire.stream_rpc import CommitPart

T = TypeVar("T")
# Of the rows of one task. Executors run several tasks at once, and a task that an outage fails is repeated by Spark.
KEPT_BYTES: Final = 64 << 20


class RestartableAppender:
    """An :class:`Appender` that waits out an outage: then ``begin`` makes another one, which gets all rows again.

    It keeps references to the batches, without a copy, up to ``kept_bytes``. After an outage that comes later it raises
    the error. It waits only if ``is_running``, or after the first batch: a wrong address fails at once. For one thread.

    Through a server, rows are never seen twice: a commit names the parts of the last appender only. On the direct route
    rows that were appended before the outage can be seen twice.
    """

    def __init__(
        self, begin: Callable[[], Appender], outages: Outages, *, is_running: bool, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._begin = begin
        self._outages = outages
        self._is_running = is_running
        self._room = kept_bytes
        self._kept: list[pa.RecordBatch] | None = []  # what ``_appender`` has; None: it is too much
        self._appender = begin()
        self._has_failed = False  # then ``_appender`` may lack rows

    @property
    def rows(self) -> int:
        """The number of rows appended so far, each counted once, dropped ones included."""
        return self._appender.rows

    @property
    def committed(self) -> bool:
        """Whether the server had committed the transaction before, so that the rows are dropped."""
        return self._appender.committed

    def append(self, batch: pa.RecordBatch) -> None:
        """Append all rows of a batch; see :meth:`Appender.append`. Raises ConnectError after too long an outage."""
        self._outlast(lambda appender: appender.append(batch))
        self._is_running = True
        if self._kept is None:
            return
        self._room -= batch.get_total_buffer_size()
        if self._room < 0:
            self._kept = None
        else:
            self._kept.append(batch)

    def finish(self) -> Sequence[CommitPart]:
        """Wait until the archive or the server has all rows; see :meth:`Appender.finish` and :meth:`append`."""
        return self._outlast(lambda appender: appender.finish())

    def discard(self) -> None:
        """Discard staged rows that are not finished."""
        self._appender.discard()

    def _outlast(self, use: Callable[[Appender], T]) -> T:
        kept = self._kept
        if kept is None or not self._is_running:
            return use(self._appender)
        return self._outages.outlast(lambda: self._attempt(use, kept))

    def _attempt(self, use: Callable[[Appender], T], kept: Sequence[pa.RecordBatch]) -> T:
        if self._has_failed:
            self._appender.discard()
            self._appender = self._begin()
            for batch in kept:
                self._appender.append(batch)
        self._has_failed = True  # until the call returns
        found = use(self._appender)
        self._has_failed = False
        return found
