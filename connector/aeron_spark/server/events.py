"""Reports the events of a server: to the log within limits, and to observers such as metrics without limits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aeron_spark.server.event_table import EVENTS, EventType, Level
from aeron_spark.server.log_format import describe
from aeron_spark.server.log_limiter import LogLimiter

LOG: Final = logging.getLogger("aeron_spark.server")
SUPPRESSED_INTERVAL_S: Final = 60.0  # between two reports of suppressed lines

SUBJECTS: Final = ("name", "address", "stream", "volume")  # the first one that an event has, has its own limit

Observer = Callable[[str, Mapping[str, Any]], None]


class ServerEvents:
    """The events of one server. Thread-safe.

    Each event becomes one record of the logger ``aeron_spark.server``, with the attributes ``event`` (its name) and
    ``fields``. ``docs/events.md`` lists the events and their fields. Values are texts, numbers, booleans, tuples of
    texts, or None, which is left out. Never give it a ticket, a cookie, a key's bytes or a payload.
    """

    def __init__(self, log: logging.Logger = LOG, clock: Callable[[], float] = time.monotonic) -> None:
        self._log: Final = log
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._limiter: Final = LogLimiter(clock())
        self._observers: Final[list[Observer]] = []
        self._next_suppressed_report = clock() + SUPPRESSED_INTERVAL_S

    @property
    def suppressed_total(self) -> int:
        """The number of lines that the limits have suppressed."""
        return self._limiter.suppressed_total

    def observe(self, observer: Observer) -> None:
        """Call ``observer(name, fields)`` for each event, on the thread that reports it. Call this before the start."""
        self._observers.append(observer)

    def report(self, event: str, /, *, level: Level | None = None, **fields: Any) -> None:
        """Report an event. ``level`` replaces the level of the table.

        Raises ValueError for an event or a field that ``event_table`` does not declare, and for a value in bytes.
        """
        declared = EVENTS.get(event)
        if declared is None:
            raise ValueError(f"the table of events has no event {event!r}")
        present = {field: fields[field] for field in declared.fields if fields.get(field) is not None}
        if len(present) < len(fields):
            _check(declared, fields)
        if any(isinstance(value, bytes | bytearray | memoryview) for value in present.values()):
            raise ValueError(f"event {event!r} has a value in bytes, which could be a secret")
        for observe in self._observers:
            observe(event, present)
        self.report_suppressed_when_due()
        subject = next((present[field] for field in SUBJECTS if field in present), None)
        level = level or declared.level
        if not self._log.isEnabledFor(level):
            return
        with self._lock:
            is_admitted = self._limiter.admit(
                event, subject, self._clock(), is_caused_by_peer=declared.is_caused_by_peer,
                is_vital=level is Level.ERROR and not declared.is_caused_by_peer,
            )  # fmt: skip
        if is_admitted:
            self._write(declared, level, present)

    def report_suppressed_when_due(self) -> None:
        """Report the suppressed lines by event, once a minute. A server calls this about once a second."""
        if self._clock() < self._next_suppressed_report:
            return
        with self._lock:
            if self._clock() < self._next_suppressed_report:
                return
            self._next_suppressed_report = self._clock() + SUPPRESSED_INTERVAL_S
            suppressed = self._limiter.take_suppressed()
        for event, count in sorted(suppressed.items()):
            declared = EVENTS["log_suppressed"]
            self._write(declared, declared.level, {"event": event, "count": count})

    def _write(self, declared: EventType, level: Level, fields: Mapping[str, Any]) -> None:
        # a program's own formatter shows the message; the formatter of this package uses the attributes
        message = describe(declared.name, fields)
        self._log.log(level, "%s", message, extra={"event": declared.name, "fields": dict(fields)})


def _check(declared: EventType, fields: Mapping[str, Any]) -> None:
    unknown = [field for field in fields if field not in declared.fields]
    if unknown:
        raise ValueError(f"event {declared.name!r} has no field {', '.join(unknown)}")
