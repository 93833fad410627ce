"""The rows of streams on bulk links: stages that come in, reads that go out, and their turns."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aeron_spark.endpoint.bulk_links import BulkLink
from aeron_spark.endpoint.loop import Loop
from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError, TransportError, WaitTimeout, encode_error
from aeron_spark.streams.stages import Stage
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import resolve
from aeron_spark.wire import stream_requests as rpc
from aeron_spark.wire.bulk_messages import (
    BULK_HEAD,
    PAYLOAD_OFFSET,
    BulkMessage,
    BulkMessageKind,
    decode_bulk_message,
    encode_bulk_head,
    message_memory,
    write_bulk_head,
)
from aeron_spark.wire.stream_requests import StagedPart

TURN_S: Final = 0.2  # after which a transfer lets others have its thread

Submit = Callable[[Callable[[], object]], object]  # runs work on a thread that clients' keys share in turn


class TransferTurns:
    """Runs the turns of one transfer, one at a time, with ``submit``. Thread-safe.

    ``turn`` transfers what it can without a wait, for at most TURN_S. It returns the seconds until the next turn, or
    None: :meth:`wake` begins the next one. It must not raise an error.
    """

    def __init__(self, submit: Submit, loop: Loop, turn: Callable[[], float | None]) -> None:
        self._submit = submit
        self._loop = loop
        self._turn = turn
        self._lock = threading.Lock()
        self._is_active = False  # a turn runs, or waits for a thread
        self._is_woken = False  # since the last turn began

    def wake(self) -> None:
        """Begin a turn; if one runs, begin another one after it."""
        with self._lock:
            self._is_woken = True
            if self._is_active:
                return
            self._is_active = True
        self._submit(self._run)

    def _run(self) -> None:
        with self._lock:
            self._is_woken = False
        pause_s: float | None = None
        try:
            pause_s = self._turn()
        finally:
            with self._lock:
                goes_on = self._is_active = self._is_woken or pause_s == 0.0
        if goes_on:
            self._submit(self._run)
        elif pause_s is not None:
            paused: Future[None] = Future()
            paused.add_done_callback(lambda _: self.wake())
            self._loop.end_at(paused, None, self._loop.clock() + pause_s)


PUBLISH_AHEAD_BYTES: Final = 4 << 20  # staged and unpublished bytes from which publishing ahead pays off
COMMIT_PAUSE_S: Final = 0.001  # between two steps of publishing ahead: lets a waiting commit take the unfair lock


def fill_at_once(stage: Stage, items: bytes, rows: int, crc: int) -> None:
    """Append all items of a stage, and finish it.

    Raises RefusedError if they do not have this number of rows or this checksum, or if one of them is invalid, and the
    errors of ``Stage.append`` and ``Stage.finish``. The stage is discarded then.
    """
    try:
        stage.append(items, stage.used_at)
        found = stage.finish()
    except DataFormatError as error:
        raise RefusedError(error.what, remedy=error.remedy, reason=error.reason) from error
    if (found.rows, found.crc) == (rows, crc):
        return
    stage.discard()
    raise RefusedError(
        f"the rows of task {stage.description.task} of transaction {stage.description.transaction} of writer "
        f"{stage.description.writer!r} arrived as {found.rows} rows with the checksum {found.crc:#010x}, and their "
        f"request names {rows} rows with {crc:#010x}",
        remedy="Stage the rows again.",
    )


class IncomingStage:
    """A stage of ``stream`` that messages fill over a bulk link. Thread-safe."""

    def __init__(self, stream: Stream, stage: Stage) -> None:
        self.stage = stage
        self._stream = stream
        self._lock = threading.RLock()  # the removal of a stage that fails may call ``fail`` again
        self._waits: list[tuple[int, Future[bool]]] = []  # for so many bytes, or an error
        self._bytes = 0
        self._published = 0  # bytes published ahead of the commit
        self._may_publish = True  # False while a thread publishes ahead, and after publishing ahead failed
        self._error: AeronSparkError | None = None

    @property
    def stream_name(self) -> str:
        return self._stream.definition.name

    def append(self, message: BulkMessage) -> bool:
        """Append a message's payload. Return whether another thread should call :meth:`publish_ahead` now.

        An error of the message or the disk fails the stage; :meth:`finish` raises it.
        """
        try:
            if message.kind is not BulkMessageKind.STAGE or message.position != self._bytes:
                raise RefusedError(
                    f"stage {self.stage.id} received a {message.kind.name} message at byte {message.position}, "
                    f"expected {BulkMessageKind.STAGE.name} at byte {self._bytes}",
                    remedy="Stage the rows again.",
                )
            self.stage.append(message.payload, time.monotonic())
        except AeronSparkError as error:
            self.fail(error)
            return False
        with self._lock:
            self._bytes += message.payload.nbytes
            publish = self._may_publish and self._bytes - self._published >= PUBLISH_AHEAD_BYTES
            self._may_publish = self._may_publish and not publish
        self._end_waits()
        return publish

    def fail(self, error: AeronSparkError) -> None:
        """Discard the stage, so that :meth:`finish` raises ``error``. A finished stage stays: its commit needs it."""
        with self._lock:
            if not self.stage.is_finished:
                self._error = self._error or error
                self.stage.discard(self._error)
        self._end_waits()

    def when_arrived(self, size: int) -> Future[bool]:
        """Return a future of True, which has ended when ``size`` bytes have arrived, or when the stage has failed."""
        arrived: Future[bool] = Future()
        with self._lock:
            self._waits.append((size, arrived))
        arrived.add_done_callback(lambda _: self._forget_wait(size, arrived))
        self._end_waits()
        return arrived

    def not_arrived(self, size: int, seconds: float) -> WaitTimeout:
        """Return the error for ``size`` bytes that have not arrived within ``seconds``."""
        return WaitTimeout(
            f"{self._bytes} of {size} bytes of stage {self.stage.id} arrived within {seconds:g} s",
            remedy="Send the request again.",
        )

    def finish(self, size: int) -> StagedPart:
        """Finish the stage, of which ``size`` bytes have arrived. Several calls, also at a time, are allowed.

        Raises the stage's error if it failed, or if it received another number of bytes; the stage is discarded, and
        each later call raises the same error.
        """
        with self._lock:  # a failure meanwhile must not discard a stage that is finished
            if self._error is not None:
                raise self._error
            try:
                if self._bytes != size:
                    raise RefusedError(
                        f"stage {self.stage.id} received {self._bytes} bytes, expected {size}",
                        remedy="Stage the rows again.",
                    )
                return self.stage.finish()
            except AeronSparkError as error:
                self._error = error
                self.stage.discard(error)
                raise

    def _end_waits(self) -> None:
        with self._lock:
            due = [arrived for size, arrived in self._waits if self._bytes >= size or self._error is not None]
        for arrived in due:  # without the lock: a callback finishes the stage
            resolve(arrived, True)

    def _forget_wait(self, size: int, arrived: Future[bool]) -> None:
        with self._lock:
            self._waits.remove((size, arrived))

    def publish_ahead(self) -> None:
        """Publish the stage's bytes while at least PUBLISH_AHEAD_BYTES are unpublished.

        The archive records them before the commit, which then has fewer bytes to wait for. An error ends publishing
        ahead: the commit publishes the whole stage again, and raises the error if it occurs again.
        """
        succeeded = False
        try:
            while self._bytes - self._published >= PUBLISH_AHEAD_BYTES:
                published = self._stream.publish_ahead(self.stage, self._published)
                if 0 <= published < self._published:  # the recording was truncated
                    return
                if published <= self._published:  # the stream is busy, or the next item is not complete
                    break
                self._published = published
                time.sleep(COMMIT_PAUSE_S)
            succeeded = True
        except AeronSparkError:
            return
        finally:
            with self._lock:
                self._may_publish = succeeded


MAX_FAILED: Final = 256  # stages of a connection whose errors are stored for repeated requests


@dataclass(slots=True)
class _FilledLink:
    """A bulk link that fills stages, by the numbers of their requests. It is known until it is closed.

    Two objects for one link would take its messages out of order.
    """

    link: BulkLink
    stages: dict[int, IncomingStage] = field(default_factory=dict)
    turns: TransferTurns = field(init=False)


class IncomingStages:
    """The unfinished stages of one connection. Thread-safe.

    A link and the number of a request identify a stage. Messages are received in turns, on threads that ``submit``
    gives.
    """

    def __init__(self, submit: Submit, loop: Loop) -> None:
        self._submit = submit
        self._loop = loop
        self._opening = threading.Lock()  # one request after the other: a repeated one finds the stage of the first
        self._lock = threading.Lock()
        self._links: dict[int, _FilledLink] = {}  # by number
        self._keys: dict[str, tuple[_FilledLink, int]] = {}  # by id of the stage: where it is, and its request
        self._failed: dict[str, AeronSparkError] = {}  # by id: errors of failed stages, for repeated requests

    def __len__(self) -> int:
        """Return the number of unfinished stages."""
        return len(self._keys)

    def open(self, link: BulkLink, request: int, make: Callable[[], IncomingStage | None]) -> str:
        """Add the stage that ``make`` opens; return its id, or "" if it opens none.

        A repeated request returns the id of the first. Raises the errors of ``make``, which runs before any other
        request of the connection opens a stage.
        """
        with self._opening:
            with self._lock:
                filled = self._links.get(link.number)
                found = None if filled is None else filled.stages.get(request)
            if found is not None:
                return found.stage.id
            incoming = make()
            if incoming is None:
                return ""
            return self._add(link, request, incoming)

    def get(self, stage_id: str) -> IncomingStage | None:
        """Return a stage that is not finished; None for an unknown one. Raises the error of a failed one."""
        with self._lock:
            known, failure = self._keys.get(stage_id), self._failed.get(stage_id)
            incoming = None if known is None else known[0].stages[known[1]]
        if failure is not None:
            raise copy.copy(failure)
        return incoming

    def all(self) -> list[IncomingStage]:
        with self._lock:
            return [filled.stages[request] for filled, request in self._keys.values()]

    def forget(self, incoming: IncomingStage) -> None:
        """Forget a finished stage."""
        incoming.stage.watch(None)
        with self._lock:
            self._remove(incoming.stage.id)

    def _add(self, link: BulkLink, request: int, incoming: IncomingStage) -> str:
        stage = incoming.stage
        with self._lock:
            filled = self._links.get(link.number)
            if filled is None:
                filled = self._links[link.number] = _FilledLink(link)
                filled.turns = TransferTurns(self._submit, self._loop, partial(self._receive, filled))
                link.when_received = filled.turns.wake
            filled.stages[request] = incoming
            self._keys[stage.id] = filled, request
        stage.watch(partial(self._removed, incoming))
        filled.turns.wake()  # messages may have arrived, or the link may have ended
        return stage.id

    def _remove(self, stage_id: str) -> bool:
        """Remove a stage from the tables, whose lock the caller has; return whether it was there."""
        known = self._keys.pop(stage_id, None)
        if known is None:
            return False
        filled, request = known
        del filled.stages[request]
        return True

    def _removed(self, incoming: IncomingStage, error: AeronSparkError) -> None:
        """Forget a stage that was removed, and store its error. The caller has locks of the stream."""
        with self._lock:
            if not self._remove(incoming.stage.id):
                return
            self._failed[incoming.stage.id] = error
            while len(self._failed) > MAX_FAILED:
                del self._failed[next(iter(self._failed))]
        self._submit(lambda: incoming.fail(error))  # a request may wait for its bytes

    def _receive(self, filled: _FilledLink) -> float | None:
        """Receive the messages of a bulk link as long as it has stages, which fail if the link has ended."""
        link, end = filled.link, time.monotonic() + TURN_S
        try:
            while filled.stages:
                if time.monotonic() >= end:
                    return 0.0
                data = link.receive(0.0)
                if data is None:
                    return None
                self._take(filled, data)
            link.check()
        except AeronSparkError:
            self._end(filled)
        return None

    def _take(self, filled: _FilledLink, data: memoryview) -> None:
        try:
            message = decode_bulk_message(data)
        except AeronSparkError as error:
            self._fail(filled, error)
            return
        with self._lock:
            found = filled.stages.get(message.request)
        if found is not None and found.append(message):
            self._submit(found.publish_ahead)

    def _end(self, filled: _FilledLink) -> None:
        with self._lock:
            self._links.pop(filled.link.number, None)
        self._fail(filled, TransportError(f"{filled.link.label} ended", remedy="Stage the rows again."))

    def _fail(self, filled: _FilledLink, error: AeronSparkError) -> None:
        with self._lock:
            stages = list(filled.stages.values())
        for incoming in stages:
            incoming.fail(error)


SEND_TIMEOUT_S: Final = 600.0  # a reader that takes no message for so long is abandoned
ROOM_TIMEOUT_S: Final = 0.02  # a turn that has sent a message waits so long for room for the next one
MIN_PAUSE_S: Final = 0.005  # before the next turn, if there was no room; doubled while there is none
MAX_PAUSE_S: Final = 0.2  # a reader that takes messages again waits so long for the next one


class OutgoingRead:
    """A read of ``stream`` that a request has started. Its turns send messages while the bulk link has room.

    ``sent`` is called before each message with its number of bytes; its error ends the read, and the client gets it.
    ``ended`` is called at the end.
    """

    def __init__(
        self,
        stream: Stream,
        request: rpc.StartRead,
        link: BulkLink,
        sent: Callable[[int], object],
        ended: Callable[[OutgoingRead], object],
    ) -> None:
        self.request = request
        self.is_stopped = False
        """Whether the client wants no more messages."""
        self._stream = stream
        self._link = link
        self._sent = sent
        self._ended = ended
        self._messages = self._all_messages()
        self._message: memoryview | None = None  # the next one
        self._pause_s = 0.0
        self._sent_at = time.monotonic()

    def turn(self) -> float | None:
        """Send messages for at most TURN_S; return the seconds until the next turn, or None at the end of the read."""
        pause_s: float | None = None
        try:
            pause_s = None if self.is_stopped else self._send()
        except AeronSparkError:  # the bulk link has ended
            pass
        finally:
            if pause_s is None:
                self._messages.close()
                self._ended(self)
        return pause_s

    def _send(self) -> float | None:
        now = time.monotonic()
        end, room_timeout_s = now + TURN_S, 0.0
        while now < end:
            if self.is_stopped:
                return None
            if self._message is None:
                self._message = next(self._messages, None)
            if self._message is None and self._link.has_room(timeout=room_timeout_s):
                return None  # Aeron has taken the last message
            if self._message is None or not self._link.offer_from(self._message, timeout=room_timeout_s):
                return self._pause()
            self._message, self._pause_s, room_timeout_s = None, 0.0, ROOM_TIMEOUT_S
            now = self._sent_at = time.monotonic()
        return 0.0

    def _pause(self) -> float | None:
        if time.monotonic() - self._sent_at > SEND_TIMEOUT_S:
            self._link.close()
            return None
        self._pause_s = min(max(MIN_PAUSE_S, 2 * self._pause_s), MAX_PAUSE_S)
        return self._pause_s

    def _all_messages(self) -> Generator[memoryview, None, None]:
        """Yield the messages of the read, each of which is valid until the next one."""
        request, position = self.request, self.request.start
        kind, content = BulkMessageKind.END, b""
        try:
            memory = message_memory(self._link.room)  # one message: rows are read into it and sent from it
            into = memory[PAYLOAD_OFFSET:]
            for block, data in self._stream.blocks(request.partition, request.start, request.end, into.nbytes, into):
                self._sent(len(data))
                write_bulk_head(memory, request.request, BulkMessageKind.LOG, block)
                yield memory[: PAYLOAD_OFFSET + len(data)]
                position = block + len(data)
        except AeronSparkError as error:
            kind, position, content = BulkMessageKind.FAILED, 0, encode_error(error)
        except Exception as error:  # such as a disk error: goes to the client, and other reads continue
            failure = TransportError(f"reading failed: {error!r}", remedy="Check the server's disk and log.")
            kind, position, content = BulkMessageKind.FAILED, 0, encode_error(failure)
        head = encode_bulk_head(request.request, kind, position)
        yield memoryview(bytearray(PAYLOAD_OFFSET - BULK_HEAD.size) + head + content)


class OutgoingReads:
    """The running reads of one connection, one on each bulk link. Thread-safe. ``submit`` runs their turns."""

    def __init__(self, submit: Submit, loop: Loop) -> None:
        self._submit = submit
        self._loop = loop
        self._lock = threading.Lock()
        self._reads: dict[int, OutgoingRead] = {}  # by number of the link

    def __len__(self) -> int:
        """Return the number of running reads."""
        return len(self._reads)

    def start(self, stream: Stream, request: rpc.StartRead, link: BulkLink, sent: Callable[[int], object]) -> None:
        """Begin a read, and end the one before it on its link; see :class:`OutgoingRead`."""
        read = OutgoingRead(stream, request, link, sent, self._forget)
        with self._lock:
            before = self._reads.get(request.link)
            self._reads[request.link] = read
        if before is not None:
            before.is_stopped = True
        TransferTurns(self._submit, self._loop, read.turn).wake()

    def stop(self, request: rpc.StopRead) -> None:
        """End a read, unless another one has begun on its link."""
        with self._lock:
            read = self._reads.get(request.link)
            if read is not None and read.request.request == request.request:
                read.is_stopped = True
                del self._reads[request.link]

    def _forget(self, read: OutgoingRead) -> None:
        with self._lock:
            if self._reads.get(read.request.link) is read:
                del self._reads[read.request.link]
