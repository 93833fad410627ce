"""Writes the log of a server process to standard error, on a thread: a reader that is slow delays no client."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, TextIO

from aeron_spark.options import LiveOptions
from aeron_spark.server.event_table import EVENTS
from aeron_spark.server.log_format import LineFormatter, LogFormat

PACKAGE_LOG: Final = logging.getLogger("aeron_spark")
MAX_WAITING_LINES: Final = 10_000
CLOSE_TIMEOUT_S: Final = 2.0  # for the lines that wait when the output is closed
DROPPED: Final = EVENTS["log_dropped"]
DROPPED_INTERVAL_S: Final = 1.0  # between two lines that say how many were dropped


class LogOutput(logging.Handler):
    """Writes the records of this package's loggers as lines, from its construction until ``close``.

    Other handlers of the program do not get these records meanwhile. Of the lines that a slow reader does not take,
    10,000 wait, and later ones are dropped; the event ``log_dropped`` says how many, before the next line that is
    written.
    """

    def __init__(
        self, log_format: LogFormat, level: str, output: TextIO | None = None,
        count_dropped: Callable[[], object] = lambda: None, max_lines: int = MAX_WAITING_LINES,
    ) -> None:  # fmt: skip
        """``level`` is ``debug``, ``info``, ``warning`` or ``error``; ``output`` is by default standard error.

        ``count_dropped`` is called for each line that is dropped, on any thread, but on one at a time.
        """
        super().__init__()
        self.set_format(log_format)
        self._output: Final = output or sys.stderr
        self._lines: Final[queue.Queue[str | None]] = queue.Queue(max_lines)
        self._count_dropped: Final = count_dropped
        self._dropped = 0  # lines since the last report; guarded by the lock
        self._dropped_lock: Final = threading.Lock()
        self._before: Final = (PACKAGE_LOG.level, PACKAGE_LOG.propagate)
        self._thread: Final = threading.Thread(target=self._write_lines, name="aeron-spark-log", daemon=True)
        self._thread.start()
        PACKAGE_LOG.addHandler(self)
        PACKAGE_LOG.propagate = False
        self.set_level(level)

    def set_format(self, log_format: LogFormat) -> None:
        """Write further records in this format."""
        self.setFormatter(LineFormatter(log_format))

    def set_level(self, level: str) -> None:
        """Write the records of at least this level."""
        PACKAGE_LOG.setLevel(level.upper())

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a record."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:  # the reader of the output is too slow; the server must not wait for it
            self._drop()
        except Exception:  # a log line must not end the thread that logs
            self.handleError(record)

    def close(self) -> None:
        """Write the lines that wait, for some seconds at most, and restore the settings of the loggers."""
        if self not in PACKAGE_LOG.handlers:
            return
        PACKAGE_LOG.removeHandler(self)
        PACKAGE_LOG.setLevel(self._before[0])
        PACKAGE_LOG.propagate = self._before[1]
        try:
            self._lines.put(None, timeout=CLOSE_TIMEOUT_S)
            self._thread.join(CLOSE_TIMEOUT_S)
        except queue.Full:
            pass  # as above
        super().close()

    def _write_lines(self) -> None:
        next_report = float("-inf")
        while (line := self._lines.get()) is not None:
            if self._dropped and time.monotonic() >= next_report:
                next_report = time.monotonic() + DROPPED_INTERVAL_S
                self._write_dropped()
            if not self._write(line):
                self._drop()
        if self._dropped:
            self._write_dropped()

    def _write_dropped(self) -> None:
        with self._dropped_lock:
            count, self._dropped = self._dropped, 0
        record = logging.makeLogRecord(
            {"levelno": DROPPED.level, "levelname": DROPPED.level.name, "event": DROPPED.name,
             "fields": {"count": count}}
        )  # fmt: skip
        if not self._write(self.format(record)):
            with self._dropped_lock:
                self._dropped += count  # for a later report

    def _write(self, line: str) -> bool:
        try:
            self._output.write(f"{line}\n")
            self._output.flush()
        except (OSError, ValueError):  # the reader of the output has gone
            return False
        return True

    def _drop(self) -> None:
        with self._dropped_lock:
            self._count_dropped()
            self._dropped += 1


class ServerLog:
    """The log of a server on standard error, as its options say; without ``logFormat``, there is no such log.

    One thread at a time calls its methods. ``output`` is by default standard error.
    """

    def __init__(self, options: LiveOptions, output: TextIO | None = None, max_lines: int = MAX_WAITING_LINES) -> None:
        self._options: Final = options
        self._destination: Final = output
        self._max_lines: Final = max_lines
        self._is_open = False
        self._output: LogOutput | None = None
        self.dropped_total = 0
        """The number of lines that were dropped since the start, because the reader was too slow or has gone."""

    def open(self) -> None:
        """Write the log from now on. Does nothing if the log is open."""
        self._is_open = True
        self.apply()

    def close(self) -> None:
        """Write the lines that wait, and no further ones."""
        self._is_open = False
        self._end_output()

    def apply(self) -> None:
        """Write further records in the present format, and from the present level on, if the log is open."""
        log_format, level = self._options.value.log_format, self._options.value.log_level
        if not self._is_open:
            return
        if log_format is None:
            self._end_output()
        elif self._output is None:
            self._output = LogOutput(log_format, level, self._destination, self._count_dropped, self._max_lines)
        else:
            self._output.set_format(log_format)
            self._output.set_level(level)

    def _count_dropped(self) -> None:
        self.dropped_total += 1

    def _end_output(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            output.close()
