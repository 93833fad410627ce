"""A stage that is filled over a bulk link, and recorded ahead of its commit where it is large."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from aeron_spark.errors import AeronSparkError, RefusedError, WaitTimeout
from aeron_spark.streams.stages import Stage, StageRef
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.stream_rpc import BulkMessage, BulkMessageKind

LARGE: Final = 4 << 20  # bytes that are worth to be published ahead
TURN: Final = 0.001  # seconds in which a commit that waits has its turn: a lock alone is not fair


class IncomingStage:
    """``stage`` of ``stream``, which messages of number ``request`` fill over the bulk link ``link``.

    ``condition`` makes what :meth:`finish` waits on.
    """

    def __init__(
        self, stream: Stream, stage: Stage, link: int, request: int,
        condition: Callable[[], threading.Condition] = threading.Condition,
    ) -> None:  # fmt: skip
        self.stage = stage
        self.link = link
        self.request = request
        self._stream = stream
        self._came = condition()
        self._bytes = 0
        self._published = 0  # of these, ahead of the commit
        self._may_publish = True  # nobody does already, and it is not in vain
        self._error: AeronSparkError | None = None

    def take(self, message: BulkMessage) -> bool:
        """Append a message; whether :meth:`publish_ahead` is to be called now, by another thread."""
        try:
            if message.kind is not BulkMessageKind.STAGE or message.position != self._bytes:
                raise RefusedError(f"stage {self.stage.id} goes on at byte {message.position}, not {self._bytes}")
            self.stage.append(message.payload, time.monotonic())
        except AeronSparkError as error:
            self.fail(error)
            return False
        with self._came:
            self._bytes += message.payload.nbytes
            self._came.notify_all()
            wanted = self._may_publish and self._bytes - self._published >= LARGE
            self._may_publish = self._may_publish and not wanted
            return wanted

    def fail(self, error: AeronSparkError) -> None:
        """It cannot be finished, unless it was: a stage that is whole is the commit's."""
        with self._came:
            if not self.stage.whole:
                self._error = self._error or error
                self.stage.discard()
            self._came.notify_all()

    def finish(self, size: int, seconds: float) -> StageRef:
        """Wait until so many bytes have come, and make the stage whole. May be called again, also at once.

        Raises WaitTimeout where they have not come yet: the stage is left as it is. Raises why it cannot be whole, from
        then on each time; it is gone then.
        """
        with self._came:
            come = self._came.wait_for(lambda: self._bytes >= size or self._error is not None, seconds)
            if self._error is not None:
                raise self._error
            if not come:
                raise WaitTimeout(
                    f"{self._bytes} of {size} bytes of stage {self.stage.id} came within {seconds:g} s",
                    remedy="Ask again",
                )
            try:
                if self._bytes != size:
                    raise RefusedError(
                        f"{self._bytes} bytes of stage {self.stage.id} came, and its writer sent {size}",
                        remedy="Stage the rows again",
                    )
                return self.stage.finish()
            except AeronSparkError as error:
                self._error = error
                self.stage.discard()
                raise

    def publish_ahead(self) -> None:
        """Publish what has come of the stage, as long as there is much of it; what comes later asks anew.

        The archive records it meanwhile, so that its commit has little to wait for. What goes wrong is left to the
        commit, which begins anew then, and says it.
        """
        ahead = False
        try:
            while self._bytes - self._published >= LARGE:
                found = self._stream.publish_ahead(self.stage, self._published)
                if 0 <= found < self._published:  # it was cut off
                    return
                if found <= self._published:  # not now, or the next item is not all there
                    break
                self._published = found
                time.sleep(TURN)
            ahead = True
        except AeronSparkError:
            return
        finally:
            with self._came:
                self._may_publish = ahead
