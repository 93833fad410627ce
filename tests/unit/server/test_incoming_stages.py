"""The server forgets each stage that is finished, failed, aborted or left, whatever has ended it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from aeron_spark.errors import EndedError, RefusedError, TransportError
from aeron_spark.server.stream_service import StreamLimits
from aeron_spark.streams.stages import EXPIRY_S
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.staged_items import encode_values_item
from aeron_spark.wire.stream_rpc import (
    AbortTransaction,
    BulkMessageKind,
    FinishStage,
    OpenStage,
    StageFinished,
    StageOpened,
    decode_response,
    encode_bulk_head,
    encode_request,
)
from tests.ending import LONG_TIMEOUT_S
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import MemoryBulkLink, World, remains_of, world_with_stream

MOST: Final = 1_024  # stages of a connection that are not finished
ITEMS: Final = b"".join(bytes(buffer) for buffer in encode_values_item(pa.array([b"row"], pa.binary())))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_with_stream(tmp_path / "streams", monkeypatch, 1) as made:
        made.connect(1.0)
        yield made


def call(world: World, request: Any) -> Any:
    return decode_response(request, world.call(encode_request(request), 3.0))


def open_request(link: MemoryBulkLink, request: int, transaction: int = 0, task: int = 0) -> OpenStage:
    return OpenStage(
        stream="s", writer="w", run="r", transaction=transaction, single_use=False, producer="p", partition=0,
        task=task, content="raw", schema=b"", link=link.number, request=request,
    )  # fmt: skip


def open_stage(world: World, link: MemoryBulkLink, request: int, transaction: int = 0, task: int = 0) -> str:
    opened: StageOpened = call(world, open_request(link, request, transaction, task))
    return opened.stage


def send(link: MemoryBulkLink, request: int, position: int = 0) -> None:
    link.send(encode_bulk_head(request, BulkMessageKind.STAGE, position), ITEMS, timeout=1.0)


def finish(world: World, stage: str, size: int = len(ITEMS)) -> StageFinished:
    finished: StageFinished = call(world, FinishStage("s", stage, size, 1.0))
    return finished


def leave(world: World, link: MemoryBulkLink, transaction: int) -> None:
    link.close()


def abort(world: World, link: MemoryBulkLink, transaction: int) -> None:
    call(world, AbortTransaction("s", "w", "r", transaction))


def expire(world: World, link: MemoryBulkLink, transaction: int) -> None:
    world.sleep(EXPIRY_S + 1.0)
    assert world.server is not None
    world.server.store.get("s").tick(0.0)


def send_wrong_position(world: World, link: MemoryBulkLink, transaction: int) -> None:
    send(link, transaction, position=7)


def fill_the_disk(world: World, link: MemoryBulkLink, transaction: int) -> None:
    world.fail(Fault.FULL_DISK)
    send(link, transaction)


def test_a_connection_opens_stages_after_1024_aborted_writes(world: World) -> None:
    for number in range(MOST):
        link = world.bulk_link()
        open_stage(world, link, number, number)
        link.close()
    assert remains_of(world.session) == {}
    link = world.bulk_link()
    stage = open_stage(world, link, MOST, MOST)
    send(link, MOST)
    assert finish(world, stage).rows == 1


@pytest.mark.parametrize("end", [leave, abort, expire, send_wrong_position, fill_the_disk])
def test_a_stage_that_ends_is_forgotten(world: World, end: Callable[[World, MemoryBulkLink, int], None]) -> None:
    assert world.server is not None
    world.server.service.limits = StreamLimits(stages_of_connection=2)
    errors = {leave: TransportError, send_wrong_position: RefusedError, fill_the_disk: TransportError}
    link = world.bulk_link()
    for number in range(5):
        link = world.bulk_link() if link.closed else link
        stage = open_stage(world, link, number, number)
        end(world, link, number)
        assert "stages" not in remains_of(world.session)
        for _ in range(2):  # a repeated request has the same error
            with pytest.raises(errors.get(end, EndedError)):
                finish(world, stage)


def test_stages_that_are_not_finished_are_limited(world: World) -> None:
    assert world.server is not None
    world.server.service.limits = StreamLimits(stages_of_connection=2)
    link = world.bulk_link()
    stages = [open_stage(world, link, number, task=number) for number in range(2)]
    for request in (2, 3):
        with pytest.raises(RefusedError, match="your connection has 2 stages that are not finished") as refused:
            open_stage(world, link, request, task=request)
        assert refused.value.reason == "stage-full"
    assert open_stage(world, link, 0) == stages[0], "a repeated request opens no stage"
    send(link, 0)
    finish(world, stages[0])
    open_stage(world, link, 2, task=2)


def test_a_repeated_request_that_runs_at_the_same_time_opens_no_second_stage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the messages filled one stage, and the client finished the other."""
    assert world.session is not None
    handler, link = world.session.service, world.bulk_link()
    found: list[str] = []
    numbers = itertools.count()
    original = Stream.open_stage

    def request() -> None:
        found.append(
            decode_response(open_request(link, 1), handler.handle(encode_request(open_request(link, 1)))).stage
        )

    repeated = threading.Thread(target=request)

    def opened(self: Stream, *given: Any, **named: Any) -> Any:
        if next(numbers) == 0:
            repeated.start()
            repeated.join(0.05)  # the repeated request would end here, if it could open a stage
        return original(self, *given, **named)

    monkeypatch.setattr(Stream, "open_stage", opened)
    request()
    repeated.join(LONG_TIMEOUT_S)
    assert not repeated.is_alive()
    assert len(found) == 2
    assert len(set(found)) == next(numbers) == 1
    send(link, 1)
    assert finish(world, found[0]).rows == 1


def test_two_bulk_links_may_use_the_same_request_number(world: World) -> None:
    first, second = world.bulk_link(), world.bulk_link()
    stages = [open_stage(world, link, 7, task=task) for task, link in enumerate((first, second))]
    assert len(set(stages)) == 2
    send(second, 7)
    assert finish(world, stages[1]).rows == 1
    send(first, 7)
    assert finish(world, stages[0]).rows == 1


def test_a_request_that_waits_for_bytes_ends_with_its_stage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.server is not None
    world.server.service.condition = threading.Condition
    link = world.bulk_link()
    stage = open_stage(world, link, 1)
    waits = threading.Event()
    errors: list[str] = []

    def wait() -> None:
        assert world.session is not None
        waits.set()
        with pytest.raises(EndedError) as ended:
            decode_response(FinishStage("s", stage, 1, 20.0), world.session.service.handle(encode_request(request)))
        errors.append(str(ended.value))

    request = FinishStage("s", stage, 1, 20.0)
    waiting = threading.Thread(target=wait)
    waiting.start()
    assert waits.wait(LONG_TIMEOUT_S)
    call(world, AbortTransaction("s", "w", "r", 0))
    waiting.join(LONG_TIMEOUT_S)
    assert errors == [f"stage {stage} was removed. Open another stage for each attempt of a task."]
