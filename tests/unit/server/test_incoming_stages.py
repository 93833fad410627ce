"""The server forgets each stage that is finished, failed, aborted or left, whatever has ended it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from msgspec.structs import replace

from aeron_spark.aeron.checksum import crc32
from aeron_spark.endpoint.peer_calls import Deferred
from aeron_spark.errors import EndedError, RefusedError, TransportError, WaitTimeout
from aeron_spark.streams import stage_files
from aeron_spark.streams.stage_files import MAX_GROWING
from aeron_spark.streams.stages import EXPIRY_S
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.bulk_messages import BulkMessageKind, encode_bulk_head
from aeron_spark.wire.staged_items import encode_values_item
from aeron_spark.wire.stream_requests import (
    AbortTransaction,
    FinishStage,
    OpenStage,
    StageFinished,
    StageOpened,
    Transaction,
    decode_response,
    encode_request,
)
from tests.ending import LONG_TIMEOUT_S
from tests.unit.server.requests import handle
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import MemoryBulkLink, World, remains_of, world_with_stream

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
        stream="s", transaction=Transaction("w", "r", transaction, producer="p"), partition=0, task=task,
        content="raw", schema=b"", link=link.number, request=request,
    )  # fmt: skip


def inline_request(task: int) -> OpenStage:
    return replace(open_request(MemoryBulkLink(0, None), 0, task=task), items=ITEMS, rows=1, crc=crc32(ITEMS))  # type: ignore[arg-type]


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
    call(world, AbortTransaction("s", Transaction("w", "r", transaction)))


def expire(world: World, link: MemoryBulkLink, transaction: int) -> None:
    world.sleep(EXPIRY_S + 1.0)
    assert world.server is not None
    world.server.store.get("s").tick(0.0)


def send_wrong_position(world: World, link: MemoryBulkLink, transaction: int) -> None:
    send(link, transaction, position=7)


def fill_the_disk(world: World, link: MemoryBulkLink, transaction: int) -> None:
    world.fail(Fault.FULL_DISK)
    send(link, transaction)


def test_a_connection_opens_stages_after_as_many_aborted_writes_as_its_key_may_have_stages(world: World) -> None:
    for number in range(MAX_GROWING):
        link = world.bulk_link()
        open_stage(world, link, number, number)
        link.close()
    assert remains_of(world.session) == {}
    link = world.bulk_link()
    stage = open_stage(world, link, MAX_GROWING, MAX_GROWING)
    send(link, MAX_GROWING)
    assert finish(world, stage).rows == 1


@pytest.mark.parametrize("end", [leave, abort, expire, send_wrong_position, fill_the_disk])
def test_a_stage_that_ends_is_forgotten(world: World, end: Callable[[World, MemoryBulkLink, int], None]) -> None:
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


def test_the_stages_of_all_connections_of_a_key_are_limited_also_those_in_requests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_files, "MAX_GROWING", 2)
    monkeypatch.setattr(stage_files, "MAX_STAGES", 3)
    link = world.bulk_link()
    stages = [open_stage(world, link, number, task=number) for number in range(2)]
    for request in (2, 3):
        with pytest.raises(RefusedError, match="your key has 2 stages that are not finished") as refused:
            open_stage(world, link, request, task=request)
        assert refused.value.reason == "stage-full"
    assert open_stage(world, link, 0) == stages[0], "a repeated request opens no stage"
    assert world.session is not None
    first = world.session
    world.session = None  # the key connects once more
    world.connect(1.0)
    with pytest.raises(RefusedError, match="your key has 2 stages"):
        open_stage(world, world.bulk_link(), 0, task=7)
    first.end()  # and its stages with it
    for task in range(3):
        call(world, inline_request(task))
    with pytest.raises(RefusedError, match="your key has 3 stages, which is the limit"):
        call(world, inline_request(3))
    call(world, AbortTransaction("s", Transaction("w", "r", 0)))
    assert call(world, inline_request(4)).stage


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
            decode_response(open_request(link, 1), handle(handler, encode_request(open_request(link, 1)))).stage
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


def begin_to_finish(world: World, stage: str) -> Deferred:
    """Send a request for a stage of one byte that has not arrived."""
    assert world.session is not None
    found = handle(world.session.service, encode_request(FinishStage("s", stage, 1, 20.0)))
    assert isinstance(found, Deferred)
    assert not found.awaited.done()
    return found


def test_a_request_that_waits_for_bytes_ends_with_its_stage(world: World) -> None:
    stage = open_stage(world, world.bulk_link(), 1)
    waiting = begin_to_finish(world, stage)
    call(world, AbortTransaction("s", Transaction("w", "r", 0)))
    assert waiting.awaited.result(LONG_TIMEOUT_S)
    with pytest.raises(EndedError) as ended:
        decode_response(FinishStage("s", stage, 1, 20.0), waiting.finish())
    assert str(ended.value) == f"stage {stage} was removed. Open another stage for each attempt of a task."


def test_requests_that_wait_for_bytes_keep_no_thread_and_end_with_their_time(world: World) -> None:
    """A client names more bytes than it sends, as often as it may call."""
    assert world.server is not None
    stage = open_stage(world, world.bulk_link(), 1)
    waiting = [begin_to_finish(world, stage) for _ in range(1_000)]
    assert world.server.loop.waits == 1_000
    world.server.loop.expire(world.time.now + 20.0)
    for one in waiting:
        with pytest.raises(WaitTimeout, match=f"0 of 1 bytes of stage {stage} arrived within 20 s"):
            decode_response(FinishStage("s", stage, 1, 20.0), one.finish())
    assert world.server.loop.waits == 0
