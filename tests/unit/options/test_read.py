"""The options of a reader: defaults, values, and contradictions."""

from __future__ import annotations

import pickle

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import BatchLimits, Bounds, DirectRoute, Moment, ReadOptions, TimestampFrom, WantedOffsets

GOOD = {"channel": "aeron:ipc", "streamId": "1001"}
MINUTE = 60 * 1_000_000_000


def parse(streaming: bool = True, **options: object) -> ReadOptions:
    return ReadOptions.parse({**GOOD, **options}, streaming=streaming)


def test_the_defaults_of_a_stream() -> None:
    assert parse() == ReadOptions(
        streaming=True,
        route=DirectRoute("aeron:ipc", 1001),
        payload="auto",
        starting_offsets=WantedOffsets("latest"),
        starting_timestamp=None,
        timestamp_from=None,
        ending_offsets=WantedOffsets("latest"),
        start_position=None,
        end_position=None,
        session_ids=None,
        pushdown=False,
        read_path="auto",
        max_bytes_per_trigger=None,
        max_rows_per_trigger=None,
        min_bytes_per_trigger=None,
        max_trigger_delay=15 * MINUTE,
        min_partitions=None,
        fail_on_data_loss=True,
        record="auto",
        include_metadata=False,
        idle_timeout=30.0,
    )
    assert parse().limits == BatchLimits(1 << 30, 4 << 30, None, None, 15 * MINUTE)
    assert parse().bounds == Bounds()


def test_a_batch_starts_at_earliest_and_has_no_trigger_limits() -> None:
    batch = parse(streaming=False)
    assert batch.starting_offsets == WantedOffsets("earliest")
    assert batch.ending_offsets == WantedOffsets("latest")
    assert batch.limits == BatchLimits()


def test_all_options_of_a_streaming_read() -> None:
    options = parse(
        payload="arrow",
        startingOffsets='{"7": 4096}',
        timestampFrom="16",
        readPath="replay",
        maxBytesPerTrigger="64m",
        maxRowsPerTrigger="100000",
        minBytesPerTrigger="64m",
        maxTriggerDelay="1m",
        minPartitions="8",
        failOnDataLoss="false",
        record="never",
        includeMetadata="true",
        idleTimeout="5s",
    )
    assert options.payload == "arrow"
    assert options.starting_offsets == WantedOffsets("earliest", {"7": 4096})
    assert options.timestamp_from == TimestampFrom("payload", 16)
    assert options.read_path == "replay"
    assert options.limits == BatchLimits(64 << 20, 64 << 20, 100_000, 64 << 20, MINUTE)
    assert options.min_partitions == 8
    assert not options.fail_on_data_loss
    assert options.record == "never"
    assert options.include_metadata
    assert options.idle_timeout == 5.0


def test_all_options_of_only_batch_reads() -> None:
    options = parse(
        streaming=False,
        endingOffsets='{"embedded/7": 8192, "embedded/8": "latest"}',
        startPosition="64",
        endPosition="128",
        sessionIds="17,-4242",
        pushdown="true",
    )
    assert options.ending_offsets == WantedOffsets("latest", {"embedded/7": 8192, "embedded/8": "latest"})
    assert options.bounds == Bounds(64, 128, (17, -4242))
    assert options.pushdown


def test_a_starting_time_replaces_starting_offsets() -> None:
    options = parse(startingTimestamp="-10m")
    assert options.starting_timestamp == Moment(ago_ns=10 * MINUTE)
    raw = parse(payload="raw", timestampFrom="reserved-ns", startingTimestamp="1970-01-01T00:01:00Z")
    assert raw.starting_timestamp == Moment(fixed_ns=MINUTE)


def test_through_a_server_a_starting_time_works_with_any_payload() -> None:
    key = "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    options = {"server": "h:1", "stream": "s", "serverKey": key, "payload": "raw", "startingTimestamp": "-10m"}
    assert ReadOptions.parse(options, streaming=True).starting_timestamp == Moment(ago_ns=10 * MINUTE)


def test_a_batch_ignores_trigger_limits_and_lists_them_as_ignored() -> None:
    options = parse(
        streaming=False, maxBytesPerTrigger="1k", minBytesPerTrigger="2k", maxTriggerDelay="1s", payload="raw"
    )
    assert options.limits == BatchLimits()
    assert options.ignored == ("maxBytesPerTrigger", "minBytesPerTrigger", "maxTriggerDelay")
    assert parse(maxBytesPerTrigger="1k").ignored == ()


@pytest.mark.parametrize(
    ("streaming", "options", "sentence"),
    [
        (False, {"startingOffsets": "latest"}, "'startingOffsets' is 'latest' in a batch, which would read nothing"),
        (False, {"startingOffsets": '{"7": "latest"}'}, "'startingOffsets' is 'latest' in a batch"),
        (False, {"endingOffsets": "earliest"}, "'endingOffsets' is 'earliest', which would read nothing"),
        (False, {"endingOffsets": '{"7": "earliest"}'}, "'endingOffsets' is 'earliest'"),
        (False, {"startPosition": "64", "endPosition": "64"}, "'startPosition' (64) is not before 'endPosition' (64)"),
        (False, {"maxBytesPerTrigger": "lots"}, "option 'maxBytesPerTrigger' must be a size"),
        (True, {"startPosition": "64"}, "option 'startPosition' is only for batch reads"),
        (True, {"startingTimestamp": "-1h", "startingOffsets": "latest"}, "both set the start of the read"),
        (False, {"endingTimestamp": "-1h", "endingOffsets": "latest"}, "both set the end of the read"),
        (False, {"endingTimestamp": "-1h", "payload": "raw"}, "option 'endingTimestamp' needs 'timestampFrom' for a"),
        (True, {"endingTimestamp": "-1h"}, "option 'endingTimestamp' is only for batch reads"),
        (True, {"startingTimestamp": "-1h", "payload": "raw"}, "needs 'timestampFrom' for a 'raw' stream"),
        (
            True,
            {"readPath": "files", "archive": "embedded,aeron:udp?endpoint=archive.example:8010"},
            "can be read, not those of the archive aeron:udp?endpoint=archive.example:8010",
        ),
        (True, {"minBytesPerTrigger": "2k", "maxBytesPerTrigger": "1k"}, "(2048) is above 'maxBytesPerTrigger' (1024)"),
        (True, {"minBytesPerTrigger": "2g"}, "is above 'maxBytesPerTrigger' (1073741824)"),
        (True, {"maxRowsPerTrigger": "0"}, "option 'maxRowsPerTrigger' must be a whole number of at least 1, not '0'"),
        (True, {"minPartitions": "0"}, "option 'minPartitions' must be a whole number from 1 to 2147483647, not '0'"),
        (True, {"idleTimeout": "0"}, "option 'idleTimeout' must be a duration above zero"),
        (True, {"payload": "sbe"}, "option 'payload' is 'sbe', and 'sbeSchema' is missing"),
        (True, {"sbeSchema": "s.xml"}, "option 'sbeSchema' is only for payload=sbe, and 'payload' is 'auto'"),
        (False, {"payload": "raw", "sbeMode": "PERMISSIVE"}, "option 'sbeMode' is only for payload=sbe"),
        (
            True,
            {"payload": "sbe", "sbeSchema": "s.xml", "startingTimestamp": "-1h"},
            "needs 'timestampFrom' for a 'sbe' stream",
        ),
        (True, {"payload": "json"}, "option 'payload' must be auto, raw, framed, arrow or sbe, not 'json'"),
        (True, {"failOnDataLoss": "no"}, "option 'failOnDataLoss' must be true or false, not 'no'"),
        (True, {"record": "always"}, "option 'record' must be auto or never, not 'always'"),
        (True, {"startingOffsets": "first"}, "option 'startingOffsets' must be earliest, latest, or JSON"),
        (True, {"startingTimestamp": "noon"}, "option 'startingTimestamp' must be an ISO time"),
    ],
)
def test_a_contradiction_or_a_value_out_of_range_has_its_own_error(
    streaming: bool, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(OptionError) as caught:
        parse(streaming, **options)
    assert sentence in str(caught.value)
    assert caught.value.remedy


def test_options_can_be_pickled_for_executors_and_hide_secrets() -> None:
    options = parse(startingOffsets='{"7": 4096}', startingTimestamp=None, credentialsFile="/etc/secret")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "secret" not in repr(options)
