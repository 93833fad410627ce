"""A program's reader of a server's stream: record batches, and positions at which a later reader continues."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import (
    OUTAGE,
    AeronSparkError,
    DataFormatError,
    DataLossError,
    OptionError,
    RefusedError,
    SessionLost,
)
from aeron_spark.log import columns
from aeron_spark.log.api import Range, RecordingState, StreamContent
from aeron_spark.log.decoding import (
    PlacedGroup,
    RowDecoder,
    batches_of_group,
    of_recording,
    read_range,
    schema_of_group,
)
from aeron_spark.log.epochs import DIVERGED, NoEpochWarning
from aeron_spark.log.follow import RAW
from aeron_spark.log.inspection import at_message, damage_before
from aeron_spark.process_bound import bind_to_process
from aeron_spark.stream_client.admin import time_of
from aeron_spark.stream_client.known_stream import check_partition
from aeron_spark.stream_client.leases import LeasedIterator, ReaderLease
from aeron_spark.stream_client.positions import Positions, check_epochs, set_position
from aeron_spark.stream_client.server_log import ServerLog
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_rpc import AwaitCommits

READ_BYTES: Final = 16 << 20  # of the log, read from one partition before the next one has its turn
AWAIT_TIMEOUT_S: Final = 1.0  # of one request for new commits; stop() takes effect after it at the latest
RETRY_INTERVAL_S: Final = 0.2  # between two attempts during an outage
OUTAGE_TIMEOUT_S: Final = 300.0  # long enough for a restart of the server's machine
NO_END: Final = 2**62  # no stream reaches this position

START_OWNER: Final = "reader"  # the owner of the start positions, in an error
EDGES: Final = ("earliest", "latest")
EXAMPLE: Final = (
    "Give 'earliest', 'latest', a time such as '-10min' or '2026-03-01T09:30:00Z', or a reader's positions."
)

StartOrEnd = str | datetime | Mapping[int, int] | Mapping[str, int] | Mapping[str, Any]


class StreamReader:
    """Iterates over the rows of ``stream``; ``Client.reader`` makes it.

    Rows of ``arrow`` have the columns of ``schema``, by default those of the stream; ``framed`` values are a column
    ``value``; ``metadata`` adds columns with their origin to both; ``raw`` values have the columns of a message. Within
    a partition rows come in the order of their commits; partitions take turns. Only rows of committed transactions are
    read.

    A further iteration continues at :attr:`positions`. Without ``follow`` it ends at ``end``, by default the end that
    was committed when the reader was made. With it, an iteration ends after ``timeout`` seconds without a row. Raises
    OptionError for a partition or position that does not exist, DataLossError if retention has deleted rows to be read.
    The reason of a DataLossError is "diverged", and it comes before the next row, if the server was restored from a
    copy without rows that were read. An outage, and a retriable refusal, is raised after ``outage`` seconds.

    A reader is for one thread: until an iteration has ended, or its iterator is dropped, another thread that iterates
    gets UsageError at once. In the same thread another iteration ends it. Any thread can call :meth:`stop`.
    """

    def __init__(
        self, session: StreamSession, stream: str, *, start: StartOrEnd = "earliest", end: StartOrEnd | None = None,
        follow: bool = False, partitions: Sequence[int] | None = None, schema: pa.Schema | None = None,
        metadata: bool = False, timeout: float | None = None, outage: float = OUTAGE_TIMEOUT_S,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        bind_to_process(self)
        self.stream = stream
        self._session = session
        self._log = ServerLog({stream: session}, stream)
        self._is_ended = False  # whether the stream had ended when its states were read
        self._content: StreamContent | None = None
        self._given_schema = schema
        self._metadata = columns.metadata() if metadata else []
        self._timeout_s = timeout
        self._outage_timeout_s = outage
        self._outage_since: float | None = None
        self._stopped = threading.Event()
        self._iterating = threading.Lock()  # while an iteration begins
        self._iterator: weakref.ref[LeasedIterator[pa.RecordBatch]] | None = None  # of the last iteration
        self._columns: pa.Schema | None = None
        self._decoders: dict[int, tuple[pa.Schema, RowDecoder]] = {}  # by partition
        states = self._states()
        self._fingerprints = {state.recording_id: state.fingerprint for state in states}
        self.partitions = tuple(range(len(states)) if partitions is None else dict.fromkeys(partitions))
        for partition in self.partitions:
            check_partition(stream, partition, len(states))
        now_ns = clock()
        self._positions = resolve(self._log, states, start, self.partitions, now_ns=now_ns, name="start")
        self._ends: Positions | None = None
        if end is not None or not follow:
            end = "latest" if end is None else end
            self._ends = resolve(self._log, states, end, self.partitions, now_ns=now_ns, name="end")

    @property
    def positions(self) -> Positions:
        """The consumer position of each partition: a reader that gets them as ``start`` continues with the next rows.

        Keep them as ``positions.to_json()``: their epochs reveal a server that was restored from an older copy.
        """
        return self._positions.copy()

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the batches; None before the first commit to the stream."""
        return self._columns

    @property
    def payload(self) -> str:
        """``raw``, ``framed`` or ``arrow``; empty before the first commit to the stream."""
        return "" if self._content is None else self._content.payload

    def stop(self) -> None:
        """End the iteration soon; :attr:`positions` stay. Any thread or signal handler can call it."""
        self._stopped.set()

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with self._iterating:
            former = None if self._iterator is None else self._iterator()
            if former is not None:
                former.close()
            rows = self._rows()
            found = LeasedIterator(rows, ReaderLease(self._session, self.stream, lambda: self.positions, rows))
            self._iterator = weakref.ref(found)
        found.begin()
        return found

    def _rows(self) -> Generator[pa.RecordBatch, None, None]:
        last_row = time.monotonic()
        while not self._stopped.is_set() and not self._at_end():
            try:
                for batch in self._read_committed():
                    yield batch
                    last_row = time.monotonic()
                    if self._stopped.is_set():
                        return
                self._outage_since = None
                if self._is_ended:  # no row follows those that were read
                    return
                timeout_s = AWAIT_TIMEOUT_S
                if self._timeout_s is not None:
                    timeout_s = last_row + self._timeout_s - time.monotonic()
                if timeout_s <= 0 or self._at_end():
                    return
                self._await_commits(min(AWAIT_TIMEOUT_S, timeout_s))
            except (*OUTAGE, RefusedError) as error:
                if isinstance(error, RefusedError) and not error.retriable and not isinstance(error, SessionLost):
                    raise
                if self._stopped.is_set():  # a client stops its readers before it closes the connection
                    return
                self._pause_in_outage(error)
            except DataLossError as error:
                if error.reason != DIVERGED or error.positions is not None:
                    raise
                # The server was replaced after a range was planned: its history may still have the rows that were read.
                self._check_history(self._states())

    def _at_end(self) -> bool:
        return self._ends is not None and all(self._positions[at] >= end for at, end in self._ends.items())

    def _read_committed(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are committed now, up to the end."""
        states = self._states()
        self._check_history(states)
        ends = {
            at: states[at].end if self._ends is None else min(states[at].end, self._ends[at]) for at in self.partitions
        }
        while unread := [at for at in self.partitions if self._positions[at] < ends[at]]:
            for partition in unread:
                yield from self._read_some(states[partition], ends[partition])

    def _check_history(self, states: Sequence[RecordingState]) -> None:
        """Raise DataLossError, reason "diverged", if the server's history is not the one that was read so far."""
        by_partition = dict(enumerate(states))
        check_epochs(self._positions, by_partition, self.stream, START_OWNER)
        if self._ends is not None:
            try:
                check_epochs(self._ends, by_partition, self.stream, "reader's end")
            except DataLossError as error:
                error.positions = self.positions  # these are valid: a reader with another end continues there
                raise

    def _read_some(self, state: RecordingState, end: int) -> Iterator[pa.RecordBatch]:
        """Read ``READ_BYTES`` of a partition. A batch is yielded when the position after it is known."""
        partition = state.recording_id
        start = self._positions[partition]
        limit = (
            end
            if end - start <= READ_BYTES
            else self._log.boundary(state.key, start, start + READ_BYTES, end, None).position
        )
        fingerprint = self._fingerprints[partition]
        wanted = Range(state.key, fingerprint, start, limit, limit, state.term_length, state.epoch_at(limit))
        previous: pa.RecordBatch | None = None
        with closing(self._batches(wanted, state)) as found:
            for position, batch in found:
                set_position(self._positions, state, position)
                if previous is not None:
                    yield previous
                previous = batch
        set_position(self._positions, state, limit)
        if previous is not None:
            yield previous

    def _batches(self, wanted: Range, state: RecordingState) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        """Yield the batches of a range, each with the position at which it begins."""
        if self.payload == "raw":
            decoder = self._decoder(state)
            for rows in self._log.read(wanted):
                yield rows.positions[0].as_py(), decoder.raw(rows)
            return
        with of_recording(wanted.key):
            for found in read_range(self._log, wanted, self._decoder(state).fields):
                if self.payload == "arrow" and isinstance(found, PlacedGroup) and RowDecoder.is_arrow(found):
                    yield found.position, self._decode_arrow(found, state)
                else:
                    yield found.position, self._decoder(state).framed(found)

    def _decode_arrow(self, found: PlacedGroup, state: RecordingState) -> pa.RecordBatch:
        if self._given_schema is None and self._content is not None and self._content.schema is not None:
            names = schema_of_group(found).names
            if not set(self._content.schema.names).issuperset(names):
                self._set_content(self._log.content([]))  # the stream has new columns
        schema = self._known_columns()
        parts = list(self._decoder(state).arrow(found) if self._metadata else batches_of_group(found, schema))
        # A group becomes one batch, so that no consumer position lies inside a yielded batch.
        return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts, schema).combine_chunks().to_batches()[0]

    def _decoder(self, state: RecordingState) -> RowDecoder:
        schema = self._known_columns()
        known = self._decoders.get(state.recording_id)
        if known is None or known[0] is not schema:
            known = self._decoders[state.recording_id] = schema, RowDecoder(schema, state, None)
        return known[1]

    def _known_columns(self) -> pa.Schema:
        if self._columns is None:
            raise DataFormatError(
                f"stream {self.stream!r} has rows, and its server does not give their payload",
                remedy="Use the same release of aeron-spark on both sides.",
            )
        return self._columns

    def _set_content(self, content: StreamContent | None) -> None:
        """Set payload and columns, if the stream has them."""
        if content is None:
            return
        if self._content is None:
            framed = content.payload != "raw"
            self._log = ServerLog({self.stream: self._session}, self.stream, framed=framed)
        self._content = content
        own = {"raw": RAW, "framed": columns.VALUE}.get(content.payload, self._given_schema or content.schema)
        if own is not None:
            metadata = self._metadata if content.payload != "raw" else []
            self._columns = pa.schema([*own, *metadata])

    def _states(self) -> list[RecordingState]:
        states = sorted(self._log.states(), key=lambda state: state.recording_id)
        self._is_ended = self._log.is_ended
        if self._content is None:  # read after the states, so that it is known if they have rows
            self._set_content(self._log.content(states))
        return states

    def _await_commits(self, timeout_s: float) -> None:
        """Wait until rows after the consumer positions are committed, or for ``timeout_s``."""
        ends = [self._positions.get(partition, NO_END) for partition in range(len(self._fingerprints))]
        self._session.call(
            AwaitCommits(self.stream, tuple(ends), timeout_s), timeout=timeout_s + self._session.timeout_s
        )

    def _pause_in_outage(self, error: AeronSparkError) -> None:
        """Wait before the next attempt; raise ``error`` if the outage lasts too long or the client is closed."""
        now = time.monotonic()
        self._outage_since = self._outage_since or now
        if self._session.client.closed or now - self._outage_since >= self._outage_timeout_s:
            raise error
        self._stopped.wait(RETRY_INTERVAL_S)


def resolve(
    log: ServerLog, states: Sequence[RecordingState], where: StartOrEnd, partitions: Sequence[int], *, now_ns: int,
    name: str,
) -> Positions:  # fmt: skip
    """Return the position of each of ``partitions``, with its epoch; ``name`` is the argument's name in errors.

    A partition that ``where`` does not name is read from its beginning. Positions without epochs are accepted with
    NoEpochWarning. Raises OptionError for a position that the stream does not have, DataLossError for one that
    retention has deleted, and with the reason "diverged" for one of a history that the stream does not have.
    """
    found = Positions()
    for partition, position in _positions(log, states, where, partitions, now_ns=now_ns, name=name).items():
        set_position(found, states[partition], position)
    return found


def _positions(
    log: ServerLog, states: Sequence[RecordingState], where: StartOrEnd, partitions: Sequence[int], *, now_ns: int,
    name: str,
) -> dict[int, int]:  # fmt: skip
    if isinstance(where, str) and where.startswith("{"):
        where = Positions.from_json(where)
    if isinstance(where, Mapping):
        given = _given_positions(where, states, name)
        _check_history(given, states, log.name, name)
        return {
            at: _checked(log, states[at], given[at], name) if at in given else states[at].start for at in partitions
        }  # fmt: skip
    if isinstance(where, str) and where.lower() in EDGES:
        return {at: states[at].start if where.lower() == "earliest" else states[at].end for at in partitions}
    if not isinstance(where, str | datetime):
        raise OptionError(f"{name} cannot be {where!r}", remedy=EXAMPLE)
    try:
        time_ns = time_of(where, now_ns)
    except OptionError:
        raise OptionError(f"{name} cannot be {where!r}", remedy=EXAMPLE) from None
    return {at: log.position_at(states[at], time_ns, None) for at in partitions}


def _given_positions(where: Mapping[Any, Any], states: Sequence[RecordingState], name: str) -> Positions:
    given = Positions.of(where)
    for partition, position in given.items():
        if not 0 <= partition < len(states):
            raise OptionError(
                f"{name} names partition {partition}, and the stream has {len(states)}, numbered from 0",
                remedy="Correct it.",
            )
        if isinstance(position, bool) or not isinstance(position, int):
            raise OptionError(f"{name}: {position!r} is not a position of partition {partition}", remedy=EXAMPLE)
    return given


def _check_history(given: Positions, states: Sequence[RecordingState], stream: str, name: str) -> None:
    without_epoch = [at for at, position in given.items() if at not in given.epochs and position > 0]
    if without_epoch:
        warnings.warn(
            f"{name}: the positions of partitions {without_epoch} of stream {stream!r} have no epochs, so a store that "
            "was restored from an older copy is not noticed. Keep reader.positions.to_json()",
            NoEpochWarning,
            stacklevel=5,
        )
    check_epochs(given, dict(enumerate(states)), stream, START_OWNER if name == "start" else f"reader's {name}")


def _checked(log: ServerLog, state: RecordingState, position: int, name: str) -> int:
    if position < state.start:
        raise DataLossError(
            f"{name}: position {position} of partition {state.key} was purged; the partition begins at {state.start}",
            remedy="Start at 'earliest', and raise the stream's retention.",
        )
    if position > state.end:
        raise OptionError(
            f"{name}: position {position} of partition {state.key} is beyond its end, {state.end}",
            remedy="Give a position up to the end. The stream may have been created again, or the position is of "
            "another one.",
        )
    message_start = at_message(log, state, position)
    if message_start != position:
        damage = damage_before(log, state, position)
        if damage is not None:
            raise DataLossError(
                f"{name}: position {position} of partition {state.key} cannot be found: the partition is damaged at "
                f"position {damage} on its server's disk",
                remedy=f"Run 'aeron-spark server verify' on the server, or begin at {message_start}.",
            )
        raise OptionError(
            f"{name}: position {position} of partition {state.key} is inside a message",
            remedy=f"The next message begins at {message_start}.",
        )
    return position
