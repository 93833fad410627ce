"""The operations on the streams of a server: checks and executes the requests, and knows the commits that run.

``wire.stream_requests.OPERATIONS`` has the rules of each request, and ``HANDLERS`` the function that executes it.

A worker thread executes each request. A wait for a client or for a commit has no thread: its response is deferred.
Transfers, which send the rows of reads and receive those of stages, take turns on threads that the clients' keys share.
A turn does not wait for its client: a slow client delays only itself.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from aeron_spark.endpoint.bulk_links import BulkLinks
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.fair_pool import FairPool
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.peer_calls import Deferred
from aeron_spark.endpoint.server_sessions import GrantChanged
from aeron_spark.errors import (
    REFUSALS,
    AeronSparkError,
    DataFormatError,
    EndedError,
    OptionError,
    RefusedError,
    StillWorking,
    UsageError,
)
from aeron_spark.facts import Bus
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.grants import Grant, KeyLimits, StreamAction
from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.protocol.rpc_dispatch import BAD_ARGUMENTS, UNKNOWN_METHOD, PeerCall, unknown_failure
from aeron_spark.protocol.rpc_messages import Call, Create, Failure, decode_data_call, text_of
from aeron_spark.server.stream_transfers import IncomingStage, IncomingStages, OutgoingReads, fill_at_once
from aeron_spark.streams.definition import Definition, check_segment_bytes, renamed_stream, unknown_stream
from aeron_spark.streams.ledger import AlreadyCommitted
from aeron_spark.streams.model import PartitionState, WriteRights
from aeron_spark.streams.stages import Stage
from aeron_spark.streams.store import Condition, StreamStore
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import fail, resolve
from aeron_spark.wire import stream_requests as rpc
from aeron_spark.wire.field_bounds import Positions
from aeron_spark.wire.stream_requests import OPERATIONS, Committed, Request, Response, StreamRequest

TRANSFER_THREADS: Final = 64  # of all clients
TRANSFER_THREADS_PER_KEY: Final = 16
MAX_WAIT_S: Final = 20.0  # of one request
MAX_WAITS: Final = 1_024  # of a key, for commits: each commit looks at all waits of its stream
COMMIT_TIMEOUT_S: Final = 15.0  # longest wait of a request for a commit of the stream; clients wait for 20 s
MAX_WRITERS: Final = 1_000  # in one response
MAX_STAGES: Final = 1_000  # in one response
RECENT_S: Final = 60.0  # after its last use, a stream counts as used by the client
MAX_RECENT_STREAMS: Final = 64  # remembered for one connection


@dataclass(frozen=True, slots=True)
class StreamRead:
    """A reader gets bytes of a stream. Emitted on a thread of the transfers."""

    stream: str
    size: int


class RunningCommits:
    """The commits that run now, of all clients, so that a repeated request does not commit again. Thread-safe.

    A client repeats its request if it has no response for some time, to find out whether the server lives. No thread
    waits for a commit that runs: ``loop`` ends the wait. ``check_new`` raises the reason if no further commit may
    begin.
    """

    def __init__(self, loop: Loop, check_new: Callable[[], object] = lambda: None) -> None:
        self._loop = loop
        self._check_new = check_new
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Committed]] = {}

    def __len__(self) -> int:
        """Return the number of commits that run."""
        with self._lock:
            return len(self._running)

    def run(self, key: Hashable, commit: Callable[[], Committed], timeout_s: float) -> Committed | Deferred:
        """Return or raise the outcome of ``commit()``; while a commit with the same key runs, wait for its outcome.

        The wait raises StillWorking if that commit does not end within ``timeout_s``. Raises the error of
        ``check_new``.
        """
        own: Future[Committed] = Future()
        with self._lock:
            if key not in self._running:
                self._check_new()
            running = self._running.setdefault(key, own)
        if running is not own:
            return self._when_ended(running, timeout_s)
        try:
            outcome = commit()
        except BaseException as error:
            self._end(key)
            own.set_exception(error)
            raise
        self._end(key)
        own.set_result(outcome)
        return outcome

    def _when_ended(self, running: Future[Committed], timeout_s: float) -> Deferred:
        waiting: Future[bool] = Future()  # another future: the end of one wait must not end the others
        running.add_done_callback(lambda _: resolve(waiting, True))
        self._loop.end_at(waiting, False, self._loop.clock() + timeout_s)

        def outcome() -> Committed:
            if not waiting.result():
                raise StillWorking("the commit is still running on the server", remedy="Send the request again.")
            return running.result()

        return Deferred(waiting, outcome)

    def _end(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]


class StreamService:
    """Serves the streams of ``store``, which the first request opens, on all connections of a server.

    ``loop`` ends the waits for commits. ``refuse_write`` returns why nothing may be written now, or None.
    """

    def __init__(
        self,
        store: Callable[[], StreamStore],
        bulk_links: BulkLinks,
        loop: Loop,
        options: LiveOptions,
        refuse_write: Callable[[], RefusedError | None] = lambda: None,
        facts: Bus | None = None,
    ) -> None:
        self.facts = facts or Bus()
        self.facts.on(GrantChanged, self._on_grant_changed)
        self.store = store
        self.refuse_write = refuse_write
        self.options = options
        self.bulk_links = bulk_links
        self.loop = loop
        self.pool = FairPool(
            loop.executor(TRANSFER_THREADS, "aeron-spark-transfer"), lambda: TRANSFER_THREADS_PER_KEY, loop.clock
        )
        """The threads of transfers. The event loop calls its ``tick``."""
        self.commits = RunningCommits(loop, self.check_draining)
        self.is_draining = False
        """Whether transactions, stages and commits that have not begun are refused: the server is about to end."""
        self._waits_lock = threading.Lock()  # for the following table, which several threads change
        self._waits: Counter[str] = Counter()  # waits for commits, by key
        self._leased: StreamStore | None = None  # the store, after a client has taken a lease
        # By id of the connection, which has the handler: the two end together.
        self._handlers: WeakValueDictionary[int, OperationService] = WeakValueDictionary()

    def serve(self, connection: ConnectionCore) -> None:
        """Serve the requests of a connection."""
        handler = OperationService(self, connection)
        self._handlers[id(connection)] = handler
        connection.add_service(handler, rpc.SERVICE)

    def _on_grant_changed(self, fact: GrantChanged) -> None:
        handler = self._handlers.get(id(fact.connection))
        if handler is not None and fact.refusal is None:
            handler.apply_grant()
        elif handler is not None and fact.refusal is not None:
            handler.revoke(fact.refusal)

    def streams_of(self, connection: ConnectionCore) -> list[str]:
        """Return the sorted names of the streams that a connection's client has used in the last minute."""
        handler = self._handlers.get(id(connection))
        return [] if handler is None else handler.recent_streams()

    def note_lease(self) -> None:
        """Note that a client takes a lease on a stream."""
        self._leased = self.store()

    def end_leases(self, owner: str) -> None:
        """End all leases of a client's key, also those that it took over earlier connections."""
        if self._leased is not None:
            with suppress(EndedError):  # a closed store has no leases
                for stream in self._leased.all():
                    stream.end_leases(owner)

    def add_wait(self, owner: str, wait: Future[bool]) -> None:
        """Count a wait of a client's key for commits. Raises RefusedError, and ends the wait, above the limit."""
        with self._waits_lock:
            count = self._waits[owner]
            self._waits[owner] += 1
        wait.add_done_callback(lambda _: self._forget_wait(owner))
        if count >= MAX_WAITS:
            wait.cancel()
            raise RefusedError(
                f"{count} requests of your key wait for commits, which is the limit",
                remedy="Wait for fewer streams at once.",
                reason="busy",
            )

    def _forget_wait(self, owner: str) -> None:
        with self._waits_lock:
            self._waits[owner] -= 1
            if not self._waits[owner]:
                del self._waits[owner]

    def check_write(self) -> None:
        """Raise RefusedError if nothing may be written now."""
        refusal = self.refuse_write()
        if refusal is not None:
            raise refusal

    def check_draining(self) -> None:
        """Raise RefusedError if the server is about to end."""
        if self.is_draining:
            raise RefusedError(
                "the server is about to end, and begins no further transactions, stages and commits",
                remedy=REFUSALS["draining"].remedy,
                reason="draining",
            )

    def submit(self, key: str, work: Callable[[], object]) -> None:
        """Run the work of a transfer on a thread, when it is the turn of the client's key; drop it after ``close``."""
        with suppress(RuntimeError):
            self.pool.submit(key, work)

    def close(self) -> None:
        """Start no further transfers. Running transfers end with their bulk links."""
        self.pool.shutdown()


class OperationService:
    """The stream requests of one connection's client, as a service of the endpoint. Thread-safe.

    The client's grant decides what it may do. A stream on which the grant has no action does not exist for the client.
    The AeronSparkError of a request is its response. ``shared`` has what the requests of all connections share.
    """

    def __init__(self, shared: StreamService, connection: ConnectionCore) -> None:
        self.shared: Final = shared
        self.connection: Final = connection
        self.reads: Final = OutgoingReads(self._submit, shared.loop)
        self.stages: Final = IncomingStages(self._submit, shared.loop)
        self._lock: Final = threading.Lock()
        self._waits: Final[dict[Future[bool], str]] = {}  # waits for commits, with the names of their streams
        self._used_at: Final[dict[str, float]] = {}  # by name, in monotonic seconds; the last used one last

    # A call of the endpoint.

    def look_up(self, head: Call | Create) -> Failure | None:
        """Refuse another method than that of requests."""
        name = head.method if isinstance(head, Call) else head.factory
        return None if name == rpc.METHOD else unknown_failure(UNKNOWN_METHOD, "method", name, (rpc.METHOD,))

    def run(self, call: PeerCall) -> Response | Deferred | Failure:
        """Decode the request, and execute it."""
        try:
            data = decode_data_call(call.payload)
        except DataFormatError as error:
            return Failure(BAD_ARGUMENTS, text_of(error))
        call.what = "a request"
        head = rpc.decode_head(data)
        call.what = head.kind.__name__
        self._check_request(head.kind, head.stream)  # before the request costs anything
        request = call.request = head.decode()
        return self.execute(request)

    def encode(self, call: PeerCall, result: Any, error: AeronSparkError | None) -> bytes:
        """Encode the response, or the error."""
        return rpc.encode_response(result if error is None else rpc.failure_of(error))

    def execute(self, request: Request[Any]) -> Response | Deferred:
        """Execute a request, and return its response, now or later. Raises AeronSparkError if it fails."""
        operation = OPERATIONS[type(request)]
        if isinstance(request, StreamRequest):
            self._check_request(type(request), request.stream)
        # To fence a run needs a record of the journal, for which the reserve of a nearly full disk has room.
        if not (isinstance(request, rpc.BeginTransaction) and request.only_fences):
            if operation.begins:
                self.shared.check_draining()
            if operation.writes:
                self.shared.check_write()
        return HANDLERS[type(request)](self, request)

    def _check_request(self, kind: type[Request[Any]], stream: str) -> None:
        actions = OPERATIONS[kind].actions
        if actions:
            self.check(stream, *actions)

    # The rights of the client.

    @property
    def _grant(self) -> Grant:
        return self.connection.grant

    @cached_property
    def owner(self) -> str:
        """The owner of the client's leases and writer ids: the fingerprint of its key."""
        return fingerprint(self.connection.peer.key)

    def limit_of(self, limit: Callable[[KeyLimits], int | None], default: int) -> int:
        """Return a limit of the client's key, or ``default`` if its line in the clients file has none."""
        own = limit(self._grant.limits)
        return default if own is None else own

    def may_see(self, name: str) -> bool:
        """Return whether the client may learn that a stream of this name exists."""
        return self._grant.may_see(name)

    def write_rights(self, stream: str) -> WriteRights:
        """Return the rights with which the client writes to a stream."""
        limit = self.limit_of(lambda limits: limits.stage_bytes, self.shared.options.value.stage_bytes_per_key)
        return WriteRights(self.owner, limit, self._grant.may_use(stream, "manage"))

    def check(self, name: str, *actions: StreamAction) -> None:
        """Raise the error of :meth:`refusal`, if any."""
        error = self.refusal(name, *actions)
        if error is not None:
            raise error

    def refusal(self, name: str, *actions: StreamAction) -> AeronSparkError | None:
        """Return None if the grant has one of the actions on the stream; RefusedError if the client may see the stream.

        Otherwise the error is the OptionError for an unknown stream, whether the stream exists or not.
        """
        grant = self._grant
        if any(grant.may_use(name, action) for action in actions):
            return None
        if not grant.may_see(name) and actions != ("create",):  # a key may create a stream that it may not see
            return unknown_stream(name, self._visible_names(grant))
        return RefusedError(
            f"your key may not {' or '.join(actions)} stream {name!r}",
            remedy="Ask the server's operator to grant the action in the server's clients file.",
            reason="not-permitted",
        )

    # The streams of requests.

    def stream(self, request: StreamRequest[Any]) -> Stream:
        """Return the stream of a request, whose action is granted. Raises as :meth:`check_exists`.

        Raises RefusedError if the request's writer id is not granted to the client's key, or belongs to another key. An
        id without an owner then belongs to the key. A key to which an id is granted may also use that of another key.
        """
        self.check_exists(request.stream)
        self.note_use(request.stream)
        stream = self.shared.store().get(request.stream)
        writer = rpc.writer_of(request)
        if writer is not None:
            self._claim(stream, writer)
        return stream

    def check_exists(self, name: str) -> None:
        """Raise OptionError if the stream of a request does not exist."""
        store, grant = self.shared.store(), self._grant
        if name in store:
            return
        new_name = store.renamed_to(name)
        if new_name is not None and grant.may_see(new_name):
            raise renamed_stream(name, new_name)
        raise unknown_stream(name, self._visible_names(grant))

    def _claim(self, stream: Stream, writer: str) -> None:
        may_write = self._grant.may_write_as(writer)
        if may_write is False:
            raise RefusedError(
                f"your key may not write under the writer id {writer!r}",
                remedy="Ask the server's operator to grant the id in the server's clients file (writers=).",
                reason="not-permitted",
            )
        stream.claim_writer(writer, self.owner, is_granted=may_write is True)

    def _visible_names(self, grant: Grant) -> list[str]:
        return [name for name in self.shared.store().names if grant.may_see(name)]

    def note_use(self, name: str) -> None:
        """Note that the client uses a stream now."""
        with self._lock:
            self._used_at.pop(name, None)
            self._used_at[name] = time.monotonic()
            if len(self._used_at) > MAX_RECENT_STREAMS:
                del self._used_at[next(iter(self._used_at))]

    def recent_streams(self) -> list[str]:
        """Return the sorted names of the streams that the client has used in the last minute."""
        since = time.monotonic() - RECENT_S
        with self._lock:
            return sorted(name for name, used_at in self._used_at.items() if used_at >= since)

    # Work that goes on after the response to its request.

    def _submit(self, work: Callable[[], object]) -> None:
        self.shared.submit(self.owner, work)

    def add_wait(self, wait: Future[bool], stream: str) -> None:
        """Count a wait for a commit of the stream until it ends. Raises as :meth:`StreamService.add_wait`."""
        self.shared.add_wait(self.owner, wait)
        with self._lock:
            self._waits[wait] = stream
        wait.add_done_callback(self._forget_wait)

    def _forget_wait(self, ended: Future[bool]) -> None:
        with self._lock:
            self._waits.pop(ended, None)

    def apply_grant(self) -> None:
        """End the waits and stages that the client's present grant does not cover. Reads check the grant themselves."""
        with self._lock:
            waits = dict(self._waits)
        for waiting, name in waits.items():
            error = self.refusal(name, "read")
            if error is not None:
                fail(waiting, error)
        for incoming in self.stages.all():
            error = self.refusal(incoming.stream_name, "write")
            if error is not None:
                incoming.fail(error)

    def revoke(self, error: AeronSparkError) -> None:
        """End the client's waits and stages, and the leases of its key."""
        with self._lock:
            waits = list(self._waits)
        for waiting in waits:
            fail(waiting, error)
        for incoming in self.stages.all():
            incoming.fail(error)
        self.shared.end_leases(self.owner)


Handler = Callable[[OperationService, Any], Response | Deferred]
HANDLERS: Final[dict[type[Request[Any]], Handler]] = {}
"""By class of requests, the function that executes one, whose action is granted. It raises AeronSparkError."""

R = TypeVar("R", bound=Response)


def handles(kind: type[Request[R]]) -> Callable[[Callable[[OperationService, Any], R | Deferred]], Handler]:
    """Return the decorator that adds a function to HANDLERS."""

    def add(handler: Callable[[OperationService, Any], R | Deferred]) -> Handler:
        HANDLERS[kind] = handler
        return handler

    return add


# Administration.


@handles(rpc.ListStreams)
def _list(service: OperationService, _: rpc.ListStreams) -> rpc.StreamList:
    """Return all streams that the client may see."""
    found = []
    for name in service.shared.store().names:
        if service.may_see(name):
            with suppress(OptionError, UsageError):  # it was renamed or deleted since
                found.append(_inspect(service, name))
    return rpc.StreamList(tuple(found))


@handles(rpc.DescribeStream)
def _describe(service: OperationService, request: rpc.DescribeStream) -> rpc.StreamInfo:
    if request.accept_damaged:
        service.check_exists(request.stream)
        return _inspect(service, request.stream)
    return _description(service, service.stream(request))


@handles(rpc.MeasureStream)
def _measure(service: OperationService, request: rpc.MeasureStream) -> rpc.StreamUsage:
    return service.stream(request).usage()


@handles(rpc.CreateStream)
def _create(service: OperationService, request: rpc.CreateStream) -> rpc.StreamInfo:
    """Create a stream that belongs to the client's key."""
    if request.segment_bytes:
        check_segment_bytes(request.stream, request.segment_bytes)
    limit = service.limit_of(lambda limits: limits.partitions, service.shared.options.value.max_partitions_per_key)
    return _description(service, service.shared.store().create(request, service.owner, limit))


@handles(rpc.AlterStream)
def _alter(service: OperationService, request: rpc.AlterStream) -> rpc.StreamAlteration:
    """Change the retention and the schema policy of a stream, or with ``dry_run`` compute the effect."""
    stream = service.stream(request)

    def change(definition: Definition) -> Definition:
        return definition.altered(
            retention_bytes=request.retention_bytes,
            retention_seconds=request.retention_seconds,
            schema_policy=request.schema_policy,
        )

    if request.dry_run:
        before, after = stream.definition, change(stream.definition)
    else:
        before, after = service.shared.store().alter(request.stream, change, COMMIT_TIMEOUT_S)
    return rpc.StreamAlteration(
        _properties(before),
        _properties(after),
        tuple(one.start for one in stream.states()),
        tuple(stream.retention_starts(after)),
    )


@handles(rpc.RenameStream)
def _rename(service: OperationService, request: rpc.RenameStream) -> rpc.StreamInfo:
    """Rename a stream. A repeated request has the same result."""
    store = service.shared.store()
    service.check(request.new_name, "create")
    if store.renamed_to(request.stream) == request.new_name:
        return _description(service, store.get(request.new_name))
    service.check_exists(request.stream)
    return _description(service, store.rename(request.stream, request.new_name, COMMIT_TIMEOUT_S))


@handles(rpc.EndStream)
def _end(service: OperationService, request: rpc.EndStream) -> rpc.StreamInfo:
    """End a stream; an ended one keeps the time of its end."""
    now_ns = time.time_ns()
    return _changed(service, request, lambda definition: definition.ended(now_ns))


@handles(rpc.ReopenStream)
def _reopen(service: OperationService, request: rpc.ReopenStream) -> rpc.StreamInfo:
    return _changed(service, request, Definition.reopened)


def _changed(
    service: OperationService, request: StreamRequest[Any], change: Callable[[Definition], Definition]
) -> rpc.StreamInfo:
    stream = service.stream(request)
    service.shared.store().alter(request.stream, change, COMMIT_TIMEOUT_S)
    return _description(service, stream)


@handles(rpc.ListWriters)
def _list_writers(service: OperationService, request: rpc.ListWriters) -> rpc.WriterList:
    following = [one for one in service.stream(request).writers() if one.id > request.after]
    return rpc.WriterList(tuple(following[:MAX_WRITERS]), len(following) > MAX_WRITERS)


@handles(rpc.ReleaseWriter)
def _release_writer(service: OperationService, request: rpc.ReleaseWriter) -> rpc.Done:
    service.stream(request).release_writer(request.writer)
    return rpc.Done()


@handles(rpc.ListStages)
def _list_stages(service: OperationService, request: rpc.ListStages) -> rpc.StageList:
    following = [one for one in service.stream(request).open_stages() if one.id > request.after]
    return rpc.StageList(tuple(following[:MAX_STAGES]), len(following) > MAX_STAGES)


@handles(rpc.ListLeases)
def _list_leases(service: OperationService, request: rpc.ListLeases) -> rpc.LeaseList:
    return rpc.LeaseList(tuple(service.stream(request).live_leases()))


@handles(rpc.ReleaseLease)
def _release_lease(service: OperationService, request: rpc.ReleaseLease) -> rpc.Done:
    service.stream(request).release_lease(request.reader)
    return rpc.Done()


@handles(rpc.DeleteStream)
def _delete(service: OperationService, request: rpc.DeleteStream) -> rpc.Done:
    service.check_exists(request.stream)
    service.shared.store().delete(request.stream)
    return rpc.Done()


@handles(rpc.PurgeStream)
def _purge(service: OperationService, request: rpc.PurgeStream) -> rpc.PurgeReport:
    """Purge a stream. A repeated request reports what is freed since."""
    purged = service.stream(request).purge(
        partition=request.partition,
        before_position=request.before_position,
        before_time_ns=request.before_time_ns,
        seconds=COMMIT_TIMEOUT_S,
    )
    return rpc.PurgeReport(tuple(purged))


def _inspect(service: OperationService, name: str) -> rpc.StreamInfo:
    """Describe a stream, also a damaged one."""
    store = service.shared.store()
    condition = store.condition(name)
    if name not in store.failed:
        return _description(service, store.get(name))
    return _info(name, condition, store.definition(name))


def _description(service: OperationService, stream: Stream) -> rpc.StreamInfo:
    definition, content, states = stream.definition, stream.content(), stream.states()
    return _info(definition.name, service.shared.store().condition(definition.name), definition, content, states)


def _info(
    name: str,
    condition: Condition,
    definition: Definition | None,
    content: tuple[str, bytes | None] = ("", None),
    states: Sequence[PartitionState] = (),
) -> rpc.StreamInfo:
    """Return a stream for its client; a damaged one has no states, and no ``definition`` if that is damaged, too."""
    return rpc.StreamInfo(
        name=name,
        state=condition.state,
        problem=condition.problem,
        content=content[0],
        encoded_schema=content[1] or b"",
        created_ns=0 if definition is None else definition.created_ns,
        retention_bytes=0 if definition is None else definition.retention_bytes,
        retention_seconds=0.0 if definition is None else definition.retention_seconds,
        segment_bytes=0 if definition is None else definition.term_bytes,
        file_bytes=max((one.shape.segment_length for one in states), default=0),
        partitions=tuple(rpc.StreamPartition(one.partition, one.start, one.end) for one in states),
        schema_policy="" if definition is None else definition.schema_policy,
        former_names=() if definition is None else definition.names_before,
        ended_ns=0 if definition is None else definition.ended_ns,
        max_message_bytes=0 if definition is None else definition.max_message_bytes,
    )


def _properties(definition: Definition) -> rpc.StreamProperties:
    return rpc.StreamProperties(
        definition.retention_bytes, float(definition.retention_seconds), definition.schema_policy
    )


# Readers.


@handles(rpc.PartitionStates)
def _states(service: OperationService, request: rpc.PartitionStates) -> rpc.CommittedPartitions:
    stream = service.stream(request)
    definition = stream.definition  # before the states: after the end of the stream no rows follow
    partitions = tuple(map(_committed_partition, stream.states()))
    return rpc.CommittedPartitions(partitions, definition.is_ended, definition.names_before)


def _committed_partition(state: PartitionState) -> rpc.CommittedPartition:
    shape = state.shape
    return rpc.CommittedPartition(
        partition=state.partition,
        recording_id=shape.recording_id,
        fingerprint=state.recording.identity,
        start=state.start,
        end=state.end,
        term_length=shape.term_length,
        initial_term_id=shape.initial_term_id,
        mtu=shape.mtu,
        stream_id=shape.stream_id,
        session_id=state.session_id,
        epochs=state.epochs.to_bytes(),
        checked_from=state.checked_from,
    )


@handles(rpc.FindBoundary)
def _find_boundary(service: OperationService, request: rpc.FindBoundary) -> rpc.BoundaryFound:
    found = service.stream(request).boundary(
        request.partition, request.start, request.limit, request.end, request.max_rows, framed=request.framed
    )
    return rpc.BoundaryFound(found.position, found.rows)


@handles(rpc.FindPosition)
def _find_position(service: OperationService, request: rpc.FindPosition) -> rpc.PartitionPositions:
    return rpc.PartitionPositions(tuple(service.stream(request).position_at(request.time_ns)))


@handles(rpc.MeasureLags)
def _measure_lags(service: OperationService, request: rpc.MeasureLags) -> rpc.ReaderLags:
    stream = service.stream(request)
    return rpc.ReaderLags(tuple(stream.lags_ns(_by_partition(stream, request.positions)).items()))


@handles(rpc.AwaitCommits)
def _await_commits(service: OperationService, request: rpc.AwaitCommits) -> Deferred:
    beyond = service.stream(request).when_beyond(list(request.ends))
    service.add_wait(beyond, request.stream)
    loop = service.shared.loop
    loop.end_at(beyond, False, loop.clock() + min(request.seconds, MAX_WAIT_S))
    return Deferred(beyond, lambda: rpc.CommitsSeen(beyond.result()))


@handles(rpc.RenewLease)
def _renew_lease(service: OperationService, request: rpc.RenewLease) -> rpc.Done:
    stream = service.stream(request)
    service.shared.note_lease()
    stream.lease(request.reader, _by_partition(stream, request.positions), request.seconds, service.owner)
    return rpc.Done()


@handles(rpc.StartRead)
def _start_read(service: OperationService, request: rpc.StartRead) -> rpc.Done:
    stream = service.stream(request)
    if request.epoch is not None:
        stream.check_epoch(request.partition, request.epoch, request.position)
    link = service.shared.bulk_links.of(service.connection, request.link)

    def sent(size: int) -> None:
        name = stream.definition.name
        service.check(name, "read")
        service.note_use(name)
        service.shared.facts.emit(StreamRead(name, size))

    service.reads.start(stream, request, link, sent)
    return rpc.Done()


@handles(rpc.StopRead)
def _stop_read(service: OperationService, request: rpc.StopRead) -> rpc.Done:
    service.reads.stop(request)
    return rpc.Done()


# Writers.


@handles(rpc.LastTransaction)
def _last_transaction(service: OperationService, request: rpc.LastTransaction) -> rpc.LastCommitted:
    return service.stream(request).last_committed(request.writer, request.producer)


@handles(rpc.BeginTransaction)
def _begin(service: OperationService, request: rpc.BeginTransaction) -> rpc.Begun:
    return service.stream(request).begin(request.transaction)


@handles(rpc.FindLostTransaction)
def _find_lost(service: OperationService, request: rpc.FindLostTransaction) -> rpc.LostTransaction:
    lost = service.stream(request).first_lost(request.writer, request.acknowledged, request.stamp)
    return rpc.LostTransaction(lost)


@handles(rpc.OpenStage)
def _open_stage(service: OperationService, request: rpc.OpenStage) -> rpc.StageOpened:
    stream = service.stream(request)
    definition = stream.definition
    limit = definition.max_message_bytes
    if request.max_message_bytes > limit:
        raise OptionError(
            f"option 'maxMessageBytes' is {request.max_message_bytes} bytes, the limit of stream "
            f"{request.stream!r} is {limit} bytes",
            remedy=f"Set maxMessageBytes to at most {limit}.",
        )

    def opened() -> Stage | None:
        """Open the stage, or return None if the transaction is committed already."""
        try:
            return stream.open_stage(request, service.write_rights(request.stream))
        except AlreadyCommitted:
            return None

    def incoming() -> IncomingStage | None:
        stage = opened()
        return None if stage is None else IncomingStage(stream, stage)

    if not request.items:
        link = service.shared.bulk_links.of(service.connection, request.link)
        stage_id = service.stages.open(link, request.request, incoming)
    elif (stage := opened()) is None:
        stage_id = ""
    else:
        fill_at_once(stage, request.items, request.rows, request.crc)
        stage_id = stage.id
    return rpc.StageOpened(stage_id, stream.partition_of(request), definition.partitions, limit)


@handles(rpc.FinishStage)
def _finish_stage(service: OperationService, request: rpc.FinishStage) -> rpc.StageFinished | Deferred:
    """Finish a stage when all its bytes have arrived. A repeated request has the same result or error.

    Fails with WaitTimeout if the bytes have not arrived in time. No thread waits for them: a client decides when it
    sends them.
    """
    stream = service.stream(request)
    incoming = service.stages.get(request.stage)
    if incoming is None:
        return _stage_finished(_finished_stage(stream, request.stage))
    seconds = min(request.seconds, MAX_WAIT_S)
    arrived = incoming.when_arrived(request.size)
    loop = service.shared.loop
    loop.end_at(arrived, False, loop.clock() + seconds)

    def finish() -> rpc.StageFinished:
        if not arrived.result():
            raise incoming.not_arrived(request.size, seconds)
        ref = incoming.finish(request.size)
        service.stages.forget(incoming)
        return _stage_finished(ref)

    return Deferred(arrived, finish)


@handles(rpc.CommitTransaction)
def _commit(service: OperationService, request: rpc.CommitTransaction) -> rpc.Committed | Deferred:
    """Commit the parts. Raises StillWorking if this commit, or another one, takes longer than the request."""
    stream = service.stream(request)
    bounded = rpc.bounded(request, MAX_WAIT_S)
    transaction = request.transaction
    key = (request.stream, transaction.writer, transaction.run, transaction.number, request.parts)
    rights = service.write_rights
    return service.shared.commits.run(key, lambda: stream.commit(bounded, rights(request.stream)), bounded.seconds)


@handles(rpc.CommitEmptyTransaction)
def _commit_empty(service: OperationService, request: rpc.CommitEmptyTransaction) -> rpc.Committed:
    return service.stream(request).commit_empty(rpc.bounded(request, MAX_WAIT_S))


@handles(rpc.AbortTransaction)
def _abort(service: OperationService, request: rpc.AbortTransaction) -> rpc.Done:
    service.stream(request).abort(request.transaction)
    return rpc.Done()


def _finished_stage(stream: Stream, stage_id: str) -> rpc.StagedPart:
    """Return a stage that was finished before, over this connection or another one."""
    stage = stream.stage(stage_id)
    if not stage.is_finished:
        raise RefusedError(
            f"stage {stage_id} is not finished, and this connection does not fill it", remedy="Stage the rows again."
        )
    return stage.ref


def _stage_finished(ref: rpc.StagedPart) -> rpc.StageFinished:
    return rpc.StageFinished(ref.rows, ref.bytes, ref.crc)


def _by_partition(stream: Stream, pairs: Positions) -> dict[int, int]:
    """Return positions by partition. Raises OptionError for an unknown partition, or one that occurs twice."""
    for partition, _ in pairs:
        stream.check_partition(partition)
    found = dict(pairs)  # small numbers, so that no client can choose keys that collide
    if len(found) < len(pairs):
        raise OptionError("positions name a partition twice", remedy="Give one position for each partition.")
    return found
