"""Small transactions: the commit request carries their rows.

A writer describes its stream once. After its first transaction, another one of a few rows takes a single request. All
rules of staged transactions hold: one commit, fences, losses, the schema policy, and the limits of the space for
stages.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.aeron.checksum import crc32
from aeron_spark.errors import DataFormatError, OptionError, RefusedError
from aeron_spark.log.writing import Source
from aeron_spark.stream_client.operations import describe_stream
from aeron_spark.stream_client.staging import (
    MAX_INLINE_BYTES,
    PART_BYTES,
    InlineRoom,
    InlineSink,
    ServerAppender,
    begin,
    commit,
)
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.wire.arrow import encode_batch
from aeron_spark.wire.chunks import Content, Header
from aeron_spark.wire.staged_items import encode_group_item, encode_values_item
from aeron_spark.wire.stream_requests import CommitTransaction, InlinePart, OpenStage, Transaction
from tests.stream_requests import known_run_request
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import World

ONE = Transaction("w", "r", 0)


def writer(world: World, writer_id: str | None = "w", **options: Any) -> StreamWriter:
    """A writer of raw values that has committed the row 0."""
    made = StreamWriter(world.stream_session(), "s", writer_id=writer_id, payload="raw", timeout=4.0, **options)
    made.write([b"0"], partition=0)
    made.commit()
    world.sent_requests.clear()
    return made


def requests(world: World) -> list[str]:
    return [type(request).__name__ for request, _, _ in world.sent_requests]


def inline(values: list[bytes], partition: int | None = 0, **changes: Any) -> InlinePart:
    items = b"".join(bytes(one) for one in encode_values_item(pa.array(values, pa.binary())))
    given = {"partition": partition, "task": 0, "content": "raw", "schema": b"", "rows": len(values), "items": items}
    return InlinePart(**{**given, "crc": crc32(items), **changes})


def arrow(columns: dict[str, list[int]]) -> InlinePart:
    batch = pa.record_batch(columns)
    header = Header(Content.ARROW, 0, rows=batch.num_rows, writer="w")
    items = b"".join(bytes(one) for one in encode_group_item(header, encode_batch(batch)))
    return InlinePart(0, 0, "arrow", bytes(batch.schema.serialize()), batch.num_rows, items, crc32(items))


def rows(world: World) -> list[list[bytes]] | None:
    return world.committed()


@pytest.mark.parametrize("writer_id", ["w", None])
def test_a_small_transaction_takes_one_request(world: World, writer_id: str | None) -> None:
    program = writer(world, writer_id)
    for number in (1, 2):
        program.write([b"%d" % number], partition=0)
        program.write([b"%d b" % number], partition=1)
        assert program.commit() == number
    assert requests(world) == ["CommitTransaction"] * 2
    assert rows(world) == [[b"0", b"1", b"2"], [b"1 b", b"2 b"]]


def test_the_token_of_a_small_transaction_is_stored(world: World) -> None:
    program = writer(world)
    program.write([b"1"])
    program.commit("after 1")
    assert StreamWriter(world.stream_session(), "s", writer_id="w").last_token == "after 1"


def test_rows_that_become_too_many_move_to_a_stage_in_order(world: World) -> None:
    program = writer(world)
    values = [b"%05d" % number + bytes(4_000) for number in range(MAX_INLINE_BYTES // 4_000 + 2)]
    for value in values:
        program.write([value], partition=0)
    program.write([b"another partition"], partition=1)
    program.commit()
    assert requests(world) == ["OpenStage", "FinishStage", "CommitTransaction"]
    assert rows(world) == [[b"0", *values], [b"another partition"]]


def test_many_small_values_move_to_a_stage_once_their_items_are_too_large(world: World) -> None:
    """In the wire format a value of one byte has a header of about 60."""
    known = StreamWriter(world.stream_session(), "s", writer_id="w", payload="framed")
    known.write([b"0"], partition=0)
    known.commit()
    world.sent_requests.clear()
    known.write([b"x"] * 2_000, partition=0)
    known.commit()
    assert requests(world) == ["OpenStage", "FinishStage", "CommitTransaction"]


def test_a_large_schema_and_many_parts_do_not_make_the_request_too_large(world: World) -> None:
    wide = pa.record_batch({f"{'c' * 60}{number}": [number] for number in range(1_000)})
    program = StreamWriter(world.stream_session(), "s", writer_id="w")
    for _ in range(2):
        program.write(wide)
        world.sent_requests.clear()
        program.commit()
        assert requests(world) == ["FinishStage", "CommitTransaction"]
    room = InlineRoom()
    parts = [InlineSink(room) for _ in range(MAX_INLINE_BYTES // PART_BYTES + 1)]
    assert parts[0].has_too_many


def test_rows_that_cannot_move_to_a_stage_leave_the_transaction_unchanged(world: World) -> None:
    program = StreamWriter(world.stream_session(), "s", writer_id="w", payload="framed", timeout=1.0)
    program.write([b"0"], partition=0)
    program.commit()
    program.write([b"1"], partition=0)
    assert world.server is not None
    world.server.store.get("s")._stages.space.limit = lambda: 3_000
    with pytest.raises(RefusedError) as refused:
        program.write([b"x"] * 2_000, partition=0)
    assert refused.value.reason == "stage-full"
    program.write([b"2"], partition=0)
    world.sent_requests.clear()
    assert program.commit() == 1
    assert requests(world) == ["CommitTransaction"]
    found = rows(world)
    assert found is not None
    assert [value[-1:] for value in found[0]] == [b"0", b"1", b"2"]


def test_the_first_transaction_of_a_single_use_writer_is_staged(world: World) -> None:
    """Only a stage lets the server begin its run: a commit request would be refused by a server that lost it, too."""
    writer(world)
    single_use = StreamWriter(world.stream_session(), "s", payload="raw")
    world.sent_requests.clear()
    for _ in range(2):
        single_use.write([b"1"])
        single_use.commit()
    assert requests(world) == ["OpenStage", "FinishStage", "CommitTransaction", "CommitTransaction"]


def test_the_room_of_a_transaction_is_given_back_for_rows_that_were_not_added() -> None:
    room = InlineRoom()
    added = InlineSink(room)
    added.put_values(pa.array([b"abc"], pa.binary()), None)
    size = len(added.items)
    assert room.left == MAX_INLINE_BYTES - PART_BYTES - size
    added.put_values(pa.array([bytes(MAX_INLINE_BYTES)], pa.binary()), None)
    assert added.has_too_many
    added.truncate(size)
    assert not added.has_too_many
    assert room.left == MAX_INLINE_BYTES - PART_BYTES - size


@pytest.mark.parametrize("fault", [Fault.REPEAT, Fault.LOSE_RESPONSE, Fault.BREAK_AFTER, Fault.KILL_AFTER])
def test_a_repeated_request_commits_once(world: World, fault: Fault) -> None:
    program = writer(world)
    program.write([b"1"], partition=0)
    world.faults.append(fault)
    assert program.commit() == 1
    assert rows(world) == [[b"0", b"1"], []]


def test_a_writer_that_another_one_replaced_is_refused(world: World) -> None:
    program = writer(world)
    StreamWriter(world.stream_session(), "s", writer_id="w")
    program.write([b"1"], partition=0)
    with pytest.raises(RefusedError, match="is fenced"):
        program.commit()
    assert rows(world) == [[b"0"], []]


def test_a_committed_transaction_of_a_fenced_run_is_not_reported_as_its_own(world: World) -> None:
    """Two runs of one producer, such as two copies of a buffer folder: the later one committed this number."""
    session = world.stream_session()
    begin(session, "s", Transaction("w", "a", 0, producer="p"))
    begin(session, "s", Transaction("w", "b", 0, producer="p"))
    commit(session, known_run_request("s", Transaction("w", "b", 0, producer="p"), [inline([b"of b"])], 1))
    with pytest.raises(RefusedError, match="is fenced"):
        commit(session, known_run_request("s", Transaction("w", "a", 0, producer="p"), [inline([b"of a"])], 1))
    assert rows(world) == [[b"of b"], []]


def test_a_server_that_does_not_know_the_run_refuses(world: World) -> None:
    with pytest.raises(RefusedError, match="'w'"):
        commit(world.stream_session(), known_run_request("s", ONE, [inline([b"a"])], 1))
    assert rows(world) == [[], []]


def test_a_restored_server_that_lacks_an_acknowledged_transaction_refuses(world: World) -> None:
    program = writer(world)
    copied = world.copy()
    program.write([b"1"], partition=0)
    program.commit()
    world.restore(copied)
    world.end_faults()
    program.write([b"2"], partition=0)
    with pytest.raises(RefusedError) as refused:
        program.commit()
    assert refused.value.reason == "diverged"
    assert rows(world) == [[b"0"], []]
    program.accept_loss()
    assert program.commit() == 2
    assert rows(world) == [[b"0", b"2"], []]


@pytest.mark.parametrize("changes", [{"crc": 1}, {"rows": 2}, {"partition": 2}, {"content": "arrow"}, {"items": b"x"}])
def test_rows_that_are_not_as_the_request_says_are_refused(world: World, changes: dict[str, Any]) -> None:
    session = world.stream_session()
    begin(session, "s", ONE)
    commit(session, known_run_request("s", ONE, [inline([b"0"])], 1))
    second = Transaction("w", "r", 1)
    with pytest.raises((RefusedError, DataFormatError, OptionError)):
        commit(session, known_run_request("s", second, [inline([b"a"], **changes)], changes.get("rows", 1)))
    assert rows(world) == [[b"0"], []]


def test_a_value_that_is_longer_than_a_message_is_refused(world: World) -> None:
    session = world.stream_session()
    begin(session, "s", ONE)
    with pytest.raises(DataFormatError, match="too long for a message"):
        commit(session, known_run_request("s", ONE, [inline([bytes(8_193)])], 1))
    assert rows(world) == [[], []]


def test_the_rows_of_a_request_count_as_staged_during_the_commit(world: World) -> None:
    session = world.stream_session()
    begin(session, "s", ONE)
    assert world.server is not None
    space = world.server.store.get("s")._stages.space
    space.limit = lambda: 100
    with pytest.raises(RefusedError) as refused:
        commit(session, known_run_request("s", ONE, [inline([bytes(100)])], 1))
    assert refused.value.reason == "stage-full"
    assert space.reserved == 0
    commit(session, known_run_request("s", ONE, [inline([b"a"])], 1))
    assert space.reserved == 0
    assert rows(world) == [[b"a"], []]


def test_staged_and_carried_rows_of_one_partition_keep_the_order_of_the_tasks(world: World) -> None:
    session = world.stream_session()
    staged = ServerAppender(session, OpenStage("s", ONE, 0, 1, "raw"), Source("w", 0, 1))
    staged.raw(pa.array([b"b"], pa.binary()))
    parts = [inline([b"c"], task=2), *staged.finish(), inline([b"a"])]
    commit(session, known_run_request("s", ONE, parts, 3))
    assert rows(world) == [[b"a", b"b", b"c"], []]


def test_rows_of_a_new_schema_are_refused_by_write_and_not_by_commit(world: World) -> None:
    program = StreamWriter(world.stream_session(), "s", writer_id="w", timeout=4.0)
    first = pa.record_batch({"a": pa.array([1], pa.int64())})
    program.write(first)
    program.commit()
    with pytest.raises((RefusedError, DataFormatError)):
        program.write(pa.record_batch({"a": pa.array(["text"])}))
    program.write(first)
    world.sent_requests.clear()
    assert program.commit() == 1
    assert requests(world) == ["CommitTransaction"]


def test_rows_with_a_new_column_are_refused_by_a_strict_schema_unless_the_request_evolves_it(world: World) -> None:
    session = world.stream_session()
    begin(session, "s", ONE)
    commit(session, known_run_request("s", ONE, [arrow({"a": [1]})], 1))
    second = Transaction("w", "r", 1)
    with pytest.raises(RefusedError) as refused:
        commit(session, known_run_request("s", second, [arrow({"a": [2], "b": [2]})], 1))
    assert refused.value.reason == "schema"
    assert describe_stream(session, "s").schema == pa.schema({"a": pa.int64()})
    commit(session, known_run_request("s", second, [arrow({"a": [2], "b": [2]})], 1, evolve_schema=True))
    assert describe_stream(session, "s").schema == pa.schema({"a": pa.int64(), "b": pa.int64()})


def test_a_part_without_a_partition_goes_to_that_of_its_task(world: World) -> None:
    session = world.stream_session()
    begin(session, "s", ONE)
    commit(session, known_run_request("s", ONE, [inline([b"a"], None, task=3)], 1))
    assert rows(world) == [[], [b"a"]]
    assert any(isinstance(request, CommitTransaction) for request, _, _ in world.sent_requests)
