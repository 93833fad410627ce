"""Wrong options and rows: the user sees the error's text in Spark, and rows that were written before are kept."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aeron_spark.errors import AeronSparkError
from aeron_spark.node import NodeHandle
from tests.spark.simulated_engine import make_batch, read_table, save


def stream_options(node: NodeHandle, **more: str) -> dict[str, str]:
    return {"channel": "aeron:ipc", "streamId": "1001", "aeronDir": node.aeron_dir, **more}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"streamID ": "1"}, "unknown option 'streamid '. Did you mean 'streamId'?"),
        ({"stratingOffsets": "earliest"}, "Did you mean 'startingOffsets'?"),
        ({"startPosition": "64", "endPosition": "32"}, "option 'startPosition' (64) is not before 'endPosition' (32)"),
        ({"streamId": "10"}, "stream 10 of aeron:ipc is a control stream of an Aeron Archive"),
        ({"server": "feeds:20121"}, "and 'channel' the direct route"),
        ({"ack": "archive"}, "option 'ack' is only for writing, not for reading"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is 'latest' in a batch, which would read nothing"),
        ({"readPath": "file"}, "option 'readPath' must be auto, files or replay"),
    ],
)
def test_a_batch_query_with_wrong_options_is_refused(node: NodeHandle, more: dict[str, str], text: str) -> None:
    with pytest.raises(AeronSparkError) as caught:
        read_table(stream_options(node, payload="auto", **more))
    assert text.lower() in str(caught.value).lower()


def test_a_streaming_query_with_a_wrong_option_is_refused_before_it_starts(
    spark: SparkSession, node: NodeHandle
) -> None:
    with pytest.raises(PySparkException, match="Did you mean 'maxRowsPerTrigger'"):
        spark.readStream.format("aeron").options(**stream_options(node, maxRowPerTrigger="5")).load()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"offerTimout": "3s"}, "Did you mean 'offerTimeout'?"),
        ({"ack": "archive", "whenUnconnected": "drop"}, "contradict"),
        ({"maxMessageBytes": "32m"}, "option 'maxMessageBytes' must be a size from 512 to 16777216 bytes"),
        ({"idleTimeout": "3s"}, "option 'idleTimeout' is only for reading, not for writing"),
        ({"streamId": "20"}, "stream 20 of aeron:ipc is a control stream of an Aeron Archive"),
        (
            {"ack": "archive", "streamId": "1003"},
            "option 'ack' is 'archive', and stream 1003 of aeron:ipc is not recorded",
        ),
    ],
)
def test_a_write_with_wrong_options_is_refused(node: NodeHandle, more: dict[str, str], text: str) -> None:
    with pytest.raises(AeronSparkError) as caught:
        save(stream_options(node, **more), [make_batch(b"x")])
    assert text in str(caught.value)


def test_spark_shows_the_text_of_an_error(spark: SparkSession, node: NodeHandle) -> None:
    with pytest.raises(PySparkException, match="Did you mean 'startingOffsets'"):
        spark.read.format("aeron").options(**stream_options(node, stratingOffsets="earliest")).load()
    rows = spark.createDataFrame([(b"x",)], "value binary")
    with pytest.raises(PySparkException, match="stream 1003 of aeron:ipc is not recorded"):
        rows.write.format("aeron").mode("append").options(**stream_options(node, ack="archive", streamId="1003")).save()


def test_refused_writes_do_not_change_the_rows_that_were_written_before(node: NodeHandle) -> None:
    options = stream_options(node, streamId="1002")
    save(options, [make_batch(b"kept")], record="auto", ack="archive")
    for more, text in (({"rekord": "auto"}, "Did you mean"), ({"aeronDir": "here"}, "is a relative path")):
        with pytest.raises(AeronSparkError, match=text):
            save(options | more, [make_batch(b"lost")])
    with pytest.raises(AeronSparkError, match="overwrite"):
        save(options, [make_batch(b"lost")], overwrite=True)
    assert read_table(options)["value"].to_pylist() == [b"kept"]
