"""Fills stages: over a bulk link, and then a large one is published ahead of its commit; or from one request."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Final

from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError, WaitTimeout
from aeron_spark.streams.stages import Stage
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import resolve
from aeron_spark.wire.stream_rpc import BulkMessage, BulkMessageKind, StagedPart

PUBLISH_AHEAD_BYTES: Final = 4 << 20  # staged and unpublished bytes from which publishing ahead pays off
COMMIT_PAUSE_S: Final = 0.001  # between two steps of publishing ahead: lets a waiting commit take the unfair lock


def fill_at_once(stage: Stage, items: bytes, rows: int, crc: int) -> None:
    """Append all items of a stage, and finish it.

    Raises RefusedError if they do not have this number of rows or this checksum, or if one of them is invalid, and the
    errors of ``Stage.append`` and ``Stage.finish``. The stage is discarded then.
    """
    try:
        stage.append(items, stage.used_at)
        found = stage.finish()
    except DataFormatError as error:
        raise RefusedError(error.what, remedy=error.remedy, reason=error.reason) from error
    if (found.rows, found.crc) == (rows, crc):
        return
    stage.discard()
    raise RefusedError(
        f"the rows of task {stage.description.task} of transaction {stage.description.transaction} of writer "
        f"{stage.description.writer!r} arrived as {found.rows} rows with the checksum {found.crc:#010x}, and their "
        f"request names {rows} rows with {crc:#010x}",
        remedy="Stage the rows again.",
    )


class IncomingStage:
    """A stage of ``stream`` that messages fill over a bulk link. Thread-safe."""

    def __init__(self, stream: Stream, stage: Stage) -> None:
        self.stage = stage
        self._stream = stream
        self._lock = threading.RLock()  # the removal of a stage that fails may call ``fail`` again
        self._waits: list[tuple[int, Future[bool]]] = []  # for so many bytes, or an error
        self._bytes = 0
        self._published = 0  # bytes published ahead of the commit
        self._may_publish = True  # False while a thread publishes ahead, and after publishing ahead failed
        self._error: AeronSparkError | None = None

    @property
    def stream_name(self) -> str:
        """The name of the stream."""
        return self._stream.definition.name

    def append(self, message: BulkMessage) -> bool:
        """Append a message's payload. Return whether another thread should call :meth:`publish_ahead` now.

        An error of the message or the disk fails the stage; :meth:`finish` raises it.
        """
        try:
            if message.kind is not BulkMessageKind.STAGE or message.position != self._bytes:
                raise RefusedError(
                    f"stage {self.stage.id} received a {message.kind.name} message at byte {message.position}, "
                    f"expected {BulkMessageKind.STAGE.name} at byte {self._bytes}",
                    remedy="Stage the rows again.",
                )
            self.stage.append(message.payload, time.monotonic())
        except AeronSparkError as error:
            self.fail(error)
            return False
        with self._lock:
            self._bytes += message.payload.nbytes
            publish = self._may_publish and self._bytes - self._published >= PUBLISH_AHEAD_BYTES
            self._may_publish = self._may_publish and not publish
        self._end_waits()
        return publish

    def fail(self, error: AeronSparkError) -> None:
        """Discard the stage, so that :meth:`finish` raises ``error``. A finished stage stays: its commit needs it."""
        with self._lock:
            if not self.stage.is_finished:
                self._error = self._error or error
                self.stage.discard(self._error)
        self._end_waits()

    def when_arrived(self, size: int) -> Future[bool]:
        """Return a future of True, which has ended when ``size`` bytes have arrived, or when the stage has failed."""
        arrived: Future[bool] = Future()
        with self._lock:
            self._waits.append((size, arrived))
        arrived.add_done_callback(lambda _: self._forget_wait(size, arrived))
        self._end_waits()
        return arrived

    def not_arrived(self, size: int, seconds: float) -> WaitTimeout:
        """Return the error for ``size`` bytes that have not arrived within ``seconds``."""
        return WaitTimeout(
            f"{self._bytes} of {size} bytes of stage {self.stage.id} arrived within {seconds:g} s",
            remedy="Send the request again.",
        )

    def finish(self, size: int) -> StagedPart:
        """Finish the stage, of which ``size`` bytes have arrived. Several calls, also at a time, are allowed.

        Raises the stage's error if it failed, or if it received another number of bytes; the stage is discarded, and
        each later call raises the same error.
        """
        with self._lock:  # a failure meanwhile must not discard a stage that is finished
            if self._error is not None:
                raise self._error
            try:
                if self._bytes != size:
                    raise RefusedError(
                        f"stage {self.stage.id} received {self._bytes} bytes, expected {size}",
                        remedy="Stage the rows again.",
                    )
                return self.stage.finish()
            except AeronSparkError as error:
                self._error = error
                self.stage.discard(error)
                raise

    def _end_waits(self) -> None:
        with self._lock:
            due = [arrived for size, arrived in self._waits if self._bytes >= size or self._error is not None]
        for arrived in due:  # without the lock: a callback finishes the stage
            resolve(arrived, True)

    def _forget_wait(self, size: int, arrived: Future[bool]) -> None:
        with self._lock:
            self._waits.remove((size, arrived))

    def publish_ahead(self) -> None:
        """Publish the stage's bytes while at least PUBLISH_AHEAD_BYTES are unpublished.

        The archive records them before the commit, which then has fewer bytes to wait for. An error ends publishing
        ahead: the commit publishes the whole stage again, and raises the error if it occurs again.
        """
        succeeded = False
        try:
            while self._bytes - self._published >= PUBLISH_AHEAD_BYTES:
                published = self._stream.publish_ahead(self.stage, self._published)
                if 0 <= published < self._published:  # the recording was truncated
                    return
                if published <= self._published:  # the stream is busy, or the next item is not complete
                    break
                self._published = published
                time.sleep(COMMIT_PAUSE_S)
            succeeded = True
        except AeronSparkError:
            return
        finally:
            with self._lock:
                self._may_publish = succeeded
