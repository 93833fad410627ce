"""``receive`` on the direct route: writes the recorded messages of a channel and stream id, and follows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from aeron_spark.cli.outputs import Output, ReceivedRows
from aeron_spark.cli.row_transfer import RowReceiver
from aeron_spark.cli.sbe_receive import SbeReceiver, values_options
from aeron_spark.cli.signals import StopRequest
from aeron_spark.log.api import Log
from aeron_spark.log.columns import VALUE
from aeron_spark.log.follow import RAW, Follower
from aeron_spark.log.restarts import RestartableLog, restartable
from aeron_spark.log_factory import log_of
from aeron_spark.options import ReadOptions

POLL_INTERVAL_S: Final = 0.02  # interval between two checks for new messages


def receive_directly(
    options: ReadOptions, out: Output, *, follow: bool, count: int | None, timeout: float | None,
    position: int | None, stopped: StopRequest,
) -> ReceivedRows:  # fmt: skip
    """Write the batches of a stream to ``out``, at most ``count`` rows.

    With ``follow``, wait for further rows until ``timeout`` seconds pass without one, or a signal comes. ``position``
    is where to start in every recording. Waits out a restart of an archive that has answered, for ``archiveTimeout``.
    """
    receiver = RowReceiver(out, count, stopped)
    sbe = SbeReceiver(options, metadata=options.include_metadata) if options.payload == "sbe" else None
    schema: pa.Schema = RAW if sbe is None else sbe.schema
    interrupted = False
    wait = _RowWait(timeout, stopped)
    follower = Follower(values_options(options), _RestartableLogs(wait.sleep), wait.wait_for_rows)
    try:
        batches = wait.received(follower, follow=follow, position=position)
        if receiver.write_all(batches if sbe is None else sbe.decoded(batches)) and sbe is None:
            content = follower.content
            schema = RAW if content is None or content.payload == "raw" else content.schema or VALUE
        interrupted = receiver.interrupted or wait.interrupted
    except KeyboardInterrupt:
        interrupted = True
    finally:
        out.close(schema)
    return ReceivedRows(receiver.rows, interrupted)


class _RestartableLogs:
    """Opens logs that wait out a restart of an archive; the first one only if it has answered. ``sleep`` waits."""

    def __init__(self, sleep: Callable[[float], object]) -> None:
        self._sleep = sleep
        self._logs: dict[bool, RestartableLog] = {}  # by whether they count groups

    def __call__(self, options: ReadOptions, framed: bool) -> Log:
        found = self._logs.get(framed)
        if found is None:
            found = self._logs[framed] = restartable(
                lambda: log_of(options, framed), options.route, is_running=bool(self._logs), sleep=self._sleep
            )
        found.renew()
        return found


class _RowWait:
    """Waits for further rows, until a signal comes, or until ``timeout`` seconds pass without a row."""

    def __init__(self, timeout: float | None, stopped: StopRequest) -> None:
        self.interrupted = False
        self._timeout = timeout
        self._stopped = stopped
        self._last_row_at = time.monotonic()

    def received(
        self, follower: Follower, *, follow: bool, position: int | None
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the batches of the stream with their payloads."""
        for received in follower.batches(follow=follow, position=position):
            self._stopped.start_polling()
            yield received.payload, received.batch
            self._last_row_at = time.monotonic()  # after the output has taken the batch

    def sleep(self, seconds: float) -> None:
        """Sleep while an archive is away. Raises KeyboardInterrupt after a signal."""
        if self._stopped():
            raise KeyboardInterrupt
        time.sleep(seconds)

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
