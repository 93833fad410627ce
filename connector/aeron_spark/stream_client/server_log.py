"""A server's stream as a log: what :class:`ArchiveLog` is for a trusted network, seen from afar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final

import pyarrow as pa

from aeron_spark.aeron.archive import Recording
from aeron_spark.aeron.row_sources import ReceivedRange, drain
from aeron_spark.connection.bulk_links import BulkLink
from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    DataLossError,
    EndedError,
    TransportError,
    WaitTimeout,
    decode_error,
)
from aeron_spark.log.api import Boundary, PublishTimes, Range, RecordingState, StreamContent, recording_key, split_key
from aeron_spark.log.epochs import Epochs
from aeron_spark.log.source_stream import ServerStream
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_rpc import (
    BulkMessageKind,
    CommittedPartition,
    DescribeStream,
    FindBoundary,
    FindPosition,
    PartitionStates,
    StartRead,
    StopRead,
    decode_bulk_message,
)
from aeron_spark.wire.values import Rows

BROKEN: Final = (EndedError, TransportError)  # of a branch: what is missing is asked for on another one


class ServerLog:
    """The stream ``name`` of the servers in ``hosts``, by name; partition p of a server is its recording p.

    ``idle_timeout`` is how long a reader waits for its next bytes, in seconds. ``keys`` are the servers' public keys,
    as text, by name; offsets name the stream with them.
    """

    def __init__(
        self, hosts: dict[str, StreamSession], name: str, *, framed: bool = False, idle_timeout: float = 30.0,
        keys: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.hosts = hosts
        self.keys = {host: (keys or {}).get(host, "") for host in hosts}
        self.name = name
        self.framed = framed
        self.idle_timeout = idle_timeout
        self._known: dict[str, RecordingState] = {}
        self._recorded: dict[str, int] = {}  # by key: the recording of the server's archive that holds the partition

    @property
    def archives(self) -> tuple[str, ...]:
        """The servers' names."""
        return tuple(self.hosts)

    @property
    def stream(self) -> ServerStream:
        """The stream, as offsets name it."""
        return ServerStream(self.name, self.keys)

    def counting(self, *, framed: bool) -> ServerLog:
        """Return the same log, counting groups or single messages."""
        if framed == self.framed:
            return self
        return ServerLog(self.hosts, self.name, framed=framed, idle_timeout=self.idle_timeout, keys=self.keys)

    def __eq__(self, other: object) -> bool:
        mine = (self.hosts, self.keys, self.name, self.framed)
        return isinstance(other, ServerLog) and mine == (other.hosts, other.keys, other.name, other.framed)

    def __hash__(self) -> int:
        return hash((tuple(self.hosts), self.name, self.framed))

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Do nothing: a server's streams are always recorded."""

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Do nothing: a server says itself where it has no such stream."""

    def states(self) -> list[RecordingState]:
        """Return every partition, with how far it is committed; those of one server at one moment."""
        said = [
            (_state(server, self.name, one), one.recording_id)
            for server, session in self.hosts.items()
            for one in session.call(PartitionStates(self.name)).partitions
        ]
        found = [state for state, _ in said]
        self._known = {state.key: state for state in found}
        self._recorded = {state.key: recording for state, recording in said}
        return found

    def state(self, key: str) -> RecordingState:
        """Return one partition. Raises DataLossError where the stream has none of that key."""
        if key not in self._known:
            self.states()
        state = self._known.get(key)
        if state is None:
            raise DataLossError(
                f"stream {self.name!r} has no partition {key}",
                remedy="Set failOnDataLoss=false to go on with what there is.",
            )
        return state

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        """Return what the stream holds, as its servers know it; None before the first rows."""
        found = [session.call(DescribeStream(self.name)) for session in self.hosts.values()]
        for one in found:
            if one.content:
                schema = pa.ipc.read_schema(pa.py_buffer(one.schema)) if one.schema else None
                return StreamContent(one.content, schema)
        return None

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Return where what was committed at or after a time begins; the server's own index says it."""
        server, partition = split_key(state.key)
        return self._session(server).call(FindPosition(self.name, time_ns)).positions[partition]

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Return where a range of ``key`` from ``start`` may end; see :class:`aeron_spark.log.api.Boundaries`."""
        server, partition = split_key(key)
        found = self._session(server).call(FindBoundary(self.name, partition, start, limit, end, max_rows, self.framed))
        return Boundary(found.position, found.rows)

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, end)``, of a framed log those up to ``overrun``."""
        state = self.state(wanted.key)
        if state.fingerprint != wanted.fingerprint:
            raise DataLossError(
                f"partition {wanted.key} of stream {self.name!r} was made anew since the batch was planned",
                remedy="Start a new query, or set failOnDataLoss=false to go on with what there is.",
            )
        server, partition = split_key(wanted.key)
        end = wanted.overrun if self.framed else wanted.end
        if wanted.start >= end:
            return
        reading = _Reading(self._session(server), self.name, partition, wanted, end, self.idle_timeout)
        name = f"partition {partition} of stream {self.name!r} (recording {self._recorded[wanted.key]})"
        source = ReceivedRange(name, wanted.start, end, reading.next_bytes)
        try:
            yield from drain(source, _recording(state))
        finally:
            reading.close()

    def _session(self, server: str) -> StreamSession:
        session = self.hosts.get(server)
        if session is None:
            raise DataLossError(
                f"an offset names the server {server}, and the query has {', '.join(self.hosts)}",
                remedy="Name it in option 'server' as before.",
            )
        return session


class _Reading:
    """One range on its way, up to ``end``; the rest is requested on another bulk link where one breaks.

    The server refuses each of these requests where it does not have the epoch of ``wanted``.
    """

    def __init__(
        self, session: StreamSession, stream: str, partition: int, wanted: Range, end: int, timeout: float
    ) -> None:
        self._session = session
        self._stream = stream
        self._partition = partition
        self._wanted = wanted
        self._at = wanted.start
        self._end = end
        self._timeout = timeout
        self._lending: AbstractContextManager[BulkLink] | None = None
        self._link: BulkLink | None = None
        self._request = 0
        self._whole = False

    def next_bytes(self) -> memoryview:
        """Wait for the next bytes."""
        broken: AeronSparkError | None = None
        for _ in range(3):  # without a byte in between: then the way is not just broken
            try:
                found = self._piece()
            except BROKEN as error:
                broken = error
                self._give_back(failed=True)
                continue
            if isinstance(found, AeronSparkError):
                raise found
            return found
        assert broken is not None
        raise TransportError(
            f"reading {self._stream!r} broke off at position {self._at} again and again: {broken.what}",
            remedy=broken.remedy,
        )

    def close(self) -> None:
        """Return the bulk link; messages that still come on it are skipped by its next user."""
        if self._link is not None and not self._whole:
            # not waited for: a generator may be closed anywhere, by the garbage collector, too
            self._session.send(StopRead(self._link.number, self._request))
        self._give_back(failed=False)

    def _piece(self) -> memoryview | AeronSparkError:
        """The next bytes, or what the server says instead."""
        link = self._link or self._begin()
        while True:
            data = link.receive(self._timeout)
            if data is None:
                raise WaitTimeout(
                    f"waited {self._timeout:g} s for more of partition {self._partition} of stream {self._stream!r} "
                    f"(at position {self._at} of {self._end})",
                    remedy="Raise idleTimeout, or look at the server.",
                )
            message = decode_bulk_message(data)
            if message.request != self._request & 0xFFFFFFFF:
                continue
            if message.kind is BulkMessageKind.FAILED:
                self._whole = True
                return decode_error(message.payload)
            if message.kind is BulkMessageKind.END or message.position != self._at:
                raise DataFormatError(
                    f"the server ends partition {self._partition} of stream {self._stream!r} at position "
                    f"{message.position}, and it was to go from {self._at} to {self._end}",
                    remedy="Read again. If this repeats, use the same release of aeron-spark on both sides.",
                )
            self._at += message.payload.nbytes
            self._whole = self._at >= self._end
            return message.payload

    def _begin(self) -> BulkLink:
        lending = self._session.bulk_link((self._stream, self._partition))
        self._link = link = lending.__enter__()
        self._lending = lending
        self._request = self._session.request_number()
        request = StartRead(
            self._stream, self._partition, self._at, self._end, link.number, self._request, self._wanted.epoch,
            self._wanted.overrun,
        )  # fmt: skip
        self._session.call(request)
        return link

    def _give_back(self, *, failed: bool) -> None:
        lending, self._lending, link, self._link = self._lending, None, self._link, None
        if lending is None:
            return
        if failed and link is not None:
            link.close()
        lending.__exit__(None, None, None)


def _state(server: str, stream: str, found: CommittedPartition) -> RecordingState:
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
        epochs=Epochs.from_bytes(found.epochs),
    )


def _recording(state: RecordingState) -> Recording:
    """What the drain needs of a recording: where its terms begin."""
    return Recording(
        id=state.recording_id, start_timestamp=0, stop_timestamp=None, start_position=state.start, stop_position=None,
        initial_term_id=state.initial_term_id, segment_length=state.term_length, term_length=state.term_length,
        mtu=state.mtu, session_id=state.session_id, stream_id=state.stream_id, channel=state.channel,
        original_channel=state.channel, source=state.source_identity,
    )  # fmt: skip
