"""Writes a server's log: the format of a line, its limits, and the thread that writes it."""

from __future__ import annotations

import json
import logging
import math
import queue
import re
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Literal, TextIO

from aeron_spark.endpoint.endpoint_listeners import stack_of
from aeron_spark.options import LiveOptions
from aeron_spark.server.event_table import EVENTS, FIELDS, EventField
from aeron_spark.texts import quote_text

LogFormat = Literal["text", "json"]

MAX_LISTED: Final = 20  # elements of a list
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:@/+,%\[\]-]+", re.ASCII)  # needs no quotation marks in a line of text
_OTHER_FIELD: Final = EventField("of a record that is not an event", is_quoted=True)


class LineFormatter(logging.Formatter):
    """Formats the events of ``server.event_log``, and records of other loggers as the event ``log``.

    Text: ``2026-11-23T18:30:00.123Z INFO connected name=desk-7 tag="orders"``. JSON: one object with ``time``,
    ``level``, ``event`` and the fields. Texts have no line ends, terminal sequences or bidirectional controls.
    """

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_json: Final = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line end."""
        event, fields = _event_of(record)
        if self._is_json:
            head = f'"time": "{_time(record)}", "level": "{record.levelname.lower()}", "event": {quote_text(event)}'
            return "{" + head + "".join(f", {_json_name(name)}: {_json(name, fields[name])}" for name in fields) + "}"
        return f"{_time(record)} {record.levelname} {describe(event, fields)}"


def describe(event: str, fields: Mapping[str, Any]) -> str:
    """Return an event with its fields, without time and level: ``connected name=desk-7``."""
    return " ".join([event, *(f"{name}={_text(name, value)}" for name, value in fields.items())])


def _event_of(record: logging.LogRecord) -> tuple[str, Mapping[str, Any]]:
    event, fields = getattr(record, "event", None), getattr(record, "fields", None)
    if isinstance(event, str) and isinstance(fields, Mapping):
        return event, fields
    fields = {"logger": record.name, "message": record.getMessage()}
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        fields |= {"error_type": type(error).__name__, "error": str(error), "stack": stack_of(error)}
    return "log", fields


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return f"{value:.6g}"
        case tuple() | list():
            shown = ",".join(str(one) for one in _listed(value))
            return shown if _PLAIN.fullmatch(shown) else _quote(name, shown)
        case _:
            text = str(value)
            is_bare = not _field(name).is_quoted and len(text) <= _field(name).max_characters and _PLAIN.fullmatch(text)
            return text if is_bare else _quote(name, text)


def _json_name(name: str) -> str:
    return quote_text(_field(name).json_name or name)


def _json(name: str, value: object) -> str:
    match value:
        case bool() | int():
            return json.dumps(value)
        case float():
            return json.dumps(float(f"{value:.6g}") if math.isfinite(value) else None)
        case tuple() | list():
            return "[" + ", ".join(_quote(name, str(one)) for one in _listed(value)) + "]"
        case _:
            return _quote(name, str(value))


def _quote(name: str, text: str) -> str:
    return quote_text(text, _field(name).max_characters)


def _field(name: str) -> EventField:
    return FIELDS.get(name, _OTHER_FIELD)


def _listed(values: tuple[object, ...] | list[object]) -> list[object]:
    return [*values] if len(values) <= MAX_LISTED else [*values[:MAX_LISTED], f"+{len(values) - MAX_LISTED}"]


BURST: Final = 5  # lines of one event about one subject at once
LINES_PER_S: Final = 0.1  # of one event about one subject after the burst
TOTAL_PER_S: Final = 50.0  # lines of all events
PEERS_PER_S: Final = 40.0  # lines of the events that clients cause: some of the total always stay for the other events
MAX_SUBJECTS: Final = 4096  # about 1 MB


@dataclass(slots=True)
class _Bucket:
    """Tokens, of which each line takes one."""

    size: float
    per_s: float
    tokens: float
    counted_at: float

    def fill(self, now: float) -> None:
        """Add the tokens since the last call."""
        self.tokens = min(self.size, self.tokens + max(0.0, now - self.counted_at) * self.per_s)
        self.counted_at = max(now, self.counted_at)


class LogLimiter:
    """Decides which events become lines, and counts the other ones. Not thread-safe.

    For each event and subject, such as a key or an address: ``BURST`` lines at once, then one in 10 s. In all: 50 lines
    a second. At ``MAX_SUBJECTS`` the subject without events for the longest time is forgotten; the total limits remain.
    Times are in monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self._total: Final = _Bucket(TOTAL_PER_S, TOTAL_PER_S, TOTAL_PER_S, now)
        self._peers: Final = _Bucket(PEERS_PER_S, PEERS_PER_S, PEERS_PER_S, now)
        self._subjects: Final[OrderedDict[tuple[str, object], _Bucket]] = OrderedDict()  # the least recent one first
        self._suppressed: Counter[str] = Counter()
        self.suppressed_total = 0
        """The number of lines that were suppressed since the start."""

    def __len__(self) -> int:
        return len(self._subjects)

    def admit(
        self, event: str, subject: object, now: float, *, is_caused_by_peer: bool, is_vital: bool = False
    ) -> bool:
        """Return whether an event at ``now`` becomes a line; otherwise count it.

        The total limits do not suppress a vital event, such as a damaged stream: no client can cause many of them.
        """
        key = (event, subject)
        bucket = self._subjects.pop(key, None) or _Bucket(BURST, LINES_PER_S, BURST, now)
        self._subjects[key] = bucket
        if len(self._subjects) > MAX_SUBJECTS:
            self._subjects.popitem(last=False)
        totals = () if is_vital else (self._total, self._peers) if is_caused_by_peer else (self._total,)
        buckets = (bucket, *totals)
        for one in buckets:
            one.fill(now)
        is_admitted = all(one.tokens >= 1 for one in buckets)
        if is_admitted:
            for one in buckets:
                one.tokens -= 1
        else:
            self._suppressed[event] += 1
            self.suppressed_total += 1
        return is_admitted

    def take_suppressed(self) -> dict[str, int]:
        """Return the suppressed lines by event since the last call."""
        taken, self._suppressed = dict(self._suppressed), Counter()
        return taken


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
        self,
        log_format: LogFormat,
        level: str,
        output: TextIO | None = None,
        count_dropped: Callable[[], object] = lambda: None,
        max_lines: int = MAX_WAITING_LINES,
    ) -> None:
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
            {
                "levelno": DROPPED.level,
                "levelname": DROPPED.level.name,
                "event": DROPPED.name,
                "fields": {"count": count},
            }
        )
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


class ServerLogOutput:
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
