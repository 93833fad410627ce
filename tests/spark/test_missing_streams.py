"""Finding U5: a batch query of a stream that was never recorded is an error; one without rows is not."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.node import NodeHandle
from tests.aeron.archives import free_port
from tests.aeron.streams import Stream, numbered
from tests.spark.simulated_engine import read_numbers


def test_a_wrong_port_in_a_batch_query_fails_and_names_the_stream_that_was_meant(node: NodeHandle) -> None:
    """Finding U5: it gave 0 rows and no error."""
    stream = Stream(node, f"aeron:udp?endpoint=localhost:{free_port()}").record()
    stream.publisher().send(numbered(0, 3))
    wrong = f"aeron:udp?endpoint=localhost:{free_port()}"
    with pytest.raises(OptionError) as refused:
        read_numbers({**stream.options, "channel": wrong})
    said = str(refused.value)
    assert f"the archive embedded has no recording of stream {stream.id} of {wrong}" in said
    assert f"it has stream {stream.id} of {stream.channel}" in said
    assert "Correct 'channel' and 'streamId'" in said
    stream.close()


def test_a_wrong_stream_id_in_a_batch_query_fails_and_names_others_of_the_channel(node: NodeHandle) -> None:
    """Finding U5: the same channel, another stream id."""
    stream = Stream(node, f"aeron:udp?endpoint=localhost:{free_port()}").record()
    stream.publisher().send(numbered(0, 3))
    with pytest.raises(OptionError, match=f"it has stream {stream.id} of aeron:udp"):
        read_numbers({**stream.options, "streamId": str(stream.id + 1_000_000)})
    stream.close()


def test_a_stream_that_is_recorded_and_has_no_rows_yet_gives_none(node: NodeHandle) -> None:
    stream = Stream(node).record()
    assert read_numbers(stream.options) == [], "no publisher has come yet"
    publisher = stream.publisher()
    assert read_numbers(stream.options) == [], "its publisher has sent nothing"
    publisher.stop()
    stream.archive.stop_recording(stream.channel, stream.id)
    assert read_numbers(stream.options) == [], "its recording has ended without a message"
