"""Lag: the offsets in a query's progress, and the listener that computes lags from them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

import aeron_spark.spark
from aeron_spark.jobs.session import begin
from aeron_spark.protocol.keypair import public_text
from aeron_spark.spark import LagListener, QueryLag
from aeron_spark.spark.lag_listener import lag_of
from tests.aeron.streams import TIMEOUT_S, Stream, frame, numbered
from tests.spark.queries import QUERY_TIMEOUT_S, CollectingSink, read_stream
from tests.spark.simulated_engine import Query
from tests.spark.stream_server import StreamServer, commit_values
from tests.waiting import poll_until

MESSAGE = frame(100)


def make_progress(*sources: tuple[object, object], name: str | None = None, query: str = "q") -> StreamingQueryProgress:
    """Return a progress of 250 ms, with the latest offset and the end offset of each source, as texts; 5 rows each."""
    texts = [
        SimpleNamespace(latestOffset=_text(latest), endOffset=_text(end), numInputRows=5) for latest, end in sources
    ]
    found = SimpleNamespace(
        id=query, name=name, batchId=3, timestamp="2026-03-01T09:00:00Z", batchDuration=250, sources=texts
    )
    return cast(StreamingQueryProgress, found)


def _text(offset: object) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)


def expose(listener: LagListener) -> str:
    """Return what Prometheus reads from a listener."""
    with urlopen(f"http://{listener.metrics_address}/metrics", timeout=TIMEOUT_S) as response:
        return str(response.read(), "utf-8")


def lags(query: Query) -> dict[str, int]:
    """Return the lag of each recording in a query of the simulated engine."""
    lag = lag_of(make_progress((query.reader.reportLatestOffset(), query.last_offset)))
    return dict(lag.recordings)


def test_the_listener_reports_the_lag_after_each_batch(
    spark: SparkSession, stream: Stream, source: str, tmp_path: Path
) -> None:
    one, other = stream.publisher(), stream.publisher()
    one.send(numbered(0, 9))
    other.send(numbered(9, 15))
    reported: list[QueryLag] = []
    # The metrics of a query end with the query: read them while it runs.
    exposed: list[str] = []

    def report(lag: QueryLag) -> None:
        exposed.append(expose(listener))
        reported.append(lag)  # last: the test waits for it

    listener = LagListener(report, prometheus="127.0.0.1:0")
    spark.streams.addListener(listener)
    try:
        frame = read_stream(spark, stream.options, source=source, maxRowsPerTrigger=5)
        writer = frame.writeStream.foreachBatch(CollectingSink()).option("checkpointLocation", str(tmp_path))
        query = begin(writer.queryName("lagging").trigger(availableNow=True).start)
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        poll_until(lambda: {lag.batch_id for lag in reported} >= {0, 1, 2}, TIMEOUT_S, "the listener's reports")
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    by_batch = {lag.batch_id: lag.total for lag in reported}
    assert (by_batch[0], by_batch[1], by_batch[2]) == (10 * MESSAGE, 5 * MESSAGE, 0)
    assert set(reported[0].recordings) == {one.key, other.key}
    last = listener.of("lagging")
    assert last is not None
    assert last == listener.of(str(query.id)) == listener.all()[str(query.id)] == reported[-1]
    latest = json.loads(query.lastProgress.sources[0].latestOffset)
    identity = {"channel": stream.options["channel"], "id": int(stream.options["streamId"])}
    assert latest["recordings"] == {one.key: one.position, other.key: other.position}
    assert latest["stream"] == identity
    assert latest["lag"] == {"bytes": 0, "partitions": {}}  # an archive stores no commit times
    labels = f'query="lagging",stream="stream {identity["id"]} of {identity["channel"]}"'
    for metric, value in (("lag_bytes", 10 * MESSAGE), ("input_rows_total", 5)):
        assert f"aeron_spark_query_{metric}{{{labels}}} {value}.0\n" in exposed[0]
    assert f"aeron_spark_query_batch_duration_seconds{{{labels}}} " in exposed[0]
    assert "aeron_spark_query_lag_seconds{" not in exposed[0]
    assert f"aeron_spark_query_input_rows_total{{{labels}}} 15.0\n" in exposed[2]
    # The latest offset is the same in each limited batch, as all rows were published before.
    batches = [one for one in query.recentProgress if one.numInputRows]
    assert [one.numInputRows for one in batches] == [5, 5, 5]
    ends = [json.loads(one.sources[0].endOffset)["recordings"] for one in batches]
    assert [sum(end.values()) for end in ends] == [5 * MESSAGE, 10 * MESSAGE, 15 * MESSAGE]
    reports = [json.loads(one.sources[0].latestOffset) for one in batches]
    assert all(one["recordings"] == latest["recordings"] for one in reports)
    assert [one["lag"]["bytes"] for one in reports] == [10 * MESSAGE, 5 * MESSAGE, 0]
    # Spark has no metrics of a source in Python.
    metrics = [
        {} if source == "aeron" else {"lagBytes": str(one["lag"]["bytes"]), "recordings": "2"} for one in reports
    ]
    assert all(one.items() <= batch.sources[0].metrics.items() for one, batch in zip(metrics, batches, strict=True))


def test_the_lag_of_a_stream_of_a_server_has_seconds_by_its_commit_times(server: StreamServer) -> None:
    stream = server.create_stream(2)
    began = time.monotonic()
    commit_values(stream, 0, 10, partition=0)
    commit_values(stream, 10, 30, partition=1)
    query = Query(server.options(stream), maxRowsPerTrigger=20)
    query.run_batch()
    poll_until(lambda: query.reader.reportLatestOffset()["lag"]["seconds"] > 0.01, TIMEOUT_S, "the rows to be older")
    report = query.reader.reportLatestOffset()
    waited = time.monotonic() - began
    lag = lag_of(make_progress((report, query.last_offset)))
    (key,) = [key for key, unread in lag.recordings.items() if unread]
    assert report["lag"]["partitions"] == {key: {"bytes": lag.total, "seconds": lag.seconds}}
    assert (report["lag"]["bytes"], report["lag"]["seconds"]) == (lag.total, lag.seconds)
    assert lag.seconds is not None
    assert 0.01 < lag.seconds <= waited + 0.1
    assert report["stream"] == {
        "name": stream.definition.name, "servers": {server.name: public_text(server.endpoint.public_key)},
    }  # fmt: skip
    assert list(lag.streams) == [stream.definition.name]
    query.run_batch()
    assert query.reader.reportLatestOffset()["lag"] == {"bytes": 0, "partitions": {}, "seconds": 0.0}


def test_the_lag_includes_finished_recordings_until_they_are_read(stream: Stream) -> None:
    done, active = stream.publisher(), stream.publisher()
    done.send(numbered(0, 10))
    done.stop()
    active.send(numbered(10, 20))
    query = Query(stream.options, maxRowsPerTrigger=10)
    query.run_batch()
    assert lags(query) == {done.key: 5 * MESSAGE, active.key: 5 * MESSAGE}
    query.run_batch()
    assert lags(query) == {done.key: 0, active.key: 0}
    active.send(numbered(20, 23))
    assert query.plan_batch()
    assert lags(query) == {done.key: 0, active.key: 3 * MESSAGE}


def test_the_lag_excludes_an_incomplete_message_at_the_end_of_a_finished_recording() -> None:
    from aeron_spark.log.offsets import Finished, Offset

    end = Offset({}, {}, {"embedded/1": Finished(640, 96, "00000001")}).to_dict()
    for recorded, expected in ((736, 0), (1_056, 416)):
        lag = lag_of(make_progress(({"recordings": {"embedded/1": recorded}, "v": 1}, end)))
        assert lag.recordings == {"embedded/1": expected}


def test_other_sources_have_no_lag_and_of_two_sources_of_a_recording_the_larger_lag_counts() -> None:
    kafka = ({"prices": {"0": 9}}, {"prices": {"0": 7}})
    assert lag_of(make_progress(kafka)) is None
    assert lag_of(make_progress(("None", "None"))) is None
    latest = {"recordings": {"a/1": 320, "a/2": 64}, "v": 1}
    ends = [
        {"done": "", "fingerprints": {"a/1": "00000001"}, "recordings": {"a/1": position}, "v": 1}
        for position in (320, 96)
    ]
    lag = lag_of(make_progress(kafka, (latest, ends[0]), (latest | {"lag": {"bytes": 288, "seconds": 2.5}}, ends[1])))
    assert (lag.recordings, lag.total, lag.seconds) == ({"a/1": 224, "a/2": 64}, 288, 2.5)
    assert {name: one.input_rows for name, one in lag.streams.items()} == {"unknown": 10}
    assert lag.batch_seconds == 0.25
    unknown = lag_of(make_progress(("None", ends[0])))
    assert unknown.total == 0


def test_a_listener_keeps_the_last_lag_of_each_query_and_of_each_query_name() -> None:
    listener = LagListener()
    end = {"done": "", "fingerprints": {"a/1": "00000001"}, "recordings": {"a/1": 0}, "v": 1}

    def report(query: str, name: str | None, recorded: int) -> None:
        event: Any = SimpleNamespace(
            progress=make_progress(({"recordings": {"a/1": recorded}, "v": 1}, end), name=name, query=query)
        )
        listener.onQueryProgress(event)

    report("1", "prices", 32)
    report("2", "prices", 64)
    report("3", None, 96)
    assert [lag.total for lag in listener.all().values()] == [32, 64, 96]
    assert [found.total for query in ("prices", "1", "3") if (found := listener.of(query))] == [64, 32, 96]
    report("1", "prices", 128)
    assert listener.of("prices") == listener.of("1")
    assert listener.of("unknown") is None


def test_the_package_exports_the_listener_and_has_no_attribute_with_a_wrong_name() -> None:
    assert aeron_spark.spark.LagListener is LagListener
    with pytest.raises(AttributeError, match="has no attribute 'LagListner'"):
        aeron_spark.spark.LagListner  # noqa: B018
