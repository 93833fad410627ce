"""Sinks whose content tests can inspect, and encoders of single records of a transfer."""

from __future__ import annotations

import hashlib

from aeron_spark.protocol.message_types import Buffer
from aeron_spark.protocol.transfers import (
    DATA,
    FINISHED,
    EncodedTransferRecord,
    Purpose,
    ReceivedTransfer,
    TransferAssembly,
    TransferFailed,
    TransferRecord,
    TransferStart,
    encode_start,
)


class Disk:
    """Creates sinks, and records their content. Has room for ``room`` bytes in each sink, unless it is negative."""

    def __init__(self, room: int = -1) -> None:
        self.open: dict[int, bytearray] = {}
        self.closed: list[bytes] = []
        self.discarded = 0
        self.room = room

    def spill(self, start: TransferStart) -> DiskSink:
        return DiskSink(self, start.transfer_id)


class DiskSink:
    def __init__(self, disk: Disk, transfer_id: int) -> None:
        self.disk, self.transfer_id = disk, transfer_id
        disk.open[transfer_id] = bytearray()

    def write(self, data: Buffer) -> None:
        if 0 <= self.disk.room < len(self.disk.open[self.transfer_id]) + len(data):
            raise OSError(28, "No space left on device")
        self.disk.open[self.transfer_id] += data

    def close(self) -> str:
        self.disk.closed.append(bytes(self.disk.open.pop(self.transfer_id)))
        return "the file"

    def discard(self) -> None:
        del self.disk.open[self.transfer_id]
        self.disk.discarded += 1


def process(assembly: TransferAssembly, record: EncodedTransferRecord) -> ReceivedTransfer | TransferFailed | None:
    kind, payload = record
    if kind is TransferRecord.START:
        assembly.start(payload)
        return None
    if kind is TransferRecord.DATA:
        assembly.add_data(payload)
        return None
    return assembly.finish(payload) if kind is TransferRecord.FINISHED else assembly.fail(payload)


def start(assembly: TransferAssembly, transfer_id: int, total: int) -> None:
    assembly.start(encode_start(TransferStart(transfer_id, Purpose.MESSAGE, total, 64)))


def data(transfer_id: int, offset: int, content: bytes) -> bytes:
    return DATA.pack(transfer_id, offset) + content


def finished(transfer_id: int, content: bytes) -> bytes:
    return FINISHED.pack(transfer_id, hashlib.sha256(content).digest())


def is_empty(assembly: TransferAssembly, disk: Disk) -> bool:
    return len(assembly) == 0 and assembly.memory_bytes == 0 and not disk.open
