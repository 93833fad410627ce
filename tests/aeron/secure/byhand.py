"""A client whose duologue is written by hand: the handshake is in order, and after it come the records of the test."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aeron_spark.aeron.client import Client
from aeron_spark.connection.link import OPEN
from aeron_spark.protocol.client_handshake import HandshakeAccepted
from aeron_spark.protocol.connection_machine import CLOSE_ALL
from aeron_spark.protocol.frames import OutgoingRecord, Record, RecordKind, decode, encode, is_sequenced
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
from tests.aeron.secure.raw import PATIENCE, Raw

FRAME_BYTES: Final = 60_000  # of records in one frame, but for a longer one


def start(announced: TransferStart) -> tuple[int, bytes]:
    """The record that announces a stream."""
    return RecordKind.TRANSFER_START, encode_start(announced)


def data(transfer_id: int, offset: int, content: bytes) -> tuple[int, bytes]:
    """A piece of it."""
    return RecordKind.TRANSFER_DATA, DATA.pack(transfer_id, offset) + content


def finished(transfer_id: int, content: bytes) -> tuple[int, bytes]:
    """Its end, with the digest of ``content``."""
    return RecordKind.TRANSFER_FINISHED, FINISHED.pack(transfer_id, hashlib.sha256(content).digest())


def failed(transfer_id: int, text: str) -> tuple[int, bytes]:
    """It is given up."""
    return RecordKind.TRANSFER_FAILED, encode_failed(transfer_id, text)


class ByHand(Raw):
    """HandshakeAccepted when it is made. It acknowledges nothing, and keeps what the server says."""

    def __init__(self, driver: Client, place: ServerAddress) -> None:
        super().__init__(driver, place)
        self.records: list[Record] = []
        self._sequence = 0  # number of the next record
        self._duologue = -1
        self.send(self.hello_with_cookie())
        self.send(self.done())
        actions = self.machine.packet(self.answer(), time.monotonic())
        self.connected = next(action for action in actions if isinstance(action, HandshakeAccepted))
        ack = self.connected.ack
        ids = LinkIds(ack.session_in, ack.stream_in, ack.session_out, ack.stream_out)
        self.way = self.dialing.open_link(ids, ChannelSettings())
        self._duologue = self.way.token
        self._until(lambda: self.way.publication.connected, "the duologue to open")
        self._offer([(RecordKind.OPEN, 0, OPEN.pack(0, MAX_MESSAGE_BYTES))], first=0)
        self.heard(RecordKind.OPEN)

    def say(self, *records: tuple[int, bytes]) -> None:
        """Send records of these kinds and payloads; the sequenced ones are numbered."""
        frame: list[OutgoingRecord] = []
        for kind, payload in records:
            if frame and sum(len(one) for _, _, one in frame) + len(payload) > FRAME_BYTES:
                self._number(frame)
                frame = []
            frame.append((kind, 0, payload))
        self._number(frame)

    def heard(self, kind: RecordKind) -> bytes:
        """The payload of the server's next record of this kind; what it said before is forgotten."""

        def look() -> bytes | None:
            self.poll()
            while self.records:
                found, _, payload = self.records.pop(0)
                if found == kind:
                    return bytes(payload)
            return None

        return wait_for(look, PATIENCE, f"a record of the kind {kind.name}")

    def refusal(self) -> TransferFailed:
        """The server's next refusal of a stream."""
        return decode_failed(self.heard(RecordKind.TRANSFER_FAILED))

    def ping(self) -> None:
        """Return when the server has read everything."""
        self._number([(RecordKind.PING, 0, self._sequence.to_bytes(8, "big"))])
        assert self.heard(RecordKind.PONG) == self._sequence.to_bytes(8, "big")

    def poll(self) -> None:
        for event in self.dialing.inbox.poll(0.001):
            if isinstance(event, MessageArrived) and event.token == self._duologue:
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
        self._until(lambda: self.way.publication.offer(frame) is None, "room for a frame")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self.poll()
            return condition()

        wait_for(look, PATIENCE, what)


@contextmanager
def by_hand(driver: Client, place: ServerAddress, *, silent: bool = False) -> Iterator[ByHand]:
    """Connect, and leave in the end: ``silent`` without a word."""
    one = ByHand(driver, place)
    try:
        yield one
        if not silent:
            one.say((RecordKind.CLOSE, bytes([CLOSE_ALL])))
    finally:
        one.close()
