"""A reader's lease: while the reader reads, retention does not delete rows that it has not read yet.

The lease's thread also closes the rows' generator after its iterator was dropped half-way. A finalizer can run at any
point, also inside a remote call of the same thread, so it must not send a request itself.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from aeron_spark.errors import AeronSparkError, UsageError
from aeron_spark.process_bound import bind_to_process
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_rpc import RenewLease

LOG: Final = logging.getLogger("aeron_spark.streams")

LEASE_S: Final = 60.0  # after a crash of the reader, retention waits for this long
RENEWAL_TIMEOUT_S: Final = 5.0  # a failed renewal is followed by the next one
END_TIMEOUT_S: Final = 1.0  # of the request that ends a lease; without it the lease expires

T = TypeVar("T")


class ReaderLease:
    """A lease on the rows from ``positions`` on, by partition. It lasts from ``begin`` to ``end``.

    The first of several failed renewals is logged; ``error`` is the reason of the last failure, None after a success.
    ``interval`` is the time between two renewals, in seconds.
    """

    def __init__(
        self, session: StreamSession, stream: str, positions: Callable[[], dict[int, int]],
        rows: Generator[object, None, None], *, interval: float = LEASE_S / 4,
    ) -> None:  # fmt: skip
        self.error: Exception | None = None
        self._interval = interval
        self._session = session
        self._stream = stream
        self._positions = positions
        self._rows = rows  # this reference prevents a finalization before the thread closes it
        self._reader = uuid.uuid4().hex
        self._ends: SimpleQueue[bool] = SimpleQueue()  # a finalizer may put to it; True: the reader was dropped
        self._thread = threading.Thread(target=self._renew_until_end, name="aeron-spark-lease", daemon=True)

    def begin(self) -> None:
        """Request the lease, and renew it from now on. If the request fails, the next renewal takes the lease."""
        self._request(LEASE_S, RENEWAL_TIMEOUT_S)
        self._thread.start()

    def end(self) -> None:
        """End the lease; waits a short time for the server."""
        self._ends.put(False)
        self._thread.join(2 * END_TIMEOUT_S)

    def abandon(self) -> None:
        """Make the thread close the rows and end the lease, without waiting for it."""
        self._ends.put(True)

    def _renew_until_end(self) -> None:
        while True:
            try:
                is_abandoned = self._ends.get(timeout=self._interval)
            except Empty:
                self._request(LEASE_S, RENEWAL_TIMEOUT_S)
                continue
            if is_abandoned:
                try:
                    self._rows.close()
                except Exception as error:  # raised while it returns a bulk link, for example
                    LOG.info("closing a dropped reader of stream %r failed: %s", self._stream, error)
            self._request(0.0, END_TIMEOUT_S)
            return

    def _request(self, seconds: float, timeout_s: float) -> None:
        """Request a lease of ``seconds``; 0 ends it."""
        try:
            request = RenewLease(self._stream, self._reader, tuple(self._positions().items()), seconds)
            self._session.call(request, timeout=timeout_s)
        except Exception as error:  # an error must not end the thread: the reader would lose its lease silently
            self._report_failure(error, seconds)
        else:
            if self.error is not None:
                LOG.info("the lease of a reader of stream %r was renewed again", self._stream)
            self.error = None

    def _report_failure(self, error: Exception, seconds: float) -> None:
        is_first, self.error = self.error is None, error
        if is_first and seconds:  # a lease that could not be ended expires
            LOG.warning(
                "the lease of a reader of stream %r was not renewed; the next attempts follow every %g s. After %g s "
                "without a renewal, retention may delete rows that the reader has not read: %s",
                self._stream, self._interval, LEASE_S, error,
                exc_info=None if isinstance(error, AeronSparkError) else error,
            )  # fmt: skip


class LeasedIterator(Generic[T]):
    """Iterates over ``rows`` under ``lease``, which lasts until the end, :meth:`close`, or the iterator is dropped.

    For the thread that makes it. Another one gets UsageError, and changes nothing.
    """

    def __init__(self, rows: Generator[T, None, None], lease: ReaderLease) -> None:
        self._rows = rows
        self._lease = lease
        bind_to_process(self)
        self._thread = threading.current_thread()
        self._ended = False

    def begin(self) -> None:
        """Request the lease. Call it before the first row is read."""
        self._lease.begin()

    def _refuse_other_threads(self) -> None:
        """Raise UsageError if the iteration has not ended, and its thread lives and is not the caller's."""
        if not self._ended and self._thread is not threading.current_thread() and self._thread.is_alive():
            raise UsageError(
                f"thread {self._thread.name!r} reads with this reader",
                remedy="Make a reader in each thread, for other partitions: client.reader(..., partitions=[0]).",
            )

    def __iter__(self) -> LeasedIterator[T]:
        return self

    def __next__(self) -> T:
        self._refuse_other_threads()
        try:
            return next(self._rows)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop reading. A second call does nothing. Raises UsageError in another thread."""
        self._refuse_other_threads()
        if not self._ended:
            self._ended = True
            self._rows.close()
            self._lease.end()

    def __del__(self) -> None:
        if not self._ended:
            self._lease.abandon()
