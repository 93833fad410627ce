"""Messages of one connection on their way to listeners, in order, and the acknowledgement that they were there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from aeron_spark.connection.carrier import NUMBER_BYTES, Carrier
from aeron_spark.connection.lanes import SerialExecutor
from aeron_spark.connection.spill import ReceivedFile
from aeron_spark.connection.streaming import content_of, file_of
from aeron_spark.connection.waiters import Waiters
from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.frames import Record, RecordKind
from aeron_spark.protocol.session import RECORD_COST
from aeron_spark.protocol.transfers import Purpose, ReceivedTransfer
from aeron_spark.waiting import result_within

MESSAGE_ACK_WANTED: Final = int(RecordKind.MESSAGE_ACK_WANTED)  # a number: each message is compared with it

Decode = Callable[[int, Any], object]  # type id, body
Hand = Callable[[object], None]  # to all listeners; never raises


class Deliveries:
    """Receiving is for the polling thread, ``send`` for any; listeners run on the lane."""

    def __init__(
        self, carrier: Carrier, lane: SerialExecutor, decode: Callable[[Any], object], decode_body: Decode, hand: Hand,
        report: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._carrier = carrier
        self._lane = lane
        self._decode = decode
        self._decode_body = decode_body
        self._hand = hand
        self._report = report
        self._numbers = itertools.count(1)
        self.waiters = Waiters()

    def send(self, message: bytes, seconds: float, label: str) -> None:
        """Send an encoded message and wait until the peer's listeners have had it."""
        number = next(self._numbers)
        waiter = self.waiters.add(number)
        end = time.monotonic() + seconds
        try:
            self._carrier.push(RecordKind.MESSAGE_ACK_WANTED, number.to_bytes(NUMBER_BYTES, "big") + message, end)
            result_within(
                waiter, end - time.monotonic(), f"{label} to say that its listeners had a message",
                remedy="It may still be delivered; give it more time",
            )  # fmt: skip
        finally:
            self.waiters.drop(number)

    def messages(self, records: Sequence[Record]) -> None:
        """Messages came: decode and deliver them after everything before."""
        weight = sum([len(payload) for _, _, payload in records]) + RECORD_COST * len(records)
        self._lane.add(lambda: self._deliver(records), weight)

    def stream(self, received: ReceivedTransfer, folder: Any) -> Callable[[], None]:
        """A stream came whole: a message, or a file. Return what delivers it, when its turn comes."""
        weight = 0 if received.spilled else received.start.total
        self._lane.weigh(weight)

        def deliver() -> None:
            try:
                if received.start.purpose is Purpose.FILE:
                    self._deliver_file(file_of(received, folder))
                else:
                    self._hand(self._decode_body(received.start.type_id, content_of(received)))
            except (AeronSparkError, OSError) as error:
                self._report(error)
            finally:
                self._lane.weigh(-weight)

        return deliver

    def in_turn(self, whole: Future[Callable[[], None] | None]) -> None:
        """A stream has ended: what there is to do with it comes after everything before."""

        def deliver() -> None:
            then = whole.result()
            if then is not None:
                then()

        self._lane.add(deliver)

    def delivered(self, payload: memoryview) -> None:
        """The peer's listeners had one of ours."""
        self.waiters.answer(int.from_bytes(payload[:NUMBER_BYTES], "big"))

    def _deliver(self, records: Sequence[Record]) -> None:
        decode, hand = self._decode, self._hand
        for kind, _, payload in records:
            acknowledge = kind == MESSAGE_ACK_WANTED
            body = payload[NUMBER_BYTES:] if acknowledge else payload
            if body:  # without one it asks whether the message before it was delivered, which came as a stream
                try:
                    message = decode(body)
                except AeronSparkError as error:
                    self._report(error)
                    continue
                hand(message)
            if acknowledge:
                self._carrier.answer(RecordKind.DELIVERED, bytes(payload[:NUMBER_BYTES]))

    def _deliver_file(self, file: ReceivedFile) -> None:
        try:
            self._hand(file)
        finally:
            file.path.unlink(missing_ok=True)
