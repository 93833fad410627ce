"""A server's stream as a log: the route through a server. ``server_writer`` writes to one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from aeron_spark.aeron.recording import Recording, UnreadableBytesError
from aeron_spark.endpoint.bulk_links import BulkLink
from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    DataLossError,
    EndedError,
    TransportError,
    WaitTimeout,
    decode_error,
)
from aeron_spark.log.api import (
    Boundary,
    PublishTimes,
    Range,
    RecordingState,
    ServerStream,
    StreamContent,
    recording_key,
    split_key,
)
from aeron_spark.log.available import read_available
from aeron_spark.log.epochs import Epochs
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.bulk_messages import BulkMessageKind, decode_bulk_message
from aeron_spark.wire.stream_requests import (
    CommittedPartition,
    DescribeStream,
    FindBoundary,
    FindPosition,
    MeasureLags,
    PartitionStates,
    StartRead,
    StopRead,
)
from aeron_spark.wire.values import Rows

LINK_LOST: Final = (EndedError, TransportError)  # errors of a bulk link: the read continues on another one
NS_PER_S: Final = 1_000_000_000
MAX_ATTEMPTS: Final = 3  # without a byte between them; then another bulk link does not help


class ServerLog:
    """The stream ``name`` of the servers in ``sessions``, by name; partition p of a server is its recording p.

    ``idle_timeout`` is how long a reader waits for its next bytes, in seconds. ``fail_on_data_loss`` is the option.
    ``keys`` are the servers' public keys,
    as text, by name; offsets name the stream with them.
    """

    def __init__(
        self,
        sessions: dict[str, StreamSession],
        name: str,
        *,
        framed: bool = False,
        idle_timeout: float = 30.0,
        keys: Mapping[str, str] | None = None,
        fail_on_data_loss: bool = True,
    ) -> None:
        self.sessions = sessions
        self.keys = {server: (keys or {}).get(server, "") for server in sessions}
        self.name = name
        self.framed = framed
        self.idle_timeout = idle_timeout
        self._fail_on_data_loss = fail_on_data_loss
        self._states: dict[str, RecordingState] = {}  # by key
        self._former_names: set[str] = set()  # those that the servers have given with the states
        self.is_ended = False
        """Whether all servers had ended the stream when the states were read: no rows follow them."""
        self._recording_ids: dict[str, int] = {}  # by key: the partition's recording in the server's archive

    @property
    def archives(self) -> tuple[str, ...]:
        """The servers' names."""
        return tuple(self.sessions)

    @property
    def stream(self) -> ServerStream:
        """The stream, as offsets name it; with its former names after :meth:`states` was called."""
        return ServerStream(self.name, self.keys, frozenset(self._former_names))

    def counting(self, *, framed: bool) -> ServerLog:
        """Return the same log, counting groups or single messages."""
        if framed == self.framed:
            return self
        return ServerLog(
            self.sessions,
            self.name,
            framed=framed,
            idle_timeout=self.idle_timeout,
            keys=self.keys,
            fail_on_data_loss=self._fail_on_data_loss,
        )

    def __eq__(self, other: object) -> bool:
        own = (self.sessions, self.keys, self.name, self.framed)
        return isinstance(other, ServerLog) and own == (other.sessions, other.keys, other.name, other.framed)

    def __hash__(self) -> int:
        return hash((tuple(self.sessions), self.name, self.framed))

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Do nothing: a server's streams are always recorded."""

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Do nothing: a server refuses requests for a stream that it does not have."""

    def states(self) -> list[RecordingState]:
        """Return every partition with its committed end; those of one server at one moment."""
        responses = {server: session.call(PartitionStates(self.name)) for server, session in self.sessions.items()}
        self.is_ended = all(response.is_ended for response in responses.values())
        self._former_names.update(*(response.former_names for response in responses.values()))
        found = [
            (_state(server, self.name, partition), partition.recording_id)
            for server, response in responses.items()
            for partition in response.partitions
        ]
        self._states = {state.key: state for state, _ in found}
        self._recording_ids = {state.key: recording_id for state, recording_id in found}
        return [state for state, _ in found]

    def state(self, key: str) -> RecordingState:
        """Return one partition. Raises DataLossError if the stream has none of that key."""
        if key not in self._states:
            self.states()
        state = self._states.get(key)
        if state is None:
            raise DataLossError(
                f"stream {self.name!r} has no partition {key}",
                remedy="Set failOnDataLoss=false to go on with what there is.",
            )
        return state

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        """Return the payload and schema of the stream, as its servers know them; None before the first rows."""
        found = [session.call(DescribeStream(self.name)) for session in self.sessions.values()]
        for description in found:
            if description.content:
                return StreamContent(description.content, description.schema)
        return None

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Return the position of the first rows that were committed at or after a time, by the server's index."""
        server, partition = split_key(state.key)
        return self._session(server).call(FindPosition(self.name, time_ns)).positions[partition]

    def lags_s(self, positions: Mapping[str, int]) -> dict[str, float]:
        """Return how long ago the first row at or after each position was committed, by its server's clock."""
        by_server: dict[str, list[tuple[int, int]]] = {}
        for key, position in positions.items():
            server, partition = split_key(key)
            by_server.setdefault(server, []).append((partition, position))
        return {
            recording_key(server, partition): lag_ns / NS_PER_S
            for server, of_server in by_server.items()
            for partition, lag_ns in self._session(server).call(MeasureLags(self.name, tuple(of_server))).lags_ns
        }

    def recorded_bytes(self, key: str, position: int, length: int) -> None:
        """Return None: the epochs of a partition identify its bytes."""

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Return where a range of ``key`` from ``start`` may end; see :class:`aeron_spark.log.api.Boundaries`."""
        server, partition = split_key(key)
        found = self._session(server).call(FindBoundary(self.name, partition, start, limit, end, max_rows, self.framed))
        return Boundary(found.position, found.rows)

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, end)``, of a framed log those up to ``overrun``."""
        yield from read_available(
            wanted,
            wanted.overrun if self.framed else wanted.end,
            self._states.get(wanted.key),
            lambda: self._look(wanted.key),
            lambda state, start, end: self._read(replace(wanted, start=start), state, end),
            fail_on_data_loss=self._fail_on_data_loss,
        )

    def _look(self, key: str) -> RecordingState | None:
        self.states()
        return self._states.get(key)

    def _read(self, wanted: Range, state: RecordingState, end: int) -> Iterator[Rows]:
        server, partition = split_key(wanted.key)
        reading = _RangeRead(self._session(server), self.name, partition, wanted, end, self.idle_timeout)
        name = f"partition {partition} of stream {self.name!r} (recording {self._recording_ids[wanted.key]})"
        from aeron_spark.aeron.row_sources import ReceivedRange, drain  # planning reads no rows

        source = ReceivedRange(name, wanted.start, end, reading.next_bytes)
        try:
            yield from drain(source, _recording(state))
        except DataLossError as error:
            raise UnreadableBytesError(source.position, error) from error
        except UnreadableBytesError as error:
            damaged = DataLossError(
                f"{name} is damaged at position {error.position} on its server's disk, the stream ends at {state.end}",
                remedy="Run 'aeron-spark server verify' with the server stopped, and restore its files from a backup; "
                "or set failOnDataLoss=false to continue at the next term.",
            )
            raise UnreadableBytesError(error.position, damaged) from error
        finally:
            reading.close()

    def _session(self, server: str) -> StreamSession:
        session = self.sessions.get(server)
        if session is None:
            raise DataLossError(
                f"an offset names the server {server}, and the query has {', '.join(self.sessions)}",
                remedy="Name it in option 'server' as before.",
            )
        return session


class _RangeRead:
    """Reads one range up to ``end``; if a bulk link is lost, the read continues on another one.

    The server refuses each of its requests if the partition does not have the epoch of ``wanted``.
    """

    def __init__(
        self, session: StreamSession, stream: str, partition: int, wanted: Range, end: int, timeout_s: float
    ) -> None:
        self._session = session
        self._stream = stream
        self._partition = partition
        self._wanted = wanted
        self._position = wanted.start
        self._end = end
        self._timeout_s = timeout_s
        self._borrowed: AbstractContextManager[BulkLink] | None = None
        self._link: BulkLink | None = None
        self._request = 0
        self._is_complete = False  # the server sends no more

    def next_bytes(self) -> memoryview:
        """Wait for the next bytes and return them. Raises TransportError if several bulk links in a row are lost."""
        lost: AeronSparkError | None = None
        for _ in range(MAX_ATTEMPTS):
            try:
                found = self._receive()
            except LINK_LOST as error:
                lost = error
                self._return_link(failed=True)
                continue
            if isinstance(found, AeronSparkError):
                raise found
            return found
        assert lost is not None
        raise TransportError(
            f"reading partition {self._partition} of stream {self._stream!r} failed {MAX_ATTEMPTS} times at position "
            f"{self._position}: {lost.what}",
            remedy=lost.remedy,
        )

    def close(self) -> None:
        """Return the bulk link; its next user skips the messages that still arrive."""
        if self._link is not None and not self._is_complete:
            # Do not wait for a response: the garbage collector, too, can close a generator, on any thread.
            self._session.send(StopRead(self._link.number, self._request))
        self._return_link(failed=False)

    def _receive(self) -> memoryview | AeronSparkError:
        """Return the next bytes, or the error that the server sent."""
        link = self._link or self._start()
        while True:
            data = link.receive(self._timeout_s)
            if data is None:
                raise WaitTimeout(
                    f"waited {self._timeout_s:g} s for more of partition {self._partition} of stream {self._stream!r} "
                    f"(at position {self._position} of {self._end})",
                    remedy="Raise idleTimeout, or check that the server runs.",
                )
            message = decode_bulk_message(data)
            if message.request != self._request & 0xFFFFFFFF:
                continue
            if message.kind is BulkMessageKind.FAILED:
                self._is_complete = True
                return decode_error(message.payload)
            if message.kind is BulkMessageKind.END or message.position != self._position:
                raise DataFormatError(
                    f"partition {self._partition} of stream {self._stream!r} continued or ended at position "
                    f"{message.position}, expected {self._position} (requested range up to {self._end})",
                    remedy="Read again. If this repeats, use the same release of aeron-spark on both sides.",
                )
            self._position += message.payload.nbytes
            self._is_complete = self._position >= self._end
            return message.payload

    def _start(self) -> BulkLink:
        borrowed = self._session.bulk_link()
        self._link = link = borrowed.__enter__()
        self._borrowed = borrowed
        self._request = self._session.request_number()
        request = StartRead(
            self._stream,
            self._partition,
            self._position,
            self._end,
            link.number,
            self._request,
            self._wanted.epoch,
            self._wanted.overrun,
        )
        self._session.call(request)
        return link

    def _return_link(self, *, failed: bool) -> None:
        borrowed, self._borrowed, link, self._link = self._borrowed, None, self._link, None
        if borrowed is None:
            return
        if failed and link is not None:
            link.close()
        borrowed.__exit__(None, None, None)


def _state(server: str, stream: str, found: CommittedPartition) -> RecordingState:
    try:
        epochs = Epochs.from_bytes(found.epochs)
    except ValueError as error:
        raise DataFormatError(
            f"the server described partition {found.partition} of stream {stream!r} in an unknown way: {error}",
            remedy="Use the same release of aeron-spark in the client and the server.",
        ) from None
    return RecordingState(
        key=recording_key(server, found.partition),
        fingerprint=found.fingerprint,
        start=found.start,
        end=found.end,
        active=True,
        term_length=found.term_length,
        initial_term_id=found.initial_term_id,
        mtu=found.mtu,
        stream_id=found.stream_id,
        session_id=found.session_id,
        channel=stream,
        source_identity=server,
        epochs=epochs,
        checked_from=found.checked_from,
    )


def _recording(state: RecordingState) -> Recording:
    """Return a description of the partition's recording, from which ``drain`` knows where terms begin."""
    return Recording(
        id=state.recording_id,
        start_timestamp=0,
        stop_timestamp=None,
        start_position=state.start,
        stop_position=None,
        initial_term_id=state.initial_term_id,
        segment_length=state.term_length,
        term_length=state.term_length,
        mtu=state.mtu,
        session_id=state.session_id,
        stream_id=state.stream_id,
        channel=state.channel,
        original_channel=state.channel,
        source=state.source_identity,
    )
