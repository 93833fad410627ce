"""Sinks that are looked into, and the records of a stream written by hand."""

from __future__ import annotations

import hashlib

from aeron_spark.protocol.transfers import (
    DATA,
    FINISHED,
    Buffer,
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
    """Sinks, and what became of them."""

    def __init__(self, fails_at: int = -1) -> None:
        self.open: dict[int, bytearray] = {}
        self.closed: list[bytes] = []
        self.discarded = 0
        self.room = fails_at

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


def take(assembly: TransferAssembly, record: EncodedTransferRecord) -> ReceivedTransfer | TransferFailed | None:
    kind, payload = record
    if kind is TransferRecord.START:
        assembly.start(payload)
        return None
    if kind is TransferRecord.DATA:
        assembly.data(payload)
        return None
    return assembly.finished(payload) if kind is TransferRecord.FINISHED else assembly.failed(payload)


def begin(assembly: TransferAssembly, transfer_id: int, total: int) -> None:
    assembly.start(encode_start(TransferStart(transfer_id, Purpose.MESSAGE, total, 64)))


def data(transfer_id: int, offset: int, content: bytes) -> bytes:
    return DATA.pack(transfer_id, offset) + content


def finish(transfer_id: int, content: bytes) -> bytes:
    return FINISHED.pack(transfer_id, hashlib.sha256(content).digest())


def is_empty(assembly: TransferAssembly, disk: Disk) -> bool:
    return len(assembly) == 0 and assembly.memory_bytes == 0 and not disk.open
