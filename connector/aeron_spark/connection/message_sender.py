"""Sends the messages of one connection: in a record, or as a transfer if a message is too large for one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeGuard

from aeron_spark.connection.deliveries import Deliveries
from aeron_spark.connection.frame_sender import FrameSender
from aeron_spark.connection.transfers import TransferRunner
from aeron_spark.protocol.connection_machine import NUMBER_BYTES, ConnectionMachine
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import TYPE_ID, BuiltIn, Encoded, References, Types

BATCH_MESSAGES: Final = 2_000  # encoded at a time by send_many
BYTES_HEAD: Final = TYPE_ID.pack(BuiltIn.BYTES)  # precedes the bytes of a message of type bytes


@dataclass(frozen=True, slots=True)
class BegunMessage:
    """A message whose sending has begun: the future of its acceptance, and that of its confirmation, if wanted.

    A program that does not wait any more withdraws ``accepted`` (``FrameSender.withdraw``) and cancels ``confirmed``.
    """

    accepted: Future[None]
    confirmed: Future[None] | None = None


class MessageSender:
    """Sends messages, on any thread. Times are in seconds. ``Connection`` describes the methods and their errors."""

    def __init__(
        self, sender: FrameSender, machine: ConnectionMachine, deliveries: Deliveries, transfers: TransferRunner,
        types: Types, references: References, label: Callable[[], str],
    ) -> None:  # fmt: skip
        self._sender = sender
        self._machine = machine
        self._deliveries = deliveries
        self._transfers = transfers
        self._types = types
        self._references = references
        self._label = label

    def send(self, message: object, seconds: float, *, acknowledge: bool) -> None:
        """Send a message. Each of its records may wait ``seconds`` for room."""
        if not acknowledge and self._is_short_bytes(message):
            self._sender.push(RecordKind.MESSAGE, BYTES_HEAD + message, time.monotonic() + seconds)
            return
        encoded = self._types.encode(message, self._references)
        if self._fits(encoded):
            data = b"".join(encoded.parts())
            if acknowledge:
                self._deliveries.send(data, seconds, self._label())
            else:
                self._sender.push(RecordKind.MESSAGE, data, time.monotonic() + seconds)
            return
        acknowledged = (lambda: self._deliveries.send(b"", seconds, self._label())) if acknowledge else None
        self._transfers.send_message(encoded, seconds, acknowledged)

    def begin(self, message: object, *, acknowledge: bool) -> BegunMessage | None:
        """Send a message as soon as there is room, without waiting; None if it is too large for a record."""
        encoded = self._types.encode(message, self._references)
        if not self._fits(encoded):
            return None
        data = b"".join(encoded.parts())
        if acknowledge:
            return BegunMessage(*self._deliveries.begin_send(data))
        return BegunMessage(self._sender.begin_push(RecordKind.MESSAGE, data))

    def send_many(self, messages: Sequence[object], seconds: float) -> None:
        """Send messages with many in a frame."""
        encode = self._types.encode
        for first in range(0, len(messages), BATCH_MESSAGES):
            batch = messages[first : first + BATCH_MESSAGES]
            payloads = [
                BYTES_HEAD + one if type(one) is bytes else b"".join(encode(one, self._references).parts())
                for one in batch
            ]
            if max(map(len, payloads)) > self._max_record_bytes:
                for one in batch:
                    self.send(one, seconds, acknowledge=False)
            else:
                self._sender.push_many(RecordKind.MESSAGE, payloads, time.monotonic() + seconds)

    def _is_short_bytes(self, message: object) -> TypeGuard[bytes]:
        return type(message) is bytes and len(message) + len(BYTES_HEAD) + NUMBER_BYTES <= self._max_record_bytes

    def _fits(self, encoded: Encoded) -> bool:
        return encoded.size + NUMBER_BYTES <= self._max_record_bytes

    @property
    def _max_record_bytes(self) -> int:
        return self._machine.session.limits.max_record_bytes
