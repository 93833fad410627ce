"""``receive`` on the direct route: writes the recorded messages of a channel and stream id, and follows them."""

from __future__ import annotations

import time
from typing import Final

import pyarrow as pa

from aeron_spark.cli.output import progress
from aeron_spark.cli.outputs import Output, ReceivedRows
from aeron_spark.cli.signals import StopRequest
from aeron_spark.log.columns import VALUE
from aeron_spark.log.follow import RAW, Follower
from aeron_spark.log_factory import log_of
from aeron_spark.options import ReadOptions

POLL_INTERVAL_S: Final = 0.02  # interval between two checks for new messages


def receive_directly(
    options: ReadOptions, out: Output, *, follow: bool, count: int | None, timeout: float | None,
    position: int | None, stopped: StopRequest,
) -> ReceivedRows:  # fmt: skip
    """Write the batches of a stream to ``out``, at most ``count`` rows.

    With ``follow``, wait for further rows until ``timeout`` seconds pass without one, or a signal comes. ``position``
    is where to start in every recording.
    """
    receiver = _Receiver(out, count, timeout, stopped)
    try:
        receiver.receive(Follower(options, log_of, receiver.wait_for_rows), follow=follow, position=position)
    except KeyboardInterrupt:
        receiver.interrupted = True
    finally:
        out.close(receiver.schema)
    return ReceivedRows(receiver.rows, receiver.interrupted)


class _Receiver:
    """Writes received batches, and decides when the command ends."""

    def __init__(self, out: Output, count: int | None, timeout: float | None, stopped: StopRequest) -> None:
        self.rows = 0
        self.interrupted = False
        self.schema: pa.Schema = RAW
        self._out = out
        self._count = count
        self._timeout = timeout
        self._stopped = stopped
        self._last_row_at = time.monotonic()

    def receive(self, follower: Follower, *, follow: bool, position: int | None) -> None:
        """Write all batches up to the end of the stream, or up to the end of the command with ``follow``."""
        with progress("receiving", None) as advance:
            for received in follower.batches(follow=follow, position=position):
                self._stopped.start_polling()
                batch = received.batch
                if self._count is not None:
                    batch = batch.slice(0, self._count - self.rows)
                self._out.write(received.payload, batch)
                self.rows += batch.num_rows
                advance(batch.num_rows, batch.nbytes)
                self._last_row_at = time.monotonic()
                if self._stopped():
                    self.interrupted = True
                if self.interrupted or self.rows == self._count:
                    return
        if follower.content is not None and follower.content.payload != "raw":
            self.schema = follower.content.schema or VALUE

    def wait_for_rows(self) -> bool:
        """Wait one poll interval for new rows. Return False if the command has to end instead."""
        self._stopped.start_polling()
        if self._stopped():
            self.interrupted = True
            return False
        if self._timeout is not None and time.monotonic() - self._last_row_at >= self._timeout:
            return False
        time.sleep(POLL_INTERVAL_S)
        return True
