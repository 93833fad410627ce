"""Arrow groups of another program on the direct route: a reader names the position of those that it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.log.follow import Follower
from aeron_spark.log_factory import log_of
from aeron_spark.options import ReadOptions
from aeron_spark.wire.chunks import Content, Header, split
from tests.aeron.streams import PublishedRecording, Stream
from tests.hostile_arrow import HOSTILE, stream_of, texts
from tests.spark.simulated_engine import read_table

GOOD = stream_of(pa.record_batch({"text": texts(0, 4, 8, 12, 16)}))


def publish(recording: PublishedRecording, payload: bytes) -> int:
    """Publish a group of four rows; return its position."""
    header = Header(Content.ARROW, len(payload), rows=4, writer="hostile")
    (chunk,) = split(payload, header, max_message_bytes=16_000)
    (position,) = recording.send([chunk.encode_header(0) + chunk.payload.to_pybytes()])
    return position


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("payload", ["arrow", "auto"])
def test_a_reader_refuses_hostile_groups_with_their_position(stream: Stream, name: str, payload: str) -> None:
    data, why = HOSTILE[name]
    recording = stream.publisher()
    publish(recording, GOOD)
    position = publish(recording, data)
    given = {**stream.options, "payload": payload}
    rows = Follower(ReadOptions.parse(given, streaming=False), log_of, lambda: False).batches(follow=False)
    assert next(rows).batch.to_pydict() == {"text": ["abcd", "efgh", "ijkl", "mnop"]}
    with pytest.raises(DataFormatError, match=f"recording {recording.key}: the group at position {position}: .*{why}"):
        next(rows)
    with pytest.raises(DataFormatError, match=f"recording {recording.key}: the group at position {position}: .*{why}"):
        read_table(given)
