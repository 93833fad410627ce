"""Items of a stage: they are decoded without a copy, and invalid items are never read outside their bounds."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.wire import staged_items as staged_items_module
from aeron_spark.wire.chunks import Content, Header
from aeron_spark.wire.staged_items import (
    Item,
    StagedGroup,
    StagedValues,
    complete_items,
    encode_group_item,
    encode_values_item,
    read_items,
)

HEADER = Header(Content.BYTES, 0, published_ns=1_700_000_000_000_000_000, batch=7, row=41, partition=2, writer="w-1")

# One item of each kind as a literal
VALUES = bytes.fromhex(
    "01 000000 02000000 2b00000000000000"  # VALUES, 2 rows, 43 bytes
    " 02000000 01 000000"  # 2 values with reserved values
    " 00000000 02000000 03000000 00000000"  # offsets, zeros to 8
    " 0500000000000000 ffffffffffffffff"  # reserved
    " 616263"
    " 0000000000"
)
GROUP = bytes.fromhex(
    "02 000000 01000000 2d00000000000000"  # GROUP, 1 row, 45 bytes
    " 01 03 0000 02000000 00002a36fe9c9717 0700000000000000 2900000000000000"
    " 772d310000000000"  # w-1, zeros to 8
    " 68656c6c6f"
    " 000000"
)


def join(parts: list[pa.Buffer]) -> bytes:
    return b"".join(part.to_pybytes() for part in parts)


def content_of(item: Item) -> tuple[Any, ...]:
    if isinstance(item, StagedGroup):
        return item.header, item.payload.to_pybytes()
    return item.values.to_pylist(), None if item.reserved is None else item.reserved.to_pylist()


def read(data: bytes) -> list[tuple[Any, ...]]:
    return [content_of(item) for item in read_items(data)]


def test_literal_items_are_encoded_and_decoded() -> None:
    values = pa.array([b"ab", b"c"], pa.binary())
    assert join(encode_values_item(values, pa.array([5, -1], pa.int64()))) == VALUES
    assert join(encode_group_item(HEADER, b"hello")) == GROUP
    assert read(VALUES + GROUP) == [
        ([b"ab", b"c"], [5, -1]),
        (
            Header(
                Content.BYTES, 5, published_ns=1_700_000_000_000_000_000, batch=7, row=41, partition=2, writer="w-1"
            ),
            b"hello",
        ),
    ]


def test_an_empty_stage_has_no_items() -> None:
    assert read(b"") == []


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("window", [slice(0, 4), slice(1, 3), slice(4, 4)], ids=str)
def test_values_of_every_type_and_slice_can_be_encoded_and_decoded(kind: pa.DataType, window: slice) -> None:
    texts = ["", "one", "twenty-two", "z"]
    data = join(encode_values_item(pa.array(texts, kind)[window]))
    (item,) = read_items(data)
    assert isinstance(item, StagedValues)
    item.values.validate(full=True)
    assert item.values.to_pylist() == [text.encode() for text in texts[window]]
    assert (item.rows, item.longest) == (len(texts[window]), max(map(len, texts[window]), default=0))
    assert len(data) % 8 == 0


def test_empty_arrays_can_be_encoded_and_decoded() -> None:
    for empty in (pa.array([], pa.binary()), pa.array([], pa.large_string()), pa.array([b"x"], pa.binary())[1:]):
        assert read(join(encode_values_item(empty))) == [([], None)]
    assert read(join(encode_values_item(pa.array([b"", b""]), pa.array([1, 2])))) == [([b"", b""], [1, 2])]


def test_payloads_are_not_copied() -> None:
    payload = pa.py_buffer(b"x" * 1000)
    assert payload.address in [part.address for part in encode_group_item(HEADER, payload)]
    values = pa.array([b"ab", b"cde", b"f"], pa.binary())
    assert values.buffers()[2].address + 2 in [part.address for part in encode_values_item(values[1:])]
    whole = pa.py_buffer(VALUES + GROUP)
    first, second = read_items(whole)
    assert isinstance(first, StagedValues)
    assert isinstance(second, StagedGroup)
    assert second.payload.address == whole.address + len(VALUES + GROUP) - 8
    data = first.values.buffers()[2]
    assert data.address == whole.address + len(VALUES) - 8


def test_a_payload_in_several_buffers_is_encoded_like_one_buffer() -> None:
    parts = [pa.py_buffer(b"he"), pa.py_buffer(b""), pa.py_buffer(b"llo")]
    assert join(encode_group_item(HEADER, parts)) == GROUP


def test_an_arrow_group_keeps_its_rows() -> None:
    (item,) = read_items(join(encode_group_item(Header(Content.ARROW, 0, rows=12), b"")))
    assert (item.rows, content_of(item)) == (12, (Header(Content.ARROW, 0, rows=12), b""))


@pytest.mark.parametrize("shift", range(8))
def test_a_stage_at_any_address_can_be_decoded(shift: int) -> None:
    moved = memoryview(bytes(shift) + VALUES + GROUP)[shift:]
    assert [content_of(item) for item in read_items(moved)] == read(VALUES + GROUP)


def test_unsuitable_values_and_groups_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataFormatError, match="1 of 2 values are null"):
        encode_values_item(pa.array([b"a", None]))
    with pytest.raises(DataFormatError, match="values have the type int64"):
        encode_values_item(pa.array([1]))
    for reserved in (pa.array([1, 2]), pa.array([1], pa.int32()), pa.array([None], pa.int64())):
        with pytest.raises(DataFormatError, match="reserved values of type"):
            encode_values_item(pa.array([b"a"]), reserved)
    with pytest.raises(OptionError, match="limit is 255"):
        encode_group_item(Header(Content.BYTES, 0, writer="w" * 256), b"")
    monkeypatch.setattr(staged_items_module, "MAX_ITEM_BYTES", 3)
    assert len(encode_values_item(pa.array([b"abc"]))) == 3
    with pytest.raises(OptionError, match="2 values have 4 bytes, and the limit of one item is 3"):
        encode_values_item(pa.array([b"abc", b"d"]))


def test_every_truncated_stage_is_an_error() -> None:
    whole = VALUES + GROUP
    assert len(read(whole)) == 2
    for length in range(1, len(whole)):
        if length == len(VALUES):
            continue
        with pytest.raises(DataFormatError, match="begins at byte"):
            read(whole[:length])


def test_a_stage_with_a_flipped_bit_is_read_within_its_bounds() -> None:
    whole = VALUES + GROUP
    assert len(read(whole)) == 2
    errors = 0
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            for item in read_items(bytes(changed)):
                if isinstance(item, StagedValues):
                    item.values.validate(full=True)
                content_of(item)
        except DataFormatError:
            errors += 1
    assert errors > 8 * 30  # bits of kinds, lengths, counts and offsets


@pytest.mark.parametrize(
    ("data", "at", "change", "fault"),
    [
        (VALUES, 0, "<B", "its kind is 9"),
        (VALUES, 4, "<I", "it announces 9 rows, 2 values"),
        (VALUES, 8, "<Q", "but the stage ends after"),
        (VALUES, 20, "<B", "and 9 as the flag of reserved values"),
        (VALUES, 24, "<I", "do not increase from 0 to 3"),
        (VALUES, 28, "<I", "do not increase from 0 to 3"),
        (VALUES, 32, "<I", "do not increase from 0 to 3"),
        (GROUP, 4, "<I", "has one value, but announces 9 rows"),
        (GROUP, 16, "<B", "its content is 9"),
        (GROUP, 17, "<B", "expected at least 48"),
    ],
)
def test_the_error_names_the_fault_of_an_item(data: bytes, at: int, change: str, fault: str) -> None:
    value = 99999 if change == "<Q" else 9
    changed = bytearray(data)
    struct.pack_into(change, changed, at, value)
    with pytest.raises(DataFormatError, match=fault) as raised:
        read(bytes(changed))
    assert "begins at byte 0" in str(raised.value)
    assert raised.value.remedy


def test_a_writer_id_that_is_not_utf_8_is_an_error() -> None:
    with pytest.raises(DataFormatError, match="not UTF-8"):
        read(GROUP.replace(b"w-1", b"\xff-1"))


def test_a_body_shorter_than_its_header_is_an_error() -> None:
    for kind, header_bytes in ((1, 8), (2, 32)):
        for length in range(0, header_bytes, 8):
            with pytest.raises(DataFormatError, match=f"have {length} bytes|has {length} bytes"):
                read(struct.pack("<B3xIQ", kind, 0, length) + bytes(length))


def test_a_count_beyond_the_body_allocates_no_memory() -> None:
    with pytest.raises(DataFormatError, match="its 4294967295 values have 8 bytes"):
        read(struct.pack("<B3xIQ", 1, 2**32 - 1, 8) + struct.pack("<IB3x", 2**32 - 1, 1))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_within_their_bounds(data: bytes) -> None:
    for head in (b"", b"\1\0\0\0", b"\2\0\0\0\1\0\0\0"):
        with suppress(DataFormatError):
            for item in read_items(head + data):
                content_of(item)


values_items = st.lists(st.tuples(st.binary(max_size=20), st.integers(-(2**63), 2**63 - 1)), max_size=6)
group_items = st.tuples(
    st.builds(
        Header,
        content=st.just(Content.ARROW),
        total=st.just(0),
        rows=st.integers(0, 2**32 - 1),
        published_ns=st.integers(-(2**63), 2**63 - 1),
        batch=st.integers(-1, 2**63 - 1),
        row=st.integers(0, 2**63 - 1),
        partition=st.integers(-1, 2**31 - 1),
        writer=st.text(max_size=20),
    ),
    st.binary(max_size=40),
)


@given(st.lists(st.one_of(values_items, group_items), max_size=5), st.booleans())
def test_any_items_can_be_encoded_and_decoded(wanted: list[Any], with_reserved: bool) -> None:
    data, expected = b"", []
    for one in wanted:
        if isinstance(one, tuple):
            header, payload = one
            data += join(encode_group_item(header, payload))
            expected.append((header.writer, header.rows, header.batch, header.row, payload))
        else:
            values = pa.array([value for value, _ in one], pa.binary())
            numbers = [number for _, number in one] if with_reserved else None
            reserved = None if numbers is None else pa.array(numbers, pa.int64())
            data += join(encode_values_item(values, reserved))
            expected.append((values.to_pylist(), numbers))
    found: list[Any] = []
    for item in read_items(data):
        if isinstance(item, StagedGroup):
            header = item.header
            assert (header.total, header.is_whole) == (item.payload.size, True)
            found.append((header.writer, header.rows, header.batch, header.row, item.payload.to_pybytes()))
        else:
            found.append(content_of(item))
    assert found == expected


def test_the_complete_items_of_a_growing_stage_are_read() -> None:
    whole = VALUES + GROUP + VALUES
    stops = [len(VALUES), len(VALUES + GROUP), len(whole)]
    for cut in range(len(whole) + 1):
        found = list(complete_items(pa.py_buffer(whole[:cut])))
        assert [end for end, _ in found] == [stop for stop in stops if stop <= cut]
    for begin, stop in zip([0, *stops], [*stops, None], strict=True):
        later = list(complete_items(pa.py_buffer(whole), begin))
        assert [end for end, _ in later][:1] == ([] if stop is None else [stop])
    assert [content_of(item) for _, item in complete_items(pa.py_buffer(whole))] == [
        content_of(item) for item in read_items(whole)
    ]
    assert [content_of(item) for item in read_items(whole, stops[0])] == [
        content_of(item) for item in read_items(GROUP + VALUES)
    ]
