"""Tests that text of a peer stays one line that shows every character that it has."""

from __future__ import annotations

import difflib
import json
import sys
import unicodedata
from collections.abc import Collection
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.texts import MAX_TEXT_CHARACTERS, escape_text, nearest, quote_text

FORGED: Final = "desk\n2026-11-23T18:30:00.123Z INFO connected name=root"
BIDIRECTIONAL_CONTROLS: Final = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_a_forged_log_line_stays_one_line() -> None:
    assert escape_text(FORGED) == "desk\\u000a2026-11-23T18:30:00.123Z INFO connected name=root"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("\x9b31m", "\\u009b31m"),
        ("a\u202egpj", "a\\u202egpj"),
        ("a\u2028b", "a\\u2028b"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("\ud800", "\\ud800"),
        ("C:\\temp", "C:\\\\temp"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_characters_that_are_not_printable_become_their_codes(text: str, escaped: str) -> None:
    assert escape_text(text) == escaped


def test_every_bidirectional_control_is_escaped() -> None:
    marks = ["\u200e", "\u200f", "\u061c"]
    controls = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.bidirectional(chr(code)) in BIDIRECTIONAL_CONTROLS
    ]
    assert len(controls) == 9
    for control in [*controls, *marks]:
        assert escape_text(control) == f"\\u{ord(control):04x}"


def test_a_quotation_mark_does_not_end_a_quoted_text() -> None:
    assert quote_text('x" name="root') == '"x\\" name=\\"root"'


@given(st.text(alphabet=st.characters(), max_size=20))
def test_a_quoted_text_is_the_same_text_in_json(text: str) -> None:
    quoted = quote_text(text, max_characters=240)
    assert json.loads(quoted) == text
    assert all(character.isprintable() for character in quoted)


@given(st.text(alphabet=st.characters(), max_size=300), st.integers(min_value=1, max_value=40))
def test_an_escaped_text_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    escaped = escape_text(text, limit)
    assert len(escaped) <= limit
    assert escaped.isprintable()
    assert escape_text(text, 6 * 300 * 2).startswith(escaped.removesuffix("…"))


def test_a_long_text_is_cut_between_two_characters() -> None:
    assert escape_text("x" * MAX_TEXT_CHARACTERS) == "x" * MAX_TEXT_CHARACTERS
    assert escape_text("x" * (MAX_TEXT_CHARACTERS + 1)) == "x" * (MAX_TEXT_CHARACTERS - 1) + "…"
    assert escape_text("\n" * 1_000_000, 14) == "\\u000a\\u000a…"


def test_the_nearest_name_has_a_typing_mistake_less() -> None:
    names = ["prices.eu", "prices.us", "orders", "o" * 100]
    assert [nearest(wrong, names) for wrong in ("price.eu", "rpices.us", "order", "o" * 99)] == [
        "prices.eu", "prices.us", "orders", "o" * 100,
    ]  # fmt: skip
    assert nearest("flights", names) == nearest("", names) == nearest("prices.eu", []) == ""


def test_the_cost_of_the_nearest_name_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of two names is quadratic in their lengths, and a peer chooses one of them."""
    compared: list[int] = []

    def count(word: str, possibilities: Collection[str], n: int) -> list[str]:
        compared.extend(len(word) * len(one) for one in possibilities)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", count)
    assert nearest("ab" * 1_000, [f"{number:04}{'ba' * 60}" for number in range(10_000)]) == ""
    assert len(compared) <= 32
    assert max(compared) <= 64 * 64
