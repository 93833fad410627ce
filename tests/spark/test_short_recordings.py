"""A batch over many short recordings makes a fixed number of requests, besides one for each replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aeron_spark.aeron.client import AeronClient
from aeron_spark.direct import archive_recordings
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, numbered
from tests.spark.simulated_engine import read_numbers

MANY, FEW = 16, 2


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of parsed catalogs, and of the subscriptions of this process."""
    counted: Counter[str] = Counter()

    def count(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **named: Any) -> Any:
            counted[name] += 1
            return call(*args, **named)

        return counting

    monkeypatch.setattr(archive_recordings, "parse_catalog", count("catalogs", archive_recordings.parse_catalog))
    monkeypatch.setattr(AeronClient, "subscription", count("subscriptions", AeronClient.subscription))
    return counted


def record(node: NodeHandle, count: int) -> Stream:
    """Return a stream with this number of ended recordings, of one message each."""
    stream = Stream(node).record()
    for number in range(count):
        publisher = stream.publisher()
        publisher.send(numbered(number, number + 1))
        publisher.stop()
    return stream


@pytest.mark.parametrize("read_path", ["files", "replay"])
def test_many_recordings_need_as_many_lists_and_subscriptions_as_few(
    node: NodeHandle, calls: Counter[str], read_path: str
) -> None:
    """Regression: a task searched the catalog for each recording, and subscribed to each replay."""
    found = []
    for count in (FEW, MANY):
        stream = record(node, count)
        read_numbers(stream.options, readPath=read_path)  # the process opens what it keeps
        calls.clear()
        assert read_numbers(stream.options, readPath=read_path) == list(range(count))
        found.append((calls["catalogs"], calls["subscriptions"]))
    few, many = found
    # a catalog that the archive changes meanwhile is read again
    assert many[0] <= few[0] + FEW
    assert many[1] == few[1] == 0
