"""Named streams for clients: what each connection may ask of the store, and the bulk that follows on its branches.

Questions come as remote calls; rows go over branches, each request in a thread of its own, so that a slow client waits
for itself alone.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import fields
from typing import Any, Final

from aeron_spark.connection.bulk_links import BulkLink, BulkLinks
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError, RefusedError, TransportError, WaitTimeout, encode_error
from aeron_spark.protocol.access import Grant, StreamAction
from aeron_spark.server.committing import CommitsUnderWay
from aeron_spark.server.incoming import Incoming
from aeron_spark.stream_client.service import METHODS, STREAMS
from aeron_spark.streams.ledger import AlreadyCommitted
from aeron_spark.streams.model import CommitOutcome, PartitionState
from aeron_spark.streams.stages import StageRef
from aeron_spark.streams.store import Streams
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.stream_rpc import BULK_HEAD, BulkMessageKind, decode_bulk_message, encode_bulk_head

MOST_AT_ONCE: Final = 512  # requests under way, of all clients; those beyond wait for their turn
SLOW_SECONDS: Final = 600.0  # without taking anything a reader has been forgotten by its program
LOOK: Final = 1.0  # seconds between two looks at whether a request was given up
BEFORE: Final = 1 + BULK_HEAD.size  # bytes of a message before a piece's own: the frame's, and the piece's head
LONGEST_WAIT: Final = 20.0  # of one question for news: it holds a thread
MOST_FAILED: Final = 256  # stages of a connection whose errors are kept, in case the client asks for one again


class StreamDesk:
    """Serves the streams of ``store``, which is opened when somebody asks; ``grant_of`` says what a client may do."""

    def __init__(
        self, store: Callable[[], Streams], bulk_links: BulkLinks, grant_of: Callable[[Connection], Grant | None]
    ) -> None:
        self.store = store
        self.bulk_links = bulk_links
        self.grant_of = grant_of
        self.pool: Executor = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="aeron-spark-transfer")
        self.commits = CommitsUnderWay()
        self.condition: Callable[[], threading.Condition] = threading.Condition

    def serve(self, connection: Connection) -> None:
        """Let the client of a connection ask."""
        connection.serve(StreamService(self, connection), METHODS, STREAMS)

    def close(self) -> None:
        """Begin nothing more; what is under way ends with its branch."""
        self.pool.shutdown(wait=False, cancel_futures=True)


class StreamService:
    """What one client may call; names and arguments are those of ``remote.service``. Raises the project's errors."""

    def __init__(self, desk: StreamDesk, connection: Connection) -> None:
        self._desk = desk
        self._connection = connection
        self._lock = threading.Lock()
        self._wanted: dict[int, int] = {}  # by branch: the request that is served on it
        self._stages: dict[str, Incoming] = {}  # those that are filled
        self._failed: dict[str, AeronSparkError] = {}  # of stages that were to be finished: why they could not be
        self._taken: set[int] = set()  # branches from which a thread takes what comes

    def list_all(self) -> list[dict[str, Any]]:
        """Describe all streams that the client may do anything with, damaged ones too."""
        store = self._desk.store()
        names = {*(one.definition.name for one in store.all()), *store.failed}
        return [self._inspected(name) for name in sorted(names) if self._may_see(name)]

    def describe(self, name: str) -> dict[str, Any]:
        """Describe one stream. Raises what is wrong with it where it is damaged."""
        return self._described(self._stream(name, "read", "write", "manage"))

    def inspect(self, name: str) -> dict[str, Any]:
        """Describe one stream, also one that is damaged."""
        self._refuse(name, "read", "write", "manage")
        return self._inspected(name)

    def create(
        self, name: str, partitions: int, retention_bytes: int, retention_seconds: float, term_bytes: int
    ) -> dict[str, Any]:
        """Create a stream."""
        self._refuse(name, "manage")
        more = {"term_bytes": term_bytes} if term_bytes else {}
        made = self._desk.store().create(
            name, partitions, retention_bytes=retention_bytes, retention_seconds=retention_seconds, **more
        )
        return self._described(made)

    def delete(self, name: str) -> None:
        """Delete a stream and everything in it."""
        self._refuse(name, "manage")
        self._desk.store().delete(name)

    def purge(self, name: str, partition: int, before_position: int, before_time_ns: int) -> list[int]:
        """Delete whole segments; -1 for each bound that is not given."""
        return self._stream(name, "manage").purge(
            partition=None if partition < 0 else partition,
            before_position=None if before_position < 0 else before_position,
            before_time_ns=None if before_time_ns < 0 else before_time_ns,
        )

    def states(self, name: str) -> list[dict[str, Any]]:
        """Give how far each partition is committed, at one moment, and in which epochs (``Epochs.to_bytes``)."""
        states = self._stream(name, "read", "write").states()
        return [{**_state(one), "epochs": one.epochs.to_bytes()} for one in states]

    def boundary(
        self, name: str, partition: int, start: int, limit: int, end: int, max_rows: int, framed: bool
    ) -> tuple[int, int]:
        """Say where a range may end, and with how many rows; ``max_rows`` -1 for any."""
        found = self._stream(name, "read").boundary(
            partition, start, limit, end, None if max_rows < 0 else max_rows, framed=framed
        )
        return found.position, found.rows

    def position_at(self, name: str, time_ns: int) -> list[int]:
        """Say where what was committed at a time begins, by partition."""
        return self._stream(name, "read").position_at(time_ns)

    def wait_beyond(self, name: str, ends: list[int], seconds: float) -> bool:
        """Wait until something is committed beyond these positions."""
        return self._stream(name, "read").wait_beyond(ends, min(seconds, LONGEST_WAIT))

    def lease(self, name: str, reader: str, positions: dict[str, int], seconds: float) -> None:
        """Keep what lies behind these positions, by partition, from retention."""
        self._stream(name, "read").lease(
            reader, {int(partition): position for partition, position in positions.items()}, seconds
        )

    def read(
        self, name: str, partition: int, start: int, end: int, bulk_link: int, request: int, epoch: int = -1,
        position: int = -1,
    ) -> None:  # fmt: skip
        """Begin to send ``[start, end)`` over a branch.

        Where ``epoch`` is not -1 it is that of the byte before ``position``: a stream without them sends nothing.
        """
        stream = self._stream(name, "read")
        if epoch >= 0:
            stream.check_epoch(partition, epoch, position)
        on = self._desk.bulk_links.of(self._connection, bulk_link)
        with self._lock:
            self._wanted[bulk_link] = request
        self._desk.pool.submit(self._send, stream, partition, start, end, on, request)

    def stop(self, bulk_link: int, request: int) -> None:
        """Send no more of a request; what came after it on the branch goes on."""
        with self._lock:
            if self._wanted.get(bulk_link) == request:
                del self._wanted[bulk_link]

    def last(self, name: str, writer: str, author: str) -> int:
        """Give the last transaction that an author committed under the writer's id, or -1; of any for ""."""
        return self._stream(name, "write").last(writer, author)

    def last_with_token(self, name: str, writer: str, author: str) -> tuple[int, str]:
        """Give an author's last transaction under the writer's id, or -1, and the token that came with it, or ""."""
        return self._stream(name, "write").last_with_token(writer, author)

    def enter(
        self, name: str, writer: str, run: str, transaction: int, once: bool, author: str, acknowledged: int = -1,
        stamp: str = "", replaced: str = "",
    ) -> tuple[int, str]:  # fmt: skip
        """Begin a transaction, -1 for whichever comes next; give the writer's last committed one, or -1, and its stamp.

        ``acknowledged`` is the last one that the writer saw committed, or -1, with the stamp that it was given then.
        ``replaced`` is the run with which the same program entered before, "" where it did not.
        """
        begun = None if transaction < 0 else transaction
        return self._stream(name, "write").enter(
            writer, run, begun, once=once, author=author, acknowledged=acknowledged, stamp=stamp, replaced=replaced
        )

    def first_lost(self, name: str, writer: str, acknowledged: int, stamp: str) -> int:
        """Give the writer's first acknowledged transaction that is not in the stream, or -1."""
        lost = self._stream(name, "write").first_lost(writer, acknowledged, stamp)
        return -1 if lost is None else lost

    def open_stage(
        self, name: str, writer: str, run: str, transaction: int, partition: int, task: int, content: str,
        schema: bytes, once: bool, author: str, bulk_link: int, request: int, acknowledged: int = -1, stamp: str = "",
        replaced: str = "",
    ) -> str:  # fmt: skip
        """Open a stage that is filled over a branch; give its id, or an empty text where all is committed already.

        Again, with the same request on the same branch, it gives the same stage. ``acknowledged``, ``stamp``,
        ``replaced``: as for :meth:`enter`.
        """
        stream = self._stream(name, "write")
        on = self._desk.bulk_links.of(self._connection, bulk_link)
        with self._lock:
            for one in self._stages.values():
                if (one.bulk_link, one.request) == (bulk_link, request):
                    return one.stage.id
        try:
            stage = stream.open_stage(
                writer, run, transaction, partition, task, content, schema or None, once=once, author=author,
                acknowledged=acknowledged, stamp=stamp, replaced=replaced,
            )  # fmt: skip
        except AlreadyCommitted:
            return ""
        incoming = Incoming(stream, stage, bulk_link, request, self._desk.condition)
        with self._lock:
            self._stages[stage.id] = incoming
            begin = bulk_link not in self._taken
            self._taken.add(bulk_link)
        if begin:
            self._desk.pool.submit(self._take, on)
        return stage.id

    def finish_stage(self, name: str, stage_id: str, size: int, seconds: float) -> tuple[int, int, int]:
        """Wait until all ``size`` bytes of a stage have come, and close it; give its rows, bytes and CRC-32.

        Again it gives the same, or the same error. Raises WaitTimeout where the bytes have not come yet.
        """
        stream = self._stream(name, "write")
        with self._lock:
            incoming, failure = self._stages.get(stage_id), self._failed.get(stage_id)
        if failure is not None:
            raise copy.copy(failure)
        if incoming is None:
            ref = _finished(stream, stage_id)
        else:
            try:
                ref = incoming.finish(size, min(seconds, LONGEST_WAIT))
            except WaitTimeout:
                raise
            except AeronSparkError as error:
                self._forget(stage_id, error)
                raise
            self._forget(stage_id)
        return ref.rows, ref.bytes, ref.crc

    def commit(
        self, name: str, writer: str, run: str, transaction: int, stages: list[tuple[str, int, int, int]], author: str,
        rows: int, seconds: float, token: str = "",
    ) -> tuple[bool, list[int], str]:  # fmt: skip
        """Commit; say whether it had been done before, where each partition is committed to now, and its stamp.

        ``rows`` is how many rows the writer has of the transaction: a commit that names fewer is refused. ``token`` is
        kept with the author's last transaction. Raises StillWorking where the same commit, or another one of the
        stream, is at work for longer than ``seconds``.
        """
        stream = self._stream(name, "write")
        refs = [StageRef(*one) for one in stages]
        wait = min(seconds, LONGEST_WAIT)

        def work() -> CommitOutcome:
            return stream.commit(writer, run, transaction, refs, author=author, rows=rows, seconds=wait, token=token)

        outcome = self._desk.commits.run((name, writer, run, transaction, tuple(refs)), work, wait)
        return outcome.already, outcome.ends, outcome.stamp

    def commit_empty(
        self, name: str, writer: str, run: str, transaction: int, author: str, seconds: float, token: str = ""
    ) -> tuple[bool, list[int], str]:
        """Commit a transaction that has no row; as :meth:`commit`."""
        stream = self._stream(name, "write")
        wait = min(seconds, LONGEST_WAIT)
        outcome = stream.commit_empty(writer, run, transaction, author=author, seconds=wait, token=token)
        return outcome.already, outcome.ends, outcome.stamp

    def abort(self, name: str, writer: str, run: str, transaction: int) -> None:
        """Drop what was staged for a transaction."""
        self._stream(name, "write").abort(writer, run, transaction)

    def _take(self, bulk_link: BulkLink) -> None:
        """Take what comes on a branch for the stages that are filled over it; as long as there are any."""
        while True:
            with self._lock:
                waiting = {one.request: one for one in self._stages.values() if one.bulk_link == bulk_link.number}
                if not waiting or bulk_link.closed:
                    self._taken.discard(bulk_link.number)
                    break
            try:
                message = bulk_link.receive(LOOK)
                piece = None if message is None else decode_bulk_message(message)
            except AeronSparkError as error:
                for incoming in waiting.values():
                    incoming.fail(error)
                continue
            if piece is None:
                continue
            with self._lock:
                found = next((one for one in self._stages.values() if one.request == piece.request), None)
            if found is not None and found.take(piece):
                self._desk.pool.submit(found.publish_ahead)
        for incoming in waiting.values():
            incoming.fail(TransportError(f"{bulk_link.label} ended", remedy="Stage the rows anew"))

    def _send(self, stream: Stream, partition: int, start: int, end: int, bulk_link: BulkLink, request: int) -> None:
        try:
            at = start
            room = bulk_link.room - BULK_HEAD.size
            memory = memoryview(bytearray(BEFORE + room))  # of one message, which is read to where it is sealed from
            for position, data in stream.blocks(partition, start, end, room, memory[BEFORE:]):
                if self._wanted.get(bulk_link.number) != request:
                    return
                memory[BEFORE - BULK_HEAD.size : BEFORE] = encode_bulk_head(request, BulkMessageKind.LOG, position)
                bulk_link.send_from(memory[: BEFORE + len(data)], timeout=SLOW_SECONDS)
                at = position + len(data)
            bulk_link.send(encode_bulk_head(request, BulkMessageKind.END, at), timeout=SLOW_SECONDS)
        except AeronSparkError as error:
            self._say(bulk_link, request, error)
        except Exception as error:  # of a disk, say: the client hears of it, and the others go on
            self._say(
                bulk_link,
                request,
                TransportError(f"reading failed: {error!r}", remedy="Check the server's disk and log"),
            )

    def _say(self, bulk_link: BulkLink, request: int, error: AeronSparkError) -> None:
        if bulk_link.closed:
            return
        failure = encode_error(error)
        try:
            bulk_link.send(encode_bulk_head(request, BulkMessageKind.FAILED, 0), failure, timeout=LOOK)
        except AeronSparkError:
            bulk_link.close()

    def _forget(self, stage_id: str, error: AeronSparkError | None = None) -> None:
        """Keep a stage that was finished, or failed, no longer as one that is filled; its error for a repetition."""
        with self._lock:
            self._stages.pop(stage_id, None)
            if error is not None:
                self._failed[stage_id] = error
                while len(self._failed) > MOST_FAILED:
                    del self._failed[next(iter(self._failed))]

    def _stream(self, name: str, *actions: StreamAction) -> Stream:
        self._refuse(name, *actions)
        return self._desk.store().get(name)

    def _refuse(self, name: str, *actions: StreamAction) -> None:
        grant = self._desk.grant_of(self._connection)
        if grant is not None and not any(grant.may_use(name, action) for action in actions):
            raise RefusedError(
                f"your key may not {' or '.join(actions)} stream {name!r}",
                remedy="Ask the server's operator for a line in its authorized_keys",
            )

    def _may_see(self, name: str) -> bool:
        grant = self._desk.grant_of(self._connection)
        return grant is None or any(grant.may_use(name, action) for action in ("read", "write", "manage"))

    def _inspected(self, name: str) -> dict[str, Any]:
        store = self._desk.store()
        condition = store.condition(name)
        if name not in store.failed:
            return self._described(store.get(name))
        definition = store.definition(name)
        return {
            "name": name,
            "state": condition.state,
            "problem": condition.problem,
            "content": "",
            "schema": b"",
            "created_ns": 0 if definition is None else definition.created_ns,
            "retention_bytes": 0 if definition is None else definition.retention_bytes,
            "retention_seconds": 0.0 if definition is None else definition.retention_seconds,
            "term_bytes": 0 if definition is None else definition.term_bytes,
            "partitions": [],
        }

    def _described(self, stream: Stream) -> dict[str, Any]:
        definition = stream.definition
        content, schema = stream.content()
        condition = self._desk.store().condition(definition.name)
        return {
            "name": definition.name,
            "state": condition.state,
            "problem": condition.problem,
            "content": content,
            "schema": schema or b"",
            "created_ns": definition.created_ns,
            "retention_bytes": definition.retention_bytes,
            "retention_seconds": definition.retention_seconds,
            "term_bytes": definition.term_bytes,
            "partitions": [_state(one) for one in stream.states()],
        }


def _finished(stream: Stream, stage_id: str) -> StageRef:
    """What a stage holds that was finished before, over this connection or another."""
    stage = stream.stage(stage_id)
    if not stage.whole:
        raise RefusedError(f"no stage {stage_id} is filled over this connection", remedy="Stage the rows again")
    return stage.ref


def _state(state: PartitionState) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state) if field.name != "epochs"}
