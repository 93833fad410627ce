"""Hints: literal texts, and random text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.protocol.handshake_packets import MAX_HINT_BYTES, RefusalHint, RetryHint, decode_hint, encode_hint
from aeron_spark.protocol.handshake_payloads import CODES, known_code, printable
from aeron_spark.protocol.sources import Refusal


def test_hints_have_these_texts() -> None:
    retry = "aeron-spark/1 RETRY Y2NjY2NjY2NjY2NjY2NjY2M"
    assert encode_hint(RetryHint(b"c" * 17)) == retry
    assert decode_hint(retry) == RetryHint(b"c" * 17)
    refusal = RefusalHint(Refusal("full", "Server is full"))
    assert encode_hint(refusal) == "aeron-spark/1 FAILED full Server is full"
    assert decode_hint(encode_hint(refusal)) == refusal


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_can_be_sent_as_a_hint(code: str) -> None:
    hint = RefusalHint(Refusal(code, ""))
    assert decode_hint(encode_hint(hint)) == hint
    assert known_code(code) == code


def test_any_text_can_be_sent_as_a_hint() -> None:
    text = encode_hint(RefusalHint(Refusal("key", "line\nbreak \u20ac\x1b[31m" + "x" * 2000)))
    assert len(text.encode()) <= MAX_HINT_BYTES
    hint = decode_hint(text)
    assert isinstance(hint, RefusalHint)
    assert hint.refusal.text.startswith("line?break ??[31mxxx")
    assert printable("caf\u00e9") == "caf?"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Image.reject",
        "aeron-spark/1 ",
        "aeron-spark/2 RETRY Y2NjY2NjY2NjY2NjY2NjY2M",
        "aeron-spark/1 RETRY",
        "aeron-spark/1 RETRY Y2NjY2NjY2NjY2NjY2NjY2N",  # the same bytes with a stray bit
        "aeron-spark/1 RETRY Y2NjY2NjY2NjY2NjY2NjY2M=",
        "aeron-spark/1 RETRY Y2NjY2NjY2NjY2NjY2NjY2M ",
        "aeron-spark/1 RETRY \u20ac",
        "aeron-spark/1 FAILED",
        "aeron-spark/1 FAILED full",
        "aeron-spark/1 FAILED fool text",
        "aeron-spark/1 FAILED full line\nbreak",
        "aeron-spark/1 FAILED full " + "x" * 301,
    ],
)
def test_text_that_is_not_a_hint_is_refused(text: str) -> None:
    with pytest.raises(DataFormatError, match="is not one of aeron-spark's"):
        decode_hint(text)


def test_an_unknown_code_cannot_be_sent_as_a_hint() -> None:
    with pytest.raises(OptionError, match="not a code of a refusal"):
        encode_hint(RefusalHint(Refusal("fool", "")))


@given(st.text(max_size=1100) | st.text(max_size=80).map("aeron-spark/1 RETRY ".__add__)
       | st.text(max_size=400).map("aeron-spark/1 FAILED full ".__add__))  # fmt: skip
def test_random_text_is_a_hint_or_refused(text: str) -> None:
    try:
        hint = decode_hint(text)
    except DataFormatError:
        return
    assert encode_hint(hint) == text
