"""Repeated requests of a writer, and commits that lack rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.errors import (
    ConnectError,
    DataFormatError,
    EndedError,
    OptionError,
    RefusedError,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.writing import Source
from aeron_spark.stream_client.operations import describe_stream
from aeron_spark.stream_client.staging import COMMIT_TIMEOUT_S, AppenderState, ServerAppender, begin, commit
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.wire.stream_requests import (
    CommitEmptyTransaction,
    FinishStage,
    OpenStage,
    StageFinished,
    Transaction,
    decode_response,
    encode_request,
)
from tests.stream_requests import known_run_request
from tests.unit.stream_client.connections import Operations
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import World

ONE = Transaction("w", "r", 0)


def appender(world: World, values: list[bytes]) -> ServerAppender:
    made = ServerAppender(world.stream_session(), OpenStage("s", ONE, 0, 0, "raw"), Source("w", 0, 0))
    made.raw(pa.array(values, pa.binary()))
    return made


def service(world: World) -> Any:
    assert world.session is not None
    return world.session.service


def call(world: World, request: Any) -> Any:
    return decode_response(request, world.call(encode_request(request), 3.0))


def test_finish_returns_the_same_parts_again(world: World) -> None:
    stage = appender(world, [b"a", b"b"])
    parts = stage.finish()
    assert [part.rows for part in parts] == [2]
    assert stage.finish() == parts
    assert stage.state is AppenderState.FINISHED
    with pytest.raises(UsageError, match="takes no more rows"):
        stage.raw(pa.array([b"c"], pa.binary()))
    stage.discard()
    assert stage.finish() == parts


@pytest.mark.parametrize("payload", ["raw", "framed", "arrow"])
def test_a_program_may_change_the_memory_of_rows_that_it_has_appended(world: World, payload: str) -> None:
    session = world.stream_session()
    stage = ServerAppender(session, OpenStage("s", ONE, 0, 0, payload), Source("w", 0, 0))
    memory = bytearray(range(250)) * 200
    offsets = pa.array(range(0, len(memory) + 1, 1000), pa.int32()).buffers()[1]
    for _ in range(3):
        column = pa.Array.from_buffers(pa.binary(), len(memory) // 1000, [None, offsets, pa.py_buffer(memory)])
        stage.append(pa.RecordBatch.from_arrays([column], ["value"]))
        memory[:] = bytes(len(memory))
    parts = stage.finish()
    assert [part.rows for part in parts] == [150]
    assert commit(session, known_run_request("s", ONE, parts, 150)).repeated is False


def test_finish_repeats_its_request_after_a_missing_response(world: World) -> None:
    stage = appender(world, [b"a"])
    world.downtime_s = 100_000.0
    world.faults.append(Fault.STOP)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            stage.finish()
        assert stage.state is AppenderState.CLOSING
    world.end_faults()
    (part,) = stage.finish()
    assert commit(world.stream_session(), known_run_request("s", ONE, [part], 1)).repeated is False
    assert world.committed() == [[b"a"], []]


def test_finish_raises_the_same_error_again(world: World) -> None:
    """A failed stage must not count as a transaction without rows."""
    stage = appender(world, [b"a"])
    world.fail(Fault.FULL_DISK)
    messages = set()
    for _ in range(3):
        with pytest.raises(TransportError) as caught:
            stage.finish()
        messages.add(str(caught.value))
        assert stage.state is AppenderState.FAILED
        world.end_faults()
    assert len(messages) == 1


@pytest.mark.parametrize("fault", [Fault.BREAK, Fault.BREAK_AFTER, Fault.KILL, Fault.KILL_AFTER])
def test_a_stage_is_opened_over_a_new_bulk_link_after_the_connection_was_lost(world: World, fault: Fault) -> None:
    """After a reconnection the server does not know the bulk link that the repeated OpenStage request names."""
    session = world.stream_session()
    for number in (0, 1):  # the second transaction finds the idle link of the first one
        transaction = Transaction("w", "r", number)
        if number == 1:
            world.faults.append(fault)
        stage = ServerAppender(session, OpenStage("s", transaction, 0, 0, "raw"), Source("w"))
        stage.raw(pa.array([b"a"], pa.binary()))
        commit(session, known_run_request("s", transaction, stage.finish(), 1))
    assert world.committed() == [[b"a", b"a"], []]


def test_opening_a_stage_fails_at_the_deadline_if_each_bulk_link_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = world.stream_session()

    def refuse(request: object, *, timeout: float) -> None:
        raise EndedError("the connection has no bulk link 7")

    monkeypatch.setattr(session, "call", refuse)
    deadline = session.deadline(5.0, "the server")
    stage = ServerAppender(session, OpenStage("s", ONE, 0, 0, "raw"), Source("w"), deadline=deadline)
    with pytest.raises(EndedError, match="has no bulk link 7"):
        stage.raw(pa.array([b"a"], pa.binary()))
    assert not deadline.remaining()
    assert session.opened > 1
    assert session.running == 0


def test_opening_a_stage_fails_at_once_if_the_client_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = world.stream_session()

    def close_and_fail(request: object, *, timeout: float) -> None:
        session.client.closed = True  # type: ignore[misc]
        raise EndedError("the connection was closed")

    monkeypatch.setattr(session, "call", close_and_fail)
    with pytest.raises(EndedError, match="was closed"):
        ServerAppender(session, OpenStage("s", ONE, 0, 0, "raw"), Source("w")).raw(pa.array([b"a"], pa.binary()))
    assert session.opened == 1


def test_the_server_responds_to_a_repeated_finish_stage(world: World) -> None:
    (part,) = appender(world, [b"a", b"b"]).finish()
    request = FinishStage("s", part.id, part.bytes, 1.0)
    again = service(world).execute(request)
    assert again == StageFinished(part.rows, part.bytes, part.crc)
    world.kill()
    world.connect(100.0)  # the restarted server has the stage
    assert service(world).execute(request) == again


def test_the_server_responds_to_a_repeated_finish_stage_with_the_same_error(world: World) -> None:
    world.connect(1.0)
    bulk_link = world.bulk_link()
    request = OpenStage("s", Transaction("w", "r", 0), 0, 0, "raw", b"", bulk_link.number, 1)
    opened = service(world).execute(request)
    assert service(world).execute(request) == opened
    with pytest.raises(TimeoutError, match="0 of 100 bytes"):
        call(world, FinishStage("s", opened.stage, 100, 1.0))
    bulk_link.close()
    messages = set()
    for _ in range(3):
        with pytest.raises(TransportError) as caught:
            call(world, FinishStage("s", opened.stage, 100, 1.0))
        messages.add(str(caught.value))
    assert len(messages) == 1
    with pytest.raises(RefusedError, match="unknown stage"):
        call(world, FinishStage("s", "another", 100, 1.0))


def test_a_commit_without_parts_is_refused(world: World) -> None:
    session = world.stream_session()
    begin(session, "s", ONE)
    for rows in (0, 3):
        with pytest.raises(RefusedError, match=f"names 0 stages with 0 rows, but its writer wrote {rows} rows"):
            commit(session, known_run_request("s", ONE, [], rows))
    assert begin(session, "s", ONE).last == -1


def test_a_commit_with_a_wrong_number_of_rows_is_refused(world: World) -> None:
    parts = appender(world, [b"a", b"b"]).finish()
    for rows in (1, 3):
        with pytest.raises(RefusedError, match=f"names 1 stages with 2 rows, but its writer wrote {rows} rows"):
            commit(world.stream_session(), known_run_request("s", ONE, parts, rows))
    assert world.committed() == [[], []]
    assert commit(world.stream_session(), known_run_request("s", ONE, parts, 2)).repeated is False
    assert world.committed() == [[b"a", b"b"], []]


def test_a_transaction_without_rows_is_committed_by_a_separate_request(world: World) -> None:
    """For example, a micro-batch without rows."""
    session = world.stream_session()
    begin(session, "s", ONE)
    assert commit(session, CommitEmptyTransaction("s", ONE, COMMIT_TIMEOUT_S)).repeated is False
    assert commit(session, CommitEmptyTransaction("s", ONE, COMMIT_TIMEOUT_S)).repeated is True
    assert begin(session, "s", ONE).last == 0


def test_a_failed_write_adds_no_rows_to_the_transaction(world: World) -> None:
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write([b"a", b"b"])
    world.downtime_s = 100.0
    for fault in (Fault.KILL, Fault.CUT_LINK, Fault.STOP):
        world.faults.extend([fault, *[Fault.LOSE] * 100])
        with pytest.raises((ConnectError, WaitTimeout)):
            out.write([b"not"] * 20, partition=1)
        world.end_faults()
    with pytest.raises(DataFormatError):
        out.write([b"x" * 9_000], partition=0)
    out.write(b"c")
    assert out.commit() == 0
    assert world.committed() == [[b"a", b"b", b"c"], []]


def test_a_lost_transaction_that_exceeds_the_memory_limit_can_only_be_aborted(world: World) -> None:
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, memory_bytes=10)
    out.write([b"a" * 20])
    world.kill()
    for call in (out.commit, lambda: out.write(b"b"), out.commit):
        with pytest.raises(TransportError, match=r"too many to be sent again\. Call abort\(\)"):
            call()
    out.abort()
    out.write(b"c")
    assert out.commit() == 0
    assert sorted(world.committed() or []) == [[], [b"c"]]


def test_rows_are_not_added_to_a_transaction_that_may_be_committed(world: World) -> None:
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write(b"a")
    world.downtime_s = 100.0
    world.faults.extend([Fault.NONE, Fault.STOP])
    with pytest.raises(TimeoutError):
        out.commit()
    with pytest.raises(TimeoutError, match="transaction 0 takes no more rows"):
        out.write(b"b")
    world.end_faults()
    assert out.commit() == 0
    out.write(b"b")
    assert out.commit() == 1
    assert world.committed() == [[b"a", b"b"], []]


def test_abort_reports_that_a_transaction_is_committed_although_its_commit_failed(world: World) -> None:
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write(b"a")
    world.downtime_s = 100.0
    world.faults.extend([Fault.NONE, Fault.LOSE_RESPONSE, Fault.STOP])
    with pytest.raises(TimeoutError):
        out.commit()
    with pytest.raises(TimeoutError):
        out.abort()  # no response
    world.end_faults()
    with pytest.raises(RefusedError, match="transaction 0 of writer 'w' is in the stream") as refused:
        out.abort()
    assert refused.value.reason == "committed"
    assert out.last == 0
    out.abort()
    out.write(b"b")
    assert out.commit() == 1
    assert world.committed() == [[b"a", b"b"], []]


@pytest.mark.parametrize("state", ["the disk is nearly full", "the server drains"])
def test_abort_after_a_failed_commit_needs_neither_disk_nor_a_server_that_begins_transactions(
    world: World, state: str
) -> None:
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write(b"a")
    assert world.server is not None
    service = world.server.service
    if state == "the server drains":
        service.is_draining = True
    else:
        service.refuse_write = lambda: RefusedError("the disk is nearly full", reason="disk-full")
    with pytest.raises(RefusedError):
        out.commit()
    out.abort()
    service.is_draining, service.refuse_write = False, lambda: None
    out.write(b"b")
    out.commit()
    assert world.committed() == [[b"b"], []]


def test_a_repeated_creation_and_a_fenced_writer_have_reasons(world: World) -> None:
    session = world.stream_session()
    with pytest.raises(OptionError, match="stream 's' exists already") as taken:
        Operations(session).create_stream("s", 1)
    assert taken.value.reason == "exists"
    assert len(Operations(session).create_stream("s", 1, exist_ok=True).partitions) == 2  # it stays
    with pytest.raises(OptionError) as unknown:
        describe_stream(session, "other")
    assert unknown.value.reason == "unknown-stream"
    first = StreamWriter(session, "s", writer_id="w", payload="raw", timeout=4.0)
    StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0)
    with pytest.raises(RefusedError, match="is fenced") as fenced:
        first.write(b"a")
    assert fenced.value.reason == "fenced"
    with pytest.raises(OptionError, match="no partition 7") as missing:
        StreamWriter(session, "s", payload="raw", partition=7, timeout=4.0).write(b"a")
    assert missing.value.reason == "no-partition"


def test_an_aborted_transaction_is_not_committed_later(world: World) -> None:
    """A commit request that is still in transit when abort() returns."""
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write(b"a")
    world.faults.extend([Fault.NONE, Fault.DELAY, *[Fault.LOSE] * 20])
    with pytest.raises(TimeoutError):
        out.commit()
    assert world.server is not None
    late = [(10**9, work) for _, work in world.server.delayed]
    assert late
    world.server.delayed = late  # it arrives after all other requests
    world.faults.clear()
    out.abort()
    out.write(b"b")
    number = out.commit()
    world.end_faults()
    assert world.committed() == [[b"b"], []]
    assert out.last == number
