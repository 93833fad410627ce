"""A batch query fails if its stream was never recorded, and returns no rows if its recording is empty."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, numbered
from tests.ports import free_port
from tests.spark.simulated_engine import read_numbers


def test_a_batch_query_with_a_wrong_port_fails_and_the_error_names_the_recorded_channel(node: NodeHandle) -> None:
    """Regression: the query returned 0 rows, without an error."""
    stream = Stream(node, f"aeron:udp?endpoint=localhost:{free_port()}").record()
    stream.publisher().send(numbered(0, 3))
    wrong = f"aeron:udp?endpoint=localhost:{free_port()}"
    with pytest.raises(OptionError) as refused:
        read_numbers({**stream.options, "channel": wrong})
    text = str(refused.value)
    assert f"the archive embedded has no recording of stream {stream.id} of {wrong}" in text
    assert f"it has stream {stream.id} of {stream.channel}" in text
    assert "Correct 'channel' and 'streamId'" in text
    stream.close()


def test_a_batch_query_with_a_wrong_stream_id_fails_and_the_error_names_the_recorded_stream(node: NodeHandle) -> None:
    """The channel is right and the stream id is wrong."""
    stream = Stream(node, f"aeron:udp?endpoint=localhost:{free_port()}").record()
    stream.publisher().send(numbered(0, 3))
    with pytest.raises(OptionError, match=f"it has stream {stream.id} of aeron:udp"):
        read_numbers({**stream.options, "streamId": str(stream.id + 1_000_000)})
    stream.close()


def test_a_batch_query_of_a_recorded_stream_without_messages_returns_no_rows(node: NodeHandle) -> None:
    stream = Stream(node).record()
    assert read_numbers(stream.options) == [], "there is no publisher yet"
    publisher = stream.publisher()
    assert read_numbers(stream.options) == [], "its publisher has sent nothing"
    publisher.stop()
    stream.archive.stop_recording(stream.channel, stream.id)
    assert read_numbers(stream.options) == [], "its recording has ended without a message"
