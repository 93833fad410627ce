"""The reads of one connection: each sends the rows of a partition over a bulk link, in turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Final

from aeron_spark.connection.bulk_links import BulkLink
from aeron_spark.connection.deadlines import Deadlines
from aeron_spark.errors import AeronSparkError, TransportError, encode_error
from aeron_spark.server.transfer_turns import TURN_S, Submit, TransferTurns
from aeron_spark.streams.stream import Stream
from aeron_spark.wire import stream_rpc as rpc

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
        self, stream: Stream, request: rpc.StartRead, link: BulkLink, sent: Callable[[int], object],
        ended: Callable[[OutgoingRead], object],
    ) -> None:  # fmt: skip
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
        kind, content = rpc.BulkMessageKind.END, b""
        try:
            room = self._link.room - rpc.BULK_HEAD.size
            # one message: rows are read into it and sent from it
            memory = memoryview(bytearray(rpc.PAYLOAD_OFFSET + room))
            into = memory[rpc.PAYLOAD_OFFSET :]
            for block, data in self._stream.blocks(request.partition, request.start, request.end, room, into):
                self._sent(len(data))
                head = rpc.encode_bulk_head(request.request, rpc.BulkMessageKind.LOG, block)
                memory[rpc.PAYLOAD_OFFSET - rpc.BULK_HEAD.size : rpc.PAYLOAD_OFFSET] = head
                yield memory[: rpc.PAYLOAD_OFFSET + len(data)]
                position = block + len(data)
        except AeronSparkError as error:
            kind, position, content = rpc.BulkMessageKind.FAILED, 0, encode_error(error)
        except Exception as error:  # such as a disk error: goes to the client, and other reads continue
            failure = TransportError(f"reading failed: {error!r}", remedy="Check the server's disk and log.")
            kind, position, content = rpc.BulkMessageKind.FAILED, 0, encode_error(failure)
        head = rpc.encode_bulk_head(request.request, kind, position)
        yield memoryview(bytearray(rpc.PAYLOAD_OFFSET - rpc.BULK_HEAD.size) + head + content)


class OutgoingReads:
    """The running reads of one connection, one on each bulk link. Thread-safe. ``submit`` runs their turns."""

    def __init__(self, submit: Submit, deadlines: Deadlines) -> None:
        self._submit = submit
        self._deadlines = deadlines
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
        TransferTurns(self._submit, self._deadlines, read.turn).wake()

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
