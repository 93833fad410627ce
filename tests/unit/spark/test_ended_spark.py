"""A planner whose Spark has ended does not wait for its archive any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from aeron_spark.errors import EndedError, TransportError
from aeron_spark.options import ReadOptions
from aeron_spark.spark import reader
from aeron_spark.spark.row_values import RAW
from tests.unit.log.publications import Archives


def test_a_wait_for_an_archive_ends_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"channel": "aeron:ipc", "streamId": "1001", "aeronDir": "/nowhere", "payload": "raw"}
    task = reader.Task(ReadOptions.parse(options, streaming=True), "raw", RAW, "this host")
    archives = Archives()
    archives.record(archives.publication())
    opening: list[Callable[[], Any]] = [lambda: archives]

    def away() -> None:
        raise TransportError("the archive's session is closed")

    monkeypatch.setattr(reader, "open_planning_log", lambda *_: opening[-1]())
    planner = reader.AeronStreamReader(task)
    start = planner.initialOffset()
    opening.append(away)
    parent = os.getppid()
    monkeypatch.setattr(os, "getppid", lambda: parent + 1)
    with pytest.raises(EndedError, match=f"process {parent}, which started this one, has ended"):
        planner.latestOffset(start, planner.getDefaultReadLimit())
