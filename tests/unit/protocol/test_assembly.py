"""Streams as they arrive: whole or not at all, in bounded memory, and nothing left of those that fail."""

from __future__ import annotations

import contextlib
import hashlib
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, RefusedError, SetupError
from aeron_spark.protocol.transfers import (
    Buffer,
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
from tests.unit.protocol.stream_records import Disk, DiskSink, begin, data, finish, is_empty, take

KIB = 1024


@pytest.mark.parametrize("size", [0, 1, 5, 1375, 1376, 1377, KIB, 64 * KIB, 64 * KIB + 1, 3_000_000])
@pytest.mark.parametrize("memory_limit", [0, KIB, 16 * KIB * KIB])
def test_rows_61_62_every_size_arrives_as_it_was_in_memory_or_in_a_sink(size: int, memory_limit: int) -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=memory_limit)
    content = hashlib.shake_128(b"seed").digest(size)
    start = TransferStart(1, Purpose.FILE, size, name="flights.csv")
    *_, received = [take(assembly, record) for record in send_buffer(start, content)]
    assert isinstance(received, ReceivedTransfer)
    assert received.start == start
    assert received.spilled == (size > memory_limit)
    assert (disk.closed[0] if received.spilled else received.content) == content
    assert received.content == ("the file" if received.spilled else content)
    assert is_empty(assembly, disk)
    assert disk.discarded == 0


def test_row_62_the_limit_of_memory_is_sixteen_mebibytes_to_the_byte() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill)
    begin(assembly, 1, 16 * KIB * KIB)
    assert not disk.open
    begin(assembly, 2, 16 * KIB * KIB + 1)
    assert list(disk.open) == [2]


class Counting:
    """A sink that keeps nothing but the count."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, data: Buffer) -> None:
        self.count += len(data)

    def close(self) -> int:
        return self.count

    def discard(self) -> None:
        raise AssertionError("nothing failed")


def through(total: int, chunk: bytes) -> tuple[object, int]:
    """Send ``total`` bytes that are nowhere; return what was received, and the peak of memory."""
    assembly = TransferAssembly(lambda start: Counting())
    received = None
    tracemalloc.start()
    try:
        start = TransferStart(2**63 - 1, Purpose.FILE, total)
        for record in send_from(start, lambda count: chunk[:count], chunk_bytes=len(chunk)):
            received = take(assembly, record)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(received, ReceivedTransfer)
    return received.content, peak


def test_row_62_memory_is_bounded_by_the_chunk() -> None:
    content, peak = through(100_000_000, bytes(64 * KIB))
    assert content == 100_000_000
    assert peak < 1_000_000


@pytest.mark.soak
def test_row_62_two_gibibytes_and_one_byte_arrive_soak() -> None:
    content, peak = through(2**31 + 1, bytes(1 << 20))
    assert content == 2**31 + 1
    assert peak < 10_000_000


def test_row_62_sizes_beyond_32_bits_are_counted_exactly() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill)
    begin(assembly, 1, 2**33)
    # as if 2^32 + 5 bytes had arrived: what is asked for next is exactly behind them
    assembly._open[1].received = 2**32 + 5
    assembly.data(data(1, 2**32 + 5, b"abc"))
    assert assembly._open[1].received == 2**32 + 8
    with pytest.raises(DataFormatError, match=f"do not go on at {2**32 + 8} of {2**33}"):
        assembly.data(data(1, 8, b"abc"))
    assert is_empty(assembly, disk)


WRONG: dict[str, Callable[[int], list[tuple[str, bytes]]]] = {
    "ended early": lambda i: [("data", data(i, 0, b"12345")), ("finished", finish(i, b"12345"))],
    "do not go on at 0": lambda i: [("data", data(i, 1_000_000, b"12345"))],
    "do not go on at 5": lambda i: [("data", data(i, 0, b"12345")), ("data", data(i, 0, b"12345"))],
    "6 bytes at 5": lambda i: [("data", data(i, 0, b"12345")), ("data", data(i, 5, b"678901"))],
    "0 bytes at 0": lambda i: [("data", data(i, 0, b""))],
    "its digest is another": lambda i: [("data", data(i, 0, b"1234567890")), ("finished", finish(i, b"1234567891"))],
    "began twice": lambda i: [("data", data(i, 0, b"1")), ("start", encode_start(TransferStart(i, Purpose.FILE, 10)))],
}


@pytest.mark.parametrize("memory_limit", [0, 100])
@pytest.mark.parametrize("why", WRONG)
@pytest.mark.parametrize("transfer_id", [1, -1])
def test_row_63_what_is_wrong_ends_the_stream_and_leaves_nothing(why: str, memory_limit: int, transfer_id: int) -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=memory_limit)
    begin(assembly, 77, 3)
    begin(assembly, transfer_id, 10)
    *before, (last, payload) = WRONG[why](transfer_id)
    for name, good in before:
        assert getattr(assembly, name)(good) is None
    with pytest.raises(DataFormatError, match=why):
        getattr(assembly, last)(payload)
    assert len(assembly) == 1
    assert disk.discarded == (memory_limit == 0)
    # what was under way is no news, and never delivered
    assembly.data(data(transfer_id, 5, b"67890"))
    assert assembly.finished(finish(transfer_id, b"1234567890")) is None
    assert assembly.ignored == 2
    # the other stream is as it was
    assembly.data(data(77, 0, b"abc"))
    received = assembly.finished(finish(77, b"abc"))
    assert received is not None
    assert is_empty(assembly, disk)


def test_a_stream_that_did_not_begin_is_an_error() -> None:
    assembly = TransferAssembly(Disk().spill)
    for name, payload in (
        ("data", data(5, 0, b"x")),
        ("finished", finish(5, b"")),
        ("failed", encode_failed(5, "why")),
        ("data", b"short"),
        ("finished", b"short"),
        ("failed", b"short"),
        ("start", b"short"),
    ):
        with pytest.raises(DataFormatError):
            getattr(assembly, name)(payload)
    assert len(assembly) == 0


def test_row_64_a_sender_that_gives_up_leaves_nothing() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=4)
    for transfer_id, total in ((1, 10), (2, 3)):
        begin(assembly, transfer_id, total)
        assembly.data(data(transfer_id, 0, b"abc"))
        assert assembly.failed(encode_failed(transfer_id, "no more")) == TransferFailed(transfer_id, False, "no more")
    assert is_empty(assembly, disk)
    assert disk.discarded == 1


def test_a_receiver_that_gave_up_is_told_to_the_sender_and_touches_no_stream_that_arrives() -> None:
    assembly = TransferAssembly(Disk().spill)
    begin(assembly, 1, 10)
    assert assembly.failed(encode_failed(1, "full", by_receiver=True)) == TransferFailed(1, True, "full")
    assert len(assembly) == 1


def test_row_64_a_disconnect_removes_all_and_nothing_begins_afterwards() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=4)
    begin(assembly, 1, 10)
    begin(assembly, 2, 3)
    assembly.data(data(1, 0, b"abc"))
    assert [start.transfer_id for start in assembly.close()] == [1, 2]
    assert is_empty(assembly, disk)
    assert assembly.close() == []
    with pytest.raises(RefusedError, match="after the end"):
        begin(assembly, 3, 1)
    assert is_empty(assembly, disk)


def test_row_64_open_streams_have_a_limit_and_the_refused_are_no_news_later() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill)
    refused = 0
    for transfer_id in range(1000):
        try:
            begin(assembly, transfer_id, 100)
        except RefusedError:
            refused += 1
            assembly.data(data(transfer_id, 0, b"abc"))
    assert (len(assembly), refused, assembly.ignored) == (64, 936, 936)
    assembly.failed(encode_failed(0, ""))
    begin(assembly, 999, 3)
    assembly.data(data(999, 0, b"abc"))
    assert assembly.finished(finish(999, b"abc")) is not None


def test_row_64_memory_of_a_connection_has_a_limit_above_which_small_streams_spill() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=100, max_memory_bytes=250)
    for transfer_id in range(4):
        begin(assembly, transfer_id, 100)
        assembly.data(data(transfer_id, 0, bytes(100)))
    assert sorted(disk.open) == [2, 3]
    assert assembly.memory_bytes == 200


def test_row_64_announced_bytes_on_disk_have_a_limit() -> None:
    disk = Disk()
    assembly = TransferAssembly(disk.spill, memory_limit=0, max_spilled_bytes=1000)
    begin(assembly, 1, 600)
    with pytest.raises(RefusedError, match="a stream of 401 bytes is announced beside 600"):
        begin(assembly, 2, 401)
    begin(assembly, 3, 400)
    assembly.failed(encode_failed(1, ""))
    begin(assembly, 4, 600)
    with pytest.raises(RefusedError):
        begin(TransferAssembly(disk.spill), 1, 2**64 - 1)


def test_nothing_is_reserved_for_an_announcement() -> None:
    assembly = TransferAssembly(Disk().spill)
    tracemalloc.start()
    try:
        for transfer_id in range(4):
            begin(assembly, transfer_id, 16 * KIB * KIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_full_disk_ends_the_stream_and_removes_the_file() -> None:
    disk = Disk(fails_at=5)
    assembly = TransferAssembly(disk.spill, memory_limit=0)
    begin(assembly, 1, 10)
    assembly.data(data(1, 0, b"12345"))
    with pytest.raises(SetupError, match="No space left"):
        assembly.data(data(1, 5, b"6"))
    assert is_empty(assembly, disk)
    assembly.data(data(1, 6, b"7"))
    assert assembly.ignored == 1


def test_a_sink_that_cannot_be_made_refuses_the_stream() -> None:
    def no_place(start: TransferStart) -> DiskSink:
        raise PermissionError(13, "Permission denied")

    assembly = TransferAssembly(no_place, memory_limit=0)
    with pytest.raises(SetupError, match="Permission denied"):
        begin(assembly, 1, 10)
    assembly.data(data(1, 0, b"x"))
    assert (len(assembly), assembly.ignored) == (0, 1)


@pytest.mark.parametrize("transfer_id", [1, 0, -1, -(2**63), 2**63 - 1, 0x0010_0000_0000_0001])
def test_row_65_two_connections_with_the_same_stream_id_do_not_mix(transfer_id: int) -> None:
    disks = Disk(), Disk()
    assemblies = [TransferAssembly(disk.spill, memory_limit=10) for disk in disks]
    contents = b"a" * 100, b"b" * 100
    streams = [
        send_buffer(TransferStart(transfer_id, Purpose.FILE, 100), content, chunk_bytes=9) for content in contents
    ]
    for records in zip(*streams, strict=True):
        for assembly, record in zip(assemblies, records, strict=True):
            take(assembly, record)
    assert [disk.closed for disk in disks] == [[contents[0]], [contents[1]]]


@settings(max_examples=50)
@given(st.data())
def test_row_65_streams_that_interleave_arrive_as_they_were(draw: st.DataObject) -> None:
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
        received = take(assembly, record)
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
    st.builds(lambda i, text: (TransferRecord.FINISHED, finish(i, text)), st.integers(0, 2), st.binary(max_size=9)),
    st.builds(lambda i: (TransferRecord.FAILED, encode_failed(i, "x")), st.integers(0, 2)),
)


@given(st.lists(RECORDS, max_size=30))
def test_any_records_in_any_order_do_no_harm(records: list[EncodedTransferRecord]) -> None:
    disk = Disk()
    assembly = TransferAssembly(
        disk.spill, memory_limit=20, max_memory_bytes=25, max_transfers=2, max_spilled_bytes=100
    )
    for record in records:
        with contextlib.suppress(DataFormatError, RefusedError):
            received = take(assembly, record)
            if isinstance(received, ReceivedTransfer):
                content = disk.closed[-1] if received.spilled else received.content
                assert len(content) == received.start.total
                assert hashlib.sha256(content).digest() == record[1][8:]
        assert len(assembly) <= 2
        assert assembly.memory_bytes <= 25
        assert len(disk.open) <= len(assembly)
    assembly.close()
    assert is_empty(assembly, disk)
