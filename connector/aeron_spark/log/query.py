"""A query's reading of a stream: the end of the next micro-batch, its ranges, and its lag.

A planner exists in one long-lived process. It stores only state that it can find again, and does not depend on Spark.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError
from aeron_spark.log.api import DirectStream, Log, PublishTimes, Range, RecordingState, ServerStream, StreamContent
from aeron_spark.log.epochs import NoEpochWarning
from aeron_spark.log.inspection import (
    at_message,
    damage_before,
    framed_times,
    last_message,
    messages_between,
    no_times,
    within,
)
from aeron_spark.log.losses import (
    CheckedRecordings,
    Damaged,
    DataLossWarning,
    Finding,
    Rewritten,
    check_recordings,
    refuse,
)
from aeron_spark.log.offsets import Offset, advance, begin, finish, is_rewritten, mark_before
from aeron_spark.log.overlaps import (
    Messages,
    Overlaps,
    Wanted,
    covered,
    each_once,
    earliest_wanted,
    keep_up,
    share_out,
    skip,
)
from aeron_spark.log.planning import backlogs, cap, due, plan_end, ranges_between, readable, resolve
from aeron_spark.options import DirectRoute, ReadOptions, WantedOffsets
from aeron_spark.options.values import Moment


@dataclass(frozen=True, slots=True)
class ReadLag:
    """The unread rows of a stream: by recording the bytes of its log, and the age of the first unread row in seconds.

    Both mappings have only recordings with unread bytes. ``seconds`` is None for a log without commit times: the
    archives of the direct route have none.
    """

    bytes: Mapping[str, int]
    seconds: Mapping[str, float] | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes over all recordings."""
        return sum(self.bytes.values())

    @property
    def max_seconds(self) -> float | None:
        """The age of the oldest unread row; 0 if all rows are read, None without commit times."""
        return None if self.seconds is None else max(self.seconds.values(), default=0.0)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for a query's progress; without commit times there is no ``seconds``."""
        partitions: dict[str, object] = {}
        for key, count in sorted(self.bytes.items()):
            age = {} if self.seconds is None else {"seconds": self.seconds.get(key, 0.0)}
            partitions[key] = {"bytes": count, **age}
        total: dict[str, object] = {"bytes": self.total_bytes, "partitions": partitions}
        if self.max_seconds is not None:
            total["seconds"] = self.max_seconds
        return total


def unread_bytes(ends: Mapping[str, int], read: Offset) -> dict[str, int]:
    """Return the bytes between ``read`` and the ends of the recordings, by key.

    A recording that is not in ``read`` counts from position 0. An incomplete message at the end of a finished
    recording does not count.
    """
    found = {}
    for key, end in ends.items():
        position = read.position(key) or 0
        finished = read.done.get(key)
        if finished is not None and finished.seen == end:
            position = end
        found[key] = max(0, end - position)
    return found


LOG: Final = logging.getLogger("aeron_spark.spark")
_MAX_RECORDINGS = 20  # that a warning names
OpenLog = Callable[[ReadOptions, bool], Log]  # opens the log of the options' stream; the flag is ``framed``


class QueryPlanner:
    """Plans queries over the stream of ``options``. ``framed``: groups of chunks count as one message.

    ``settled`` is the payload that the query was planned with, if its options do not name one. It must be that of the
    first message, and offsets keep it.

    Each operation calls ``open_log`` again, because an archive or a server may have ended in between.
    """

    def __init__(
        self,
        options: ReadOptions,
        open_log: OpenLog,
        *,
        framed: bool,
        times: PublishTimes | None = None,
        settled: str | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.options = options
        self._open_log = open_log
        self._framed = framed
        self._times = framed_times if framed else times
        self._settled = settled
        self._clock = clock
        self._log: Log | None = None
        self._last_batch_ns = clock()
        self._targets: dict[str, int] | None = None
        self._ends: dict[str, int] = {}
        self._finished: dict[str, str] = {}  # fingerprints by key
        self._covered: set[str] = set()  # recordings whose unread rows another one has
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
        found = readable(states)
        return self.first(self._starting(found), found)

    def first(self, positions: Mapping[str, int], states: list[RecordingState]) -> Offset:
        """Return the first offset of a query that begins at ``positions``."""
        wanted = earliest_wanted(positions, self._overlaps(states), lambda state: last_message(self.log, state))
        return Offset.first(wanted, states, self.log.stream)

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
        overlaps = self._overlaps(states)
        fails, rewritten = options.fail_on_data_loss, self._find_rewritten(known, states)
        checked = check_recordings(known, states, fail_on_data_loss=fails, rewritten=rewritten, overlaps=overlaps)
        _warn(checked.findings)
        begins = skip(checked.positions, overlaps)
        # The targets of Trigger.AvailableNow were readable at its start.
        available = readable(states) if self._targets is None else cap(states, self._targets)
        available = share_out(available, begins, overlaps, lambda state, at: at_message(self.log, state, at))
        backlog = backlogs(known, begins, available)
        if limited and not self._is_due(sum(backlog.values())):
            return start
        max_bytes = limits.max_bytes if self._targets is None else limits.available_now_bytes
        plan = plan_end(
            begins,
            available,
            backlog,
            self.log,
            max_bytes=max_bytes if limited else None,
            max_rows=limits.max_rows if limited else None,
            turn=start.turn,
        )
        begins, ends = keep_up(begins, {**begins, **plan.positions}, overlaps)
        self._covered = covered(ends, overlaps)
        moved = _moved(known, checked, begins)
        end = advance(known, ends, states, begins=begins, finished=plan.finished, turn=plan.turn, moved=moved)
        if end is known:
            return start
        self._last_batch_ns = self._clock()
        if self._settled is not None and end.payload is None:
            end = replace(end, payload=self._settle(states))
        elif any(ends[state.key] > begins[state.key] == state.start for state in states):
            self._compare_streams(states)
        return self._marked(end, states)

    def _settle(self, states: list[RecordingState]) -> str | None:
        """Return the payload of the first message, None without one. Raises DataFormatError for an unplanned one."""
        content = self.log.content(readable(states))
        if content is None:
            return None
        if content.payload != self._settled:
            raise DataFormatError(
                f"{self.log.stream.label} has {content.payload} rows, and this query began with the columns of "
                f"{self._settled} ones, because it had no message then",
                remedy=f"Start the query again, with its checkpoint, or set payload={content.payload}.",
            )
        return self._settled

    def _compare_streams(self, states: list[RecordingState]) -> None:
        """Raise DataFormatError if several streams, one of which may begin now, have not one payload and schema."""
        if self.options.route.several and self.options.payload != "raw":
            self.log.content(readable(states))

    def _is_due(self, backlog: int) -> bool:
        """Whether the options want a batch of a backlog, in bytes."""
        limits = self.options.limits
        if self._targets is not None:
            return True
        least, delay_ns, since_ns = limits.min_bytes, limits.max_delay_ns, self._last_batch_ns
        return due(backlog, min_bytes=least, max_delay_ns=delay_ns, since_ns=since_ns, now_ns=self._clock())

    def _overlaps(self, states: list[RecordingState]) -> Overlaps:
        """Return the overlaps of the recordings of the wanted Aeron sessions."""
        wanted = self.options.bounds.sessions
        # the partitions of a server, which have epochs, do not overlap
        recorded = [state for state in states if state.epochs is None and (not wanted or state.session_id in wanted)]
        return Overlaps(recorded, self.log, self._messages)

    def _messages(self, state: RecordingState, begin: int, end: int) -> Messages:
        return messages_between(self.log, state, begin, end)

    def _find_rewritten(self, offset: Offset, states: list[RecordingState]) -> dict[str, Rewritten]:
        """Return the recordings with other bytes before the offset's position; only of those with a backlog."""
        found = {}
        for state in states:
            position, mark = offset.position(state.key), offset.marks.get(state.key)
            if position is None or mark is None or offset.fingerprint(state.key) != state.fingerprint:
                continue
            done = offset.done.get(state.key)
            has_backlog = state.end > position if done is None else state.end != done.seen
            if has_backlog and is_rewritten(self.log, state, position, mark):
                found[state.key] = Rewritten(state.key, position, at_message(self.log, state, position))
        return found

    def _marked(self, end: Offset, states: list[RecordingState]) -> Offset:
        """Return the end of a batch with the marks of its new positions."""
        marks = dict(end.marks)
        for state in states:
            if state.key not in marks and end.position(state.key) != state.start:
                mark = mark_before(self.log, state, end.position(state.key) or 0)
                if mark is not None:
                    marks[state.key] = mark
        return replace(end, marks=marks)

    def _of_stream(self, offset: Offset) -> Offset:
        """Return ``offset`` with the stream of this query. Raises OptionError for an offset of another stream."""
        log = self._open()
        if isinstance(offset.stream, ServerStream) and offset.stream.title != log.stream.title:
            log.states()  # the stream may have been renamed: with the states the server gives its former names
        offset = offset.of_stream(log.stream)
        if self._settled is not None and offset.payload not in (None, self._settled):
            raise DataFormatError(
                f"the checkpoint is of {offset.payload} rows of {log.stream.label}, and this query began with the "
                f"columns of {self._settled} ones",
                remedy=f"Set payload={offset.payload}, with columns by .schema(...) while the stream is empty, or use "
                "a new checkpointLocation.",
            )
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

    def prepare_available_now(self, end: WantedOffsets | Moment | None = None) -> None:
        """Store the current ends as those of ``Trigger.AvailableNow``, or earlier ones: positions, or a publish time.

        Does not start a recording: Spark calls this before it passes the checkpoint's offset, which may be of another
        stream.
        """
        states = readable(self.states())
        if isinstance(end, Moment):
            time_ns = end.at(self._clock())
            self._targets = {state.key: self.log.position_at(state, time_ns, self._times) for state in states}
        elif end is not None:
            self._targets = self._resolve(end, states, "endingOffsets")
        else:
            self._targets = {state.key: state.end for state in states}

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
        unread = {
            key: count for key, count in unread_bytes(self._ends, read).items() if count and key not in self._covered
        }
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
        states, begun = self.states(), begin(start, end)
        read = {key: at for key, at in end.positions().items() if at != begun.position(key)}
        rewritten = {
            state.key: Rewritten(state.key, read[state.key], read[state.key])
            for state in states
            if state.key in read and is_rewritten(self.log, state, read[state.key], end.marks.get(state.key))
        }
        fails = self.options.fail_on_data_loss
        batch = ranges_between(begun, end, states, fail_on_data_loss=fails, rewritten=rewritten)
        _warn(batch.findings)
        return self._of_sessions([replace(one, mark=end.marks.get(one.key)) for one in batch.ranges])

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
        self._compare_streams(states)
        starts = self._starting(states)
        ends = self._ending(states, starts)
        ranges: list[Wanted] = []
        for state in states:
            if ends[state.key] < starts[state.key]:
                raise OptionError(
                    f"option 'endingOffsets': position {ends[state.key]} of recording {state.key} is before the start "
                    f"of the batch at {starts[state.key]}",
                    remedy="End the batch at 'latest' or at a later position, or start it earlier.",
                )
            if sessions is not None and state.session_id not in sessions:
                continue
            first, last = starts[state.key], ends[state.key]
            one: Range | None = Range(
                state.key, state.fingerprint, first, last, last, state.term_length, state.epoch_at(last)
            )
            for low, high in ((bounds.start, bounds.end), (start, end)):
                one = None if one is None else within(one, state, low, high, self.at_given)
            if one is not None and one.length > 0:
                ranges.append(Wanted(one, state))
        by_key = {one.state.key: one.state for one in ranges}
        return self._of_sessions(
            [
                replace(one, mark=mark_before(log, by_key[one.key], one.overrun))
                for one in each_once(ranges, self._overlaps(list(by_key.values())))
            ]
        )

    def _of_sessions(self, ranges: Sequence[Range]) -> list[Range]:
        wanted = self.options.bounds.sessions
        return [one for one in ranges if not wanted or self.log.state(one.key).session_id in wanted]

    def _starting(self, states: list[RecordingState]) -> dict[str, int]:
        moment = self.options.starting_timestamp
        if moment is None:
            return self._resolve(self.options.starting_offsets, states, "startingOffsets")
        return self._positions_at(moment, states, "startingTimestamp")

    def _ending(self, states: list[RecordingState], starts: Mapping[str, int]) -> dict[str, int]:
        """Return the ends of a batch. A time before the start in some recordings gives no rows of them."""
        first, last = self.options.starting_timestamp, self.options.ending_timestamp
        if last is None:
            return self._resolve(self.options.ending_offsets, states, "endingOffsets")
        now_ns = self._clock()
        if first is not None and first.at(now_ns) >= last.at(now_ns):
            raise OptionError(
                "option 'endingTimestamp' is not after 'startingTimestamp'",
                remedy="Give a later end, or an earlier start. Negative times are before now.",
            )
        if states and self._times is None and isinstance(self.options.route, DirectRoute):
            raise no_times(states[0], "endingTimestamp")
        ends = self._positions_at(last, states, "endingTimestamp")
        return {key: max(end, starts[key]) for key, end in ends.items()}

    def _positions_at(self, moment: Moment, states: list[RecordingState], option: str) -> dict[str, int]:
        """Return the first message of each recording at or after a time."""
        if not states and self._times is None and isinstance(self.options.route, DirectRoute):
            raise OptionError(
                f"option '{option}' needs 'timestampFrom' for a stream that has nothing recorded yet",
                remedy="Set 'timestampFrom' to 'reserved-ns', 'reserved-ms' or a byte offset.",
            )
        time_ns = moment.at(self._clock())
        return {state.key: self.log.position_at(state, time_ns, self._times) for state in states}

    def at_given(self, state: RecordingState, position: int) -> int:
        """Return the first begin of a message at or after a position that a user has given.

        Raises DataLossError if a damaged part hides it, or warns and returns where reading continues, as the option
        ``failOnDataLoss`` says.
        """
        found = at_message(self.log, state, position)
        damage = damage_before(self.log, state, position) if found != position else None
        if damage is not None:
            finding = Damaged(state.key, damage, state.end)
            refuse([finding], fail_on_data_loss=self.options.fail_on_data_loss)
            _warn([finding])
        return found

    def _resolve(self, wanted: WantedOffsets, states: list[RecordingState], option: str) -> dict[str, int]:
        log = self.log
        positions = resolve(
            wanted, states, lambda state: last_message(log, state), archives=log.archives, option=option
        )
        named = {str(name).rpartition("/")[2] for name, value in wanted.named.items() if isinstance(value, int)}
        for state in states:
            position = positions[state.key]
            if state.key.rpartition("/")[2] not in named:
                continue
            next_message = positions[state.key] = self.at_given(state, position)
            if next_message != position and damage_before(log, state, position) is None:
                raise OptionError(
                    f"option '{option}': position {position} of recording {state.key} is inside a message",
                    remedy=f"Use {next_message}, the start of the next message, or a value of column 'position'.",
                )
        return positions


def _moved(start: Offset, checked: CheckedRecordings, begins: Mapping[str, int]) -> set[str]:
    """Return the recordings in which a batch begins elsewhere than ``start``.

    Without those with a loss that a repeated batch finds again.
    """
    lost = {finding.key for finding in checked.findings if not isinstance(finding, Rewritten)}
    return {
        key
        for key, at in begins.items()
        if at != checked.positions[key] or (key in start and key not in lost and at != start.position(key))
    }


def _warn(findings: Sequence[Finding]) -> None:
    for finding in findings:
        warnings.warn(finding.sentence, DataLossWarning, stacklevel=3)


def _listed(archives: Iterable[str]) -> str:
    return f"archive {' and '.join(sorted(archives))}"
