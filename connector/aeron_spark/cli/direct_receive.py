"""``receive`` on the direct route: recorded messages of a channel and stream id, and those that come."""

from __future__ import annotations

import time
from typing import Final

import pyarrow as pa

from aeron_spark.cli.output import progress
from aeron_spark.cli.outputs import Output
from aeron_spark.cli.signals import StopRequest
from aeron_spark.log.columns import VALUE
from aeron_spark.log.follow import RAW, Follower
from aeron_spark.log_factory import log_of
from aeron_spark.options import ReadOptions

POLL_INTERVAL_S: Final = 0.02  # seconds between two looks at a stream where nothing is new


def receive_directly(
    options: ReadOptions, out: Output, *, follow: bool, count: int | None, timeout: float | None,
    position: int | None, stopped: StopRequest,
) -> tuple[int, bool]:  # fmt: skip
    """Write all batches that are wanted; return how many rows they had, and whether a signal ended it."""
    run = _Run(out, count, timeout, stopped)
    try:
        run.receive(Follower(options, log_of, run.idle), follow=follow, position=position)
    except KeyboardInterrupt:
        run.interrupted = True
    finally:
        out.close(run.schema)
    return run.rows, run.interrupted


class _Run:
    """One receiving: what came, and when to end."""

    def __init__(self, out: Output, count: int | None, timeout: float | None, stopped: StopRequest) -> None:
        self.rows = 0
        self.interrupted = False
        self.schema: pa.Schema = RAW
        self._out = out
        self._count = count
        self._timeout = timeout
        self._stopped = stopped
        self._last = time.monotonic()

    def receive(self, tail: Follower, *, follow: bool, position: int | None) -> None:
        """Write all batches that are wanted."""
        with progress("receiving", None) as advance:
            for received in tail.batches(follow=follow, position=position):
                self._stopped.begin()
                batch = received.batch
                if self._count is not None:
                    batch = batch.slice(0, self._count - self.rows)
                self._out.write(received.payload, batch)
                self.rows += batch.num_rows
                advance(batch.num_rows, batch.nbytes)
                self._last = time.monotonic()
                if self._stopped():
                    self.interrupted = True
                if self.interrupted or self.rows == self._count:
                    return
        if tail.content is not None and tail.content.payload != "raw":
            self.schema = tail.content.schema or VALUE

    def idle(self) -> bool:
        """Wait a little for more; False when it is time to end."""
        self._stopped.begin()
        if self._stopped():
            self.interrupted = True
            return False
        if self._timeout is not None and time.monotonic() - self._last >= self._timeout:
            return False
        time.sleep(POLL_INTERVAL_S)
        return True
