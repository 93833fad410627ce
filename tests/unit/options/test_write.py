"""The options of a writer: defaults, values, and contradictions."""

from __future__ import annotations

import pickle

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import DirectRoute, WriteOptions

GOOD = {"channel": "aeron:ipc", "streamId": "1001"}


def parse(streaming: bool = True, **options: object) -> WriteOptions:
    return WriteOptions.parse({**GOOD, **options}, streaming=streaming)


@pytest.mark.parametrize("streaming", [True, False])
def test_the_defaults(streaming: bool) -> None:
    assert parse(streaming) == WriteOptions(
        streaming=streaming,
        route=DirectRoute("aeron:ipc", 1001),
        payload="auto",
        ack="auto",
        offer_timeout=30.0,
        when_unconnected="fail",
        max_message_bytes=None,
        writer_id=None,
        record="never",
    )


def test_all_options_of_a_writer() -> None:
    options = parse(
        payload="framed",
        ack="driver",
        offerTimeout="100ms",
        whenUnconnected="drop",
        maxMessageBytes="64k",
        writerId="ü" * 127,
        record="auto",
        checkpointLocation="/tmp/x",
    )
    assert options.payload == "framed"
    assert options.ack == "driver"
    assert options.offer_timeout == 0.1
    assert options.when_unconnected == "drop"
    assert options.max_message_bytes == 65536
    assert options.writer_id == "ü" * 127
    assert options.record == "auto"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"ack": "archive", "whenUnconnected": "drop"},
            "options 'ack' ('archive': done when recorded) and 'whenUnconnected'",
        ),
        ({"ack": "all"}, "option 'ack' must be auto, archive or driver, not 'all'"),
        ({"whenUnconnected": "wait"}, "option 'whenUnconnected' must be fail or drop, not 'wait'"),
        ({"maxMessageBytes": "17m"}, "option 'maxMessageBytes' must be a size from 512 to 16777216 bytes, not '17m'"),
        ({"maxMessageBytes": "511"}, "option 'maxMessageBytes' must be a size from 512 to 16777216 bytes"),
        ({"writerId": "ü" * 128}, "option 'writerId' is longer than 255 bytes of UTF-8"),
        ({"offerTimeout": "-1s"}, "option 'offerTimeout' must be a duration above zero"),
        ({"replayChannel": "response"}, "option 'replayChannel' is only for reading, not for writing"),
        ({"ackk": "driver"}, "unknown option 'ackk'. Did you mean 'ack'?"),
    ],
)
def test_a_contradiction_or_a_value_out_of_range_has_its_own_error(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**options)
    assert sentence in str(caught.value)
    assert caught.value.remedy


def test_options_can_be_pickled_for_executors_and_hide_secrets() -> None:
    options = parse(credentialsFile="/etc/secret")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"payload": "sbe"}, "option 'payload' is 'sbe', and 'sbeSchema' is missing"),
        ({"sbeSchema": "s.xml"}, "option 'sbeSchema' is only for payload=sbe, and 'payload' is 'auto'"),
        ({"payload": "sbe", "sbeSchema": "s.xml", "sbeFraming": "sofh"}, "'sbeFraming' .*read"),
    ],
)
def test_options_of_sbe_messages_need_their_payload_and_a_schema(given: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        WriteOptions.parse({"channel": "aeron:ipc", "streamId": "1", **given}, streaming=False)


def test_a_writer_has_the_sbe_options_of_a_reader_for_columns() -> None:
    given = {"channel": "aeron:ipc", "streamId": "1", "payload": "sbe", "sbeSchema": "s.xml", "sbeSets": "bits"}
    options = WriteOptions.parse({**given, "sbeDecimals": "decimal(9,2)"}, streaming=True)
    settings = options.sbe_settings()
    assert (settings.sets, settings.decimals.precision, settings.messages) == ("bits", 9, ())
