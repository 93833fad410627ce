"""A batch over many short recordings makes a fixed number of requests, and waits once for several replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.recording import REPLAYS_AT_ONCE
from aeron_spark.direct import archive_recordings
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, numbered
from tests.spark.simulated_engine import make_source, read_numbers

MANY, FEW = 16, 2


class CountedCalls:
    """An object of Java whose calls are counted by their names."""

    def __init__(self, java: Any, calls: Counter[str]) -> None:
        self._java = java
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._java, name)


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


def test_replays_of_short_recordings_are_started_together(
    node: NodeHandle, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each replay waited for the archive's response to its own request: 1,000 took 8 to 12 s."""
    stream = record(node, MANY)
    monkeypatch.setattr(stream.archive, "replays", CountedCalls(stream.archive.replays, calls))
    assert read_numbers(stream.options, readPath="replay") == list(range(MANY))
    assert calls["start"] == MANY / REPLAYS_AT_ONCE


def test_replays_that_were_not_read_are_stopped(node: NodeHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, calls = record(node, FEW), Counter[str]()
    source = make_source(stream.options, readPath="replay")
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    monkeypatch.setattr(stream.archive, "java", CountedCalls(stream.archive.java, calls))
    rows = reader.read(partition)
    next(iter(rows))
    assert calls["stopReplay"] == 0
    rows.close()  # type: ignore[union-attr]
    assert calls["stopReplay"] == FEW - 1
