"""Transfers of one connection: values larger than a record, and files, in chunks that wait for room one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from aeron_spark.connection.frame_sender import FrameSender
from aeron_spark.connection.inbound import SerialExecutor
from aeron_spark.connection.owner import EndpointServices
from aeron_spark.connection.spill import spilling_to
from aeron_spark.errors import AeronSparkError, RefusedError, SetupError
from aeron_spark.protocol.connection_machine import ConnectionMachine
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
    encode_failed,
    send_buffer,
    send_from,
)

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

Then = Callable[[], None] | None  # what to do with a whole transfer in its turn


class TransferRunner:
    """Sends transfers, on any thread, and puts together those of the peer, which the event loop takes.

    What arrives is put together on ``executor``, for it may be written to a file. There ``whole`` is called with each
    transfer that came, and returns what is to be done in its turn among the messages. ``state_lock`` guards
    ``machine``.
    """

    def __init__(
        self, sender: FrameSender, machine: ConnectionMachine, state_lock: threading.RLock, owner: EndpointServices,
        executor: SerialExecutor, whole: Callable[[ReceivedTransfer], Then], report: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        settings = owner.settings
        self._sender = sender
        self._machine = machine
        self._state_lock = state_lock
        self._executor = executor
        self._whole = whole
        self._report = report
        self.assembly = TransferAssembly(
            spilling_to(settings.spill_folder),
            memory_limit=settings.transfer_memory_bytes,
            max_transfers=settings.max_transfers,
            max_memory_bytes=settings.transfer_held_bytes,
            max_spilled_bytes=settings.transfer_spilled_bytes,
        )

    def send_message(self, encoded: Encoded, seconds: float, acknowledged: Callable[[], None] | None = None) -> None:
        """Send a message's body as a transfer; every chunk may wait ``seconds`` for room.

        ``acknowledged`` waits until the peer's listeners had it. Raises RefusedError if the peer does not take it.
        """
        with self._number() as number:
            start = TransferStart(number, Purpose.MESSAGE, len(encoded.body), type_id=encoded.type_id)
            self._send(start, send_buffer(start, encoded.body, chunk_bytes=self._chunk_bytes), seconds, acknowledged)

    def send_record(self, kind: int, payload: bytes, seconds: float) -> None:
        """Send a record of a remote call that is too large to be one."""
        with self._number() as number:
            start = TransferStart(number, PURPOSES[kind], len(payload))
            self._send(start, send_buffer(start, payload, chunk_bytes=self._chunk_bytes), seconds)

    def send_file(self, path: Path, name: str | None, seconds: float) -> None:
        """Send a file."""
        try:
            size = path.stat().st_size
            file = path.open("rb", buffering=0)
        except OSError as error:
            raise SetupError(f"{path} cannot be sent: {error.strerror}", remedy="Check the path") from error
        with file, self._number() as number:
            start = TransferStart(number, Purpose.FILE, size, name=path.name if name is None else name)
            self._send(start, send_from(start, file.read, chunk_bytes=self._chunk_bytes), seconds)

    def take_record(self, kind: int, payload: Buffer) -> None:
        """Take a record of a transfer that does not end it. Errors end the transfer, and its sender is told."""
        self._executor.submit(lambda: self._take(kind, payload), len(payload) + RECORD_COST)

    def take_end(self, payload: Buffer) -> Future[Then]:
        """Take the record that ends a transfer: what is to be done with the whole, once it is known."""
        then: Future[Then] = Future()

        def take() -> None:
            done: Then = None
            try:
                done = self._take(RecordKind.TRANSFER_FINISHED, payload)
            finally:
                then.set_result(done)

        if not self._executor.submit(take):
            then.set_result(None)
        return then

    def close(self) -> None:
        """Remove what had arrived of transfers that did not end."""
        if not self._executor.submit(self.assembly.close):
            self.assembly.close()

    @property
    def _chunk_bytes(self) -> int:
        return min(CHUNK_BYTES, self._machine.session.limits.max_record_bytes - DATA.size)

    def _take(self, kind: int, payload: Buffer) -> Then:
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
                        return self._whole(received)
                case _:
                    given_up = self.assembly.fail(payload)
                    if given_up is not None:
                        self._report(RefusedError(f"the peer gave up a stream: {given_up.text}"))
        except AeronSparkError as error:
            self._sender.reply(RecordKind.TRANSFER_FAILED, encode_failed(number, error.what, by_receiver=True))
            self._report(error)
        return None

    @contextmanager
    def _number(self) -> Iterator[int]:
        """Give a number to a transfer while it is sent."""
        with self._state_lock:
            number = self._machine.begin_transfer()
        try:
            yield number
        finally:
            with self._state_lock:
                self._machine.end_transfer(number)

    def _send(
        self,
        start: TransferStart,
        records: Iterator[EncodedTransferRecord],
        seconds: float,
        acknowledged: Callable[[], None] | None = None,
    ) -> None:
        for kind, payload in records:
            self._check(start)
            self._sender.push(KINDS[kind], payload, time.monotonic() + seconds)
        if acknowledged is not None:
            acknowledged()
        self._check(start)

    def _check(self, start: TransferStart) -> None:
        with self._state_lock:
            self._machine.check_transfer(start.transfer_id)
