"""Plans a query over a stream: its first offset, the end of its next batch, and the ranges between two offsets.

A planner exists in one long-lived process. It stores only state that it can find again, and does not depend on Spark.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from aeron_spark.errors import AeronSparkError, OptionError
from aeron_spark.log.api import Log, PublishTimes, Range, RecordingState, StreamContent
from aeron_spark.log.epochs import NoEpochWarning
from aeron_spark.log.inspection import at_message, framed_times, last_message, within
from aeron_spark.log.lag import ReadLag, unread_bytes
from aeron_spark.log.losses import DataLossWarning, Finding, check_recordings
from aeron_spark.log.offsets import Offset, advance, begin, finish
from aeron_spark.log.planning import backlogs, cap, due, plan_end, ranges_between, readable, resolve
from aeron_spark.log.source_stream import DirectStream, ServerStream
from aeron_spark.options import DirectRoute, ReadOptions, WantedOffsets

LOG: Final = logging.getLogger("aeron_spark.spark")
_MAX_RECORDINGS = 20  # that a warning names
OpenLog = Callable[[ReadOptions, bool], Log]  # opens the log of the options' stream; the flag is ``framed``


class QueryPlanner:
    """Plans queries over the stream of ``options``. ``framed``: groups of chunks count as one message.

    Each operation calls ``open_log`` again, because an archive or a server may have ended in between.
    """

    def __init__(
        self,
        options: ReadOptions,
        open_log: OpenLog,
        *,
        framed: bool,
        times: PublishTimes | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.options = options
        self._open_log = open_log
        self._framed = framed
        self._times = framed_times if framed else times
        self._clock = clock
        self._log: Log | None = None
        self._last_batch_ns = clock()
        self._targets: dict[str, int] | None = None
        self._ends: dict[str, int] = {}
        self._finished: dict[str, str] = {}  # fingerprints by key
        self._has_warned = False
        self._planned_end: Offset | None = None  # of the last batch

    @property
    def log(self) -> Log:
        """The log of the stream, as the last :meth:`states` opened it."""
        return self._open() if self._log is None else self._log

    def _open(self) -> Log:
        log = self._open_log(self.options, self._framed)
        # Keep an equal log, because it stores which streams it has prepared.
        self._log = log if self._log != log else self._log
        return self._log

    def states(self) -> list[RecordingState]:
        """Return the recordings of the stream, without starting one."""
        states = self._open().states()
        self._ends = {state.key: state.end for state in readable(states)}
        return states

    def followed(self) -> list[RecordingState]:
        """Return the recordings of the stream, and start its recording if the options require it."""
        states = self.states()
        self.log.prepare(states, record=self.options.record, query=self.options.query_name)
        return states

    def content(self) -> StreamContent | None:
        """Return the content of the stream, or None if nothing is recorded yet."""
        states = self.states()
        return self.log.content(readable(states))

    def initial(self) -> Offset:
        """Return the first offset of a new query."""
        states = self.followed()
        return Offset.first(self._starting(readable(states)), states, self.log.stream)

    def latest(self, start: Offset, *, limited: bool) -> Offset:
        """Return the end of the batch after ``start``; ``start`` itself if there is nothing to read yet.

        If ``start`` has no stream, the end has it, even without progress. Raises OptionError for an offset of another
        stream, before any other request.
        """
        self._planned_end = end = self._latest(start, limited=limited)
        return end

    def _latest(self, start: Offset, *, limited: bool) -> Offset:
        options, limits = self.options, self.options.limits
        start = self._of_stream(start)
        states = self.followed()
        self._warn_without_epochs(start, states)
        known = finish(start, self._find_finished(start, states))
        checked = check_recordings(known, states, fail_on_data_loss=options.fail_on_data_loss)
        _warn(checked.findings)
        # The targets of Trigger.AvailableNow were readable at its start.
        available = readable(states) if self._targets is None else cap(states, self._targets)
        backlog = backlogs(known, checked.positions, available)
        now = self._clock()
        if (
            limited
            and self._targets is None
            and not due(
                sum(backlog.values()),
                min_bytes=limits.min_bytes,
                max_delay_ns=limits.max_delay_ns,
                since_ns=self._last_batch_ns,
                now_ns=now,
            )
        ):
            return start
        max_bytes = limits.max_bytes if self._targets is None else limits.available_now_bytes
        plan = plan_end(
            checked.positions,
            available,
            backlog,
            self.log,
            max_bytes=max_bytes if limited else None,
            max_rows=limits.max_rows if limited else None,
            turn=start.turn,
        )
        end = advance(
            known, {**checked.positions, **plan.positions}, states,
            begins=checked.positions, finished=plan.finished, turn=plan.turn,
        )  # fmt: skip
        if end is known:
            return start
        self._last_batch_ns = now
        return end

    def _of_stream(self, offset: Offset) -> Offset:
        """Return ``offset`` with the stream of this query. Raises OptionError for an offset of another stream."""
        log = self._open()
        if isinstance(offset.stream, ServerStream) and offset.stream.title != log.stream.title:
            log.states()  # the stream may have been renamed: with the states the server gives its former names
        offset = offset.of_stream(log.stream)
        known = offset.archives() if isinstance(log.stream, DirectStream) else set()
        if known and not known.intersection(log.archives):
            raise OptionError(
                f"the checkpoint is of recordings of {_listed(known)}, but the query reads {_listed(log.archives)}",
                remedy="Use a new checkpointLocation for this query, or the option 'archive' of the checkpoint. An "
                "archive with another name is another archive for a checkpoint",
            )
        return offset

    def _warn_without_epochs(self, start: Offset, states: list[RecordingState]) -> None:
        """Warn once about a checkpoint of an earlier release, without epochs."""
        without = [state.key for state in states if state.epochs is not None and start.position(state.key)]
        without = [key for key in without if key not in start.epochs]
        if without and not self._has_warned:
            self._has_warned = True
            shown = ", ".join([*without[:_MAX_RECORDINGS], *(["..."] if without[_MAX_RECORDINGS:] else [])])
            warnings.warn(
                f"the checkpoint has no epochs of {shown}, so a restored store cannot be detected this time; the "
                "offset of the next batch has them",
                NoEpochWarning,
                stacklevel=3,
            )

    def _find_finished(self, start: Offset, states: list[RecordingState]) -> dict[str, str]:
        """Store and return the stopped recordings that the query has read; these may be deleted without a loss."""
        for state in states:
            self._finished.pop(state.key, None)
            if not state.active and start.position(state.key) == state.end:
                self._finished[state.key] = state.fingerprint
        return self._finished

    def prepare_available_now(self) -> None:
        """Store the current ends as those of ``Trigger.AvailableNow``.

        Does not start a recording: Spark calls this before it passes the checkpoint's offset, which may be of another
        stream.
        """
        self._targets = {state.key: state.end for state in readable(self.states())}

    def ends(self) -> dict[str, int]:
        """Return the ends of the recordings in the last list."""
        return dict(sorted(self._ends.items()))

    def lag(self) -> ReadLag | None:
        """Return the lag that remains after the last planned batch; None before the first one.

        A failure to get the commit times is logged, and the lag has no seconds: the query can still run.
        """
        read = self._planned_end
        if read is None:
            return None
        unread = {key: count for key, count in unread_bytes(self._ends, read).items() if count}
        try:
            seconds = self.log.lags_s({key: read.position(key) or 0 for key in unread})
        except AeronSparkError as error:
            LOG.warning("the lag of a query of %s has no seconds: %s", self.log.stream.label, error)
            seconds = None
        return ReadLag(unread, seconds)

    def keys(self) -> tuple[str, ...]:
        """Return the keys of the recordings in the last list, in the log's order."""
        return tuple(self._ends)

    def between(self, start: Offset, end: Offset) -> list[Range]:
        """Return the ranges between two offsets of the query. Raises OptionError for offsets of another stream."""
        for offset in (start, end):
            self._of_stream(offset)
        batch = ranges_between(begin(start, end), end, self.states(), fail_on_data_loss=self.options.fail_on_data_loss)
        _warn(batch.findings)
        return self._of_sessions(batch.ranges)

    def whole(
        self, *, start: int | None = None, end: int | None = None, sessions: Sequence[int] | None = None
    ) -> list[Range]:
        """Return the ranges of a batch query; the arguments are bounds of its filters, besides those of its options.

        Raises OptionError if the stream has no recording: otherwise a wrong port would look like an empty stream.
        """
        bounds = self.options.bounds
        states = readable(self.states())
        log = self.log
        log.check_recorded(states)
        starts = self._starting(states)
        ends = self._resolve(self.options.ending_offsets, states, "endingOffsets")
        ranges = []
        for state in states:
            if sessions is not None and state.session_id not in sessions:
                continue
            one: Range | None = Range(
                state.key, state.fingerprint, starts[state.key], ends[state.key], ends[state.key], state.term_length,
                state.epoch_at(ends[state.key]),
            )  # fmt: skip
            for low, high in ((bounds.start, bounds.end), (start, end)):
                one = None if one is None else within(one, state, log, low, high)
            if one is not None and one.length > 0:
                ranges.append(one)
        return self._of_sessions(ranges)

    def _of_sessions(self, ranges: Sequence[Range]) -> list[Range]:
        wanted = self.options.bounds.sessions
        return [one for one in ranges if not wanted or self.log.state(one.key).session_id in wanted]

    def _starting(self, states: list[RecordingState]) -> dict[str, int]:
        moment = self.options.starting_timestamp
        if moment is None:
            return self._resolve(self.options.starting_offsets, states, "startingOffsets")
        if not states and self._times is None and isinstance(self.options.route, DirectRoute):
            raise OptionError(
                "option 'startingTimestamp' needs 'timestampFrom' for a stream that has nothing recorded yet",
                remedy="Set 'timestampFrom' to 'reserved-ns', 'reserved-ms' or a byte offset.",
            )
        time_ns = moment.at(self._clock())
        return {state.key: self.log.position_at(state, time_ns, self._times) for state in states}

    def _resolve(self, wanted: WantedOffsets, states: list[RecordingState], option: str) -> dict[str, int]:
        log = self.log
        positions = resolve(
            wanted, states, lambda state: last_message(log, state), archives=log.archives, option=option
        )
        named = {str(name).rpartition("/")[2] for name, value in wanted.named.items() if isinstance(value, int)}
        for state in states:
            position = positions[state.key]
            if state.key.rpartition("/")[2] in named and (next_message := at_message(log, state, position)) != position:
                raise OptionError(
                    f"option '{option}': position {position} of recording {state.key} is inside a message",
                    remedy=f"Use {next_message}, the start of the next message, or a value of column 'position'.",
                )
        return positions


def _warn(findings: Sequence[Finding]) -> None:
    for finding in findings:
        warnings.warn(finding.sentence, DataLossWarning, stacklevel=3)


def _listed(archives: Iterable[str]) -> str:
    return f"archive {' and '.join(sorted(archives))}"
