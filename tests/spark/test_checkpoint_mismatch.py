"""A query fails if its checkpoint is of another stream; with a real archive."""

from __future__ import annotations

import re

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, numbered
from tests.spark.simulated_engine import Query


def make_two_streams(node: NodeHandle) -> tuple[Stream, Stream]:
    """Return a stream whose recording has ended, and another with rows. A query mixed such streams without an error."""
    ended, other = Stream(node).record(), Stream(node).record()
    publisher = ended.publisher()
    publisher.send(numbered(0, 3))
    publisher.stop()
    other.publisher().send(numbered(100, 103))
    return ended, other


def test_a_query_with_a_checkpoint_of_another_stream_fails_before_any_row_and_names_both_streams(
    node: NodeHandle,
    source: str,
) -> None:
    """Regression: if the old recordings had ended, one sink got rows of two streams without an error."""
    ended, other = make_two_streams(node)
    query = Query(ended.options, source=source)
    assert query.run_batch() == [0, 1, 2]
    query.restart(**other.options)
    text = f"the checkpoint is of stream {ended.id} of aeron:ipc, but the query reads stream {other.id} of aeron:ipc"
    with pytest.raises(OptionError, match=re.escape(text)):
        query.run_batch()
    query.restart(**ended.options)
    assert query.run_batch() is None, "the failure must not change the checkpoint"
    other.close()


def test_a_batch_that_is_planned_again_for_another_stream_fails(node: NodeHandle, source: str) -> None:
    """After a failed batch, Spark plans that batch again before any other call."""
    ended, other = make_two_streams(node)
    query = Query(ended.options, source=source)
    assert query.plan_batch()
    query.restart(**other.options)
    query.request_initial_offset()
    with pytest.raises(OptionError, match="the checkpoint is of stream"):
        query.read_planned_batch()
    other.close()
