"""Waits out a restart of an archive, its node or a server: repeats calls, and the appending of a task's rows.

A call is repeated only if the archive was away, or once if it was not: an error of a call that an archive answers is
not an outage. Calls of a ``Log`` change nothing, so that repeating them is safe; a read continues after the last
message that it has yielded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from aeron_spark.errors import OUTAGE, AeronSparkError, ConnectError, RefusedError
from aeron_spark.log.api import Boundary, Log, PublishTimes, Range, RecordingState, SourceStream, StreamContent
from aeron_spark.options import DirectRoute, ServerRoute
from aeron_spark.wire.values import Rows

if TYPE_CHECKING:
    from aeron_spark.log.writing import Appender
    from aeron_spark.wire.stream_requests import CommitPart

T = TypeVar("T")
# Reasons for which a server refuses before and after a restart. Without a reason it refuses a stage that it has lost.
RESTART_REASONS: Final = ("shutdown", "draining", "")
PAUSE_S: Final = 0.2  # between two questions whether it is back


def is_away(error: AeronSparkError) -> bool:
    """Whether the archive, or the server, of a call that failed may be away, or has lost the state of the call."""
    return isinstance(error, OUTAGE) or (isinstance(error, RefusedError) and error.reason in RESTART_REASONS)


@dataclass(frozen=True, slots=True)
class OutageLimit:
    """The longest wait for a restart of ``name``, which errors have. ``option`` sets it."""

    name: str
    timeout_s: float
    option: str


class Outages:
    """Waits until an archive, or a server, answers again, at most ``limit`` each time.

    ``answers`` is a call that succeeds if the archive is there, else raises an error for which ``is_away`` is true.
    """

    def __init__(
        self,
        limit: OutageLimit,
        answers: Callable[[], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._limit = limit
        self._answers = answers
        self._clock = clock
        self._sleep = sleep
        self._is_blamed = False  # whether the last error came from an archive that answered

    def outlast(self, call: Callable[[], T]) -> T:
        """Return ``call()``; repeat it after each outage. Raises its error if there was none, and ConnectError."""
        while True:
            try:
                found = call()
            except AeronSparkError as error:
                self.wait(error)
            else:
                self.end()
                return found

    def wait(self, error: AeronSparkError) -> None:
        """Wait for the end of the outage that ``error`` reports; raise it if it is not one, or comes again without one.

        Raises ConnectError after the timeout.
        """
        if not is_away(error):
            raise error
        limit, was_away = self._limit, False
        end = self._clock() + limit.timeout_s
        while True:
            try:
                self._answers()
            except AeronSparkError as again:
                if not is_away(again):
                    raise
                was_away, last = True, again
            else:
                break
            if self._clock() >= end:
                raise ConnectError(
                    f"{limit.name} was away for {limit.timeout_s:g} s: {last.what}",
                    remedy=f"Start it again, then the query; or let queries wait longer with option '{limit.option}'.",
                ) from error
            self._sleep(PAUSE_S)
        is_repeated, self._is_blamed = self._is_blamed, False
        if not was_away:
            if is_repeated:
                raise error
            self._is_blamed = True

    def end(self) -> None:
        """Note that the archive has answered a call."""
        self._is_blamed = False


class RestartableLog:
    """A log that ``open_log`` opens, again after each outage, and after :meth:`renew`. See :class:`Log`.

    Waits only if ``is_running``, or after the first call that succeeded: a wrong address fails at once.
    """

    def __init__(
        self,
        open_log: Callable[[], Log],
        limit: OutageLimit,
        *,
        is_running: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._open_log = open_log
        self._log: Log | None = None
        self._is_stale = False
        self._is_running = is_running
        self._outages = Outages(limit, self._answer, clock=clock, sleep=sleep)
        self._settings = (limit, clock, sleep)

    def renew(self) -> None:
        """Open the log again with the next call, because the archive may be another one by now."""
        self._is_stale = True

    def _opened(self) -> Log:
        if self._log is None or self._is_stale:
            opened = self._open_log()
            # Keep an equal log, because it stores which streams it has prepared.
            self._log = opened if self._log != opened else self._log
            self._is_stale = False
        return self._log

    def _answer(self) -> None:
        self._is_stale = True
        self._opened().states()

    def _call(self, use: Callable[[Log], T]) -> T:
        if not self._is_running:
            found = use(self._opened())
            self._is_running = True
            return found
        return self._outages.outlast(lambda: use(self._opened()))

    @property
    def framed(self) -> bool:
        """Whether the log counts groups of chunks instead of single messages."""
        return self._call(lambda log: log.framed)

    @property
    def archives(self) -> tuple[str, ...]:
        """The archives' names in keys."""
        return self._call(lambda log: log.archives)

    @property
    def stream(self) -> SourceStream:
        """The log's stream, as offsets identify it."""
        return self._call(lambda log: log.stream)

    def counting(self, *, framed: bool) -> RestartableLog:
        """Return the same log, counting groups or single messages."""
        limit, clock, sleep = self._settings

        def open_log() -> Log:
            return self._opened().counting(framed=framed)

        return RestartableLog(open_log, limit, is_running=self._is_running, clock=clock, sleep=sleep)

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Start the stream's recording if the option ``record`` requires it."""
        self._call(lambda log: log.prepare(states, record=record, query=query))

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Raise OptionError if ``states`` is empty and no archive records the stream."""
        self._call(lambda log: log.check_recorded(states))

    def states(self) -> list[RecordingState]:
        """Return all recordings of the stream with their current ends."""
        return self._call(lambda log: log.states())

    def state(self, key: str) -> RecordingState:
        """Return one recording. Raises DataLossError if it does not exist."""
        return self._call(lambda log: log.state(key))

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        """Return the content of the stream, or None if nothing is recorded yet."""
        return self._call(lambda log: log.content(states))

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Return the start of the first message at or after a time."""
        return self._call(lambda log: log.position_at(state, time_ns, times))

    def lags_s(self, positions: Mapping[str, int]) -> dict[str, float] | None:
        """Return how long ago the first row at or after each position was committed, in seconds, by recording."""
        return self._call(lambda log: log.lags_s(positions))

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Return the last boundary up to ``limit`` with at most ``max_rows`` rows since ``start``."""
        return self._call(lambda log: log.boundary(key, start, limit, end, max_rows))

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        """Return bytes of one term of a recording; None if they cannot be read as files of this machine."""
        return self._call(lambda log: log.recorded_bytes(key, position, length))

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, end)``, each once."""
        last: int | None = None  # position of the last message
        while True:
            try:
                # A read can begin at a message: at the last one, which is then left out.
                for rows in self._opened().read(wanted if last is None else replace(wanted, start=last)):
                    self._outages.end()
                    new = rows if last is None or rows.positions[0].as_py() != last else _without_first(rows)
                    last = rows.positions[-1].as_py()
                    if len(new):
                        yield new
                return
            except AeronSparkError as error:
                if not self._is_running:
                    raise
                self._outages.wait(error)


def _without_first(rows: Rows) -> Rows:
    return Rows(rows.values.slice(1), rows.positions.slice(1), rows.reserved.slice(1), rows.resumed_at)


def restartable(
    open_log: Callable[[], Log],
    route: DirectRoute | ServerRoute,
    *,
    is_running: bool,
    sleep: Callable[[float], object] = time.sleep,
) -> RestartableLog:
    """Return the log of ``route`` that ``open_log`` opens, and opens again after an outage."""
    return RestartableLog(open_log, outage_limit(route), is_running=is_running, sleep=sleep)


def outage_limit(route: DirectRoute | ServerRoute) -> OutageLimit:
    """Return the longest wait for a restart of the archives or servers that hold a stream."""
    if isinstance(route, DirectRoute):
        name = f"the archive {' or '.join(route.archive)} of {route.label}"
        return OutageLimit(name, route.archive_timeout, "archiveTimeout")
    return OutageLimit(f"the server of {route.label}", route.connect_timeout, "connectTimeout")


# Of the rows of one task. Executors run several tasks at once, and a task that an outage fails is repeated by Spark.
KEPT_BYTES: Final = 64 << 20


class RestartableAppender:
    """An :class:`Appender` that waits out an outage: then ``begin`` makes another one, which gets all rows again.

    It keeps references to the batches, without a copy, up to ``kept_bytes``. After an outage that comes later it raises
    the error. It waits only if ``is_running``, or after the first batch: a wrong address fails at once. For one thread.

    Through a server, rows are never seen twice: a commit names the parts of the last appender only. On the direct route
    rows that were appended before the outage can be seen twice.
    """

    def __init__(
        self, begin: Callable[[], Appender], outages: Outages, *, is_running: bool, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._begin = begin
        self._outages = outages
        self._is_running = is_running
        self._room = kept_bytes
        self._kept: list[pa.RecordBatch] | None = []  # what ``_appender`` has; None: it is too much
        self._appender = begin()
        self._has_failed = False  # then ``_appender`` may lack rows

    @property
    def rows(self) -> int:
        """The number of rows appended so far, each counted once, dropped ones included."""
        return self._appender.rows

    @property
    def committed(self) -> bool:
        """Whether the server had committed the transaction before, so that the rows are dropped."""
        return self._appender.committed

    def append(self, batch: pa.RecordBatch) -> None:
        """Append all rows of a batch; see :meth:`Appender.append`. Raises ConnectError after too long an outage."""
        self._outlast(lambda appender: appender.append(batch))
        self._is_running = True
        if self._kept is None:
            return
        self._room -= batch.get_total_buffer_size()
        if self._room < 0:
            self._kept = None
        else:
            self._kept.append(batch)

    def finish(self) -> Sequence[CommitPart]:
        """Wait until the archive or the server has all rows; see :meth:`Appender.finish` and :meth:`append`."""
        return self._outlast(lambda appender: appender.finish())

    def discard(self) -> None:
        """Discard staged rows that are not finished."""
        self._appender.discard()

    def _outlast(self, use: Callable[[Appender], T]) -> T:
        kept = self._kept
        if kept is None or not self._is_running:
            return use(self._appender)
        return self._outages.outlast(lambda: self._attempt(use, kept))

    def _attempt(self, use: Callable[[Appender], T], kept: Sequence[pa.RecordBatch]) -> T:
        if self._has_failed:
            self._appender.discard()
            self._appender = self._begin()
            for batch in kept:
                self._appender.append(batch)
        self._has_failed = True  # until the call returns
        found = use(self._appender)
        self._has_failed = False
        return found
