"""Writes the log of a server process to standard error, on a thread: a reader that is slow delays no client."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from typing import Final, TextIO

from aeron_spark.server.log_format import LineFormatter, LogFormat

PACKAGE_LOG: Final = logging.getLogger("aeron_spark")
MAX_WAITING_LINES: Final = 10_000
CLOSE_TIMEOUT_S: Final = 2.0  # for the lines that wait when the output is closed


class LogOutput(logging.Handler):
    """Writes the records of this package's loggers as lines, from its construction until ``close``.

    Other handlers of the program do not get these records meanwhile. Of the lines that a slow reader does not take,
    10,000 wait, and later ones are dropped.
    """

    def __init__(self, log_format: LogFormat, level: str, output: TextIO | None = None) -> None:
        """``level`` is ``debug``, ``info``, ``warning`` or ``error``; ``output`` is by default standard error."""
        super().__init__()
        self.setFormatter(LineFormatter(log_format))
        self._output: Final = output or sys.stderr
        self._lines: Final[queue.Queue[str | None]] = queue.Queue(MAX_WAITING_LINES)
        self._before: Final = (PACKAGE_LOG.level, PACKAGE_LOG.propagate)
        self._thread: Final = threading.Thread(target=self._write_lines, name="aeron-spark-log", daemon=True)
        self._thread.start()
        PACKAGE_LOG.addHandler(self)
        PACKAGE_LOG.propagate = False
        self.set_level(level)

    def set_level(self, level: str) -> None:
        """Write the records of at least this level."""
        PACKAGE_LOG.setLevel(level.upper())

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a record."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            pass  # the reader of the output is too slow; the server must not wait for it
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
        while (line := self._lines.get()) is not None:
            try:
                self._output.write(f"{line}\n")
                self._output.flush()
            except (OSError, ValueError):  # the reader of the output has gone
                continue
