"""JSON of others is refused where Python's parser accepts more than JSON has."""

from __future__ import annotations

import pytest

from aeron_spark.texts import check_json, parse_json


def test_json_is_read() -> None:
    text = '{"a": [1, -2.5, null, true, "\\ud83d\\ude00", "ü"], "b": {}}'
    assert parse_json(text) == {"a": [1, -2.5, None, True, "\U0001f600", "ü"], "b": {}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("NaN", "not a value of JSON"),
        ("[Infinity]", "not a value of JSON"),
        ('{"a": -Infinity}', "not a value of JSON"),
        ("1e999", "not a value of JSON"),
        ('"\\ud800"', "half of a surrogate pair"),
        ('{"\\udc00": 1}', "half of a surrogate pair"),
        ("[" * 100_000, "nested too deep"),
        ("9" * 5_000, "Exceeds the limit"),
    ],
)
def test_what_only_python_accepts_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text)


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object(), {"a": [float("inf")]}])
def test_a_value_without_json_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogate"):
        check_json(value)
