"""The receiver of transfers: content is complete or removed, and memory is bounded."""

from __future__ import annotations

import contextlib
import hashlib
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, RefusedError, SetupError
from aeron_spark.protocol.message_types import Buffer
from aeron_spark.protocol.transfers import (
    EncodedTransferRecord,
    Purpose,
    ReceivedTransfer,
    TransferAssembly,
    TransferFailed,
    TransferRecord,
    TransferStart,
    encode_failed,
    encode_start,
    send_buffer,
    send_from,
)
from tests.unit.protocol.transfer_records import Disk, DiskSink, data, finished, is_empty, process, start

KIB = 1024


@pytest.mark.parametrize("size", [0, 1, 5, 1375, 1376, 1377, KIB, 64 * KIB, 64 * KIB + 1, 3_000_000])
@pytest.mark.parametrize("memory_limit", [0, KIB, 16 * KIB * KIB])
def test_rows_61_62_content_of_any_size_arrives_unchanged_in_memory_or_in_a_sink(size: int, memory_limit: int) -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=memory_limit)
    content = hashlib.shake_128(b"seed").digest(size)
    start = TransferStart(1, Purpose.FILE, size, name="flights.csv")
    *_, received = [process(assembly, record) for record in send_buffer(start, content)]
    assert isinstance(received, ReceivedTransfer)
    assert received.start == start
    assert received.spilled == (size > memory_limit)
    assert (disk.closed[0] if received.spilled else received.content) == content
    assert received.content == ("the file" if received.spilled else content)
    assert is_empty(assembly, disk)
    assert disk.discarded == 0


def test_row_62_the_limit_of_a_transfer_in_memory_is_16_mib() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill)
    start(assembly, 1, 16 * KIB * KIB)
    assert not disk.open
    start(assembly, 2, 16 * KIB * KIB + 1)
    assert list(disk.open) == [2]


class CountingSink:
    """Counts the bytes, and does not keep them."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, data: Buffer) -> None:
        self.count += len(data)

    def close(self) -> int:
        return self.count

    def discard(self) -> None:
        raise AssertionError("a complete transfer was discarded")


def send_repeated(total: int, chunk: bytes) -> tuple[object, int]:
    """Send ``total`` bytes that repeat ``chunk``; return the received content and the peak of memory in bytes."""
    assembly = TransferAssembly(lambda start: CountingSink())
    received = None
    tracemalloc.start()
    try:
        start = TransferStart(2**63 - 1, Purpose.FILE, total)
        for record in send_from(start, lambda count: chunk[:count], chunk_bytes=len(chunk)):
            received = process(assembly, record)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(received, ReceivedTransfer)
    return received.content, peak


def test_row_62_memory_is_bounded_by_the_chunk() -> None:
    content, peak = send_repeated(100_000_000, bytes(64 * KIB))
    assert content == 100_000_000
    assert peak < 1_000_000


@pytest.mark.soak
def test_row_62_a_transfer_of_2_gib_and_one_byte_arrives_soak() -> None:
    content, peak = send_repeated(2**31 + 1, bytes(1 << 20))
    assert content == 2**31 + 1
    assert peak < 10_000_000


def test_row_62_a_transfer_larger_than_32_bits_is_counted_exactly() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill)
    start(assembly, 1, 2**33)
    # simulates that 2^32 + 5 bytes have arrived
    assembly._incoming[1].received = 2**32 + 5
    assembly.add_data(data(1, 2**32 + 5, b"abc"))
    assert assembly._incoming[1].received == 2**32 + 8
    with pytest.raises(DataFormatError, match=f"bytes at offset {2**32 + 8}"):
        assembly.add_data(data(1, 8, b"abc"))
    assert is_empty(assembly, disk)


INVALID_RECORDS: dict[str, Callable[[int], list[tuple[str, bytes]]]] = {
    "ended early": lambda i: [("add_data", data(i, 0, b"12345")), ("finish", finished(i, b"12345"))],
    "5 bytes at offset 1000000 of transfer -?1, expected at most 10 bytes at offset 0": lambda i: [
        ("add_data", data(i, 1_000_000, b"12345"))
    ],
    "5 bytes at offset 0 of transfer -?1, expected at most 5 bytes at offset 5": lambda i: [
        ("add_data", data(i, 0, b"12345")),
        ("add_data", data(i, 0, b"12345")),
    ],
    "6 bytes at offset 5 of transfer -?1, expected at most 5 bytes at offset 5": lambda i: [
        ("add_data", data(i, 0, b"12345")),
        ("add_data", data(i, 5, b"678901")),
    ],
    "0 bytes at offset 0": lambda i: [("add_data", data(i, 0, b""))],
    "its digest differs": lambda i: [("add_data", data(i, 0, b"1234567890")), ("finish", finished(i, b"1234567891"))],
    "was started twice": lambda i: [
        ("add_data", data(i, 0, b"1")),
        ("start", encode_start(TransferStart(i, Purpose.FILE, 10))),
    ],
}


@pytest.mark.parametrize("memory_limit", [0, 100])
@pytest.mark.parametrize("message", INVALID_RECORDS)
@pytest.mark.parametrize("transfer_id", [1, -1])
def test_row_63_an_invalid_record_ends_its_transfer_and_removes_the_content(
    message: str, memory_limit: int, transfer_id: int
) -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=memory_limit)
    start(assembly, 77, 3)
    start(assembly, transfer_id, 10)
    *valid, (method, payload) = INVALID_RECORDS[message](transfer_id)
    for name, valid_payload in valid:
        assert getattr(assembly, name)(valid_payload) is None
    with pytest.raises(DataFormatError, match=message):
        getattr(assembly, method)(payload)
    assert len(assembly) == 1
    assert disk.discarded == (memory_limit == 0)
    # later records of the transfer are ignored
    assembly.add_data(data(transfer_id, 5, b"67890"))
    assert assembly.finish(finished(transfer_id, b"1234567890")) is None
    assert assembly.ignored == 2
    # the other transfer is unaffected
    assembly.add_data(data(77, 0, b"abc"))
    received = assembly.finish(finished(77, b"abc"))
    assert received is not None
    assert is_empty(assembly, disk)


def test_a_record_of_a_transfer_that_was_not_started_is_an_error() -> None:
    assembly = TransferAssembly(Disk().spill)
    for name, payload in (
        ("add_data", data(5, 0, b"x")),
        ("finish", finished(5, b"")),
        ("fail", encode_failed(5, "why")),
        ("add_data", b"short"),
        ("finish", b"short"),
        ("fail", b"short"),
        ("start", b"short"),
    ):
        with pytest.raises(DataFormatError):
            getattr(assembly, name)(payload)
    assert len(assembly) == 0


def test_row_64_content_of_a_transfer_that_the_sender_abandons_is_removed() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=4)
    for transfer_id, total in ((1, 10), (2, 3)):
        start(assembly, transfer_id, total)
        assembly.add_data(data(transfer_id, 0, b"abc"))
        assert assembly.fail(encode_failed(transfer_id, "no more")) == TransferFailed(transfer_id, False, "no more")
    assert is_empty(assembly, disk)
    assert disk.discarded == 1


def test_a_refusal_by_the_receiver_does_not_affect_an_incoming_transfer_with_the_same_id() -> None:
    assembly = TransferAssembly(Disk().spill)
    start(assembly, 1, 10)
    assert assembly.fail(encode_failed(1, "full", by_receiver=True)) == TransferFailed(1, True, "full")
    assert len(assembly) == 1


def test_row_64_a_closed_assembly_removes_all_content_and_refuses_new_transfers() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=4)
    start(assembly, 1, 10)
    start(assembly, 2, 3)
    assembly.add_data(data(1, 0, b"abc"))
    assert [start.transfer_id for start in assembly.close()] == [1, 2]
    assert is_empty(assembly, disk)
    assert assembly.close() == []
    with pytest.raises(RefusedError, match="after the connection has ended"):
        start(assembly, 3, 1)
    assert is_empty(assembly, disk)


def test_row_64_unfinished_transfers_have_a_limit_and_records_of_refused_ones_are_ignored() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill)
    refused = 0
    for transfer_id in range(1000):
        try:
            start(assembly, transfer_id, 100)
        except RefusedError:
            refused += 1
            assembly.add_data(data(transfer_id, 0, b"abc"))
    assert (len(assembly), refused, assembly.ignored) == (64, 936, 936)
    assembly.fail(encode_failed(0, ""))
    start(assembly, 999, 3)
    assembly.add_data(data(999, 0, b"abc"))
    assert assembly.finish(finished(999, b"abc")) is not None


def test_row_64_small_transfers_spill_above_the_memory_limit_of_a_connection() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=100, max_memory_bytes=250)
    for transfer_id in range(4):
        start(assembly, transfer_id, 100)
        assembly.add_data(data(transfer_id, 0, bytes(100)))
    assert sorted(disk.open) == [2, 3]
    assert assembly.memory_bytes == 200


def test_row_64_announced_bytes_on_disk_have_a_limit() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=0, max_spilled_bytes=1000)
    start(assembly, 1, 600)
    with pytest.raises(RefusedError, match="a transfer of 401 bytes is announced while others have 600 bytes on disk"):
        start(assembly, 2, 401)
    start(assembly, 3, 400)
    assembly.fail(encode_failed(1, ""))
    start(assembly, 4, 600)
    with pytest.raises(RefusedError):
        start(TransferAssembly(disk.spill), 1, 2**64 - 1)


def test_an_announcement_reserves_no_memory() -> None:
    assembly = TransferAssembly(Disk().spill)
    tracemalloc.start()
    try:
        for transfer_id in range(4):
            start(assembly, transfer_id, 16 * KIB * KIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_full_disk_ends_the_transfer_and_removes_the_content() -> None:
    disk = Disk(room=5)
    assembly = TransferAssembly(disk.spill, memory_limit=0)
    start(assembly, 1, 10)
    assembly.add_data(data(1, 0, b"12345"))
    with pytest.raises(SetupError, match="No space left"):
        assembly.add_data(data(1, 5, b"6"))
    assert is_empty(assembly, disk)
    assembly.add_data(data(1, 6, b"7"))
    assert assembly.ignored == 1


def test_a_sink_that_cannot_be_created_refuses_the_transfer() -> None:
    def spill(start: TransferStart) -> DiskSink:
        raise PermissionError(13, "Permission denied")

    assembly = TransferAssembly(spill, memory_limit=0)
    with pytest.raises(SetupError, match="Permission denied"):
        start(assembly, 1, 10)
    assembly.add_data(data(1, 0, b"x"))
    assert (len(assembly), assembly.ignored) == (0, 1)


@pytest.mark.parametrize("transfer_id", [1, 0, -1, -(2**63), 2**63 - 1, 0x0010_0000_0000_0001])
def test_row_65_transfers_with_one_id_on_two_connections_do_not_mix(transfer_id: int) -> None:
    disks = Disk(), Disk()
    assemblies = [TransferAssembly(disk.spill, memory_limit=10) for disk in disks]
    contents = b"a" * 100, b"b" * 100
    transfers = [
        send_buffer(TransferStart(transfer_id, Purpose.FILE, 100), content, chunk_bytes=9) for content in contents
    ]
    for records in zip(*transfers, strict=True):
        for assembly, record in zip(assemblies, records, strict=True):
            process(assembly, record)
    assert [disk.closed for disk in disks] == [[contents[0]], [contents[1]]]


@settings(max_examples=50)
@given(st.data())
def test_row_65_interleaved_transfers_arrive_unchanged(draw: st.DataObject) -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=50)
    contents = draw.draw(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=120), max_size=6))
    senders = {
        transfer_id: send_buffer(TransferStart(transfer_id, Purpose.MESSAGE, len(content)), content, chunk_bytes=16)
        for transfer_id, content in contents.items()
    }
    arrived: dict[int, bytes] = {}
    while senders:
        transfer_id = draw.draw(st.sampled_from(sorted(senders)))
        record = next(senders[transfer_id], None)
        if record is None:
            del senders[transfer_id]
            continue
        received = process(assembly, record)
        if isinstance(received, ReceivedTransfer):
            arrived[transfer_id] = disk.closed[-1] if received.spilled else bytes(received.content)
    assert arrived == contents
    assert is_empty(assembly, disk)


RECORDS = st.one_of(
    st.tuples(st.sampled_from(TransferRecord), st.binary(max_size=80)),
    st.builds(
        lambda i, total: (TransferRecord.START, encode_start(TransferStart(i, Purpose.MESSAGE, total))),
        st.integers(0, 2),
        st.sampled_from([0, 1, 5, 30, 2**64 - 1]),
    ),
    st.builds(
        lambda i, at, more: (TransferRecord.DATA, data(i, at, more)),
        st.integers(0, 2),
        st.integers(0, 5),
        st.binary(max_size=9),
    ),
    st.builds(lambda i, text: (TransferRecord.FINISHED, finished(i, text)), st.integers(0, 2), st.binary(max_size=9)),
    st.builds(lambda i: (TransferRecord.FAILED, encode_failed(i, "x")), st.integers(0, 2)),
)


@given(st.lists(RECORDS, max_size=30))
def test_arbitrary_records_keep_to_the_limits(records: list[EncodedTransferRecord]) -> None:
    disk = Disk()
    assembly = TransferAssembly(
        disk.spill, memory_limit=20, max_memory_bytes=25, max_transfers=2, max_spilled_bytes=100
    )
    for record in records:
        with contextlib.suppress(DataFormatError, RefusedError):
            received = process(assembly, record)
            if isinstance(received, ReceivedTransfer):
                content = disk.closed[-1] if received.spilled else received.content
                assert len(content) == received.start.total
                assert hashlib.sha256(content).digest() == record[1][8:]
        assert len(assembly) <= 2
        assert assembly.memory_bytes <= 25
        assert len(disk.open) <= len(assembly)
    assembly.close()
    assert is_empty(assembly, disk)
