"""Each option and column of Spark's Kafka source works here, or is refused with what replaces it."""

from __future__ import annotations

import re
from typing import Final

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import ReadOptions, WriteOptions
from aeron_spark.options.declaration import EVERYWHERE, OptionReader, Where, all_options
from aeron_spark.options.kafka_names import COLUMNS, OPTIONS, replacement_of_column, replacement_of_option
from tests.programs import ROOT

DIRECT: Final = {"channel": "aeron:ipc", "streamId": "7"}
PAGE: Final = (ROOT / "docs" / "from-kafka.md").read_text()


@pytest.mark.parametrize(
    ("name", "value", "replacement"),
    [
        ("kafka.bootstrap.servers", "broker-1:9092,broker-2:9092", "'server'"),
        ("subscribe", "prices,trades", "'streamId'"),
        ("subscribePattern", "prices.*", "'stream'"),
        ("assign", '{"prices":[0,1]}', "'streamId'"),
        ("startingOffsetsByTimestamp", '{"prices":{"0":1700000000000}}', "'startingTimestamp'"),
        ("startingOffsetsByTimestampStrategy", "latest", "Leave it out"),
        ("maxOffsetsPerTrigger", "1000", "'maxRowsPerTrigger'"),
        ("minOffsetsPerTrigger", "1000", "'minBytesPerTrigger'"),
        ("maxRecordsPerPartition", "1000", "'minPartitions'"),
        ("groupIdPrefix", "desk", "checkpoint"),
        ("kafka.group.id", "desk", "checkpoint"),
        ("includeHeaders", "true", "'includeMetadata'"),
        ("kafkaConsumer.pollTimeoutMs", "512", "'idleTimeout'"),
        ("fetchOffset.numRetries", "3", "'archiveTimeout'"),
        ("kafka.security.protocol", "SASL_SSL", "'identity'"),
        ("kafka.sasl.jaas.config", "...", "'identity'"),
        ("kafka.ssl.truststore.location", "/trust.jks", "'serverKey'"),
        ("kafka.auto.offset.reset", "earliest", "'startingOffsets'"),
        ("kafka.isolation.level", "read_committed", "committed transactions"),
        ("kafka.fetch.min.bytes", "1", "docs/from-kafka.md"),
    ],
)
def test_an_option_of_kafkas_source_is_refused_with_its_replacement(name: str, value: str, replacement: str) -> None:
    for streaming in (True, False):
        with pytest.raises(OptionError, match=re.escape(f"'{name}' is one of Spark's Kafka source or sink")) as caught:
            ReadOptions.parse({**DIRECT, name: value}, streaming=streaming)
        assert replacement in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "replacement"),
    [("topic", "'streamId'"), ("kafka.acks", "'ack'"), ("kafka.transactional.id", "'writerId'")],
)
def test_an_option_of_kafkas_sink_is_refused_with_its_replacement(name: str, replacement: str) -> None:
    with pytest.raises(OptionError) as caught:
        WriteOptions.parse({**DIRECT, name: "all"}, streaming=True)
    assert replacement in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "earliest"),
        ("startingOffsets", "latest"),
        ("failOnDataLoss", "false"),
        ("minPartitions", "4"),
        ("maxTriggerDelay", "5m"),
    ],
)
def test_an_option_of_kafkas_source_with_the_same_meaning_is_accepted(name: str, value: str) -> None:
    assert ReadOptions.parse({**DIRECT, name: value}, streaming=True)


def test_no_name_of_the_table_is_an_option_here() -> None:
    assert not {option.name.lower() for option in all_options()} & OPTIONS.keys()


def test_a_replacement_names_only_options_that_exist() -> None:
    places = {option.name for option in all_options() if option.where & EVERYWHERE}
    not_options = {"recordingId", "position", "timestamp", "reservedValue", "value", "archive", "driver"}
    for text in (*OPTIONS.values(), *COLUMNS.values()):
        assert set(re.findall(r"'(\w+)'", text)) <= places | not_options, text


@pytest.mark.parametrize("where", [Where.SERVER, Where.CLIENT])
def test_a_server_or_a_client_does_not_know_kafkas_names(where: Where) -> None:
    with pytest.raises(OptionError, match="unknown option 'subscribe'"):
        OptionReader({"subscribe": "prices"}, where)


def test_the_page_has_each_option_and_column() -> None:
    named = {name.lower() for name in re.findall(r"`([\w.*]+)`", PAGE)}
    assert not {name for name in OPTIONS if name not in named and f"{name}*" not in named}
    assert not {name for name in COLUMNS if name not in named}


def test_other_names_have_no_replacement() -> None:
    assert replacement_of_option("subscribers") is None
    assert replacement_of_option("kafkaa") is None
    assert replacement_of_column("price") is None
    assert "'position'" in (replacement_of_column("OFFSET") or "")
