"""Recordings of publishers that were killed inside a message or a group of chunks, and extensions of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pytest

from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from aeron_spark.wire import Content, Header, encode, encode_batch
from tests.aeron.streams import TIMEOUT_S, PublishedRecording, Stream, frame, numbered
from tests.programs import start_python
from tests.spark.simulated_engine import Query, read_numbers

# Publishes one complete value, then the beginning of a second one, and kills itself with a signal that no handler sees.
KILLED_PUBLISHER: Final = """
import os, signal, sys
import pyarrow as pa
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.publications import BatchPublication
from aeron_spark.direct import writing as appending
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from aeron_spark.waiting import wait_for

aeron_dir, stream_id, payload, complete = sys.argv[1:]
column = pa.array([complete.encode()], pa.binary())
large = pa.array([b"?" * 300_000], pa.binary())

def kill_this_process():
    os.kill(os.getpid(), signal.SIGKILL)

if payload == "raw":
    offering = BatchPublication(client_of(aeron_dir), "aeron:ipc", int(stream_id))
    wait_for(lambda: offering.connected, 60, "the archive")
    assert offering.offer_values(column, None, 0) == (1, None)
    claim = jclass("io.aeron.logbuffer.BufferClaim")()
    length = int(offering.publication.maxPayloadLength())
    assert int(offering.publication.tryClaim(length, claim)) > 0
    claim.flags(-128)  # BEGIN without END: the first frame of a fragmented message
    claim.commit()
    kill_this_process()

options = {"channel": "aeron:ipc", "streamId": stream_id, "aeronDir": aeron_dir, "connectTimeout": "60s"}
appender = appending.DirectAppender(WriteOptions.parse(options, streaming=False), Source("killed"))
append = appender.framed if payload == "framed" else lambda rows: appender.arrow(pa.record_batch({"value": rows}))
append(column)
split_into_all_chunks = appending.split

def split(*arguments, **named):
    for index, chunk in enumerate(split_into_all_chunks(*arguments, **named)):
        if index == 4:
            kill_this_process()
        yield chunk

appending.split = split
append(large)
"""
COMPLETE_VALUE: Final = numbered(0, 1)[0]
PAYLOADS: Final = ("raw", "framed", "arrow")


@pytest.fixture(scope="module")
def all_killed(node: NodeHandle) -> Iterator[dict[str, PublishedRecording]]:
    """The recordings of publishers that were killed at once, by payload.

    The media driver takes ten seconds to notice that a client has died.
    """
    streams = {payload: Stream(node).record() for payload in PAYLOADS}
    processes = {
        payload: start_python(KILLED_PUBLISHER, node.aeron_dir, str(stream.id), payload, COMPLETE_VALUE.decode())
        for payload, stream in streams.items()
    }
    for process in processes.values():
        output, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == -signal.SIGKILL, output
    yield {payload: PublishedRecording(stream, None, _recording_id_of(stream)) for payload, stream in streams.items()}
    for stream in streams.values():
        stream.close()


def _recording_id_of(stream: Stream) -> int:
    found = stream.archive.recordings(stream.id)
    assert len(found) == 1
    return found[0].id


@pytest.fixture(params=PAYLOADS)
def payload(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def encode_value(payload: str, value: bytes) -> bytes:
    if payload == "raw":
        return value
    if payload == "framed":
        return encode(Header(Content.BYTES, len(value)), value)
    data = encode_batch(pa.record_batch({"value": pa.array([value], pa.binary())}))
    return encode(Header(Content.ARROW, data.size), data)


@pytest.mark.sampled
def test_queries_skip_the_incomplete_message_of_a_killed_publisher_and_do_not_wait_for_it(
    all_killed: dict[str, PublishedRecording], payload: str
) -> None:
    killed = all_killed[payload]
    stream = killed.stream
    options = {"payload": payload, "idleTimeout": "10s"}
    assert read_numbers(stream.options, **options) == [0]
    ended, unended = (Query(stream.options, **options) for _ in range(2))
    assert ended.run_available_now() == [[0]]
    assert list(unended.run_batches()) == [[0]]
    end = wait_for(lambda: killed.descriptor.stop_position, TIMEOUT_S, "the recording of the killed publisher to stop")
    assert end >= frame(len(encode_value(payload, COMPLETE_VALUE))) + 1408  # a part of the next message is recorded
    assert list(unended.run_batches()) == []
    extended = stream.extend(killed)
    extended.send([encode_value(payload, value) for value in numbered(1, 4)])
    assert list(unended.run_batches()) == [[1, 2, 3]]
    assert read_numbers(stream.options, **options) == [0, 1, 2, 3]
    # A query that stopped before the incomplete message continues after it.
    assert ended.run_available_now() == [[1, 2, 3]]
