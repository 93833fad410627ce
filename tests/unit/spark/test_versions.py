"""Spark's versions: old ones are refused, new ones warned about, and what 4.0 and 4.1 lack is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from aeron_spark.errors import SetupError
from aeron_spark.log.api import Range
from aeron_spark.log.offsets import Offset
from aeron_spark.options import ReadOptions
from aeron_spark.spark import LagListener, check_spark, lag_listener, pyspark_api
from aeron_spark.spark.reader import EarlierStreamReader, Task
from aeron_spark.spark.row_values import FRAMED, RAW
from aeron_spark.spark.source import AeronDataSource
from aeron_spark.version import NEWEST_SPARK, OLDEST_SPARK, dotted

if TYPE_CHECKING:
    from aeron_spark.log.query import QueryPlanner

STREAM = {"channel": "aeron:ipc", "streamId": "1001", "aeronDir": "/nowhere"}


@pytest.mark.parametrize("release", ["4.0.0", "4.1.4", "4.2.0", f"{dotted(NEWEST_SPARK)}.7", "4.0.0.dev1"])
def test_a_supported_spark_is_accepted(release: str) -> None:
    check_spark(release)


@pytest.mark.parametrize("release", ["3.5.9", "2.4.8"])
def test_an_older_spark_is_refused_by_name(release: str) -> None:
    with pytest.raises(SetupError, match=rf"^Spark {release} is too old: aeron-spark needs Spark 4\.0") as error:
        check_spark(release)
    assert f"pip install 'pyspark>={dotted(OLDEST_SPARK)}'" in error.value.remedy


@pytest.mark.parametrize("release", ["4.4.0", "5.0.0"])
def test_a_newer_spark_gives_a_warning(release: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"Spark {release} is newer than {dotted(NEWEST_SPARK)}"):
        check_spark(release)


@pytest.mark.parametrize("name", ["maxBytesPerTrigger", "maxRowsPerTrigger", "minBytesPerTrigger"])
def test_a_limit_is_refused_with_the_version_that_has_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark_api, "HAS_READ_LIMITS", False)
    monkeypatch.setattr("pyspark.__version__", "4.1.2")
    source = AeronDataSource({**STREAM, "payload": "framed", name: "100"})
    with pytest.raises(SetupError, match=rf"^option '{name}' .* needs Spark 4\.2 or newer, and this is Spark 4\.1\.2"):
        source.streamReader(FRAMED)


def test_filters_are_refused_with_the_version_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark_api, "HAS_FILTERS", False)
    monkeypatch.setattr("pyspark.__version__", "4.0.1")
    with pytest.raises(SetupError, match=r"^option 'pushdown' needs Spark 4\.1 or newer, and this is Spark 4\.0\.1"):
        AeronDataSource({**STREAM, "payload": "raw", "pushdown": "true"}).reader(RAW)


def test_the_lag_is_refused_with_the_version_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_listener, "HAS_READ_LIMITS", False)
    with pytest.raises(SetupError, match=r"^LagListener needs Spark 4\.2 or newer"):
        LagListener()


class PlannerOfTen:
    """Plans batches of one recording, which grows by ten bytes with each request for an end."""

    def __init__(self) -> None:
        self.end = 0
        self.ranges: list[tuple[int | None, int | None]] = []

    def initial(self) -> Offset:
        return Offset({"a/1": self.end}, {"a/1": "00000000"}, initial=True)

    def latest(self, start: Offset, *, limited: bool) -> Offset:
        assert not limited
        self.end += 10
        return Offset({"a/1": self.end}, {"a/1": "00000000"}, origin=start.positions() if start.initial else None)

    def between(self, start: Offset, end: Offset) -> list[Range]:
        self.ranges.append((start.position("a/1"), end.position("a/1")))
        return []


def earlier_reader() -> tuple[EarlierStreamReader, PlannerOfTen]:
    options = ReadOptions.parse({**STREAM, "payload": "raw"}, streaming=True)
    reader, planner = EarlierStreamReader(Task(options, "raw", RAW, "this host")), PlannerOfTen()
    reader._planner = cast("QueryPlanner", planner)
    return reader, planner


def test_a_new_query_of_an_older_spark_begins_at_one_offset() -> None:
    """Spark requests the end before the start, so a later start would be after the end."""
    reader, planner = earlier_reader()
    end = reader.latestOffset()
    assert reader.initialOffset()["recordings"] == {"a/1": 0}
    reader.partitions(reader.initialOffset(), end)
    reader.partitions(end, reader.latestOffset())
    assert planner.ranges == [(0, 10), (10, 20)]


def test_a_query_of_an_older_spark_continues_at_its_checkpoint() -> None:
    reader, planner = earlier_reader()
    checkpoint = Offset({"a/1": 7}, {"a/1": "00000000"}).to_dict()
    assert reader.partitions(checkpoint, checkpoint) == []
    end = reader.latestOffset()
    assert "origin" not in end  # the end of a new query's first batch has one
    reader.partitions(checkpoint, end)
    assert planner.ranges == [(7, 10)]


def test_an_older_spark_repeats_the_first_batch_from_its_begin() -> None:
    """Regression: after a failed first batch the query began at the end of that batch, and lost its rows."""
    reader, planner = earlier_reader()
    end = reader.latestOffset()
    again, planner = earlier_reader()
    again.partitions(end, end)
    again.partitions(again.initialOffset(), end)
    assert planner.ranges == [(0, 10)]
