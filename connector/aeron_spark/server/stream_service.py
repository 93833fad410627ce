"""Executes the requests to the streams of a server, and knows the commits that run.

A worker thread executes each request. A wait for a client or for a commit has no thread: its response is deferred.
Transfers, which send the rows of reads and receive those of stages, take turns on threads that the clients' keys share.
A turn does not wait for its client: a slow client delays only itself.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from aeron_spark.connection.bulk_links import BulkLinks
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.fair_pool import FairPool
from aeron_spark.connection.loop import Deadlines
from aeron_spark.connection.peer_calls import Deferred
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import REFUSALS, AeronSparkError, EndedError, OptionError, RefusedError, StillWorking
from aeron_spark.facts import Bus
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.grants import Grant
from aeron_spark.server.operation_service import OperationService
from aeron_spark.server.server_facts import GrantChanged, StreamRead
from aeron_spark.server.stream_access import StreamAccess
from aeron_spark.server.stream_administration import StreamAdministration
from aeron_spark.server.stream_transfers import IncomingStage, IncomingStages, OutgoingReads, fill_at_once
from aeron_spark.streams.ledger import AlreadyCommitted
from aeron_spark.streams.model import WriteRights
from aeron_spark.streams.stages import Stage
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import fail, resolve
from aeron_spark.wire import stream_requests as admin_rpc
from aeron_spark.wire import stream_requests as rpc
from aeron_spark.wire.stream_requests import Committed


class RunningCommits:
    """The commits that run now, of all clients, so that a repeated request does not commit again. Thread-safe.

    A client repeats its request if it has no response for some time, to find out whether the server lives. No thread
    waits for a commit that runs: ``deadlines`` ends the wait. ``check_new`` raises the reason if no further commit may
    begin.
    """

    def __init__(self, deadlines: Deadlines, check_new: Callable[[], object] = lambda: None) -> None:
        self._deadlines = deadlines
        self._check_new = check_new
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Committed]] = {}

    def __len__(self) -> int:
        """Return the number of commits that run."""
        with self._lock:
            return len(self._running)

    def run(
        self, key: Hashable, commit: Callable[[], Committed], timeout_s: float
    ) -> Committed | Deferred:  # fmt: skip
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
        self._deadlines.add(waiting, False, timeout_s)

        def outcome() -> Committed:
            if not waiting.result():
                raise StillWorking("the commit is still running on the server", remedy="Send the request again.")
            return running.result()

        return Deferred(waiting, outcome)

    def _end(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]


TRANSFER_THREADS: Final = 64  # of all clients
TRANSFER_THREADS_PER_KEY: Final = 16
MAX_WAIT_S: Final = 20.0  # of one request
MAX_WAITS: Final = 1_024  # of a key, for commits: each commit looks at all waits of its stream

TransactionRequest = rpc.BeginTransaction | rpc.OpenStage | rpc.CommitTransaction


class StreamService:
    """Serves the streams of ``store``, which the first request opens, on all connections of a server.

    ``grant_of`` returns the present grant of a connection's client. ``deadlines`` ends the waits for
    commits. ``refuse_write`` returns why nothing may be written now, or None.
    """

    def __init__(
        self, store: Callable[[], StreamStore], bulk_links: BulkLinks, grant_of: Callable[[Connection], Grant],
        deadlines: Deadlines, options: LiveOptions,
        refuse_write: Callable[[], RefusedError | None] = lambda: None,
        facts: Bus | None = None,
    ) -> None:  # fmt: skip
        self.facts = facts or Bus()
        self.facts.on(GrantChanged, self._on_grant_changed)
        self.store = store
        self.refuse_write = refuse_write
        self.options = options
        self.bulk_links = bulk_links
        self.grant_of = grant_of
        self.deadlines = deadlines
        self.pool = FairPool(TRANSFER_THREADS, lambda: TRANSFER_THREADS_PER_KEY, "aeron-spark-transfer")
        """The threads of transfers. The event loop calls its ``tick``."""
        self.commits = RunningCommits(deadlines, self.check_draining)
        self.is_draining = False
        """Whether transactions, stages and commits that have not begun are refused: the server is about to end."""
        self._waits_lock = threading.Lock()  # for the following table, which several threads change
        self._waits: Counter[str] = Counter()  # waits for commits, by key
        self._leased: StreamStore | None = None  # the store, after a client has taken a lease
        # By id of the connection, which has the handler: the two end together.
        self._handlers: WeakValueDictionary[int, StreamRequestHandler] = WeakValueDictionary()

    def serve(self, connection: ConnectionRunner) -> None:
        """Register a handler for the requests of a connection."""
        handler = StreamRequestHandler(self, connection)
        self._handlers[id(connection)] = handler
        connection.add_service(handler, rpc.SERVICE)

    def _on_grant_changed(self, fact: GrantChanged) -> None:
        handler = self._handlers.get(id(fact.connection))
        if handler is not None and fact.refusal is None:
            handler.apply_grant()
        elif handler is not None and fact.refusal is not None:
            handler.revoke(fact.refusal)

    def streams_of(self, connection: ConnectionRunner) -> list[str]:
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


class StreamRequestHandler(OperationService):
    """Executes the requests of one connection. Thread-safe: calls run on several worker threads."""

    def __init__(self, service: StreamService, connection: ConnectionRunner) -> None:
        self._service = service
        self._connection = connection
        self._access = StreamAccess(connection, service.store, service.grant_of)
        self._administration = StreamAdministration(
            self._access, service.store, service.check_write, lambda: service.options.value.max_partitions_per_key
        )
        self._lock = threading.Lock()
        self._reads = OutgoingReads(self._submit, service.deadlines)
        self._stages = IncomingStages(self._submit, service.deadlines)
        self._waits: dict[Future[bool], str] = {}  # waits for commits, with the names of their streams

    def _submit(self, work: Callable[[], object]) -> None:
        self._service.submit(self._access.owner, work)

    def check(self, kind: type[admin_rpc.Request[Any]], stream: str) -> None:
        """Raise the reason of :meth:`StreamAccess.refusal` without the grant for a request."""
        self._access.check_request(kind, stream)

    def execute(self, request: rpc.AnyRequest) -> admin_rpc.Response | Deferred:
        """Execute a request, and return its response, now or later. Raises AeronSparkError if it fails."""
        if isinstance(request, admin_rpc.AdminRequest):
            return self._administration.execute(request)
        match request:
            case rpc.PartitionStates():
                return self._states(request)
            case rpc.FindBoundary():
                return self._find_boundary(request)
            case rpc.FindPosition():
                positions = self._access.stream(request).position_at(request.time_ns)
                return rpc.PartitionPositions(tuple(positions))
            case rpc.MeasureLags():
                stream = self._access.stream(request)
                return rpc.ReaderLags(tuple(stream.lags_ns(_by_partition(stream, request.positions)).items()))
            case rpc.AwaitCommits():
                return self._await_commits(request)
            case rpc.RenewLease():
                return self._renew_lease(request)
            case rpc.StartRead():
                return self._start_read(request)
            case rpc.StopRead():
                return self._stop_read(request)
            case rpc.LastTransaction():
                return self._last_transaction(request)
            case rpc.BeginTransaction():
                return self._begin(request)
            case rpc.FindLostTransaction():
                stream = self._access.written_stream(request, request.writer)
                return rpc.LostTransaction(stream.first_lost(request.writer, request.acknowledged, request.stamp))
            case rpc.OpenStage():
                return self._open_stage(request)
            case rpc.FinishStage():
                return self._finish_stage(request)
            case rpc.CommitTransaction():
                return self._commit(request)
            case rpc.CommitEmptyTransaction():
                return self._commit_empty(request)
            case rpc.AbortTransaction():
                stream = self._access.written_stream(request, request.transaction.writer)
                stream.abort(request.transaction)
                return admin_rpc.Done()

    def recent_streams(self) -> list[str]:
        """Return the sorted names of the streams that the client has used in the last minute."""
        return self._access.recent_streams()

    def apply_grant(self) -> None:
        """End the waits and stages that the client's present grant does not cover. Reads check the grant themselves."""
        with self._lock:
            waits = dict(self._waits)
        for waiting, name in waits.items():
            error = self._access.refusal(name, "read")
            if error is not None:
                fail(waiting, error)
        for incoming in self._stages.all():
            error = self._access.refusal(incoming.stream_name, "write")
            if error is not None:
                incoming.fail(error)

    def revoke(self, error: AeronSparkError) -> None:
        """End the client's waits and stages, and the leases of its key."""
        with self._lock:
            waits = list(self._waits)
        for waiting in waits:
            fail(waiting, error)
        for incoming in self._stages.all():
            incoming.fail(error)
        self._service.end_leases(self._access.owner)

    def _stream_to_write(self, request: TransactionRequest) -> Stream:
        """Return a stream to which the client may write now. Raises RefusedError if nothing may be written."""
        self._access.check(request.stream, "write")
        self._service.check_write()
        return self._access.written_stream(request, request.transaction.writer)

    def _states(self, request: rpc.PartitionStates) -> rpc.CommittedPartitions:
        stream = self._access.stream(request)
        definition = stream.definition  # before the states: after the end of the stream no rows follow
        return rpc.CommittedPartitions(
            tuple(
                rpc.CommittedPartition(
                    partition=one.partition, recording_id=one.recording_id, fingerprint=one.fingerprint,
                    start=one.start, end=one.end, term_length=one.term_length, initial_term_id=one.initial_term_id,
                    mtu=one.mtu, stream_id=one.stream_id, session_id=one.session_id, epochs=one.epochs.to_bytes(),
                    checked_from=one.checked_from,
                )
                for one in stream.states()
            ),
            definition.is_ended,
            definition.names_before,
        )  # fmt: skip

    def _find_boundary(self, request: rpc.FindBoundary) -> rpc.BoundaryFound:
        found = self._access.stream(request).boundary(
            request.partition, request.start, request.limit, request.end, request.max_rows, framed=request.framed
        )
        return rpc.BoundaryFound(found.position, found.rows)

    def _await_commits(self, request: rpc.AwaitCommits) -> Deferred:
        stream = self._access.stream(request)
        beyond = stream.when_beyond(list(request.ends))
        self._service.add_wait(self._access.owner, beyond)
        with self._lock:
            self._waits[beyond] = request.stream
        beyond.add_done_callback(self._forget_wait)
        self._service.deadlines.add(beyond, False, min(request.seconds, MAX_WAIT_S))
        return Deferred(beyond, lambda: rpc.CommitsSeen(beyond.result()))

    def _renew_lease(self, request: rpc.RenewLease) -> admin_rpc.Done:
        stream = self._access.stream(request)
        self._service.note_lease()
        stream.lease(request.reader, _by_partition(stream, request.positions), request.seconds, self._access.owner)
        return admin_rpc.Done()

    def _forget_wait(self, ended: Future[bool]) -> None:
        with self._lock:
            self._waits.pop(ended, None)

    def _start_read(self, request: rpc.StartRead) -> admin_rpc.Done:
        stream = self._access.stream(request)
        if request.epoch is not None:
            stream.check_epoch(request.partition, request.epoch, request.position)
        link = self._service.bulk_links.of(self._connection, request.link)

        def sent(size: int) -> None:
            name = stream.definition.name
            self._access.check(name, "read")
            self._access.note_use(name)
            self._service.facts.emit(StreamRead(name, size))

        self._reads.start(stream, request, link, sent)
        return admin_rpc.Done()

    def _stop_read(self, request: rpc.StopRead) -> admin_rpc.Done:
        self._reads.stop(request)
        return admin_rpc.Done()

    def _last_transaction(self, request: rpc.LastTransaction) -> rpc.LastCommitted:
        stream = self._access.written_stream(request, request.writer)
        return stream.last_committed(request.writer, request.producer)

    def _begin(self, request: rpc.BeginTransaction) -> rpc.Begun:
        if request.transaction.number == rpc.NEXT_NUMBER and request.transaction.replaced:
            # An abort that fences the run of a failed commit. It begins no transaction, so it succeeds with a nearly
            # full disk, whose reserve has room for its record, and on a server that is about to end.
            stream = self._access.written_stream(request, request.transaction.writer)
        else:
            self._service.check_draining()
            stream = self._stream_to_write(request)
        return stream.begin(request.transaction)

    def _open_stage(self, request: rpc.OpenStage) -> rpc.StageOpened:
        self._service.check_draining()
        stream = self._stream_to_write(request)
        definition = stream.definition
        limit = definition.max_message_bytes
        if request.max_message_bytes > limit:
            raise OptionError(
                f"option 'maxMessageBytes' is {request.max_message_bytes} bytes, the limit of stream "
                f"{request.stream!r} is {limit} bytes",
                remedy=f"Set maxMessageBytes to at most {limit}.",
            )
        if request.items:
            stage_id = self._stage_at_once(stream, request)
        else:
            link = self._service.bulk_links.of(self._connection, request.link)
            stage_id = self._stages.open(link, request.request, lambda: self._new_stage(stream, request))
        return rpc.StageOpened(stage_id, stream.partition_of(request), definition.partitions, limit)

    def _new_stage(self, stream: Stream, request: rpc.OpenStage) -> IncomingStage | None:
        """Open a stage that a bulk link fills, or return None if the transaction is committed already."""
        stage = self._opened_in(stream, request)
        return None if stage is None else IncomingStage(stream, stage)

    def _stage_at_once(self, stream: Stream, request: rpc.OpenStage) -> str:
        """Open and finish a stage with the rows of the request; return its id.

        Returns "" if the transaction is committed already.
        """
        stage = self._opened_in(stream, request)
        if stage is None:
            return ""
        fill_at_once(stage, request.items, request.rows, request.crc)
        return stage.id

    def _opened_in(self, stream: Stream, request: rpc.OpenStage) -> Stage | None:
        """Open a stage in a stream, or return None if the transaction is committed already."""
        try:
            return stream.open_stage(request, self._rights(request.stream))
        except AlreadyCommitted:
            return None

    def _rights(self, stream: str) -> WriteRights:
        limit = self._access.limit_of(
            lambda limits: limits.stage_bytes, self._service.options.value.stage_bytes_per_key
        )
        return WriteRights(self._access.owner, limit, self._access.may_use(stream, "manage"))

    def _finish_stage(self, request: rpc.FinishStage) -> rpc.StageFinished | Deferred:
        """Finish a stage when all its bytes have arrived. A repeated request has the same result or error.

        Fails with WaitTimeout if the bytes have not arrived in time. No thread waits for them: a client decides when it
        sends them.
        """
        stream = self._access.stream(request)
        incoming = self._stages.get(request.stage)
        if incoming is None:
            return _stage_finished(_finished_stage(stream, request.stage))
        seconds = min(request.seconds, MAX_WAIT_S)
        arrived = incoming.when_arrived(request.size)
        self._service.deadlines.add(arrived, False, seconds)

        def finish() -> rpc.StageFinished:
            if not arrived.result():
                raise incoming.not_arrived(request.size, seconds)
            ref = incoming.finish(request.size)
            self._stages.forget(incoming)
            return _stage_finished(ref)

        return Deferred(arrived, finish)

    def _commit(self, request: rpc.CommitTransaction) -> rpc.Committed | Deferred:
        """Commit the parts. Raises StillWorking if this commit, or another one, takes longer than the request."""
        stream = self._stream_to_write(request)
        bounded = rpc.bounded(request, MAX_WAIT_S)
        transaction = request.transaction
        key = (request.stream, transaction.writer, transaction.run, transaction.number, request.parts)
        return self._service.commits.run(
            key, lambda: stream.commit(bounded, self._rights(request.stream)), bounded.seconds
        )

    def _commit_empty(self, request: rpc.CommitEmptyTransaction) -> rpc.Committed:
        self._service.check_draining()
        stream = self._access.written_stream(request, request.transaction.writer)
        return stream.commit_empty(rpc.bounded(request, MAX_WAIT_S))


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


def _by_partition(stream: Stream, pairs: admin_rpc.Positions) -> dict[int, int]:
    """Return positions by partition. Raises OptionError for an unknown partition, or one that occurs twice."""
    for partition, _ in pairs:
        stream.check_partition(partition)
    found = dict(pairs)  # small numbers, so that no client can choose keys that collide
    if len(found) < len(pairs):
        raise OptionError("positions name a partition twice", remedy="Give one position for each partition.")
    return found
