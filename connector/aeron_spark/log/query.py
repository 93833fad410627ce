"""A query's view of a stream: where it begins, where its next batch ends, and what lies between two offsets.

This is the side of a source that plans. It lives in one long-lived process, keeps only what can be found again, and
knows nothing of Spark.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence

from aeron_spark.errors import OptionError
from aeron_spark.log.api import Log, PublishTimes, Range, RecordingState, StreamContent
from aeron_spark.log.epochs import NoEpochWarning
from aeron_spark.log.inspection import at_message, framed_times, last_message, within
from aeron_spark.log.losses import Finding, check_recordings
from aeron_spark.log.offsets import Offset, advance, begin, finish
from aeron_spark.log.planning import backlogs, cap, due, plan_end, ranges_between, resolve
from aeron_spark.log.source_stream import DirectStream
from aeron_spark.options import DirectRoute, ReadOptions, WantedOffsets

_SHOWN = 20  # recordings that a warning names
OpenLog = Callable[[ReadOptions, bool], Log]  # of the options' stream; the flag is ``framed``


class DataLossWarning(UserWarning):
    """With ``failOnDataLoss=false``: a wanted range was gone."""


class QueryPlanner:
    """The stream of ``options``. ``framed`` says whether groups of chunks count as one message.

    ``open_log`` finds the log wherever it is, again for each look: what served it may have died in between.
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
        self._over: dict[str, str] = {}
        self._warned = False

    @property
    def log(self) -> Log:
        """The log of the stream, as :meth:`states` last reached it."""
        return self._reached() if self._log is None else self._log

    def _reached(self) -> Log:
        log = self._open_log(self.options, self._framed)
        # Kept while it is the same one: it remembers what it prepared.
        self._log = log if self._log != log else self._log
        return self._log

    def states(self) -> list[RecordingState]:
        """Return the recordings of the stream; none is started by that."""
        states = self._reached().states()
        self._ends = {state.key: state.end for state in states}
        return states

    def followed(self) -> list[RecordingState]:
        """Return the recordings of the stream, for a query that follows it: it is recorded from now on."""
        states = self.states()
        self.log.prepare(states, record=self.options.record, query=self.options.query_name)
        return states

    def content(self) -> StreamContent | None:
        """Return what the stream says it holds, or None where nothing is recorded yet."""
        states = self.states()
        return self.log.content(states)

    def initial(self) -> Offset:
        """Return the offset a new query begins at."""
        states = self.followed()
        return Offset.first(self._starting(states), states, self.log.stream)

    def latest(self, start: Offset, *, limited: bool) -> Offset:
        """Return where the batch after ``start`` ends; ``start`` itself where there is nothing to read yet.

        Where ``start`` does not name its stream, the end does, also where nothing moved. Raises OptionError for an
        offset of another stream, before anything else is asked.
        """
        options, limits = self.options, self.options.limits
        start = self._of_stream(start)
        states = self.followed()
        self._warn_without_epochs(start, states)
        known = finish(start, self._seen_over(start, states))
        settled = check_recordings(known, states, fail_on_data_loss=options.fail_on_data_loss)
        _warn(settled.findings)
        readable = states if self._targets is None else cap(states, self._targets)
        waiting = backlogs(known, settled.positions, readable)
        now = self._clock()
        if (
            limited
            and self._targets is None
            and not due(
                sum(waiting.values()),
                min_bytes=limits.min_bytes,
                max_delay_ns=limits.max_delay_ns,
                since_ns=self._last_batch_ns,
                now_ns=now,
            )
        ):
            return start
        plan = plan_end(
            settled.positions,
            readable,
            waiting,
            self.log,
            max_bytes=limits.max_bytes if limited else None,
            max_rows=limits.max_rows if limited else None,
            turn=start.turn,
        )
        end = advance(
            known, {**settled.positions, **plan.positions}, states,
            begins=settled.positions, finished=plan.finished, turn=plan.turn,
        )  # fmt: skip
        if end is known:
            return start
        self._last_batch_ns = now
        return end

    def _of_stream(self, offset: Offset) -> Offset:
        """Give ``offset`` as one of the stream that is read. Raises OptionError where it is of another stream."""
        log = self._reached()
        offset = offset.of_stream(log.stream)
        known = offset.archives() if isinstance(log.stream, DirectStream) else set()
        if known and not known.intersection(log.archives):
            raise OptionError(
                f"the checkpoint is of recordings of {_listed(known)}, and the query reads {_listed(log.archives)}",
                remedy="Use a new checkpointLocation for this query, or give option 'archive' as it was: the same "
                "archive under another name is another one for a checkpoint",
            )
        return offset

    def _warn_without_epochs(self, start: Offset, states: list[RecordingState]) -> None:
        """Warn, once, of a checkpoint of an earlier release."""
        without = [state.key for state in states if state.epochs is not None and start.position(state.key)]
        without = [key for key in without if key not in start.epochs]
        if without and not self._warned:
            self._warned = True
            shown = ", ".join([*without[:_SHOWN], *(["..."] if without[_SHOWN:] else [])])
            warnings.warn(
                f"the checkpoint has no epochs of {shown}, so that a restored store cannot be noticed this time; the "
                "offset of the next batch has them",
                NoEpochWarning,
                stacklevel=3,
            )

    def _seen_over(self, start: Offset, states: list[RecordingState]) -> dict[str, str]:
        """Remember which recordings are over where the query stands: they may be deleted without a loss."""
        for state in states:
            self._over.pop(state.key, None)
            if not state.active and start.position(state.key) == state.end:
                self._over[state.key] = state.fingerprint
        return self._over

    def prepare_available_now(self) -> None:
        """Fix what ``Trigger.AvailableNow`` reads: what is there now.

        It comes before the offset of a checkpoint, which may be of another stream: so nothing is recorded for it yet.
        """
        self._targets = {state.key: state.end for state in self.states()}

    def ends(self) -> dict[str, int]:
        """Return how far each recording reached when it was last asked."""
        return dict(sorted(self._ends.items()))

    def keys(self) -> tuple[str, ...]:
        """Return the recordings' keys as they were last listed, in the log's own order."""
        return tuple(self._ends)

    def between(self, start: Offset, end: Offset) -> list[Range]:
        """Return what lies between two offsets of the query. Raises OptionError where they are of another stream."""
        for offset in (start, end):
            self._of_stream(offset)
        batch = ranges_between(begin(start, end), end, self.states(), fail_on_data_loss=self.options.fail_on_data_loss)
        _warn(batch.findings)
        return self._of_sessions(batch.ranges)

    def whole(
        self, *, start: int | None = None, end: int | None = None, sessions: Sequence[int] | None = None
    ) -> list[Range]:
        """Return what a batch query reads; the arguments are bounds of its filters, beside those of its options.

        Raises OptionError where the stream has no recording: a wrong port would else look like a stream without rows.
        """
        bounds = self.options.bounds
        states = self.states()
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
                remedy="Say where the publish times are: 'reserved-ns', 'reserved-ms' or a byte offset.",
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
            if state.key.rpartition("/")[2] in named and (there := at_message(log, state, position)) != position:
                raise OptionError(
                    f"option '{option}': position {position} of recording {state.key} is inside a message",
                    remedy=f"The next message begins at {there}; positions of messages are in the column 'position'.",
                )
        return positions


def _warn(findings: Sequence[Finding]) -> None:
    for finding in findings:
        warnings.warn(finding.sentence, DataLossWarning, stacklevel=3)


def _listed(archives: Iterable[str]) -> str:
    return f"archive {' and '.join(sorted(archives))}"
