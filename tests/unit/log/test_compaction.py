"""Packing finished recordings is exact and canonical, and unpacking refuses other texts."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.log.offsets import Finished, pack, unpack

FINISHED = st.builds(
    Finished,
    position=st.integers(0, (2**63 - 1) // 32).map(lambda frames: frames * 32),
    tail=st.integers(0, 2**26).map(lambda frames: frames * 32),
    fingerprint=st.integers(0, 2**32 - 1).map("{:08x}".format),
)
KEYS = st.builds(
    "{}/{}".format,
    st.sampled_from(["embedded", "host:8010", "a/b", "ü"]),
    st.integers(0, 300) | st.integers(0, 2**63 - 1),
)


@given(st.dictionaries(KEYS, FINISHED, max_size=30))
def test_unpacking_returns_the_packed_recordings(finished: dict[str, Finished]) -> None:
    assert unpack(pack(finished)) == finished


@given(st.dictionaries(KEYS, FINISHED, max_size=30), st.randoms())
def test_the_order_of_recordings_does_not_change_the_text(finished: dict[str, Finished], random: object) -> None:
    shuffled = dict(sorted(finished.items(), key=lambda _: random.random()))
    assert pack(shuffled) == pack(finished)


def test_packing_writes_the_documented_layout() -> None:
    finished = {"ab/300": Finished(64, 32, "0a0b0c0d"), "ab/5": Finished(4096, 0, "01020304")}
    expected = b"\x02ab\x02\x05\x80\x01\x00\x01\x02\x03\x04\xa7\x02\x02\x01\x0a\x0b\x0c\x0d"
    assert pack(finished) == base64.b64encode(expected).decode()


def test_5000_packed_recordings_need_less_than_14_characters_each() -> None:
    text = pack({f"embedded/{number}": Finished(number * 65536, 0, "01234567") for number in range(5_000)})
    assert len(text) < 5_000 * 14


def test_no_recordings_are_packed_into_an_empty_text() -> None:
    assert pack({}) == ""
    assert unpack("") == {}


def test_a_text_truncated_at_any_byte_is_refused() -> None:
    data = base64.b64decode(pack({"embedded/1": Finished(4096, 0, "01234567"), "x/2": Finished(32, 0, "01234567")}))
    whole = base64.b64encode(data).decode()
    assert len(unpack(whole)) == 2
    for length in range(1, len(data)):
        if length == 18:  # between two archives: the rest is a complete text
            continue
        with pytest.raises(ValueError, match="truncated"):
            unpack(base64.b64encode(data[:length]).decode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!", "not base64"),
        ("AQ", "not base64"),
        (base64.b64encode(b"\xff" * 12).decode(), "too long"),
        (base64.b64encode(b"\x01\xff\x00").decode(), "is not UTF-8"),
        (base64.b64encode(b"\x01a\x00").decode(), "canonical"),  # an archive without a recording
        (base64.b64encode(b"\x81\x00a\x01\x01\x01\x00\x01\x02\x03\x04").decode(), "canonical"),  # a longer varint
        (
            base64.b64encode(b"\x00\x01\x01\x01\x00\x01\x02\x03\x04").decode(),
            "is not '<archive>",
        ),  # an archive without a name
    ],
)
def test_a_text_that_pack_did_not_write_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack(text)


def test_only_aligned_positions_can_be_packed() -> None:
    assert Finished(64, 32, "01234567").packable
    assert not Finished(65, 0, "01234567").packable
    assert not Finished(64, 1, "01234567").packable


def test_the_seen_bytes_include_the_tail() -> None:
    assert Finished(64, 32, "01234567").seen == 96
