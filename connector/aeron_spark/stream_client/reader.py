"""Reading a server's stream as a program does: record batches, and positions that can be kept and gone on from."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import AeronSparkError, DataFormatError, DataLossError, OptionError, RefusedError, SessionLost
from aeron_spark.log import columns
from aeron_spark.log.api import Range, RecordingState, StreamContent
from aeron_spark.log.decoding import PlacedGroup, RowDecoder, of_recording, read_range
from aeron_spark.log.epochs import DIVERGED, NoEpochWarning
from aeron_spark.log.follow import RAW
from aeron_spark.log.inspection import at_message
from aeron_spark.stream_client.admin import time_of
from aeron_spark.stream_client.leases import Leased, ReaderLease
from aeron_spark.stream_client.positions import Positions, check_epochs
from aeron_spark.stream_client.server_log import ServerLog
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.staging import OUTAGE, check_partition
from aeron_spark.wire.arrow import conform, decode_batches
from aeron_spark.wire.stream_rpc import AwaitCommits

READ_BYTES: Final = 16 << 20  # bytes of the log that are read of one partition before it is the next one's turn

POLL_INTERVAL_S: Final = 1.0  # seconds that one question for news waits: so long a stop may take

RETRY_INTERVAL_S: Final = 0.2  # seconds between two attempts while the server is away

OUTAGE_SECONDS: Final = 300.0  # a machine's restart takes minutes

BEYOND: Final = 2**62  # no stream reaches this position


class StreamReader:
    """Iterates over the rows of ``stream``; ``Client.reader`` makes it.

    Rows of ``arrow`` have the columns of ``schema``, or those that the stream has now; ``framed`` values are a column
    ``value``, with ``metadata`` also where they were and who wrote them; ``raw`` ones have the columns of a message.
    Within a partition rows come in the order they were committed; partitions take turns. A transaction that is read
    was committed as a whole.

    Iterating again goes on at :attr:`positions`. Without ``follow`` it ends at what was committed when it was made, or
    at ``end``. ``timeout``: seconds without a row after which following ends. Raises OptionError for what is not there,
    DataLossError for what retention has taken (and with the reason "diverged", before another row is given, where the
    server was restored from a copy without what was read), and, once an outage, or a refusal that can pass, lasts
    longer than ``outage`` seconds, what it was.
    """

    def __init__(
        self, session: StreamSession, stream: str, *, start: StartOrEnd = "earliest", end: StartOrEnd | None = None,
        follow: bool = False, partitions: Sequence[int] | None = None, schema: pa.Schema | None = None,
        metadata: bool = False, timeout: float | None = None, outage: float = OUTAGE_SECONDS,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self.stream = stream
        self._session = session
        self._log = ServerLog({stream: session}, stream)
        self._content: StreamContent | None = None
        self._wanted = schema
        self._metadata = columns.metadata() if metadata else []
        self._timeout = timeout
        self._outage = outage
        self._away_since: float | None = None
        self._stopped = threading.Event()
        self._columns: pa.Schema | None = None
        self._makers: dict[int, tuple[pa.Schema, RowDecoder]] = {}
        states = self._states()
        self._fingerprints = {state.recording_id: state.fingerprint for state in states}
        self.partitions = tuple(range(len(states)) if partitions is None else dict.fromkeys(partitions))
        for partition in self.partitions:
            check_partition(stream, partition, len(states))
        now_ns = clock()
        self._positions = resolve(self._log, states, start, self.partitions, now_ns=now_ns, what="start")
        self._ends: Positions | None = None
        if end is not None or not follow:
            end = "latest" if end is None else end
            self._ends = resolve(self._log, states, end, self.partitions, now_ns=now_ns, what="end")

    @property
    def positions(self) -> Positions:
        """StartOrEnd the rows behind those that were given begin, by partition; as ``start`` a reader goes on there.

        Keep it as ``positions.to_json()``: with its epochs a server that was restored from an older copy is noticed.
        """
        return self._positions.copy()

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of its batches; None while nothing was ever committed."""
        return self._columns

    @property
    def payload(self) -> str:
        """``raw``, ``framed`` or ``arrow``; empty while nothing was ever committed."""
        return "" if self._content is None else self._content.payload

    def stop(self) -> None:
        """Have the iteration end soon, from any thread or signal handler; :attr:`positions` stay."""
        self._stopped.set()

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows()
        return Leased(rows, ReaderLease(self._session, self.stream, lambda: self.positions, rows))

    def _rows(self) -> Generator[pa.RecordBatch, None, None]:
        last = time.monotonic()
        while not self._stopped.is_set() and not self._at_end():
            try:
                for batch in self._round():
                    yield batch
                    last = time.monotonic()
                    if self._stopped.is_set():
                        return
                self._away_since = None
                patience = POLL_INTERVAL_S if self._timeout is None else last + self._timeout - time.monotonic()
                if patience <= 0 or self._at_end():
                    return
                self._await_more(min(POLL_INTERVAL_S, patience))
            except (*OUTAGE, RefusedError) as error:
                if isinstance(error, RefusedError) and not error.retriable and not isinstance(error, SessionLost):
                    raise
                self._wait_out(error)
            except DataLossError as error:
                if error.reason != DIVERGED or error.positions is not None:
                    raise
                # The server was replaced after a range was planned: what was given may be in its history all the same.
                self._check_history(self._states())

    def _at_end(self) -> bool:
        return self._ends is not None and all(self._positions[at] >= end for at, end in self._ends.items())

    def _round(self) -> Iterator[pa.RecordBatch]:
        """Everything that is committed now, or up to the end."""
        states = self._states()
        self._check_history(states)
        ends = {
            at: states[at].end if self._ends is None else min(states[at].end, self._ends[at]) for at in self.partitions
        }
        while behind := [at for at in self.partitions if self._positions[at] < ends[at]]:
            for at in behind:
                yield from self._piece(states[at], ends[at])

    def _check_history(self, states: Sequence[RecordingState]) -> None:
        """Raise DataLossError, reason "diverged", where the server has another history than the one read so far."""
        by_partition = dict(enumerate(states))
        check_epochs(self._positions, by_partition, self.stream, READERS)
        if self._ends is not None:
            try:
                check_epochs(self._ends, by_partition, self.stream, "reader's end")
            except DataLossError as error:
                error.positions = self.positions  # up to here it goes on, with another end
                raise

    def _piece(self, state: RecordingState, end: int) -> Iterator[pa.RecordBatch]:
        """Some of one partition. A batch is given when it is known where the one behind it begins."""
        at = state.recording_id
        start = self._positions[at]
        limit = (
            end
            if end - start <= READ_BYTES
            else self._log.boundary(state.key, start, start + READ_BYTES, end, None).position
        )
        fingerprint = self._fingerprints[at]
        wanted = Range(state.key, fingerprint, start, limit, limit, state.term_length, state.epoch_at(limit))
        before: pa.RecordBatch | None = None
        with closing(self._batches(wanted, state)) as found:
            for position, batch in found:
                self._positions.move(state, position)
                if before is not None:
                    yield before
                before = batch
        self._positions.move(state, limit)
        if before is not None:
            yield before

    def _batches(self, wanted: Range, state: RecordingState) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        """The batches of a range, each with the position where it begins."""
        if self.payload == "raw":
            maker = self._maker(state)
            for rows in self._log.read(wanted):
                yield rows.positions[0].as_py(), maker.raw(rows)
            return
        with of_recording(wanted.key):
            for found in read_range(self._log, wanted):
                if self.payload == "arrow" and isinstance(found, PlacedGroup) and RowDecoder.is_arrow(found):
                    yield found.position, self._arrow(found, state)
                else:
                    yield found.position, self._maker(state).framed(found)

    def _arrow(self, found: PlacedGroup, state: RecordingState) -> pa.RecordBatch:
        group = found.group
        if self._wanted is None and self._content is not None and self._content.schema is not None:
            names = pa.ipc.read_schema(pa.py_buffer(group.payload)).names
            if not set(self._content.schema.names).issuperset(names):
                self._know(self._log.content([]))  # columns were added since
        schema = self._known_columns()
        if self._metadata:
            parts = list(self._maker(state).arrow(found))
        else:
            parts = [conform(batch, schema) for batch in decode_batches(group.payload, group.header.rows)]
        # one batch for a group, so that a kept position never lies inside of what was given
        return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts, schema).combine_chunks().to_batches()[0]

    def _maker(self, state: RecordingState) -> RowDecoder:
        schema = self._known_columns()
        known = self._makers.get(state.recording_id)
        if known is None or known[0] is not schema:
            known = self._makers[state.recording_id] = schema, RowDecoder(schema, state, None)
        return known[1]

    def _known_columns(self) -> pa.Schema:
        if self._columns is None:
            raise DataFormatError(
                f"stream {self.stream!r} has rows, and its server does not say of what kind",
                remedy="Use the same release of aeron-spark on both sides.",
            )
        return self._columns

    def _know(self, content: StreamContent | None) -> None:
        """Remember what the stream holds, once there is something."""
        if content is None:
            return
        if self._content is None:
            framed = content.payload != "raw"
            self._log = ServerLog({self.stream: self._session}, self.stream, framed=framed)
        self._content = content
        own = {"raw": RAW, "framed": columns.VALUE}.get(content.payload, self._wanted or content.schema)
        if own is not None:
            more = self._metadata if content.payload != "raw" else []
            self._columns = pa.schema([*own, *more])

    def _states(self) -> list[RecordingState]:
        if self._content is None:
            self._know(self._log.content([]))
        return sorted(self._log.states(), key=lambda state: state.recording_id)

    def _await_more(self, seconds: float) -> None:
        """Wait until something is committed behind what was read, but not for longer."""
        ends = [self._positions.get(at, BEYOND) for at in range(len(self._fingerprints))]
        self._session.call(AwaitCommits(self.stream, tuple(ends), seconds), timeout=seconds + self._session.timeout_s)

    def _wait_out(self, error: AeronSparkError) -> None:
        now = time.monotonic()
        self._away_since = self._away_since or now
        if self._session.client.closed or now - self._away_since >= self._outage:
            raise error
        self._stopped.wait(RETRY_INTERVAL_S)


StartOrEnd = str | datetime | Mapping[int, int] | Mapping[str, int] | Mapping[str, Any]

READERS: Final = "reader"  # who diverged, in an error

EDGES: Final = ("earliest", "latest")

EXAMPLE: Final = (
    "Give 'earliest', 'latest', a time such as '-10min' or '2026-03-01T09:30:00Z', or a reader's positions."
)


def resolve(
    log: ServerLog,
    states: Sequence[RecordingState],
    where: StartOrEnd,
    chosen: Sequence[int],
    *,
    now_ns: int,
    what: str,
) -> Positions:
    """Return the position of each partition of ``chosen``, with its epoch; ``what`` names the argument in errors.

    Positions that name no partition leave it at its beginning; those without an epoch are taken with NoEpochWarning.
    Raises OptionError for what is no place in the stream, DataLossError for a position before what retention has left,
    and with the reason "diverged" for positions of a history that the stream does not have.
    """
    found = Positions()
    for at, position in _positions(log, states, where, chosen, now_ns=now_ns, what=what).items():
        found.move(states[at], position)
    return found


def _positions(
    log: ServerLog,
    states: Sequence[RecordingState],
    where: StartOrEnd,
    chosen: Sequence[int],
    *,
    now_ns: int,
    what: str,
) -> dict[int, int]:
    if isinstance(where, str) and where.startswith("{"):
        where = Positions.from_json(where)
    if isinstance(where, Mapping):
        named = _named(where, states, what)
        _check_history(named, states, log.name, what)
        return {
            at: _checked(log, states[at], named[at], what) if at in named else states[at].start for at in chosen
        }  # fmt: skip
    if isinstance(where, str) and where.lower() in EDGES:
        return {at: states[at].start if where.lower() == "earliest" else states[at].end for at in chosen}
    if not isinstance(where, str | datetime):
        raise OptionError(f"{what} cannot be {where!r}", remedy=EXAMPLE)
    try:
        time_ns = time_of(where, now_ns)
    except OptionError:
        raise OptionError(f"{what} cannot be {where!r}", remedy=EXAMPLE) from None
    return {at: log.position_at(states[at], time_ns, None) for at in chosen}


def _named(where: Mapping[Any, Any], states: Sequence[RecordingState], what: str) -> Positions:
    named = Positions.of(where)
    for partition, position in named.items():
        if not 0 <= partition < len(states):
            raise OptionError(
                f"{what} names partition {partition}, and the stream has {len(states)}, numbered from 0",
                remedy="Correct it.",
            )
        if isinstance(position, bool) or not isinstance(position, int):
            raise OptionError(f"{what}: {position!r} is no position of partition {partition}", remedy=EXAMPLE)
    return named


def _check_history(named: Positions, states: Sequence[RecordingState], stream: str, what: str) -> None:
    unstamped = [at for at, position in named.items() if at not in named.epochs and position > 0]
    if unstamped:
        warnings.warn(
            f"{what}: the positions of partitions {unstamped} of stream {stream!r} have no epochs, so that a restored "
            "store cannot be noticed this time. Keep reader.positions.to_json()",
            NoEpochWarning,
            stacklevel=5,
        )
    check_epochs(named, dict(enumerate(states)), stream, READERS if what == "start" else f"reader's {what}")


def _checked(log: ServerLog, state: RecordingState, position: int, what: str) -> int:
    if position < state.start:
        raise DataLossError(
            f"{what}: position {position} of partition {state.key} was purged; what there is begins at {state.start}",
            remedy="Begin at 'earliest', and keep more (the stream's retention).",
        )
    if position > state.end:
        raise OptionError(
            f"{what}: position {position} of partition {state.key} is beyond its end, {state.end}",
            remedy="The stream was made anew, or the position is another one's; give a position within it.",
        )
    there = at_message(log, state, position)
    if there != position:
        raise OptionError(
            f"{what}: position {position} of partition {state.key} is inside a message",
            remedy=f"The next message begins at {there}.",
        )
    return position
