"""A client with a correct handshake that then sends the records of the test."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aeron_spark.aeron.client import AeronClient
from aeron_spark.endpoint.links import OPEN
from aeron_spark.protocol.client_handshake import HandshakeAccepted
from aeron_spark.protocol.frames import OutgoingRecord, Record, RecordKind, decode, encode, encode_close, is_sequenced
from aeron_spark.protocol.transfers import (
    DATA,
    FINISHED,
    TransferFailed,
    TransferStart,
    decode_failed,
    encode_failed,
    encode_start,
)
from aeron_spark.transport.api import MAX_MESSAGE_BYTES, ChannelSettings, LinkIds, MessageArrived, ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.raw import TIMEOUT_S, Raw

FRAME_BYTES: Final = 60_000  # of records in one frame; a longer record has its own frame


def start(announced: TransferStart) -> tuple[int, bytes]:
    """Return the record that announces a transfer."""
    return RecordKind.TRANSFER_START, encode_start(announced)


def data(transfer_id: int, offset: int, content: bytes) -> tuple[int, bytes]:
    """Return a record with a part of the content."""
    return RecordKind.TRANSFER_DATA, DATA.pack(transfer_id, offset) + content


def finished(transfer_id: int, content: bytes) -> tuple[int, bytes]:
    """Return the record that ends a transfer, with the digest of ``content``."""
    return RecordKind.TRANSFER_FINISHED, FINISHED.pack(transfer_id, hashlib.sha256(content).digest())


def failed(transfer_id: int, text: str) -> tuple[int, bytes]:
    """Return the record that aborts a transfer."""
    return RecordKind.TRANSFER_FAILED, encode_failed(transfer_id, text)


class ScriptedClient(Raw):
    """A connected client that acknowledges nothing and records what the server sends."""

    def __init__(self, driver: AeronClient, address: ServerAddress) -> None:
        super().__init__(driver, address)
        self.records: list[Record] = []
        self._sequence = 0  # number of the next record
        self._link_token = -1
        self.send(self.hello_with_cookie())
        self.send(self.done())
        actions = self.machine.packet(self.answer(), time.monotonic())
        self.connected = next(action for action in actions if isinstance(action, HandshakeAccepted))
        ack = self.connected.ack
        ids = LinkIds(ack.session_in, ack.stream_in, ack.session_out, ack.stream_out)
        self.link = self.dialing.open_link(ids, ChannelSettings())
        self._link_token = self.link.token
        self._until(lambda: self.link.publication.connected, "the link to open")
        self._offer([(RecordKind.OPEN, 0, OPEN.pack(0, MAX_MESSAGE_BYTES))], first=0)
        self.next_payload(RecordKind.OPEN)

    def send_records(self, *records: tuple[int, bytes]) -> None:
        """Send records of these kinds and payloads, and number the sequenced ones."""
        frame: list[OutgoingRecord] = []
        for kind, payload in records:
            if frame and sum(len(one) for _, _, one in frame) + len(payload) > FRAME_BYTES:
                self._number(frame)
                frame = []
            frame.append((kind, 0, payload))
        self._number(frame)

    def next_payload(self, kind: RecordKind) -> bytes:
        """Return the payload of the server's next record of this kind, and drop earlier records."""

        def poll_record() -> bytes | None:
            self.poll()
            while self.records:
                found, _, payload = self.records.pop(0)
                if found == kind:
                    return bytes(payload)
            return None

        return wait_for(poll_record, TIMEOUT_S, f"a record of the kind {kind.name}")

    def refusal(self) -> TransferFailed:
        """Return the server's next refusal of a transfer."""
        return decode_failed(self.next_payload(RecordKind.TRANSFER_FAILED))

    def ping(self) -> None:
        """Return when the server has read all records."""
        self._number([(RecordKind.PING, 0, self._sequence.to_bytes(8, "big"))])
        assert self.next_payload(RecordKind.PONG) == self._sequence.to_bytes(8, "big")

    def poll(self) -> None:
        for event in self.dialing.inbox.poll(0.001):
            if isinstance(event, MessageArrived) and event.token == self._link_token:
                frame = decode(bytes(self.connected.decryptor.decrypt(event.payload)))
                self.records += frame.records
            else:
                self.take(event)

    def _number(self, records: list[OutgoingRecord]) -> None:
        self._offer(records, first=self._sequence)
        self._sequence += sum(is_sequenced(kind) for kind, _, _ in records)

    def _offer(self, records: list[OutgoingRecord], first: int) -> None:
        plaintext = encode(0, first, records)
        frame = self.connected.encryptor.encrypt(plaintext[0], plaintext[1:])
        self._until(lambda: self.link.publication.offer(frame) is None, "room for a frame")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def poll_condition() -> bool:
            self.poll()
            return condition()

        wait_for(poll_condition, TIMEOUT_S, what)


@contextmanager
def scripted(driver: AeronClient, address: ServerAddress, *, silent: bool = False) -> Iterator[ScriptedClient]:
    """Connect, and close at the end; ``silent``: without CLOSE."""
    one = ScriptedClient(driver, address)
    try:
        yield one
        if not silent:
            one.send_records((RecordKind.CLOSE, encode_close(False)))
    finally:
        one.close()
