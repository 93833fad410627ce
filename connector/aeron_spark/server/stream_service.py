"""The stream service of a server: what the client of a connection asks of the store, and rows over bulk links.

A request is answered on the worker that runs the call. Rows go over bulk links, those of each read and those for the
stages of each link on a thread of their own: a slow client delays only itself.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Final

from aeron_spark.connection.bulk_links import BulkLink, BulkLinks
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import (
    AeronSparkError,
    EndedError,
    OptionError,
    RefusedError,
    StillWorking,
    TransportError,
    WaitTimeout,
    encode_error,
)
from aeron_spark.protocol.access import Grant, StreamAction
from aeron_spark.server.incoming_stage import IncomingStage
from aeron_spark.streams.ledger import AlreadyCommitted
from aeron_spark.streams.model import CommitOutcome
from aeron_spark.streams.stages import StageRef
from aeron_spark.streams.store import Streams
from aeron_spark.streams.stream import Stream
from aeron_spark.wire import stream_rpc as rpc

LOG: Final = logging.getLogger("aeron_spark.streams")
MOST_TRANSFERS: Final = 512  # reads, and links that fill stages, of all clients; more of them wait for a thread
SEND_TIMEOUT_S: Final = 600.0  # a reader that takes nothing for so long has been forgotten by its program
POLL_INTERVAL_S: Final = 1.0  # between two looks whether a stage still needs messages
BEFORE: Final = 1 + rpc.BULK_HEAD.size  # bytes of a message before its payload: the frame's, and the message's head
LONGEST_WAIT_S: Final = 20.0  # of one request: it holds a worker
MOST_FAILED: Final = 256  # stages of a connection whose errors are kept, in case the client sends a request again
HOUSEKEEPING_INTERVAL_S: Final = 1.0  # between two looks at retention, leases and abandoned stages


class StreamService:
    """Serves the streams of ``store``, which the first request opens; ``grant_of`` says what a client may do.

    ``condition`` makes what the end of a stage is awaited with.
    """

    def __init__(
        self, store: Callable[[], Streams], bulk_links: BulkLinks, grant_of: Callable[[Connection], Grant | None]
    ) -> None:
        self.store = store
        self.bulk_links = bulk_links
        self.grant_of = grant_of
        self.pool: Executor = ThreadPoolExecutor(MOST_TRANSFERS, thread_name_prefix="aeron-spark-transfer")
        self.commits = CommitsUnderWay()
        self.condition: Callable[[], threading.Condition] = threading.Condition

    def serve(self, connection: Connection) -> None:
        """Answer the requests of a connection."""
        connection.serve(StreamRequestHandler(self, connection), (rpc.METHOD,), rpc.SERVICE)

    def close(self) -> None:
        """Begin no further transfers; those under way end with their bulk links."""
        self.pool.shutdown(wait=False, cancel_futures=True)


class StreamRequestHandler:
    """Answers the requests of one connection. Thread-safe: each call may be on another worker."""

    def __init__(self, service: StreamService, connection: Connection) -> None:
        self._service = service
        self._connection = connection
        self._lock = threading.Lock()
        self._reads: dict[int, int] = {}  # by bulk link: the request that is served on it
        self._stages: dict[str, IncomingStage] = {}  # those that are filled
        self._failed: dict[str, AeronSparkError] = {}  # of stages that were to be finished: why they could not be
        self._receiving: set[int] = set()  # bulk links from which a thread takes messages

    def handle(self, data: bytes) -> bytes:
        """Return the answer to an encoded request. An error of the request is an answer, too; see wire.stream_rpc."""
        try:
            request = rpc.decode_request(data)
        except AeronSparkError as error:
            return self._failure("a request", error)
        try:
            return rpc.encode_answer(self.answer(request))
        except AeronSparkError as error:
            return self._failure(type(request).__name__, error)

    def answer(self, request: rpc.AnyRequest) -> rpc.Answer:
        """Do what the request asks for. Raises AeronSparkError where it fails."""
        match request:
            case rpc.ListStreams():
                return self._list_streams()
            case rpc.DescribeStream():
                return self._describe(request)
            case rpc.CreateStream():
                return self._create(request)
            case rpc.DeleteStream():
                return self._delete(request)
            case rpc.PurgeStream():
                return self._purge(request)
            case rpc.PartitionStates():
                return self._states(request)
            case rpc.FindBoundary():
                return self._find_boundary(request)
            case rpc.FindPosition():
                positions = self._stream(request.stream, "read").position_at(request.time_ns)
                return rpc.PartitionPositions(tuple(positions))
            case rpc.AwaitCommits():
                return self._await_commits(request)
            case rpc.RenewLease():
                self._stream(request.stream, "read").lease(request.reader, request.positions, request.seconds)
                return rpc.Done()
            case rpc.StartRead():
                return self._start_read(request)
            case rpc.StopRead():
                return self._stop_read(request)
            case rpc.LastTransaction():
                return self._last_transaction(request)
            case rpc.BeginTransaction():
                return self._begin(request)
            case rpc.FindLostTransaction():
                stream = self._stream(request.stream, "write")
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
                stream = self._stream(request.stream, "write")
                stream.abort(request.writer, request.run, request.transaction)
                return rpc.Done()

    def _failure(self, what: str, error: AeronSparkError) -> bytes:
        LOG.info("%s of %s failed: %r", what, self._connection.label, str(error))
        return rpc.encode_answer(rpc.failure_of(error))

    def _list_streams(self) -> rpc.StreamList:
        store = self._service.store()
        names = {*(one.definition.name for one in store.all()), *store.failed}
        return rpc.StreamList(tuple(self._inspected(name) for name in sorted(names) if self._may_see(name)))

    def _describe(self, request: rpc.DescribeStream) -> rpc.StreamDescription:
        self._check_grant(request.stream, "read", "write", "manage")
        if request.accept_damaged:
            return self._inspected(request.stream)
        return self._described(self._service.store().get(request.stream))

    def _create(self, request: rpc.CreateStream) -> rpc.StreamDescription:
        self._check_grant(request.stream, "manage")
        more = {"term_bytes": request.term_bytes} if request.term_bytes else {}
        made = self._service.store().create(
            request.stream, request.partitions, retention_bytes=request.retention_bytes,
            retention_seconds=request.retention_seconds, **more,
        )  # fmt: skip
        return self._described(made)

    def _delete(self, request: rpc.DeleteStream) -> rpc.Done:
        self._check_grant(request.stream, "manage")
        self._service.store().delete(request.stream)
        return rpc.Done()

    def _purge(self, request: rpc.PurgeStream) -> rpc.PartitionPositions:
        starts = self._stream(request.stream, "manage").purge(
            partition=request.partition, before_position=request.before_position, before_time_ns=request.before_time_ns
        )
        return rpc.PartitionPositions(tuple(starts))

    def _states(self, request: rpc.PartitionStates) -> rpc.CommittedPartitions:
        states = self._stream(request.stream, "read", "write").states()
        return rpc.CommittedPartitions(
            tuple(
                rpc.CommittedPartition(
                    partition=one.partition, recording_id=one.recording_id, fingerprint=one.fingerprint,
                    start=one.start, end=one.end, term_length=one.term_length, initial_term_id=one.initial_term_id,
                    mtu=one.mtu, stream_id=one.stream_id, session_id=one.session_id, epochs=one.epochs.to_bytes(),
                )
                for one in states
            )
        )  # fmt: skip

    def _find_boundary(self, request: rpc.FindBoundary) -> rpc.BoundaryFound:
        found = self._stream(request.stream, "read").boundary(
            request.partition, request.start, request.limit, request.end, request.max_rows, framed=request.framed
        )
        return rpc.BoundaryFound(found.position, found.rows)

    def _await_commits(self, request: rpc.AwaitCommits) -> rpc.CommitsSeen:
        stream = self._stream(request.stream, "read")
        return rpc.CommitsSeen(stream.wait_beyond(list(request.ends), min(request.seconds, LONGEST_WAIT_S)))

    def _start_read(self, request: rpc.StartRead) -> rpc.Done:
        stream = self._stream(request.stream, "read")
        if request.epoch is not None:
            stream.check_epoch(request.partition, request.epoch, request.position)
        link = self._service.bulk_links.of(self._connection, request.link)
        with self._lock:
            self._reads[request.link] = request.request
        self._service.pool.submit(
            self._send, stream, request.partition, request.start, request.end, link, request.request
        )
        return rpc.Done()

    def _stop_read(self, request: rpc.StopRead) -> rpc.Done:
        with self._lock:
            if self._reads.get(request.link) == request.request:
                del self._reads[request.link]
        return rpc.Done()

    def _last_transaction(self, request: rpc.LastTransaction) -> rpc.LastCommitted:
        stream = self._stream(request.stream, "write")
        return rpc.LastCommitted(*stream.last_with_token(request.writer, request.producer))

    def _begin(self, request: rpc.BeginTransaction) -> rpc.Begun:
        stream = self._stream(request.stream, "write")
        last, stamp = stream.enter(
            request.writer, request.run, request.transaction, once=request.single_use, author=request.producer,
            acknowledged=request.acknowledged, stamp=request.stamp, replaced=request.replaced,
        )  # fmt: skip
        return rpc.Begun(last, stamp)

    def _open_stage(self, request: rpc.OpenStage) -> rpc.StageOpened:
        stream = self._stream(request.stream, "write")
        definition = stream.definition
        limit = definition.max_message_bytes
        if request.max_message_bytes > limit:
            raise OptionError(
                f"option 'maxMessageBytes' is {request.max_message_bytes}, and the longest message of stream "
                f"{request.stream!r} has {limit} bytes",
                remedy="Lower it.",
            )
        partition = request.task % definition.partitions if request.partition is None else request.partition
        link = self._service.bulk_links.of(self._connection, request.link)
        stage_id = self._stage_of(request) or self._new_stage(stream, request, partition, link)
        return rpc.StageOpened(stage_id, partition, definition.partitions, limit)

    def _stage_of(self, request: rpc.OpenStage) -> str:
        """Return the id of the stage that this request, sent before, has opened; "" where it has not."""
        with self._lock:
            for one in self._stages.values():
                if (one.link, one.request) == (request.link, request.request):
                    return one.stage.id
        return ""

    def _new_stage(self, stream: Stream, request: rpc.OpenStage, partition: int, link: BulkLink) -> str:
        """Open a stage and have it filled; return its id, or "" where the transaction is committed already."""
        try:
            stage = stream.open_stage(
                request.writer, request.run, request.transaction, partition, request.task, request.content,
                request.schema or None, once=request.single_use, author=request.producer,
                acknowledged=request.acknowledged, stamp=request.stamp, replaced=request.replaced,
            )  # fmt: skip
        except AlreadyCommitted:
            return ""
        incoming = IncomingStage(stream, stage, request.link, request.request, self._service.condition)
        with self._lock:
            self._stages[stage.id] = incoming
            begin = request.link not in self._receiving
            self._receiving.add(request.link)
        if begin:
            self._service.pool.submit(self._receive, link)
        return stage.id

    def _finish_stage(self, request: rpc.FinishStage) -> rpc.StageFinished:
        """Wait until all bytes of a stage have come, and close it; again it gives the same, or the same error.

        Raises WaitTimeout where the bytes have not come yet.
        """
        stream = self._stream(request.stream, "write")
        with self._lock:
            incoming, failure = self._stages.get(request.stage), self._failed.get(request.stage)
        if failure is not None:
            raise copy.copy(failure)
        if incoming is None:
            ref = _finished(stream, request.stage)
        else:
            try:
                ref = incoming.finish(request.size, min(request.seconds, LONGEST_WAIT_S))
            except WaitTimeout:
                raise
            except AeronSparkError as error:
                self._forget(request.stage, error)
                raise
            self._forget(request.stage)
        return rpc.StageFinished(ref.rows, ref.bytes, ref.crc)

    def _commit(self, request: rpc.CommitTransaction) -> rpc.Committed:
        """Commit the parts. Raises StillWorking where this commit, or another one, takes longer than the request."""
        stream = self._stream(request.stream, "write")
        refs = tuple(StageRef(one.id, one.rows, one.bytes, one.crc) for one in request.parts)
        seconds = min(request.seconds, LONGEST_WAIT_S)

        def work() -> CommitOutcome:
            return stream.commit(
                request.writer, request.run, request.transaction, refs, author=request.producer, rows=request.rows,
                seconds=seconds, token=request.token,
            )  # fmt: skip

        key = (request.stream, request.writer, request.run, request.transaction, refs)
        return _committed(self._service.commits.run(key, work, seconds))

    def _commit_empty(self, request: rpc.CommitEmptyTransaction) -> rpc.Committed:
        stream = self._stream(request.stream, "write")
        return _committed(
            stream.commit_empty(
                request.writer, request.run, request.transaction, author=request.producer,
                seconds=min(request.seconds, LONGEST_WAIT_S), token=request.token,
            )
        )  # fmt: skip

    def _receive(self, link: BulkLink) -> None:
        """Take messages from a bulk link for the stages that are filled over it, as long as there are any."""
        while True:
            with self._lock:
                filling = {one.request: one for one in self._stages.values() if one.link == link.number}
                if not filling or link.closed:
                    self._receiving.discard(link.number)
                    break
            try:
                data = link.receive(POLL_INTERVAL_S)
                message = None if data is None else rpc.decode_bulk_message(data)
            except AeronSparkError as error:
                for incoming in filling.values():
                    incoming.fail(error)
                continue
            if message is None:
                continue
            with self._lock:
                found = next((one for one in self._stages.values() if one.request == message.request), None)
            if found is not None and found.take(message):
                self._service.pool.submit(found.publish_ahead)
        for incoming in filling.values():
            incoming.fail(TransportError(f"{link.label} ended", remedy="Stage the rows again."))

    def _send(self, stream: Stream, partition: int, start: int, end: int, link: BulkLink, request: int) -> None:
        try:
            at = start
            room = link.room - rpc.BULK_HEAD.size
            memory = memoryview(bytearray(BEFORE + room))  # of one message, which is read to where it is sealed from
            for position, data in stream.blocks(partition, start, end, room, memory[BEFORE:]):
                if self._reads.get(link.number) != request:
                    return
                memory[BEFORE - rpc.BULK_HEAD.size : BEFORE] = rpc.encode_bulk_head(
                    request, rpc.BulkMessageKind.LOG, position
                )
                link.send_from(memory[: BEFORE + len(data)], timeout=SEND_TIMEOUT_S)
                at = position + len(data)
            link.send(rpc.encode_bulk_head(request, rpc.BulkMessageKind.END, at), timeout=SEND_TIMEOUT_S)
        except AeronSparkError as error:
            self._send_failure(link, request, error)
        except Exception as error:  # of a disk, say: the client gets it, and other transfers continue
            self._send_failure(
                link, request, TransportError(f"reading failed: {error!r}", remedy="Check the server's disk and log")
            )

    def _send_failure(self, link: BulkLink, request: int, error: AeronSparkError) -> None:
        if link.closed:
            return
        head = rpc.encode_bulk_head(request, rpc.BulkMessageKind.FAILED, 0)
        try:
            link.send(head, encode_error(error), timeout=POLL_INTERVAL_S)
        except AeronSparkError:
            link.close()

    def _forget(self, stage_id: str, error: AeronSparkError | None = None) -> None:
        """Keep a stage no longer as one that is filled; keep its error for a request that is sent again."""
        with self._lock:
            self._stages.pop(stage_id, None)
            if error is not None:
                self._failed[stage_id] = error
                while len(self._failed) > MOST_FAILED:
                    del self._failed[next(iter(self._failed))]

    def _stream(self, name: str, *actions: StreamAction) -> Stream:
        self._check_grant(name, *actions)
        return self._service.store().get(name)

    def _check_grant(self, name: str, *actions: StreamAction) -> None:
        """Raise RefusedError unless the client may do one of the actions."""
        grant = self._service.grant_of(self._connection)
        if grant is not None and not any(grant.may_use(name, action) for action in actions):
            raise RefusedError(
                f"your key may not {' or '.join(actions)} stream {name!r}",
                remedy="Ask the server's operator for a line in its authorized_keys",
            )

    def _may_see(self, name: str) -> bool:
        grant = self._service.grant_of(self._connection)
        return grant is None or any(grant.may_use(name, action) for action in ("read", "write", "manage"))

    def _inspected(self, name: str) -> rpc.StreamDescription:
        """Describe a stream, also one that is damaged."""
        store = self._service.store()
        condition = store.condition(name)
        if name not in store.failed:
            return self._described(store.get(name))
        definition = store.definition(name)
        return rpc.StreamDescription(
            name=name,
            state=condition.state,
            problem=condition.problem,
            content="",
            schema=b"",
            created_ns=0 if definition is None else definition.created_ns,
            retention_bytes=0 if definition is None else definition.retention_bytes,
            retention_seconds=0.0 if definition is None else definition.retention_seconds,
            term_bytes=0 if definition is None else definition.term_bytes,
            partitions=(),
        )

    def _described(self, stream: Stream) -> rpc.StreamDescription:
        definition = stream.definition
        content, schema = stream.content()
        condition = self._service.store().condition(definition.name)
        return rpc.StreamDescription(
            name=definition.name,
            state=condition.state,
            problem=condition.problem,
            content=content,
            schema=schema or b"",
            created_ns=definition.created_ns,
            retention_bytes=definition.retention_bytes,
            retention_seconds=definition.retention_seconds,
            term_bytes=definition.term_bytes,
            partitions=tuple(rpc.PartitionRange(one.partition, one.start, one.end) for one in stream.states()),
        )


def _finished(stream: Stream, stage_id: str) -> StageRef:
    """Return what a stage holds that was finished before, over this connection or another."""
    stage = stream.stage(stage_id)
    if not stage.whole:
        raise RefusedError(f"no stage {stage_id} is filled over this connection", remedy="Stage the rows again")
    return stage.ref


def _committed(outcome: CommitOutcome) -> rpc.Committed:
    return rpc.Committed(outcome.already, tuple(outcome.ends), outcome.stamp)


def _wait_for(running: Future[CommitOutcome], seconds: float) -> None:
    wait([running], seconds)


class CommitsUnderWay:
    """The commits of all clients that are at work, each by what it commits. Thread-safe.

    A client repeats its request where it hears nothing for a while, so that it knows whether the server lives.
    ``wait`` waits for a future for some seconds at most.
    """

    def __init__(self, wait: Callable[[Future[CommitOutcome], float], object] = _wait_for) -> None:
        self._wait = wait
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[CommitOutcome]] = {}

    def run(self, key: Hashable, work: Callable[[], CommitOutcome], seconds: float) -> CommitOutcome:
        """Return ``work()``, or raise its error; where the same commit is at work already, that one's.

        Raises StillWorking where that one does not end within ``seconds``.
        """
        mine: Future[CommitOutcome] = Future()
        with self._lock:
            running = self._running.setdefault(key, mine)
        if running is not mine:
            self._wait(running, max(0.0, seconds))
            if not running.done():
                raise StillWorking("the server is at work on this commit", remedy="Ask again.")
            return running.result()
        try:
            outcome = work()
        except BaseException as error:
            self._end(key)
            mine.set_exception(error)
            raise
        self._end(key)
        mine.set_result(outcome)
        return outcome

    def _end(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]


class StreamKeeper:
    """``open_store`` may take as long as recovering takes; ``report`` is told what goes wrong unasked.

    ``open_store`` is given a question, whether the server is being closed, and raises AeronSparkError soon after it is:
    ``close`` waits for it.
    """

    def __init__(
        self, open_store: Callable[[Callable[[], bool]], Streams],
        report: Callable[[Connection | None, BaseException], None],
    ) -> None:  # fmt: skip
        self._open_store = open_store
        self._report = report
        self._lock = threading.Lock()
        self._store: Streams | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def store(self) -> Streams:
        """The store, opened if need be. Raises why it cannot be, and EndedError once the server is closed."""
        with self._lock:
            if self._ending.is_set():
                raise EndedError("the server is closed", remedy="Start it again")
            if self._store is None:
                self._store = self._open_store(self._ending.is_set)
                self._thread = threading.Thread(target=self._look_after, name="aeron-spark-streams", daemon=True)
                self._thread.start()
            return self._store

    def open_soon(self) -> None:
        """Open it in the background."""
        threading.Thread(target=self._try, name="aeron-spark-recovery", daemon=True).start()

    def close(self) -> None:
        """Close it; what is committed and staged stays on the disk."""
        self._ending.set()
        with self._lock:
            store, self._store, thread = self._store, None, self._thread
        if thread is not None:
            thread.join()
        if store is not None:
            store.close()

    def _try(self) -> None:
        try:
            _ = self.store
        except AeronSparkError as error:
            if not self._ending.is_set():
                self._report(None, error)

    def _look_after(self) -> None:
        said: set[str] = set()
        while not self._ending.wait(HOUSEKEEPING_INTERVAL_S):
            wrong = {str(error): error for error in self._tick()}
            for text, error in wrong.items():
                if text not in said:
                    self._report(None, error)
            said = set(wrong)

    def _tick(self) -> Sequence[Exception]:
        store = self._store
        try:
            return [] if store is None else store.tick()
        except Exception as error:  # without its thread the store would have no retention and no expiry
            return [error]
