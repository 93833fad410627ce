"""A reader's lease: as long as it reads, retention leaves what it has not read yet.

The lease's thread also ends the reading of an iterator that was dropped half-way. A finalizer may run anywhere, in the
middle of a remote call of the same thread, too: it must not ask the server itself.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from aeron_spark.errors import AeronSparkError
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_rpc import RenewLease

LOG: Final = logging.getLogger("aeron_spark.streams")

LEASE_SECONDS: Final = 60.0  # a reader that died holds retention up for so long
PATIENCE: Final = 5.0  # seconds for one renewal; a missed one is made up for by the next
END_SECONDS: Final = 1.0  # to give the lease back; it expires anyhow

T = TypeVar("T")


class ReaderLease:
    """Held on what lies at and behind ``positions``, by partition, from ``begin`` to ``end``.

    A renewal that fails is logged, once until one succeeds again; ``error`` is why the last one failed, or None.
    ``interval`` is the time between two renewals, in seconds.
    """

    def __init__(
        self, session: StreamSession, stream: str, positions: Callable[[], dict[int, int]],
        reading: Generator[object, None, None], *, interval: float = LEASE_SECONDS / 4,
    ) -> None:  # fmt: skip
        self.error: Exception | None = None
        self._interval = interval
        self._session = session
        self._stream = stream
        self._positions = positions
        self._reading = reading  # the thread keeps it: nobody else may finalize it before it is closed
        self._reader = uuid.uuid4().hex
        self._over: SimpleQueue[bool] = SimpleQueue()  # may be put to by a finalizer
        self._renewing = threading.Thread(target=self._renew, name="aeron-spark-lease", daemon=True)

    def begin(self) -> None:
        """Take the lease, and renew it from now on. A server that is away gives none, which the next renewal mends."""
        self._hold(LEASE_SECONDS, PATIENCE)
        self._renewing.start()

    def end(self) -> None:
        """Give it back."""
        self._over.put(False)
        self._renewing.join(2 * END_SECONDS)

    def abandon(self) -> None:
        """Have the reading closed and the lease given back, without waiting."""
        self._over.put(True)

    def _renew(self) -> None:
        while True:
            try:
                abandoned = self._over.get(timeout=self._interval)
            except Empty:
                self._hold(LEASE_SECONDS, PATIENCE)
                continue
            if abandoned:
                try:
                    self._reading.close()
                except Exception as error:  # of what the reading had borrowed
                    LOG.info("a dropped reader of stream %r did not end in order: %s", self._stream, error)
            self._hold(0.0, END_SECONDS)
            return

    def _hold(self, seconds: float, patience: float) -> None:
        try:
            request = RenewLease(self._stream, self._reader, dict(self._positions()), seconds)
            self._session.call(request, timeout=patience)
        except Exception as error:  # without its thread the reader would be without its lease, and not hear of it
            self._failed(error, seconds)
        else:
            if self.error is not None:
                LOG.info("the lease of a reader of stream %r holds again", self._stream)
            self.error = None

    def _failed(self, error: Exception, seconds: float) -> None:
        first, self.error = self.error is None, error
        if first and seconds:  # one that could not be given back expires
            LOG.warning(
                "the lease of a reader of stream %r was not renewed, and is tried again each %g s: without it for %g s"
                ", retention may delete what the reader has not read: %s",
                self._stream, self._interval, LEASE_SECONDS, error,
                exc_info=None if isinstance(error, AeronSparkError) else error,
            )  # fmt: skip


class Leased(Generic[T]):
    """An iterator over ``reading`` that holds ``lease``, until its end, :meth:`close`, or until it is dropped."""

    def __init__(self, reading: Generator[T, None, None], lease: ReaderLease) -> None:
        self._reading = reading
        self._lease = lease
        self._ended = False
        lease.begin()

    def __iter__(self) -> Leased[T]:
        return self

    def __next__(self) -> T:
        try:
            return next(self._reading)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Read no further. Again, it does nothing."""
        if not self._ended:
            self._ended = True
            self._reading.close()
            self._lease.end()

    def __del__(self) -> None:
        if not self._ended:
            self._lease.abandon()
