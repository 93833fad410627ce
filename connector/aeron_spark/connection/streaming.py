"""Streams of one connection: what is larger than a record, and files, in chunks that wait for room one by one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

from aeron_spark.connection.frame_sender import FrameSender
from aeron_spark.connection.home import ConnectionOwner
from aeron_spark.connection.inbound import SerialExecutor
from aeron_spark.connection.spill import spilling_to
from aeron_spark.errors import AeronSparkError, RefusedError, SetupError
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import Buffer, Encoded
from aeron_spark.protocol.session import RECORD_COST, Session
from aeron_spark.protocol.transfers import (
    CHUNK_BYTES,
    DATA,
    EncodedTransferRecord,
    Purpose,
    ReceivedTransfer,
    TransferAssembly,
    TransferStart,
    decode_failed,
    encode_failed,
    send_buffer,
    send_from,
)
from aeron_spark.protocol.transfers import TransferRecord as StreamKind

KINDS = {
    StreamKind.START: RecordKind.STREAM_START,
    StreamKind.DATA: RecordKind.STREAM_DATA,
    StreamKind.FINISHED: RecordKind.STREAM_FINISHED,
    StreamKind.FAILED: RecordKind.STREAM_FAILED,
}
PURPOSES = {
    int(RecordKind.CALL): Purpose.CALL,
    int(RecordKind.RETURN): Purpose.RETURN,
    int(RecordKind.OBJECT): Purpose.OBJECT,
}

Then = Callable[[], None] | None  # what to do with a whole stream when its turn comes


class Streaming:
    """Sending is for any thread, receiving for the polling thread.

    What arrives is put together on ``executor``, for it may be written to a file. There ``whole`` is called with each
    stream that came, and returns what is to be done in its turn among the messages.
    """

    def __init__(
        self, sender: FrameSender, session: Session, home: ConnectionOwner, executor: SerialExecutor,
        whole: Callable[[ReceivedTransfer], Then], report: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        settings = home.settings
        self._sender = sender
        self._session = session
        self._executor = executor
        self._whole = whole
        self._report = report
        self._ids = itertools.count(1)
        self._refused: dict[int, str] = {}  # why the peer refused, of streams that somebody is sending
        self._sending: set[int] = set()
        self._refusing = threading.Lock()
        self.assembly = TransferAssembly(
            spilling_to(settings.spill_folder),
            memory_limit=settings.stream_memory_bytes,
            max_open=settings.max_streams,
            max_held_bytes=settings.stream_held_bytes,
            max_spilled_bytes=settings.stream_spilled_bytes,
        )

    def send_message(self, encoded: Encoded, seconds: float, acknowledged: Callable[[], None] | None = None) -> None:
        """Send a message's body as a stream; every chunk may wait ``seconds`` for room.

        ``acknowledged`` waits until the peer's listeners had it. Raises RefusedError if the peer does not take it.
        """
        start = TransferStart(next(self._ids), Purpose.MESSAGE, len(encoded.body), type_id=encoded.type_id)
        self._send(
            start.stream_id, send_buffer(start, encoded.body, chunk_bytes=self._chunk_bytes), seconds, acknowledged
        )

    def send_record(self, kind: int, payload: bytes, seconds: float) -> None:
        """Send a record of a remote call that is too large to be one."""
        start = TransferStart(next(self._ids), PURPOSES[kind], len(payload))
        self._send(start.stream_id, send_buffer(start, payload, chunk_bytes=self._chunk_bytes), seconds)

    def send_file(self, path: Path, name: str | None, seconds: float) -> None:
        """Send a file."""
        try:
            size = path.stat().st_size
            file = path.open("rb", buffering=0)
        except OSError as error:
            raise SetupError(f"{path} cannot be sent: {error.strerror}", remedy="Check the path") from error
        with file:
            start = TransferStart(next(self._ids), Purpose.FILE, size, name=path.name if name is None else name)
            self._send(start.stream_id, send_from(start, file.read, chunk_bytes=self._chunk_bytes), seconds)

    @property
    def _chunk_bytes(self) -> int:
        return min(CHUNK_BYTES, self._session.limits.max_record_bytes - DATA.size)

    def arrived(self, kind: int, payload: Buffer) -> None:
        """Take a record of a stream that does not end it. Errors end the stream, and its sender is told."""
        if kind == RecordKind.STREAM_FAILED and decode_failed(payload).by_receiver:
            self._was_refused(payload)
        else:
            self._executor.submit(lambda: self._take(kind, payload), len(payload) + RECORD_COST)

    def finished(self, payload: Buffer) -> Future[Then]:
        """Take the record that ends a stream: what is to be done with the whole, once it is known."""
        then: Future[Then] = Future()

        def take() -> None:
            done: Then = None
            try:
                done = self._take(RecordKind.STREAM_FINISHED, payload)
            finally:
                then.set_result(done)

        if not self._executor.submit(take):
            then.set_result(None)
        return then

    def _take(self, kind: int, payload: Buffer) -> Then:
        number = int.from_bytes(payload[:8], "big", signed=True)
        try:
            match kind:
                case RecordKind.STREAM_START:
                    self.assembly.start(payload)
                case RecordKind.STREAM_DATA:
                    self.assembly.data(payload)
                case RecordKind.STREAM_FINISHED:
                    received = self.assembly.finished(payload)
                    if received is not None:
                        return self._whole(received)
                case _:
                    given_up = self.assembly.failed(payload)
                    if given_up is not None:
                        self._report(RefusedError(f"the peer gave up a stream: {given_up.text}"))
        except AeronSparkError as error:
            self._sender.reply(RecordKind.STREAM_FAILED, encode_failed(number, error.what, by_receiver=True))
            self._report(error)
        return None

    def close(self) -> None:
        """Remove what had arrived of streams that did not end."""
        if not self._executor.submit(self.assembly.close):
            self.assembly.close()

    def _was_refused(self, payload: Buffer) -> None:
        given_up = decode_failed(payload)
        with self._refusing:
            sending = given_up.stream_id in self._sending
            if sending:
                self._refused[given_up.stream_id] = given_up.text
        if not sending:
            self._report(_refusal(given_up.text))

    def _send(
        self,
        number: int,
        records: Iterator[EncodedTransferRecord],
        seconds: float,
        acknowledged: Callable[[], None] | None = None,
    ) -> None:
        with self._refusing:
            self._sending.add(number)
        try:
            for kind, payload in records:
                self._check(number)
                self._sender.push(KINDS[kind], payload, time.monotonic() + seconds)
            if acknowledged is not None:
                acknowledged()
            self._check(number)
        finally:
            with self._refusing:
                self._sending.discard(number)
                self._refused.pop(number, None)

    def _check(self, number: int) -> None:
        with self._refusing:
            text = self._refused.get(number)
        if text is not None:
            raise _refusal(text)


def _refusal(text: str) -> RefusedError:
    return RefusedError(f"the peer refused the stream: {text}", remedy="Send less, or in parts")
