"""Where an error of this package ends in what Spark prints: the last line is what happened and what to do."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest
from IPython.core.ultratb import VerboseTB
from pyspark.errors import AnalysisException, PySparkException, PythonException, StreamingQueryException
from pyspark.sql import SparkSession

from aeron_spark.spark import error_text
from tests.aeron.streams import Stream
from tests.spark.queries import read_stream

MISSPELT = "unknown option 'stratingoffsets'. Did you mean 'startingOffsets'?"
SQLSTATE = " SQLSTATE: 38000"  # Spark's own last line after an error of a Python data source in the driver
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NO_ARCHIVE = "aeron:udp?endpoint=127.0.0.1:9"
NO_SUBSCRIBER = {"channel": "aeron:udp?endpoint=127.0.0.1:9", "streamId": "1001", "connectTimeout": "1s"}
STARTS = "waited 1 s for a subscriber on aeron:udp?endpoint=127.0.0.1:9 stream 1001. Start a subscriber, "


def lines_of(error: BaseException) -> list[str]:
    """Return the lines that Python prints at the end of a program that this error ends, without the calls."""
    return "".join(traceback.format_exception_only(error)).rstrip("\n").splitlines()


def last_line(error: BaseException) -> str:
    """Return the last line of this package in an error of the driver, which is before Spark's own last line.

    The error begins with Spark's text and has one call of this package: no calls that led to it.
    """
    *before, line, state = lines_of(error)
    assert state == SQLSTATE
    assert len(before) <= 4, before
    name, _, text = line.partition(": ")
    assert name.startswith("aeron_spark.errors.")
    assert error_text(error) == text
    return text


def test_a_wrong_option_is_the_last_line_of_a_read_and_of_a_write(spark: SparkSession, stream: Stream) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("aeron").options(**stream.options, stratingOffsets="earliest").load()
    assert last_line(caught.value) == MISSPELT
    rows = spark.createDataFrame([(b"x",)], "value binary")
    with pytest.raises(AnalysisException) as caught:
        rows.write.format("aeron").mode("append").options(**stream.options, akk="archive").save()
    assert last_line(caught.value) == "unknown option 'akk'. Did you mean 'ack'?"


def test_a_wrong_option_is_the_last_line_in_sql(spark: SparkSession, stream: Stream) -> None:
    options = ", ".join(f"{name} '{value}'" for name, value in stream.options.items())
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"CREATE TEMPORARY VIEW wrong USING aeron OPTIONS ({options}, stratingOffsets 'earliest')")
    assert last_line(caught.value) == MISSPELT


def test_a_table_of_the_catalog_is_refused_with_the_statement_to_use(spark: SparkSession) -> None:
    """Regression: Spark passes each option a second time as ``option.channel``: "Did you mean 'responseChannel'?"."""
    with pytest.raises(AnalysisException) as caught:
        spark.sql("CREATE TABLE made USING aeron OPTIONS (channel 'aeron:ipc', streamId '1001', payload 'raw')")
    text = last_line(caught.value)
    assert text.startswith("no stream is named: Spark does not pass the options of CREATE TABLE")
    assert "use CREATE TEMPORARY VIEW name USING aeron OPTIONS (" in text
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("aeron").schema("value BINARY").load().collect()
    assert last_line(caught.value).startswith("no option is given, so no stream is named. In SQL, use CREATE TEMPORARY")


def test_a_wrong_option_ends_the_output_of_a_notebook(spark: SparkSession, stream: Stream) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("aeron").options(**stream.options, stratingOffsets="earliest").load()
    shown = COLOUR.sub("", VerboseTB().text(caught.type, caught.value, caught.tb))
    assert shown.rstrip("\n").splitlines()[-2:] == [f"aeron_spark.errors.OptionError: {MISSPELT}", SQLSTATE]


def test_an_archive_that_does_not_answer_is_the_last_line_of_the_planner(spark: SparkSession, stream: Stream) -> None:
    options = {**stream.options, "archive": NO_ARCHIVE, "payload": "raw", "connectTimeout": "1s"}
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("aeron").options(**options).load().collect()
    assert last_line(caught.value).startswith(f"no archive answered at {NO_ARCHIVE} stream 10 within 1 s. Start ")


def test_an_error_in_a_task_that_writes_is_the_last_line(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(b"x",)], "value binary").coalesce(1)
    with pytest.raises(PythonException) as caught:
        rows.write.format("aeron").mode("append").options(**NO_SUBSCRIBER).save()
    check_task(caught.value, "ConnectError", STARTS)


def test_an_error_in_a_task_that_reads_is_the_last_line(spark: SparkSession, stream: Stream) -> None:
    stream.publisher().send([b"not in the wire format"])
    with pytest.raises(PythonException) as caught:
        spark.read.format("aeron").options(**stream.options, payload="framed").load().collect()
    check_task(caught.value, "DataFormatError", "")


def check_task(error: PythonException, name: str, begin: str) -> None:
    *before, line = lines_of(error)
    assert len(before) <= 6, before
    assert line.startswith(f"aeron_spark.errors.{name}: {begin}")
    assert error_text(error) == line.removeprefix(f"aeron_spark.errors.{name}: ")


def test_the_error_of_a_streaming_query_has_the_text_and_nothing_of_this_package_after_it(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """Spark ends the text with the state and the plan of the query, so ``error_text`` finds it."""
    planned = read_stream(spark, {**stream.options, "archive": NO_ARCHIVE, "payload": "raw", "connectTimeout": "1s"})
    query = planned.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "planned")).start()
    text = f"no archive answered at {NO_ARCHIVE} stream 10 within 1 s. Start "
    check_stream(await_error(query), "ConnectError", text)
    stream.publisher().send([b"value"])
    written = read_stream(spark, {**stream.options, "payload": "raw"}).select("value").writeStream.format("aeron")
    query = written.options(**NO_SUBSCRIBER, checkpointLocation=str(tmp_path / "written")).start()
    check_stream(await_error(query), "ConnectError", STARTS)


def await_error(query: object) -> tuple[PySparkException, PySparkException]:
    """Return the two errors that a program can get of a failed query."""
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)  # type: ignore[attr-defined]
    return caught.value, query.exception()  # type: ignore[attr-defined]


def check_stream(errors: tuple[PySparkException, PySparkException], name: str, begin: str) -> None:
    for error in errors:
        text = error_text(error)
        assert text is not None
        assert text.startswith(begin)
        before, _, _ = str(error).partition("=== Streaming Query ===")
        lines = [line for line in before.splitlines() if line.strip() and not line.startswith(" SQLSTATE: ")]
        assert lines[-1] == f"aeron_spark.errors.{name}: {text}"
        assert len(lines) <= 8, lines
