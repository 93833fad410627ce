"""A publisher killed in the middle of a message, or of a group of chunks, and its recording extended after it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from aeron_spark.wire import Content, Header, encode, encode_batch
from tests.aeron.node.programs import python
from tests.aeron.streams import TIMEOUT_S, PublishedRecording, Stream, frame, number, numbered
from tests.spark.queries import CollectingSink, read_batch, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.simulated_engine import Query, read_numbers

# Publishes one whole value, then the beginning of a second one, and kills itself as nobody can prevent.
DYING: Final = """
import os, signal, sys
import pyarrow as pa
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.publication import BatchPublication
from aeron_spark.direct import appender as appending
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from aeron_spark.waiting import wait_for

aeron_dir, stream_id, payload, whole = sys.argv[1:]
column = pa.array([whole.encode()], pa.binary())
large = pa.array([b"?" * 300_000], pa.binary())

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if payload == "raw":
    offering = BatchPublication(client_of(aeron_dir), "aeron:ipc", int(stream_id))
    wait_for(lambda: offering.connected, 60, "the archive")
    assert offering.offer_values(column, None, 0) == (1, None)
    claim = jclass("io.aeron.logbuffer.BufferClaim")()
    length = int(offering.publication.maxPayloadLength())
    assert int(offering.publication.tryClaim(length, claim)) > 0
    claim.flags(-128)  # BEGIN, and no END: the first frame of a message in several
    claim.commit()
    die()

options = {"channel": "aeron:ipc", "streamId": stream_id, "aeronDir": aeron_dir, "connectTimeout": "60s"}
appender = appending.DirectAppender(WriteOptions.parse(options, streaming=False), Source("dying"))
append = appender.framed if payload == "framed" else lambda rows: appender.arrow(pa.record_batch({"value": rows}))
append(column)
whole_split = appending.split

def split(*arguments, **named):
    for index, chunk in enumerate(whole_split(*arguments, **named)):
        if index == 4:
            die()
        yield chunk

appending.split = split
append(large)
"""
WHOLE: Final = numbered(0, 1)[0]
PAYLOADS: Final = ("raw", "framed", "arrow")


@dataclass(frozen=True)
class Killed:
    """What a killed publisher left."""

    stream: Stream
    recording_id: int

    @property
    def descriptor(self) -> Any:
        found = self.stream.archive.recording(self.recording_id)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def all_killed(node: NodeHandle) -> Iterator[dict[str, Killed]]:
    """What publishers of each payload left."""
    with killed_publishers(node) as found:
        yield found


@pytest.fixture(scope="module")
def more_killed(node: NodeHandle) -> Iterator[dict[str, Killed]]:
    """The same again, for other tests."""
    with killed_publishers(node) as found:
        yield found


@contextmanager
def killed_publishers(node: NodeHandle) -> Iterator[dict[str, Killed]]:
    """All at once, as it takes the media driver ten seconds to see that a client has died."""
    streams = {payload: Stream(node).record() for payload in PAYLOADS}
    dying = {
        payload: python(DYING, node.aeron_dir, str(stream.id), payload, WHOLE.decode())
        for payload, stream in streams.items()
    }
    for process in dying.values():
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == -signal.SIGKILL, said
    yield {payload: Killed(stream, _recording(stream)) for payload, stream in streams.items()}
    for stream in streams.values():
        stream.close()


def _recording(stream: Stream) -> int:
    found = stream.archive.recordings(stream.id)
    assert len(found) == 1
    return found[0].id


@pytest.fixture(params=PAYLOADS)
def payload(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def encoded(payload: str, value: bytes) -> bytes:
    if payload == "raw":
        return value
    if payload == "framed":
        return encode(Header(Content.BYTES, len(value)), value)
    data = encode_batch(pa.record_batch({"value": pa.array([value], pa.binary())}))
    return encode(Header(Content.ARROW, data.size), data)


def test_what_a_killed_publisher_left_unfinished_is_discarded_and_nothing_waits_for_it(
    all_killed: dict[str, Killed], payload: str
) -> None:
    killed = all_killed[payload]
    stream = killed.stream
    options = {"payload": payload, "idleTimeout": "10s"}
    assert read_numbers(stream.options, **options) == [0]
    ended, running = (Query(stream.options, **options) for _ in range(2))
    assert ended.run_available_now() == [[0]]
    assert list(running.run_batches()) == [[0]]
    end = wait_for(lambda: killed.descriptor.stop_position, TIMEOUT_S, "the recording of the dead one to stop")
    assert end >= frame(len(encoded(payload, WHOLE))) + 1408  # more is recorded than is whole
    assert list(running.run_batches()) == []
    extended = stream.extend(PublishedRecording(stream, None, killed.recording_id))  # type: ignore[arg-type]
    extended.send([encoded(payload, value) for value in numbered(1, 4)])
    assert list(running.run_batches()) == [[1, 2, 3]]
    assert read_numbers(stream.options, **options) == [0, 1, 2, 3]
    # A query that stopped at the unfinished tail goes on behind it.
    assert ended.run_available_now() == [[1, 2, 3]]


@pytest.mark.full("three queries of Spark and two reads a payload; the test above drives the source through the same")
def test_spark_goes_on_behind_what_a_killed_publisher_left_unfinished(
    spark: SparkSession, more_killed: dict[str, Killed], payload: str, tmp_path: Path
) -> None:
    killed = more_killed[payload]
    stream = killed.stream
    options = {"payload": payload, "idleTimeout": "10s"}

    def batch() -> list[int]:
        return sorted(number(row.value) for row in read_batch(spark, stream.options, **options).collect())

    assert batch() == [0]
    seen, ended = CollectingSink(), CollectingSink()
    run_to_end(read_stream(spark, stream.options, **options), tmp_path / "ended", ended)
    assert ended.numbers == [0]
    with run_query(read_stream(spark, stream.options, **options), tmp_path / "goes on", seen) as query:
        wait_for_query(query, "the whole message", lambda: seen.numbers == [0])
        end = wait_for(lambda: killed.descriptor.stop_position, TIMEOUT_S, "the recording of the dead one to stop")
        assert end >= frame(len(encoded(payload, WHOLE))) + 1408  # more is recorded than is whole
        extended = stream.extend(PublishedRecording(stream, None, killed.recording_id))  # type: ignore[arg-type]
        extended.send([encoded(payload, value) for value in numbered(1, 4)])
        wait_for_query(query, "what came after it", lambda: seen.numbers == [0, 1, 2, 3])
    assert batch() == [0, 1, 2, 3]
    # A query that stopped at the unfinished tail goes on behind it.
    run_to_end(read_stream(spark, stream.options, **options), tmp_path / "ended", ended)
    assert ended.numbers == [0, 1, 2, 3]
