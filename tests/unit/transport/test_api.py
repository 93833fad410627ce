"""Aeron's negative results, by their numbers."""

from __future__ import annotations

import pytest

from aeron_spark.transport.api import OfferResult


@pytest.mark.parametrize(
    ("code", "name", "transient", "word"),
    [
        (-1, "NOT_CONNECTED", True, "no subscriber"),
        (-2, "BACK_PRESSURED", True, "slower than the publisher"),
        (-3, "ADMIN_ACTION", True, "rotating"),
        (-4, "CLOSED", False, "closed"),
        (-5, "MAX_POSITION_EXCEEDED", False, "used up its positions"),
    ],
)
def test_each_result_has_aerons_number_and_a_text(code: int, name: str, transient: bool, word: str) -> None:
    result = OfferResult(code)
    assert result.name == name
    assert result.transient is transient
    assert word in result.sentence


def test_other_numbers_are_not_results() -> None:
    assert sorted(OfferResult) == [-5, -4, -3, -2, -1]
    with pytest.raises(ValueError, match="-6 is not a valid"):
        OfferResult(-6)
