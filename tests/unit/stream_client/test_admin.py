"""Parsing of retentions and times."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.stream_client.operations import Retention, parse_retention, time_of
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.wire.stream_requests import RenewLease, StreamUsage
from tests.unit.stream_client.connections import Operations
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import World


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


@pytest.mark.parametrize(
    "fault", [Fault.BREAK, Fault.BREAK_AFTER, Fault.KILL, Fault.KILL_AFTER], ids=lambda one: one.name
)
@pytest.mark.parametrize("request_", ["create", "rename", "delete"])
def test_a_request_that_is_repeated_after_an_outage_knows_its_first_try(
    world: World, request_: str, fault: Fault
) -> None:
    """``delete_stream`` raised "unknown stream" for its own repeated request, in 3 of 8 kills in the middle of it."""
    client = Operations(world.stream_session())
    world.faults.append(fault)
    if request_ == "create":
        assert len(client.create_stream("new", 3).partitions) == 3
        expected = ["new", "s"]
    elif request_ == "rename":
        assert client.rename_stream("s", "new").name == "new"
        expected = ["new"]
    else:
        client.delete_stream("s")
        expected = []
    assert [one.name for one in client.streams()] == expected


def test_the_usage_of_a_stream_has_its_bytes_and_the_lag_of_its_slowest_reader(world: World) -> None:
    session = world.stream_session()
    client = Operations(session)
    assert client.stream_usage("s") == StreamUsage(0, 0, 0, 0, 0, 0.0)
    with StreamWriter(session, "s", payload="raw", partition=1) as writer:
        writer.write([b"a" * 1000])
    world.time.sleep(10.0)
    session.call(RenewLease("s", "fast", ((1, client.stream("s").partitions[1].end),), 60.0))
    session.call(RenewLease("s", "slow", ((1, 0),), 60.0))
    used = client.stream_usage("s")
    assert (used.bytes, used.disk_bytes, used.stages) == (1056, 1 << 16, 0)
    assert (used.leases, used.lag_bytes, round(used.lag_seconds)) == (2, 1056, 10)


def test_a_request_that_was_not_repeated_reports_an_absent_or_present_stream(world: World) -> None:
    client = Operations(world.stream_session())
    with pytest.raises(OptionError, match="unknown stream 'other'"):
        client.delete_stream("other")
    with pytest.raises(OptionError, match="exists already"):
        client.create_stream("s", 2)
    world.faults.append(Fault.BREAK)
    with pytest.raises(OptionError, match="exists already"):
        client.create_stream("s", 1)  # another program's: it has 2 partitions
