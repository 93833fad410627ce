"""Parsing of retentions and times."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.stream_client.admin import Retention, parse_retention, time_of


@pytest.mark.parametrize(
    ("value", "retention"),
    [
        (None, Retention()),
        ("10g", Retention(bytes=10 << 30)),
        ("64mb", Retention(bytes=64 << 20)),
        (4096, Retention(bytes=4096)),
        ("7d", Retention(seconds=7 * 86_400)),
        ("30min", Retention(seconds=1800)),
        (timedelta(hours=1), Retention(seconds=3600)),
        ("10G, 7d", Retention(10 << 30, 7 * 86_400)),
    ],
)
def test_a_retention_is_a_size_a_time_or_both(value: str | int | timedelta | None, retention: Retention) -> None:
    assert parse_retention(value) == retention


@pytest.mark.parametrize("value", ["64m", "64", "1.5", "1g,2g", "1d,2h", "10x", "", "-7d", "7d,", 0, -5, timedelta(0)])
def test_an_ambiguous_or_empty_retention_is_refused(value: str | int | timedelta) -> None:
    with pytest.raises(OptionError, match="retention"):
        parse_retention(value)


def test_a_time_without_a_zone_is_utc() -> None:
    moment = datetime(2026, 3, 1, 9, 30, tzinfo=timezone.utc)
    expected = int(moment.timestamp()) * 10**9
    plus_one = timezone(timedelta(hours=1))
    for value in (moment, moment.replace(tzinfo=None), moment.astimezone(plus_one), "2026-03-01T09:30:00Z"):
        assert time_of(value, 0) == expected
    assert time_of("-10m", expected) == expected - 600 * 10**9
    with pytest.raises(OptionError, match="a time must be"):
        time_of("soon", 0)
