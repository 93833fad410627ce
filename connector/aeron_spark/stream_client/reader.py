"""A program's reader of a server's stream: record batches, positions to continue at, and the reader's lease.

The lease's thread also closes the rows' generator after its iterator was dropped half-way. A finalizer can run at any
point, also inside a remote call of the same thread, so it must not send a request itself.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Generic, TypedDict, TypeVar

import pyarrow as pa

from aeron_spark.errors import (
    OUTAGE,
    AeronSparkError,
    DataFormatError,
    DataLossError,
    OptionError,
    RefusedError,
    SessionLost,
    UsageError,
)
from aeron_spark.log import decoding
from aeron_spark.log.api import Range, RecordingState, StreamContent
from aeron_spark.log.decoding import (
    PlacedGroup,
    RowDecoder,
    batches_of_group,
    of_recording,
    read_range,
    schema_of_group,
)
from aeron_spark.log.epochs import DIVERGED, Epochs, NoEpochWarning, diverged_sentence
from aeron_spark.log.follow import RAW
from aeron_spark.log.inspection import at_message, damage_before
from aeron_spark.process import bind_to_process
from aeron_spark.stream_client.operations import time_of
from aeron_spark.stream_client.server_log import ServerLog
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.staging import check_partition
from aeron_spark.texts import parse_json
from aeron_spark.wire.field_bounds import MAX_PARTITIONS
from aeron_spark.wire.stream_requests import AwaitCommits, RenewLease

VERSION: Final = 1
REPLACED: Final = "replaced"  # the reason of an error about positions of a partition that does not exist any more
KEYS: Final = frozenset({"epochs", "positions", "v"})  # of the JSON; later releases added "fingerprints"
REMEDY: Final = "Give positions as reader.positions has them, or its to_json()."


_PARTITION: Final = re.compile("[0-9]{1,10}")


class Positions(dict[int, int]):
    """The position of each partition, in bytes: the rows after it have not been delivered yet.

    ``epochs`` has the epochs of the bytes before each position; see ``log.epochs``. ``fingerprints`` distinguish the
    partitions from those of other streams. A copy made with ``dict(positions)`` has neither: keep :meth:`to_json`.
    """

    def __init__(
        self,
        positions: Mapping[int, int] | None = None,
        epochs: Mapping[int, Epochs] | None = None,
        fingerprints: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(positions or {})
        self.epochs: dict[int, Epochs] = dict(epochs or {})
        self.fingerprints: dict[int, str] = dict(fingerprints or {})

    def copy(self) -> Positions:
        """Return an independent copy, with epochs and fingerprints."""
        return Positions(self, self.epochs, self.fingerprints)

    def to_json(self) -> str:
        """Return all of it as text, for :meth:`from_json` and for ``client.reader(start=...)``."""
        epochs = {str(partition): saved.to_text() for partition, saved in sorted(self.epochs.items())}
        found: dict[str, object] = {"epochs": epochs}
        if self.fingerprints:
            found["fingerprints"] = {str(partition): text for partition, text in sorted(self.fingerprints.items())}
        positions = {str(partition): self[partition] for partition in sorted(self)}
        return json.dumps(found | {"positions": positions, "v": VERSION})

    @classmethod
    def from_json(cls, text: str) -> Positions:
        """Return the positions that :meth:`to_json` wrote. Raises OptionError for any other text."""
        try:
            found = parse_json(text)
        except ValueError:
            raise OptionError(f"{text[:80]!r} is not the JSON of positions", remedy=REMEDY) from None
        return cls.of(found)

    @classmethod
    def of(cls, value: object) -> Positions:
        """Return the positions of a ``Positions``, of the parsed JSON of one, or of a plain dict without epochs.

        Raises OptionError for anything else.
        """
        if isinstance(value, Positions):
            return value.copy()
        if not isinstance(value, Mapping):
            raise OptionError(f"positions cannot be {value!r}", remedy=REMEDY)
        if "v" not in value:
            return cls(_numbers(value))
        if value["v"] != VERSION or set(value) - {"fingerprints"} != KEYS:
            raise OptionError(
                f"positions have version {value['v']!r} and the keys {', '.join(map(str, value))}; this release reads "
                f"version {VERSION}",
                remedy=REMEDY,
            )
        positions = _numbers(value["positions"])
        try:
            epochs = {partition: Epochs.parse(text) for partition, text in _by_partition(value["epochs"]).items()}
        except ValueError as error:
            raise OptionError(f"positions have a wrong epoch: {error}", remedy=REMEDY) from None
        fingerprints = _by_partition(value.get("fingerprints", {}))
        if not all(isinstance(text, str) for text in fingerprints.values()):
            raise OptionError(f"positions have wrong fingerprints: {fingerprints}", remedy=REMEDY)
        return cls(positions, epochs, fingerprints)


def set_position(positions: Positions, state: RecordingState, position: int) -> None:
    """Set the position of the partition of ``state``, with its epochs and its fingerprint.

    The epochs of ``positions`` are of the history of ``state``, or there are none.
    """
    partition, epochs = state.recording_id, state.epochs or Epochs()
    positions[partition] = position
    positions.fingerprints[partition] = state.fingerprint
    known = positions.epochs.get(partition)
    if known is None or known.newest != epochs.at(position):  # histories with this epoch have the same ones before it
        positions.epochs[partition] = epochs.before(position)


def check_epochs(positions: Positions, states: Mapping[int, RecordingState], stream: str, owner: str) -> None:
    """Raise DataLossError, reason "diverged", if the stream never had the bytes before one of the positions.

    ``owner`` names the owner of the positions in the error. The error's ``positions`` are the given ones, but for each
    partition that diverged the last position up to which the histories are known to be equal. The reason is "replaced"
    if a position is of another partition, of another stream or of a deleted one; then the error has the beginning of
    the partition. Positions without epochs, and those before the first position of the partition, are not checked here.
    """
    corrected = positions.copy()
    _refuse_replaced(positions, states, stream, owner)
    sentences = []
    for partition, position in positions.items():
        state, saved = states[partition], positions.epochs.get(partition)
        if saved is None or state.epochs is None or position < state.start:
            continue
        found = state.divergence(saved, position)
        if found is not None:
            sentences.append(diverged_sentence(stream, partition, owner, position, found, state.start))
            _move(corrected, state, max(found.at, state.start))
    if sentences:
        error = DataLossError(
            "; ".join(sentences),
            remedy="Undo the results of the rows after error.positions, then read on with start=error.positions",
            reason=DIVERGED,
        )
        error.positions = corrected
        raise error


def _refuse_replaced(positions: Positions, states: Mapping[int, RecordingState], stream: str, owner: str) -> None:
    replaced = [
        partition
        for partition in positions
        if positions.fingerprints.get(partition, states[partition].fingerprint) != states[partition].fingerprint
    ]
    if not replaced:
        return
    corrected = positions.copy()
    for partition in replaced:
        _move(corrected, states[partition], states[partition].start)
    numbers = ", ".join(map(str, replaced))
    error = DataLossError(
        f"the {owner}'s positions of partitions {numbers} do not belong to stream {stream!r}: the stream was deleted "
        "and created again, or they belong to another stream",
        remedy="Give the positions of this stream, or read it from its beginning with start=error.positions",
        reason=REPLACED,
    )
    error.positions = corrected
    raise error


def _move(positions: Positions, state: RecordingState, position: int) -> None:
    """Set the position of the partition of ``state``, whose epochs so far are of another history."""
    positions.epochs.pop(state.recording_id, None)
    set_position(positions, state, position)


def _numbers(value: object) -> dict[int, int]:
    found = _by_partition(value)
    for partition, position in found.items():
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < 1 << 63:
            raise OptionError(f"{position!r} is not a position of partition {partition}", remedy=REMEDY)
    return found


def _by_partition(value: object) -> dict[int, Any]:
    if not isinstance(value, Mapping):
        raise OptionError(f"positions cannot be {value!r}", remedy=REMEDY)
    if len(value) > MAX_PARTITIONS:  # of chosen numbers a dict becomes quadratic
        raise OptionError(f"positions have {len(value)} partitions, the limit is {MAX_PARTITIONS}", remedy=REMEDY)
    found: dict[int, Any] = {}
    for key, item in value.items():
        text = str(key)
        if not _PARTITION.fullmatch(text):
            raise OptionError(f"{key!r} is not the number of a partition", remedy=REMEDY)
        found[int(text)] = item
    return found


LOG: Final = logging.getLogger("aeron_spark.streams")

LEASE_S: Final = 60.0  # after a crash of the reader, retention waits for this long
RENEWAL_TIMEOUT_S: Final = 5.0  # a failed renewal is followed by the next one
END_TIMEOUT_S: Final = 1.0  # of the request that ends a lease; without it the lease expires

T = TypeVar("T")


class ReaderLease:
    """A lease on the rows from ``positions`` on, by partition. It lasts from ``begin`` to ``end``.

    The first of several failed renewals is logged; ``error`` is the reason of the last failure, None after a success.
    ``interval`` is the time between two renewals, in seconds.
    """

    def __init__(
        self,
        session: StreamSession,
        stream: str,
        positions: Callable[[], dict[int, int]],
        rows: Generator[object, None, None],
        *,
        interval: float = LEASE_S / 4,
    ) -> None:
        self.error: Exception | None = None
        self._interval = interval
        self._session = session
        self._stream = stream
        self._positions = positions
        self._rows = rows  # this reference prevents a finalization before the thread closes it
        self._reader = uuid.uuid4().hex
        self._ends: SimpleQueue[bool] = SimpleQueue()  # a finalizer may put to it; True: the reader was dropped
        self._thread = threading.Thread(target=self._renew_until_end, name="aeron-spark-lease", daemon=True)

    def begin(self) -> None:
        """Request the lease, and renew it from now on. If the request fails, the next renewal takes the lease."""
        self._request(LEASE_S, RENEWAL_TIMEOUT_S)
        self._thread.start()

    def end(self) -> None:
        """End the lease; waits a short time for the server."""
        self._ends.put(False)
        self._thread.join(2 * END_TIMEOUT_S)

    def abandon(self) -> None:
        """Make the thread close the rows and end the lease, without waiting for it."""
        self._ends.put(True)

    def _renew_until_end(self) -> None:
        while True:
            try:
                is_abandoned = self._ends.get(timeout=self._interval)
            except Empty:
                self._request(LEASE_S, RENEWAL_TIMEOUT_S)
                continue
            if is_abandoned:
                try:
                    self._rows.close()
                except Exception as error:  # raised while it returns a bulk link, for example
                    LOG.info("closing a dropped reader of stream %r failed: %s", self._stream, error)
            self._request(0.0, END_TIMEOUT_S)
            return

    def _request(self, seconds: float, timeout_s: float) -> None:
        """Request a lease of ``seconds``; 0 ends it."""
        try:
            request = RenewLease(self._stream, self._reader, tuple(self._positions().items()), seconds)
            self._session.call(request, timeout=timeout_s)
        except Exception as error:  # an error must not end the thread: the reader would lose its lease silently
            self._report_failure(error, seconds)
        else:
            if self.error is not None:
                LOG.info("the lease of a reader of stream %r was renewed again", self._stream)
            self.error = None

    def _report_failure(self, error: Exception, seconds: float) -> None:
        is_first, self.error = self.error is None, error
        if is_first and seconds:  # a lease that could not be ended expires
            LOG.warning(
                "the lease of a reader of stream %r was not renewed; the next attempts follow every %g s. After %g s "
                "without a renewal, retention may delete rows that the reader has not read: %s",
                self._stream,
                self._interval,
                LEASE_S,
                error,
                exc_info=None if isinstance(error, AeronSparkError) else error,
            )


class LeasedIterator(Generic[T]):
    """Iterates over ``rows`` under ``lease``, which lasts until the end, :meth:`close`, or the iterator is dropped.

    For the thread that makes it. Another one gets UsageError, and changes nothing.
    """

    def __init__(self, rows: Generator[T, None, None], lease: ReaderLease) -> None:
        self._rows = rows
        self._lease = lease
        bind_to_process(self)
        self._thread = threading.current_thread()
        self._ended = False

    def begin(self) -> None:
        """Request the lease. Call it before the first row is read."""
        self._lease.begin()

    def _refuse_other_threads(self) -> None:
        """Raise UsageError if the iteration has not ended, and its thread lives and is not the caller's."""
        if not self._ended and self._thread is not threading.current_thread() and self._thread.is_alive():
            raise UsageError(
                f"thread {self._thread.name!r} reads with this reader",
                remedy="Make a reader in each thread, for other partitions: client.reader(..., partitions=[0]).",
            )

    def __iter__(self) -> LeasedIterator[T]:
        return self

    def __next__(self) -> T:
        self._refuse_other_threads()
        try:
            return next(self._rows)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop reading. A second call does nothing. Raises UsageError in another thread."""
        self._refuse_other_threads()
        if not self._ended:
            self._ended = True
            self._rows.close()
            self._lease.end()

    def __del__(self) -> None:
        if not self._ended:
            self._lease.abandon()


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


class ReaderKeywords(TypedDict, total=False):
    """The keywords of ``Client.reader``."""

    start: StartOrEnd
    """``earliest`` by default."""
    end: StartOrEnd | None
    """By default the end that is committed now; with ``follow`` none."""
    follow: bool
    """Whether the iterator continues with rows that are committed later; not by default."""
    partitions: Sequence[int] | None
    """All by default."""
    schema: pa.Schema | None
    """The columns; by default those of the stream."""
    metadata: bool
    """Whether there are columns with the origin of each row; not by default."""
    timeout: float | None
    """With ``follow``: seconds without a row after which the iterator ends; never by default."""


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
    copy without rows that were read. An outage, and a retriable refusal, is raised after five minutes.

    A reader is for one thread: until an iteration has ended, or its iterator is dropped, another thread that iterates
    gets UsageError at once. In the same thread another iteration ends it. Any thread can call :meth:`stop`.
    """

    def __init__(
        self,
        session: StreamSession,
        stream: str,
        *,
        start: StartOrEnd = "earliest",
        end: StartOrEnd | None = None,
        follow: bool = False,
        partitions: Sequence[int] | None = None,
        schema: pa.Schema | None = None,
        metadata: bool = False,
        timeout: float | None = None,
    ) -> None:
        bind_to_process(self)
        self.stream = stream
        self._session = session
        self._log = ServerLog({stream: session}, stream)
        self._is_ended = False  # whether the stream had ended when its states were read
        self._content: StreamContent | None = None
        self._given_schema = schema
        self._metadata = decoding.metadata() if metadata else []
        self._timeout_s = timeout
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
        now_ns = time.time_ns()
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
        own = {"raw": RAW, "framed": decoding.VALUE_COLUMN}.get(content.payload, self._given_schema or content.schema)
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
        if self._session.client.closed or now - self._outage_since >= OUTAGE_TIMEOUT_S:
            raise error
        self._stopped.wait(RETRY_INTERVAL_S)


def resolve(
    log: ServerLog,
    states: Sequence[RecordingState],
    where: StartOrEnd,
    partitions: Sequence[int],
    *,
    now_ns: int,
    name: str,
) -> Positions:
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
    log: ServerLog,
    states: Sequence[RecordingState],
    where: StartOrEnd,
    partitions: Sequence[int],
    *,
    now_ns: int,
    name: str,
) -> dict[int, int]:
    if isinstance(where, str) and where.startswith("{"):
        where = Positions.from_json(where)
    if isinstance(where, Mapping):
        given = _given_positions(where, states, name)
        _check_history(given, states, log.name, name)
        return {
            at: _checked(log, states[at], given[at], name) if at in given else states[at].start for at in partitions
        }
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
