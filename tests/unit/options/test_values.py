"""The parsers of option values: accepted texts, and errors with the expected value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.options.server_options import parse_networks
from aeron_spark.options.values import INT32_MAX, INT32_MIN, INT64_MAX, Moment, TimestampFrom, WantedOffsets

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("30s", 30 * SECOND),
        ("15m", 900 * SECOND),
        ("15min", 900 * SECOND),
        ("100ms", SECOND // 10),
        ("1h", 3600 * SECOND),
        ("2D", 172_800 * SECOND),
        ("10", 10 * SECOND),
        ("0.5", SECOND // 2),
        ("1.5 s", 3 * SECOND // 2),
        ("250us", 250_000),
        ("1ns", 1),
    ],
)
def test_durations(text: str, nanos: int) -> None:
    assert values.parse_duration_ns(text) == nanos


@pytest.mark.parametrize(
    "text", ["", "soon", "0", "0s", "-1s", "1 week", "1e3", "nan", "٣s", "0.1ns", "9" * 18 + "d", "1..5s"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration above zero such as 100ms, 30s"):
        values.parse_duration_ns(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("512b", 512),
        ("1k", 1024),
        ("1KB", 1024),
        ("1 KiB", 1024),
        ("64MiB", 64 << 20),
        ("1gib", 1 << 30),
        ("64m", 64 << 20),
        ("1g", 1 << 30),
        ("2 tb", 2 << 40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert values.parse_size(text, 1, INT64_MAX) == size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("big", "a size in bytes such as 512KiB"),
        ("1.5g", "a size in bytes such as 512KiB"),
        ("-1", "a size in bytes such as 512KiB"),
        ("0", "a size of at least 1 bytes"),
    ],
)
def test_an_invalid_size_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        values.parse_size(text, 1, INT64_MAX)


@given(st.integers(INT32_MIN, INT32_MAX))
def test_whole_numbers(number: int) -> None:
    assert values.parse_whole(str(number), INT32_MIN, INT32_MAX) == number


@pytest.mark.parametrize("text", ["", "x", "1.0", "1_000", "0x10", "2147483648", "-2147483649", "9" * 30, "٣"])
def test_an_invalid_32_bit_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number from -2147483648 to 2147483647"):
        values.parse_whole(text, INT32_MIN, INT32_MAX)


def test_positions_have_up_to_nineteen_digits() -> None:
    assert values.parse_whole(str(INT64_MAX), 0, INT64_MAX) == INT64_MAX
    with pytest.raises(ValueError, match="a whole number of at least 0"):
        values.parse_whole(str(INT64_MAX + 1), 0, INT64_MAX)


def test_flags() -> None:
    assert values.parse_flag("TRUE")
    assert not values.parse_flag("false")
    with pytest.raises(ValueError, match="true or false"):
        values.parse_flag("yes")


def test_choices() -> None:
    assert values.parse_choice("RAW", ("auto", "raw", "arrow")) == "raw"
    with pytest.raises(ValueError, match="auto, raw or arrow"):
        values.parse_choice("json", ("auto", "raw", "arrow"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", Moment(fixed_ns=SECOND)),
        ("1970-01-01T01:00:01+01:00", Moment(fixed_ns=SECOND)),
        ("1970-01-01 00:00:01.000002", Moment(fixed_ns=SECOND + 2000)),
        ("1970-01-02", Moment(fixed_ns=86_400 * SECOND)),
        ("1970-01-02 00:01", Moment(fixed_ns=86_460 * SECOND)),
        (" 1970-01-01  00:00:01.5 Z ", Moment(fixed_ns=SECOND + SECOND // 2)),
        ("1970-01-01 01:00:01,123456789+0100", Moment(fixed_ns=SECOND + 123_456_789)),
        ("1970-01-01 00:00:01 -01", Moment(fixed_ns=3601 * SECOND)),
        ("1969-12-31T23:59:59.999999z", Moment(fixed_ns=-1000)),
        ("-10m", Moment(ago_ns=600 * SECOND)),
        ("- 90", Moment(ago_ns=90 * SECOND)),
    ],
)
def test_moments(text: str, expected: Moment) -> None:
    assert values.parse_moment(text) == expected


@pytest.mark.parametrize("text", ["", "now", "10m", "-", "-soon", "2026-13-01", "2026-03-01T25:00"])
def test_an_invalid_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an ISO time such as 2026-03-01T09:30:00Z, or a relative one such as -10m"):
        values.parse_moment(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31"])
def test_a_moment_outside_64_bits_of_nanoseconds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="between the years 1678 and 2261"):
        values.parse_moment(text)


def test_a_relative_moment_depends_on_now_and_a_fixed_one_does_not() -> None:
    assert values.parse_moment("-10m").at(601 * SECOND) == SECOND
    assert values.parse_moment("1970-01-01T00:00:02Z").at(601 * SECOND) == 2 * SECOND


def test_locations_of_a_timestamp() -> None:
    assert values.parse_timestamp_from("Reserved-ns") == TimestampFrom("reserved-ns")
    assert values.parse_timestamp_from("reserved-ms") == TimestampFrom("reserved-ms")
    assert values.parse_timestamp_from("16") == TimestampFrom("payload", 16)
    for text in ("header", "-8", "reserved"):
        with pytest.raises(ValueError, match="reserved-ns, reserved-ms, or the byte offset"):
            values.parse_timestamp_from(text)


def test_sessions() -> None:
    assert values.parse_session_ids("17, -4242,17") == (17, -4242)
    for text in ("", "17,", "a", "2147483648"):
        with pytest.raises(ValueError, match="session ids"):
            values.parse_session_ids(text)


def test_archives_are_separated_only_by_commas_between_uris() -> None:
    assert values.split_archives("embedded") == ("embedded",)
    assert values.split_archives("aeron:udp?endpoint=a:1, aeron:udp?endpoint=b:2|alias=x,y ,embedded") == (
        "aeron:udp?endpoint=a:1",
        "aeron:udp?endpoint=b:2|alias=x,y",
        "embedded",
    )
    for text in ("", "embedded,", "embedded,,aeron:ipc"):
        with pytest.raises(ValueError, match="control channel URIs separated by commas"):
            values.split_archives(text)
    with pytest.raises(ValueError, match="archives without repetition"):
        values.split_archives("embedded,embedded")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Earliest", WantedOffsets("earliest")),
        ("latest", WantedOffsets("latest")),
        ("{}", WantedOffsets("earliest")),
        (
            '{"embedded/7": 4096, "8": "latest", "host:8010/9": "earliest"}',
            WantedOffsets("earliest", {"embedded/7": 4096, "8": "latest", "host:8010/9": "earliest"}),
        ),
    ],
)
def test_offsets(text: str, expected: WantedOffsets) -> None:
    assert values.parse_offsets(text, "earliest") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("first", "earliest, latest, or JSON"),
        ("[1]", "earliest, latest, or JSON"),
        ("7", "earliest, latest, or JSON"),
        ('{"7": NaN}', "earliest, latest, or JSON"),
        ("[" * 100_000, "earliest, latest, or JSON"),
        ('{"7": 32, "7": 64}', "names each recording once, not '7' twice"),
        ('{"seven": 32}', "not 'seven'"),
        ('{"\\ud800/7": 32}', r"not '\ud800/7'"),
        ('{"7": -32}', "the value of '7' is -32"),
        ('{"7": true}', "the value of '7' is true"),
        ('{"7": 32.0}', "the value of '7' is 32.0"),
        ('{"7": {"0": 32}}', "the value of '7' is an object"),
        ('{"7": 9223372036854775808}', "the value of '7' is 9223372036854775808"),
        ('{"7": 33}', "multiples of 32, where messages begin; the position of '7' is 33"),
    ],
)
def test_invalid_offsets_are_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match="JSON") as caught:
        values.parse_offsets(text, "earliest")
    assert expected in str(caught.value)


@given(st.text(max_size=40))
def test_a_parser_raises_no_error_but_value_error(text: str) -> None:
    for parse in (
        values.parse_duration_ns,
        values.parse_flag,
        values.parse_moment,
        values.parse_timestamp_from,
        values.parse_session_ids,
        values.split_archives,
        lambda one: values.parse_size(one, 1, 99),
        lambda one: values.parse_whole(one, 1, 99),
        lambda one: values.parse_choice(one, ("a", "b")),
        lambda one: values.parse_offsets(one, "latest"),
    ):
        try:
            parse(text)
        except ValueError as error:
            assert str(error)  # noqa: PT017 - a value and a ValueError are both correct


@pytest.mark.parametrize(("text", "number"), [("0", 0.0), ("10", 10.0), ("0.5", 0.5), ("100", 100.0)])
def test_numbers(text: str, number: float) -> None:
    assert values.parse_number(text, 0, 100) == number


@pytest.mark.parametrize("text", ["", "-1", "100.5", "1e3", "inf", "nan", ".5", "5.", "1,5", "٣"])
def test_an_invalid_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a number of at least 0"):
        values.parse_number(text, 0, 100)


@pytest.mark.parametrize(("text", "span"), [("1-9", (1, 9)), ("5 - 5", (5, 5)), ("20200-20299", (20200, 20299))])
def test_a_range_includes_both_ends(text: str, span: tuple[int, int]) -> None:
    assert values.parse_span(text, 1, 65_535) == span


@pytest.mark.parametrize("text", ["", "5", "9-1", "0-9", "1-65536", "1-2-3", "-1-5", "a-b", "1..5"])
def test_an_invalid_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a range such as 1-65535"):
        values.parse_span(text, 1, 65_535)


def test_row_27_a_network_with_a_wrong_prefix_is_refused() -> None:
    found = parse_networks("10.0.0.0/8, 2001:db8::/32,127.0.0.1")
    assert [str(network) for network in found] == ["10.0.0.0/8", "2001:db8::/32", "127.0.0.1/32"]
    for text in ("10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.1/8", "", "10.0.0.0/8,"):
        with pytest.raises(OptionError):
            parse_networks(text)


@pytest.mark.parametrize("text", ["0", "0s", "0ms", "0.0", "00"])
def test_only_duration_or_zero_accepts_zero(text: str) -> None:
    assert values.parse_duration_or_zero_ns(text) == 0
    with pytest.raises(ValueError, match="above zero"):
        values.parse_duration_ns(text)


def test_duration_or_zero_accepts_all_other_durations() -> None:
    assert values.parse_duration_or_zero_ns("1.5s") == 1_500_000_000
    for text in ("-1", "", "soon", "0x", "0 0"):
        with pytest.raises(ValueError, match="or 0"):
            values.parse_duration_or_zero_ns(text)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (1184, "1184"), (128 << 10, "128KiB"), (3 << 20, "3MiB"), (64 << 30, "64GiB")]
)
def test_a_size_is_formatted_in_the_largest_unit_that_divides_it(number: int, text: str) -> None:
    assert values.format_size(number) == text
    assert values.parse_size(text, 0, INT64_MAX) == number


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.1, "100ms"), (4.0, "4s"), (60.0, "1min"), (90.0, "90s"), (7200.0, "2h"), (1e-9, "1ns")]
)
def test_seconds_are_formatted_in_the_largest_unit_that_divides_them(seconds: float, text: str) -> None:
    assert values.format_seconds(seconds) == text
    assert values.parse_duration_ns(text) == round(seconds * SECOND)
