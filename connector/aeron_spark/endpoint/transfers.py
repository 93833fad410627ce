"""Transfers of one connection: values larger than a record, and files, in chunks that wait for room separately."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aeron_spark.endpoint.deliveries import SerialExecutor
from aeron_spark.endpoint.links import OFFER_TIMEOUT_S
from aeron_spark.endpoint.sender import Sender
from aeron_spark.endpoint.spill import spilling_to
from aeron_spark.errors import AeronSparkError, RefusedError, SetupError
from aeron_spark.options import EndpointOptions
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import Buffer, Encoded
from aeron_spark.protocol.session import RECORD_COST
from aeron_spark.protocol.transfers import (
    CHUNK_BYTES,
    DATA,
    EncodedTransferRecord,
    Purpose,
    ReceivedTransfer,
    TransferAssembly,
    TransferRecord,
    TransferStart,
    decode_failed,
    encode_failed,
    send_buffer,
    send_from,
)
from aeron_spark.waiting import fail

KINDS = {
    TransferRecord.START: RecordKind.TRANSFER_START,
    TransferRecord.DATA: RecordKind.TRANSFER_DATA,
    TransferRecord.FINISHED: RecordKind.TRANSFER_FINISHED,
    TransferRecord.FAILED: RecordKind.TRANSFER_FAILED,
}
PURPOSES = {
    int(RecordKind.CALL): Purpose.CALL,
    int(RecordKind.RETURN): Purpose.RETURN,
    int(RecordKind.OBJECT): Purpose.OBJECT,
}

Delivery = Callable[[], None] | None  # of a complete transfer, in its order among the messages


class Transfers:
    """Sends values of any size, on any thread, and assembles the transfers of the peer.

    The event loop passes on the records of the peer.

    The assembly runs on ``executor``, because it may write to a file. There ``prepare`` is called with each complete
    transfer, and returns its delivery. ``refusal`` returns why the peer may not send a transfer, or None. The sender's
    state lock guards the tables of outgoing transfers.
    """

    def __init__(
        self,
        sender: Sender,
        options: EndpointOptions,
        executor: SerialExecutor,
        refusal: Callable[[TransferStart], AeronSparkError | None],
        prepare: Callable[[ReceivedTransfer], Delivery],
        report: Callable[[BaseException], None],
    ) -> None:
        self.sender = sender
        self._session = sender.session
        self._state_lock = sender.state_lock
        self._executor = executor
        self._prepare = prepare
        self._report = report
        self._send_timeout = options.send_timeout
        self._numbers = itertools.count(1)
        self._sending: dict[int, RefusedError | None] = {}  # by number: transfers under way, with the peer's refusal
        self._requests: dict[int, Future[Any]] = {}  # by transfer: requests that wait for their responses
        self._sent: dict[int, tuple[TransferStart, int]] = {}  # by transfer: with the number of a record after its last
        self.assembly = TransferAssembly(
            spilling_to(options.spill_folder),
            memory_limit=options.transfer_memory,
            max_transfers=options.max_transfers,
            max_memory_bytes=options.transfer_memory_total,
            max_spilled_bytes=options.transfer_disk_total,
            refusal=refusal,
        )

    def send_message(self, encoded: Encoded, seconds: float, acknowledged: Callable[[], None] | None = None) -> None:
        """Send a message's body as a transfer. Each chunk may wait ``seconds`` for room.

        ``acknowledged`` waits until the peer's listeners have returned. Raises RefusedError if the peer refuses it.
        """
        with self._number() as number:
            start = TransferStart(number, Purpose.MESSAGE, len(encoded.body), type_id=encoded.type_id)
            self._send(start, send_buffer(start, encoded.body, chunk_bytes=self._chunk_bytes), seconds, acknowledged)
            if acknowledged is None:
                self._note_sent(start)

    def send(self, kind: int, payload: bytes, end: float | None) -> None:
        """Send a request without a response, or a response, as a transfer if it is too large for a record.

        A record waits for room until ``end`` (monotonic seconds); None: it does not wait. Each chunk of a transfer may
        wait for option ``sendTimeout``.
        """
        if self._is_too_large(payload):
            self._send_content(kind, payload)
        elif end is None:
            self.sender.reply(kind, payload)
        else:
            self.sender.push(kind, payload, end)

    def begin(
        self, kind: int, payload: bytes, response: Future[Any] | None, threads: Executor | None
    ) -> Future[Any] | None:
        """Send a request as soon as there is room; return the future to wait for, None if it was accepted at once.

        It is ``response``, which fails if the request is not accepted, or if the peer refuses a transfer; None: the
        request has no response. A request that is too large for a record is sent on ``threads``; None: on this thread,
        which waits, and raises RefusedError if the peer refuses it meanwhile.
        """
        if not self._is_too_large(payload):
            offer_s = OFFER_TIMEOUT_S if threads is None else 0.0
            return self.sender.begin_push(kind, payload, response, offer_s)
        if threads is None:
            self._send_content(kind, payload, response)
            return None
        sent = threads.submit(self._send_content, kind, payload, response)
        if response is None:
            return sent
        sent.add_done_callback(partial(_fail_with, response))
        return response

    def _is_too_large(self, payload: bytes) -> bool:
        return len(payload) > self._session.limits.max_record_bytes

    def _send_content(self, kind: int, payload: bytes, response: Future[Any] | None = None) -> None:
        with self._number() as number:
            if response is not None:
                self._requests[number] = response
                response.add_done_callback(lambda _: self._requests.pop(number, None))
            start = TransferStart(number, PURPOSES[kind], len(payload))
            self._send(start, send_buffer(start, payload, chunk_bytes=self._chunk_bytes), self._send_timeout)

    def send_file(self, path: Path, name: str | None, seconds: float) -> None:
        """Send a file. Raises SetupError if it cannot be read."""
        try:
            size = path.stat().st_size
            file = path.open("rb", buffering=0)
        except OSError as error:
            raise SetupError(f"{path} cannot be sent: {error.strerror}", remedy="Check the path.") from error
        with file, self._number() as number:
            start = TransferStart(number, Purpose.FILE, size, name=path.name if name is None else name)
            self._send(start, send_from(start, file.read, chunk_bytes=self._chunk_bytes), seconds)
            self._note_sent(start)

    def unconfirmed(self) -> dict[int, TransferStart]:
        """Return the messages and files that were sent completely, at least those that the peer has not confirmed."""
        with self._state_lock:
            return {number: start for number, (start, _) in self._sent.items()}

    def _note_sent(self, start: TransferStart) -> None:
        """Keep what was sent until a later transfer finds that the peer has confirmed it."""
        session = self._session
        with self._state_lock:
            kept = {number: one for number, one in self._sent.items() if one[1] > session.acknowledged}
            self._sent = {**kept, start.transfer_id: (start, session.acknowledged + session.pending)}

    def take_record(self, kind: int, payload: Buffer) -> None:
        """Take a record that does not end its transfer. After an error the sender gets TRANSFER_FAILED."""
        self._executor.submit(lambda: self._take(kind, payload), len(payload) + RECORD_COST)

    def take_failure(self, payload: memoryview) -> None:
        """Take the record that aborts a transfer of the peer, or that refuses one of this endpoint.

        A refusal raises in the thread that sends the transfer. After that it ends the request that the transfer
        carried; if that does not wait, or there is none, it is reported. Raises DataFormatError.
        """
        failed = decode_failed(payload)
        if not failed.by_receiver:
            self.take_record(RecordKind.TRANSFER_FAILED, payload)
            return
        with self._state_lock:
            is_under_way = failed.transfer_id in self._sending
            if is_under_way:
                self._sending[failed.transfer_id] = failed.error
        if not is_under_way:
            response = self._requests.pop(failed.transfer_id, None)
            if response is None or not fail(response, failed.error):
                self._report(failed.error)

    def take_end(self, payload: Buffer) -> Future[Delivery]:
        """Take the record that ends a transfer; return the future of its delivery."""
        delivery: Future[Delivery] = Future()

        def take() -> None:
            prepared: Delivery = None
            try:
                prepared = self._take(RecordKind.TRANSFER_FINISHED, payload)
            finally:
                delivery.set_result(prepared)

        if not self._executor.submit(take):
            delivery.set_result(None)
        return delivery

    def close(self) -> None:
        """Remove incomplete transfers."""
        if not self._executor.submit(self.assembly.close):
            self.assembly.close()

    @property
    def _chunk_bytes(self) -> int:
        return min(CHUNK_BYTES, self._session.limits.max_record_bytes - DATA.size)

    def _take(self, kind: int, payload: Buffer) -> Delivery:
        number = int.from_bytes(payload[:8], "big", signed=True)
        try:
            match kind:
                case RecordKind.TRANSFER_START:
                    self.assembly.start(payload)
                case RecordKind.TRANSFER_DATA:
                    self.assembly.add_data(payload)
                case RecordKind.TRANSFER_FINISHED:
                    received = self.assembly.finish(payload)
                    if received is not None:
                        return self._prepare(received)
                case _:
                    failed = self.assembly.fail(payload)
                    if failed is not None:
                        text = f"the peer aborted transfer {number}: {failed.text}"
                        self._report(RefusedError(text, remedy="Let the peer send it again."))
        except AeronSparkError as error:
            self.sender.reply(
                RecordKind.TRANSFER_FAILED, encode_failed(number, error.what, by_receiver=True, reason=error.reason)
            )
            self._report(error)
        return None

    @contextmanager
    def _number(self) -> Iterator[int]:
        """Number a transfer while it is sent. Raises RefusedError if the peer refused it meanwhile."""
        refusal: RefusedError | None = None
        number = next(self._numbers)
        with self._state_lock:
            self._sending[number] = None
        try:
            yield number
        finally:
            with self._state_lock:
                refusal = self._sending.pop(number)
        if refusal is not None:
            raise refusal

    def _send(
        self,
        start: TransferStart,
        records: Iterator[EncodedTransferRecord],
        seconds: float,
        acknowledged: Callable[[], None] | None = None,
    ) -> None:
        for kind, payload in records:
            self._check(start)
            self.sender.push(KINDS[kind], payload, self.sender.clock() + seconds)
        if acknowledged is not None:
            acknowledged()
        self._check(start)

    def _check(self, start: TransferStart) -> None:
        refusal = self._sending[start.transfer_id]
        if refusal is not None:
            raise refusal


def _fail_with(response: Future[Any], sent: Future[None]) -> None:
    """Fail the response to a request that was not sent."""
    error = None if sent.cancelled() else sent.exception()
    if error is not None:
        fail(response, error)
