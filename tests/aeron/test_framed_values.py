"""The Java helper encodes and decodes values of the wire format as the code in Python does."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.aeron import checksum, framed_values, jvm
from aeron_spark.aeron.framed_values import FramedDecoder, encode_values
from aeron_spark.wire import values as in_python
from aeron_spark.wire.chunks import Content, Header, encode
from aeron_spark.wire.values import FIELDS, Values
from tests.unit.wire.test_chunk import DAMAGED, LITERAL, LITERAL_HEADER

HEADER = Header(Content.BYTES, 0, published_ns=77, batch=4, partition=2, writer="writer-1")


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Start the JVM, and collect the names of the Java classes that a test uses."""
    jvm.start()
    used: list[str] = []

    def jclass(name: str) -> Any:
        used.append(name.rpartition(".")[2])
        return jvm.jclass(name)

    monkeypatch.setattr(framed_values, "jclass", jclass)
    return used


def binary(*values: bytes) -> pa.Array[Any]:
    return pa.array(values, pa.binary())


def contents(found: Values) -> tuple[int, int, dict[str, tuple[pa.DataType, list[Any]]]]:
    for array in found.fields.values():
        array.validate(full=True)
    return found.begin, len(found), {name: (one.type, one.to_pylist()) for name, one in sorted(found.fields.items())}


def check_decoding(messages: pa.Array[Any], begin: int = 0, wanted: tuple[str, ...] = tuple(FIELDS)) -> Values:
    """Decode with Java, check that Python's result is equal, and return it."""
    found = FramedDecoder(wanted).decode(messages, begin)
    assert contents(found) == contents(in_python.decode_values(messages, begin, wanted))
    assert set(found.fields) == set(wanted)
    return found


def random_header(rng: random.Random) -> Header:
    return Header(
        Content.BYTES, 0, published_ns=rng.choice([0, -(2**63), 2**63 - 1, rng.getrandbits(60)]),
        batch=rng.choice([-1, 2**63 - 1, rng.getrandbits(40)]), partition=rng.choice([-1, 2**31 - 1, 3]),
        writer=rng.choice(["", "a", "writer-1", "writer-2", "流" * 85, "x" * 36]),
    )  # fmt: skip


def test_a_literal_message_is_encoded_and_decoded(java: list[str]) -> None:
    assert encode_values(binary(b"hello"), LITERAL_HEADER, 41).to_pylist() == [LITERAL]
    found = check_decoding(binary(LITERAL))
    assert found.fields["value"].to_pylist() == [b"hello"]
    assert found.fields["writer"].to_pylist() == ["query-7f3a2c"]
    assert java == ["ValueEncoder", "ValueDecoder"]


def test_random_values_of_random_writers_are_encoded_and_decoded(rng: random.Random, java: list[str]) -> None:
    for _ in range(50):
        messages: list[bytes] = []
        for _ in range(rng.randrange(1, 5)):
            values = binary(*(rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 20))))
            values = values[rng.randrange(len(values)) :]
            header, first_row = random_header(rng), rng.choice([0, 2**40, -5])
            encoded = encode_values(values, header, first_row)
            encoded.validate(full=True)
            assert encoded.equals(in_python.encode_values(values, header, first_row))
            messages += encoded.to_pylist()
        begin = rng.randrange(len(messages))
        wanted = tuple(rng.sample(list(FIELDS), rng.randrange(len(FIELDS) + 1)))
        found = check_decoding(binary(b"before", *messages)[1:], begin, wanted)
        assert len(found) == len(messages) - begin
    assert set(java) == {"ValueEncoder", "ValueDecoder"}


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()], ids=str)
def test_empty_values_and_parts_of_an_array_are_encoded(kind: pa.DataType, java: list[str]) -> None:
    for column in (pa.array(["", ""], kind), pa.array(["ab", "", "c"], kind)[1:], pa.array(["a", "bc"], kind)[:1]):
        assert encode_values(column, HEADER, 3).equals(in_python.encode_values(column, HEADER, 3))
    assert java == ["ValueEncoder"] * 3
    assert len(encode_values(pa.array([], kind), HEADER, 0)) == 0


def test_values_with_long_offsets_are_encoded_in_python(java: list[str]) -> None:
    column = pa.array(["ab", "", "c"], pa.large_string())[1:]
    assert encode_values(column, HEADER, 3).equals(in_python.encode_values(column, HEADER, 3))
    assert java == []


@pytest.mark.parametrize("message", DAMAGED)
def test_decoding_stops_before_a_message_that_is_not_a_whole_valid_value(message: bytes) -> None:
    before, after = encode(replace(HEADER, total=1), b"1"), encode(replace(HEADER, total=1), b"3")
    messages = binary(before, message, after)
    assert check_decoding(messages).fields["value"].to_pylist() == [b"1"]
    assert len(check_decoding(messages, 1)) == 0
    assert check_decoding(messages, 2).fields["value"].to_pylist() == [b"3"]


def test_a_message_with_a_flipped_bit_is_not_decoded() -> None:
    for bit in range(8 * len(LITERAL)):
        message = bytearray(LITERAL)
        message[bit // 8] ^= 1 << bit % 8
        assert len(check_decoding(binary(bytes(message), LITERAL))) == 0


def test_python_decodes_and_encodes_if_the_jvm_forbids_access_to_its_checksum(
    monkeypatch: pytest.MonkeyPatch, java: list[str]
) -> None:
    monkeypatch.setattr(checksum, "_update", lambda: None)
    assert check_decoding(encode_values(binary(b"one", b"two"), HEADER, 0)).fields["row"].to_pylist() == [0, 1]
    assert java == []
