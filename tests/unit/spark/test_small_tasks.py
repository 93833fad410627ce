"""Micro-batches whose tasks have few rows: one request stages the rows of a task.

The rows of each micro-batch are in the stream once, in the order of the tasks, after each crash: a task is repeated or
runs twice, the query's driver starts again with the same micro-batch, the server is killed at each step or restored
from an older copy, and an abort meets a late request. In all these cases a stage has an id that only its own server
knows: a commit shows the stages that it names, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.aeron.checksum import crc32
from aeron_spark.errors import DataFormatError, RefusedError, WaitTimeout
from aeron_spark.log.writing import Source
from aeron_spark.spark.writer import WrittenRows
from aeron_spark.stream_client.staging import MAX_INLINE_BYTES
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.staged_items import encode_values_item
from aeron_spark.wire.stream_requests import CommitPart, OpenStage, StageOpened, Transaction
from tests.unit.spark.query_runs import QUERY, SERVER, Run, batches, row, rows
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import World, world_with_stream

STAGED = ["OpenStage", "FinishStage"]  # over a bulk link
COMMITTED = ["LastTransaction", "CommitTransaction"]


def requests(world: World) -> list[str]:
    return [type(request).__name__ for request, _, _ in world.sent_requests]


def send_again(world: World, run: Run) -> StageOpened:
    """Send the run's first OpenStage request again, as one that arrives late."""
    request = next(one for one, _, _ in world.sent_requests if isinstance(one, OpenStage))
    return run.session.call(request)


def stream_of(world: World) -> Stream:
    return world.server.store.get("s")


def stages(world: World) -> int:
    return len(stream_of(world)._stages)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world with a stream ``s`` of two partitions."""
    with world_with_stream(tmp_path / "streams", monkeypatch, 2) as made:
        yield made


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run that has committed the micro-batch 0, so that its process knows the longest message of the stream."""
    made = Run(world, monkeypatch)
    made.write(0)
    world.sent_requests.clear()
    return made


@pytest.fixture
def next_run(world: World, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A later run of the same query, in other processes."""
    made = Run(world, monkeypatch, "run-2")
    made.session.message_limits["s"] = stream_of(world).definition.max_message_bytes
    return made


# The requests


def test_a_task_with_few_rows_takes_one_request_and_no_bulk_link(world: World, run: Run) -> None:
    links = run.session.opened
    run.write(1)
    assert requests(world) == ["OpenStage", "OpenStage", *COMMITTED]
    assert run.session.opened == links
    assert world.committed() == batches(0, 1)
    assert stages(world) == 0


def test_the_first_task_of_a_process_learns_the_longest_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(world, monkeypatch)
    run.run_task(0, 0)
    run.run_task(0, 1)
    assert requests(world) == [*STAGED, "OpenStage"]
    assert run.session.message_limits == {"s": stream_of(world).definition.max_message_bytes}


def test_a_task_with_many_rows_fills_its_stage_over_a_bulk_link_in_order(world: World, run: Run) -> None:
    values = [b"%05d" % number + bytes(4_000) for number in range(MAX_INLINE_BYTES // 4_000 + 2)]
    appender = run.writer.begin(run.transaction(1), Source(QUERY, 1, 0), "raw")
    for value in values:
        appender.append(rows(value))
    parts = appender.finish()
    assert requests(world) == STAGED
    run.writer.commit(run.transaction(1), SERVER, parts, len(values))
    assert world.committed() == [[row(0, 0), *values], [row(0, 1)]]


def test_a_task_of_a_batch_save_is_staged_with_one_request(world: World, run: Run) -> None:
    save = Transaction("batch-1", "run", 0, single_use=True)
    appender = run.writer.begin(save, Source("batch-1"), "raw")
    appender.append(rows(b"saved"))
    run.writer.commit(save, SERVER, appender.finish(), 1)
    assert requests(world) == ["OpenStage", "CommitTransaction"]
    assert world.committed() == [[row(0, 0), b"saved"], [row(0, 1)]]


def test_finish_returns_the_same_parts_again(world: World, run: Run) -> None:
    appender = run.writer.begin(run.transaction(1), Source(QUERY, 1, 0), "raw")
    appender.append(rows(b"a"))
    assert appender.finish() == appender.finish()
    assert requests(world) == ["OpenStage"]


def test_a_value_that_is_longer_than_a_message_is_refused_before_a_request(world: World, run: Run) -> None:
    with pytest.raises(DataFormatError, match="a value has 9000 bytes"):
        run.run_task(1, 0, [bytes(9_000)])
    assert requests(world) == []


def test_columns_that_a_strict_schema_does_not_have_fail_the_task(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(world, monkeypatch)
    for number, columns in enumerate([{"a": [1]}, {"a": [2], "b": [2]}]):
        appender = run.writer.begin(run.transaction(number), Source(QUERY, number, 0), "arrow")
        appender.append(pa.record_batch(columns))
        if number == 0:
            run.writer.commit(run.transaction(0), SERVER, appender.finish(), 1)
            continue
        with pytest.raises(RefusedError) as refused:
            appender.finish()
        assert refused.value.reason == "schema"
    assert stages(world) == 0


def test_a_stream_that_was_created_again_with_shorter_messages_takes_the_repeated_task(world: World, run: Run) -> None:
    """The process remembers longer messages; a failed task forgets them."""
    run.session.message_limits["s"] = 1 << 20
    with pytest.raises(RefusedError, match="too long for a message"):
        run.run_task(1, 0, [bytes(9_000)])
    assert "s" not in run.session.message_limits
    assert stages(world) == 0
    run.write(1)
    assert world.committed() == batches(0, 1)


@pytest.mark.parametrize("changes", [{"crc": 1}, {"rows": 2}, {"items": b"x", "crc": crc32(b"x")}])
def test_rows_that_are_not_as_the_request_says_leave_no_stage(world: World, run: Run, changes: dict[str, Any]) -> None:
    items = b"".join(bytes(one) for one in encode_values_item(pa.array([b"a"], pa.binary())))
    given: dict[str, Any] = {"items": items, "rows": 1, "crc": crc32(items)}
    request = OpenStage(
        "s", Transaction(QUERY, "run-1", 1, producer=QUERY), 0, 0, "raw", b"", 0, 0, **{**given, **changes}
    )
    with pytest.raises(RefusedError):
        run.session.call(request)
    assert stages(world) == 0
    assert stream_of(world)._stages.space.reserved == 0


def test_the_rows_count_as_staged_until_the_commit(world: World, run: Run) -> None:
    space = stream_of(world)._stages.space
    space.limit = lambda: 6_000
    with pytest.raises(RefusedError) as refused:
        run.run_task(1, 0, [bytes(3_000)])
    assert refused.value.reason == "stage-full"
    assert space.reserved == 0
    written = run.run_task(1, 0, [bytes(1_000)])
    assert space.reserved > 1_000
    run.commit([written])
    assert space.reserved == 0


def test_a_draining_server_opens_no_stage(world: World, run: Run) -> None:
    world.server.service.is_draining = True
    with pytest.raises(RefusedError) as refused:
        run.run_task(1, 0)
    assert refused.value.reason == "draining"
    assert stages(world) == 0


def test_the_response_names_the_stage_and_its_partition(world: World, run: Run) -> None:
    items = b"".join(bytes(one) for one in encode_values_item(pa.array([b"a"], pa.binary())))
    opened = run.session.call(
        OpenStage(
            "s",
            Transaction(QUERY, "run-1", 1, producer=QUERY),
            None,
            3,
            "raw",
            b"",
            0,
            0,
            items=items,
            rows=1,
            crc=crc32(items),
        )
    )
    assert opened == StageOpened(opened.stage, 1, 2, stream_of(world).definition.max_message_bytes)
    assert stream_of(world).stage(opened.stage).is_finished


# Crashes and repetitions of a task


@pytest.mark.parametrize("fault", [Fault.REPEAT, Fault.BREAK_AFTER, Fault.KILL_AFTER])
def test_a_repeated_request_opens_another_stage_and_the_commit_shows_one(world: World, run: Run, fault: Fault) -> None:
    world.faults.append(fault)
    first = run.run_task(1, 0)
    assert stages(world) == 2
    run.commit([first, run.run_task(1, 1)])
    assert world.committed() == batches(0, 1)
    assert stages(world) == 0


def test_finish_sends_the_rows_again_after_a_missing_response(world: World, run: Run) -> None:
    world.faults.append(Fault.LOSE_RESPONSE)
    appender = run.writer.begin(run.transaction(1), Source(QUERY, 1, 0), "raw")
    appender.append(rows(row(1, 0)))
    with pytest.raises(WaitTimeout):
        appender.finish()
    parts = tuple(appender.finish())
    run.commit([WrittenRows(run.transaction(1), SERVER, parts, 1), run.run_task(1, 1)])
    assert world.committed() == batches(0, 1)
    assert stages(world) == 0


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.KILL_AT_JOURNAL, Fault.KILL_AFTER_JOURNAL, Fault.KILL_AFTER])
def test_a_server_that_is_killed_while_it_begins_a_run_takes_the_task(
    world: World, run: Run, next_run: Run, fault: Fault
) -> None:
    """The first task of a run makes it the current run, with a record of the journal."""
    world.faults.append(fault)
    next_run.write(1)
    assert world.committed() == batches(0, 1)


def test_a_task_that_runs_twice_adds_its_rows_once(world: World, run: Run) -> None:
    """Spark gives the commit the message of one attempt. Another one may end later, also after the commit."""
    run.run_task(1, 0)
    run.commit([run.run_task(1, 0), run.run_task(1, 1)])
    late = run.run_task(1, 0)
    assert (late.parts, late.committed) == ((), True)
    assert world.committed() == batches(0, 1)
    assert stages(world) == 0


def test_a_request_that_arrives_after_the_commit_opens_no_stage(world: World, run: Run) -> None:
    run.write(1)
    assert send_again(world, run).stage == ""
    assert world.committed() == batches(0, 1)
    assert stages(world) == 0


# Crashes of the query's driver


def test_a_driver_that_starts_again_commits_a_micro_batch_once(world: World, run: Run, next_run: Run) -> None:
    """The server has committed the micro-batch, and Spark does not know it."""
    run.write(1)
    tasks = [next_run.run_task(1, task) for task in (0, 1)]
    assert [(task.parts, task.committed) for task in tasks] == [((), True)] * 2
    next_run.commit(tasks)
    next_run.write(2)
    assert world.committed() == batches(0, 1, 2)


def test_a_driver_that_starts_again_fences_the_earlier_run(world: World, run: Run, next_run: Run) -> None:
    """Also if the earlier run still lives and both have staged the micro-batch."""
    earlier = [run.run_task(1, task) for task in (0, 1)]
    later = [next_run.run_task(1, task) for task in (0, 1)]
    with pytest.raises(RefusedError, match="is fenced"):
        run.commit(earlier)
    with pytest.raises(RefusedError, match="is fenced"):
        run.run_task(1, 0)
    next_run.commit(later)
    assert world.committed() == batches(0, 1)
    assert stages(world) == 0


def test_a_late_request_of_an_earlier_run_opens_no_stage(world: World, run: Run, next_run: Run) -> None:
    run.run_task(1, 0)
    later = [next_run.run_task(1, task) for task in (0, 1)]
    with pytest.raises(RefusedError, match="is fenced"):
        send_again(world, run)
    next_run.commit(later)
    assert world.committed() == batches(0, 1)
    assert stages(world) == 0


# Crashes of the server in a commit, and restored copies


@pytest.mark.parametrize(
    "fault",
    [
        Fault.KILL,
        Fault.KILL_AT_PUBLISH,
        Fault.KILL_AFTER_PUBLISH,
        Fault.KILL_AT_JOURNAL,
        Fault.KILL_AFTER_JOURNAL,
        Fault.KILL_AFTER,
        Fault.REPEAT,
        Fault.BREAK_AFTER,
    ],
)
def test_a_server_that_is_killed_in_a_commit_has_the_rows_once(world: World, run: Run, fault: Fault) -> None:
    """Its stages are on the disk, so that the repeated commit finds them or finds that it is done."""
    written = [run.run_task(1, task) for task in (0, 1)]
    world.faults.extend([Fault.NONE, fault])  # of LastTransaction and CommitTransaction
    run.commit(written)
    run.write(2)
    assert world.committed() == batches(0, 1, 2)
    assert stages(world) == 0


def test_a_server_that_was_restored_from_a_copy_without_the_last_micro_batch_refuses(world: World, run: Run) -> None:
    copied = world.copy()
    run.write(1)
    written = [run.run_task(2, task) for task in (0, 1)]
    world.restore(copied)
    world.end_faults()
    with pytest.raises(RefusedError) as refused:
        run.commit(written)
    assert refused.value.reason == "diverged"
    assert world.committed() == batches(0)


def test_a_server_that_was_restored_between_the_check_and_the_commit_does_not_know_the_stages(
    world: World, run: Run
) -> None:
    """A copy with the stages of a micro-batch also has the micro-batch before it, which was committed earlier."""
    copied = world.copy()
    run.write(1)
    parts: list[CommitPart] = [part for task in (0, 1) for part in run.run_task(2, task).parts]
    world.restore(copied)
    world.end_faults()
    with pytest.raises(RefusedError, match="unknown stage"):
        run.writer.commit(run.transaction(2), SERVER, parts, 2)
    assert world.committed() == batches(0)


def test_a_server_that_was_restored_from_a_copy_with_the_stages_commits_them(world: World, run: Run) -> None:
    written = [run.run_task(1, task) for task in (0, 1)]
    copied = world.copy()
    run.commit(written)
    world.restore(copied)
    world.end_faults()
    run.commit(written)
    assert world.committed() == batches(0, 1)


# Aborts


def test_an_abort_removes_the_stages_so_that_a_late_commit_is_refused(world: World, run: Run) -> None:
    written = [run.run_task(1, task) for task in (0, 1)]
    run.writer.abort(run.transaction(1), SERVER)
    assert stages(world) == 0
    with pytest.raises(RefusedError, match="unknown stage"):
        run.commit(written)
    assert world.committed() == batches(0)


def test_an_abort_after_a_commit_whose_response_was_lost_changes_nothing(world: World, run: Run) -> None:
    run.write(1)
    run.writer.abort(run.transaction(1), SERVER)
    assert world.committed() == batches(0, 1)


def test_a_stage_that_a_late_request_opens_after_the_abort_is_never_shown(
    world: World, run: Run, next_run: Run
) -> None:
    """The next commit of the query removes it."""
    run.run_task(1, 0)
    run.writer.abort(run.transaction(1), SERVER)
    assert send_again(world, run).stage
    assert stages(world) == 1
    next_run.write(1)
    assert world.committed() == batches(0, 1)
    assert stages(world) == 0
