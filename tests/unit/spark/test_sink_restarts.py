"""A server restarts in a micro-batch of the sink, at each request and between them: each row is in the stream once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark.log import restarts
from tests.unit.spark.query_runs import Run, rows
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import World, world_with_stream

VALUES = [b"%d of a task that fills a message of its bulk link with each row" % number for number in range(4)]
REQUESTS = 6  # OpenStage, FinishStage and the commit's; of a task whose rows are staged again there are more


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world with a stream ``s`` of two partitions."""
    monkeypatch.setattr(restarts, "PAUSE_S", 0)
    with world_with_stream(tmp_path / "streams", monkeypatch, 2) as made:
        yield made


def committed(world: World) -> list[bytes]:
    found = world.committed()
    return [value for partition in found for value in partition]


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("killed_after", range(len(VALUES) + 1))
def test_a_restart_of_the_server_between_two_batches_of_a_task(
    world: World, monkeypatch: pytest.MonkeyPatch, killed_after: int, batch: int
) -> None:
    run = Run(world, monkeypatch)
    for earlier in range(batch):
        run.write(earlier)
    before = committed(world)

    def batches() -> Iterator[pa.RecordBatch]:
        for number, value in enumerate(VALUES):
            if number == killed_after:
                world.kill()
            yield rows(value)
        if killed_after == len(VALUES):
            world.kill()

    written = run.run_sink_task(batch, batches())
    assert written.rows == len(VALUES)
    run.commit([written])
    assert sorted(committed(world)) == sorted(before + VALUES)


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.KILL_AFTER, Fault.BREAK, Fault.BREAK_AFTER])
@pytest.mark.parametrize("request_number", range(REQUESTS))
def test_a_restart_of_the_server_at_each_request_of_a_micro_batch(
    world: World, monkeypatch: pytest.MonkeyPatch, request_number: int, fault: Fault
) -> None:
    run = Run(world, monkeypatch)
    world.faults.extend([Fault.NONE] * request_number + [fault])
    run.commit([run.run_sink_task(0, map(rows, VALUES))])
    assert committed(world) == VALUES
