"""Numbers, ranges, networks and durations of 0: what only options of the secure endpoint have."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import endpoint_values, values


@pytest.mark.parametrize(("text", "number"), [("0", 0.0), ("10", 10.0), ("0.5", 0.5), ("100", 100.0)])
def test_a_number_is_read(text: str, number: float) -> None:
    assert endpoint_values.number(text, 0, 100) == number


@pytest.mark.parametrize("text", ["", "-1", "100.5", "1e3", "inf", "nan", ".5", "5.", "1,5", "٣"])
def test_what_is_no_number_within_the_bounds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a number of at least 0"):
        endpoint_values.number(text, 0, 100)


@pytest.mark.parametrize(("text", "span"), [("1-9", (1, 9)), ("5 - 5", (5, 5)), ("20200-20299", (20200, 20299))])
def test_a_range_has_both_its_ends(text: str, span: tuple[int, int]) -> None:
    assert endpoint_values.span(text, 1, 65_535) == span


@pytest.mark.parametrize("text", ["", "5", "9-1", "0-9", "1-65536", "1-2-3", "-1-5", "a-b", "1..5"])
def test_what_is_no_range_within_the_bounds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a range such as 1-65535"):
        endpoint_values.span(text, 1, 65_535)


def test_row_27_networks_are_read_with_their_prefixes_checked() -> None:
    found = endpoint_values.networks("10.0.0.0/8, 2001:db8::/32,127.0.0.1")
    assert [str(network) for network in found] == ["10.0.0.0/8", "2001:db8::/32", "127.0.0.1/32"]
    for text in ("10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.1/8", "", "10.0.0.0/8,"):
        with pytest.raises(OptionError):
            endpoint_values.networks(text)


@pytest.mark.parametrize("text", ["0", "0s", "0ms", "0.0", "00"])
def test_a_duration_may_be_zero_where_that_means_something(text: str) -> None:
    assert values.duration_or_zero_ns(text) == 0
    with pytest.raises(ValueError, match="above zero"):
        values.duration_ns(text)


def test_other_durations_are_as_everywhere() -> None:
    assert values.duration_or_zero_ns("1.5s") == 1_500_000_000
    for text in ("-1", "", "soon", "0x", "0 0"):
        with pytest.raises(ValueError, match="or 0"):
            values.duration_or_zero_ns(text)
