"""The check of MessagePack bytes, compared with msgspec."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import msgpack

from aeron_spark.protocol.message_types import ShapeLimits, fault_of

NESTED = {1: 0, 5: 2}
KEYS = st.text() | st.binary()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=30,
)


@given(VALUES)
def test_encoded_values_have_no_fault_and_truncated_ones_have_one(value: object) -> None:
    body = msgpack.encode(value)
    assert fault_of(body, nested=NESTED) is None
    assert fault_of(memoryview(body), nested=NESTED) is None
    assert fault_of(body + b"\x00", nested=NESTED) is not None
    for end in range(min(len(body), 200)):
        assert fault_of(body[:end], nested=NESTED) is not None


@given(st.binary(max_size=200))
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xdf\xff\xff\xff\xff")
@example(b"\xc9\xff\xff\xff\xff\x01")
@example(b"\xc7\x02\x05\x00\x00")
def test_bytes_without_a_fault_can_be_decoded(body: bytes) -> None:
    if fault_of(body, nested=NESTED) is None:
        fault = ""
        try:
            msgpack.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            fault = str(error)
        # the check ignores invalid UTF-8 and invalid timestamps
        assert not fault or "codec can't decode" in fault or "timestamp" in fault


@pytest.mark.parametrize("value", [b"", "", 1, -1, -33, 2**16, 1.5, None, True, "x" * 40, "x" * 300, b"x" * 70_000])
def test_every_form_of_a_length_has_no_fault(value: object) -> None:
    for body in (msgpack.encode([value, 7]), msgpack.encode([value] * 20)):
        assert fault_of(body, nested=NESTED) is None


def test_every_width_of_an_extension_has_no_fault() -> None:
    for length in (1, 2, 4, 8, 16, 3, 300, 70_000):
        assert fault_of(msgpack.encode(msgpack.Ext(9, bytes(length))), nested=NESTED) is None


@pytest.mark.parametrize(
    "prefix", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01", b"\xde\x00\x01\xa1a"]
)
def test_the_depth_is_limited(prefix: bytes) -> None:
    assert fault_of(prefix * 64 + b"\x01", nested=NESTED) is None
    assert "deeper than 64" in (fault_of(prefix * 65 + b"\x01", nested=NESTED) or "")
    assert "deeper than 64" in (fault_of(prefix * 500_000, nested=NESTED) or "")


def test_nested_extensions_count_as_levels() -> None:
    body = b"\x01"
    for _ in range(65):
        body = msgpack.encode(msgpack.Ext(1, body))
    assert "deeper than 64" in (fault_of(body, nested=NESTED) or "")


def test_entries_are_counted_before_they_are_scanned() -> None:
    assert fault_of(msgpack.encode([0] * 99), nested=NESTED, limits=ShapeLimits(depth=64, items=100)) is None
    assert "more than 100 entries" in (
        fault_of(msgpack.encode([0] * 100), nested=NESTED, limits=ShapeLimits(depth=64, items=100)) or ""
    )
    started = time.perf_counter()
    assert "entries" in (fault_of(b"\xdd\xff\xff\xff\xff" + bytes(1000), nested=NESTED) or "")
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("key", [1, (1, 2), 1.5, None, True, -40, 2**40])
def test_keys_with_a_predictable_hash_are_a_fault(key: object) -> None:
    assert fault_of(msgpack.encode({"a": 1}), nested=NESTED) is None
    assert "neither text nor bytes" in (fault_of(msgpack.encode({key: 1}), nested=NESTED) or "")
    assert "neither text nor bytes" in (fault_of(msgpack.encode({"a": {b"b": {key: 1}}}), nested=NESTED) or "")


def test_an_extension_as_a_key_is_a_fault() -> None:
    assert "neither text" in (fault_of(b"\x81\xd4\x09\x00\x01", nested=NESTED) or "")


def test_a_nested_value_must_fill_its_extension() -> None:
    assert fault_of(msgpack.encode(msgpack.Ext(1, b"\x91\x01")), nested=NESTED) is None
    for payload in (b"\x91\x01\x01", b"\x91", b"\x92\x01", b""):
        assert fault_of(msgpack.encode([msgpack.Ext(1, payload), 1, 2, 3]), nested=NESTED) is not None
