"""Many small values at once: encoded like single messages, and decoded."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.wire import values as values_module
from aeron_spark.wire.chunks import Content, Group, Header, Reassembler, decode, encode, split
from aeron_spark.wire.values import FIELDS, Run, Values, decode_values, encode_values, read_groups, runs, value_at
from tests.unit.wire.test_chunk import DAMAGED, LITERAL, LITERAL_HEADER

HEADER = Header(Content.BYTES, 0, published_ns=77, batch=4, partition=2, writer="writer-1")


def binary(*values: bytes) -> pa.Array[Any]:
    return pa.array(values, pa.binary())


def rows_of(found: Values) -> list[tuple[Any, ...]]:
    return list(zip(*(found.fields[name].to_pylist() for name in FIELDS), strict=True))


def test_a_literal_message_is_encoded_and_decoded() -> None:
    assert encode_values(binary(b"hello"), LITERAL_HEADER, 41).to_pylist() == [LITERAL]
    found = decode_values(binary(LITERAL))
    assert rows_of(found) == [(b"hello", 1_700_000_000_000_000_000, "query-7f3a2c", 7, 2, 41)]
    assert (found.begin, len(found)) == (0, 1)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("window", [slice(0, 4), slice(1, 3), slice(4, 4)], ids=str)
def test_every_message_equals_the_result_of_encode(kind: pa.DataType, window: slice) -> None:
    texts = ["", "one", "twenty-two", "z"]
    encoded = encode_values(pa.array(texts, kind)[window], HEADER, 10)
    expected = [
        encode(replace(HEADER, total=len(text), row=10 + index), text.encode())
        for index, text in enumerate(texts[window])
    ]
    assert encoded.to_pylist() == expected
    assert encoded.type == pa.binary()
    encoded.validate(full=True)
    assert decode_values(encoded).fields["value"].to_pylist() == [text.encode() for text in texts[window]]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string()], ids=str)
def test_one_value_is_a_view_of_its_array(kind: pa.DataType) -> None:
    column = pa.array(["ab", "", "cde", "f"], kind)[1:]
    assert [value_at(column, index).to_pybytes() for index in range(3)] == [b"", b"cde", b"f"]
    assert value_at(column, 1).address == column.buffers()[2].address + 2


def test_no_values_are_no_messages() -> None:
    for empty in (binary(), pa.array([], pa.large_string()), binary(b"x")[1:]):
        assert len(encode_values(empty, HEADER, 0)) == 0
        assert len(decode_values(empty)) == 0
        assert list(runs(empty, max_message_bytes=1000)) == []


@pytest.mark.parametrize("wanted", [(), ("value",), ("row", "writer"), tuple(FIELDS)], ids=str)
def test_only_wanted_fields_are_decoded(wanted: tuple[str, ...]) -> None:
    found = decode_values(encode_values(binary(b"a", b"b"), HEADER, 5), 0, wanted)
    assert len(found) == 2
    every = decode_values(encode_values(binary(b"a", b"b"), HEADER, 5)).fields
    assert found.fields == {name: every[name] for name in wanted}
    assert {name: array.to_pylist() for name, array in found.head(1).fields.items()} == {
        name: every[name].to_pylist()[:1] for name in wanted
    }


def test_messages_of_several_writers_keep_their_writers() -> None:
    headers = [replace(HEADER, total=1, row=row, writer=writer) for row, writer in enumerate(["a", "b", "", "bb", "a"])]
    found = decode_values(binary(*(encode(header, b"x") for header in headers)))
    assert found.fields["writer"].to_pylist() == ["a", "b", "", "bb", "a"]
    assert found.fields["row"].to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("message", DAMAGED)
def test_decoding_stops_before_a_message_that_is_not_a_whole_valid_value(message: bytes) -> None:
    before, after = encode(replace(HEADER, total=1), b"1"), encode(replace(HEADER, total=1), b"3")
    messages = binary(before, message, after)
    assert decode_values(messages).fields["value"].to_pylist() == [b"1"]
    assert len(decode_values(messages, 1)) == 0
    found = decode_values(messages, 2)
    assert (found.begin, found.fields["value"].to_pylist()) == (2, [b"3"])


def test_a_message_with_a_flipped_bit_is_not_decoded() -> None:
    assert len(decode_values(binary(LITERAL))) == 1
    for bit in range(8 * len(LITERAL)):
        message = bytearray(LITERAL)
        message[bit // 8] ^= 1 << bit % 8
        assert len(decode_values(binary(bytes(message)))) == 0


def test_values_beyond_the_limit_of_an_array_are_in_the_next_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_module, "_MAX_ARRAY_BYTES", 6)
    messages = encode_values(binary(b"abc", b"def", b"g"), HEADER, 0)
    assert decode_values(messages).fields["value"].to_pylist() == [b"abc", b"def"]
    found = list(read_groups(Reassembler(), messages, pa.array([0, 32, 64])))
    assert [part.fields["value"].to_pylist() for part in found if isinstance(part, Values)] == [
        [b"abc", b"def"],
        [b"g"],
    ]


def test_a_large_value_is_a_run_of_its_own() -> None:
    values = binary(b"x" * 30, b"", b"y" * 31, b"z" * 99, b"x", b"x")
    found = list(runs(values, max_message_bytes=80 + 30, writer="w"))
    assert found == [Run(0, 2, True), Run(2, 1, False), Run(3, 1, False), Run(4, 2, True)]


def test_a_run_has_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_module, "ENCODED_BYTES", 250)
    found = list(runs(binary(*[b"x" * 28] * 5), max_message_bytes=1000))
    assert found == [Run(0, 2, True), Run(2, 2, True), Run(4, 1, True)]
    assert list(runs(binary(b"x" * 500, b"", b""), max_message_bytes=1000)) == [Run(0, 1, True), Run(1, 2, True)]


def test_values_that_cannot_be_encoded_are_an_error() -> None:
    with pytest.raises(DataFormatError, match="1 of 2 values are null"):
        runs(pa.array([b"x", None]), max_message_bytes=1000)
    with pytest.raises(OptionError, match="no room for payload"):
        runs(binary(b"x"), max_message_bytes=72)
    with pytest.raises(DataFormatError, match="values have the type int64"):
        encode_values(pa.array([1]), HEADER, 0)


def test_values_and_groups_are_decoded_in_their_order() -> None:
    chunks = [
        chunk.encode_header(64) + chunk.payload.to_pybytes()
        for chunk in split(b"a larger value", HEADER, max_message_bytes=90)
    ]
    arrow = encode(replace(HEADER, content=Content.ARROW, total=5, rows=9), b"arrow")
    small = [encode(replace(HEADER, total=1, row=row), b"%d" % row) for row in range(4)]
    messages = binary(small[0], chunks[0], *chunks, small[1], chunks[0], small[2], small[3], arrow)
    reassembler = Reassembler()
    found = list(read_groups(reassembler, messages, pa.array(range(64, 64 + 100 * len(messages), 100))))
    assert [
        part.fields["value"].to_pylist() if isinstance(part, Values) else (part.position, part.payload.to_pybytes())
        for part in found
    ] == [[b"0"], (264, b"a larger value"), [b"1"], [b"2", b"3"], (864, b"arrow")]
    assert [part.begin for part in found if isinstance(part, Values)] == [0, 4, 6]
    assert (reassembler.discarded, reassembler.unfinished) == (2, None)
    assert isinstance(found[-1], Group)
    assert found[-1].header.rows == 9


def test_an_invalid_message_is_an_error_after_the_values_before_it() -> None:
    groups = read_groups(Reassembler(), binary(LITERAL, b"raw"), pa.array([0, 128]))
    found = next(groups)
    assert isinstance(found, Values)
    assert found.fields["value"].to_pylist() == [b"hello"]
    with pytest.raises(DataFormatError, match="it has 3 bytes"):
        next(groups)


@given(
    st.lists(st.binary(max_size=100), max_size=20),
    st.integers(1, 60),
    st.integers(-(2**63), 2**63 - 30),
    st.text("aé流", max_size=9),
)
def test_any_values_can_be_encoded_and_decoded(values: list[bytes], room: int, first_row: int, writer: str) -> None:
    header, column = replace(HEADER, writer=writer), pa.array(values, pa.binary())
    messages: list[bytes] = []
    limit = len(encode(replace(header, total=0), b"")) + room
    for run in runs(column, max_message_bytes=limit, writer=writer):
        part = column.slice(run.begin, run.length)
        if run.small:
            messages += encode_values(part, header, first_row + run.begin).to_pylist()
        else:
            own = replace(header, row=first_row + run.begin)
            chunks = split(part[0].as_py(), own, max_message_bytes=limit)
            messages += [chunk.encode_header(0) + chunk.payload.to_pybytes() for chunk in chunks]
    assert all(decode(message) and len(message) <= limit for message in messages)
    rows, found = [], []
    for got in read_groups(Reassembler(), pa.array(messages, pa.binary()), pa.array(range(len(messages)), pa.int64())):
        if isinstance(got, Values):
            found += got.fields["value"].to_pylist()
            rows += got.fields["row"].to_pylist()
        else:
            found.append(got.payload.to_pybytes())
            rows.append(got.header.row)
    assert found == values
    assert rows == list(range(first_row, first_row + len(values)))


@pytest.mark.slow
def test_many_values_at_once_are_faster_than_single_messages() -> None:
    """Compares a ratio, which does not depend on the load of the machine. On an idle machine it is about 3.5."""
    column = pa.array([bytes(100)] * 20_000, pa.binary())
    header = replace(HEADER, total=100)

    def seconds(work: Any) -> float:
        best = float("inf")
        for _ in range(5):
            begin = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - begin)
        return best

    messages = encode_values(column, header, 0)
    raw = messages.to_pylist()
    one = seconds(lambda: [decode(encode(header, message[-100:])) for message in raw])
    assert seconds(lambda: decode_values(encode_values(column, header, 0))) < one / 1.5
