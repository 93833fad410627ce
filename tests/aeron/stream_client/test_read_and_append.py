"""Reading and appending to a server's streams over bulk links, with a real driver and archive."""

from __future__ import annotations

import secrets
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, OptionError, RefusedError, RemoteError
from aeron_spark.log.api import Range
from aeron_spark.log.decoding import SmallValues, read_range
from aeron_spark.log.writing import Source
from aeron_spark.protocol.rpc_dispatch import UNKNOWN_OBJECT
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE
from aeron_spark.server.server import Server
from aeron_spark.stream_client.server_log import ServerLog
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.staging import ServerAppender, abort, begin, commit
from aeron_spark.wire.arrow import decode_batches
from aeron_spark.wire.stream_requests import DescribeStream, FinishStage, OpenStage, Request, Transaction
from tests.stream_requests import create_request, known_run_request


def new_stream(server: Server, partitions: int = 1) -> str:
    name = f"s-{secrets.token_hex(4)}"
    server.streams.create(create_request(name, partitions))
    return name


def staged(
    session: StreamSession, stream: str, transaction: Transaction, values: list[bytes], *, task: int = 0,
    partition: int = 0, payload: str = "raw",
) -> ServerAppender:  # fmt: skip
    opening = OpenStage(stream, transaction, partition, task, payload)
    appender = ServerAppender(session, opening, Source("w", transaction.number, task))
    getattr(appender, payload)(pa.array(values, pa.binary()))
    return appender


def read(session: StreamSession, stream: str, partition: int = 0, *, start: int | None = None) -> list[bytes]:
    log = ServerLog({"s": session}, stream)
    state = log.states()[partition]
    begin = state.start if start is None else start
    wanted = Range(state.key, state.fingerprint, begin, state.end, state.end, state.term_length)
    return [value for rows in log.read(wanted) for value in rows.values.to_pylist()]


def test_a_transaction_becomes_visible_with_its_commit(server: Server, session: StreamSession) -> None:
    stream = new_stream(server)
    values = [bytes([n % 256]) * (n % 3000) for n in range(5_000)]
    transaction = Transaction("w", "run", 0)
    appender = staged(session, stream, transaction, values)
    found = appender.finish()
    assert read(session, stream) == []
    assert commit(session, known_run_request(stream, transaction, found, len(values))).repeated is False
    assert read(session, stream) == values
    assert commit(session, known_run_request(stream, transaction, found, len(values))).repeated is True
    assert read(session, stream) == values


def test_tasks_stage_rows_in_different_partitions(server: Server, session: StreamSession) -> None:
    stream = new_stream(server, 2)
    transaction = Transaction("w", "run", 7)
    found = [
        one
        for task in (3, 0, 1, 2)
        for one in staged(
            session, stream, transaction, [b"%d-%d" % (task, n) for n in range(100)], task=task, partition=task % 2
        ).finish()
    ]
    commit(session, known_run_request(stream, transaction, found, 400))
    assert read(session, stream, 0) == [b"%d-%d" % (task, n) for task in (0, 2) for n in range(100)]
    assert read(session, stream, 1) == [b"%d-%d" % (task, n) for task in (1, 3) for n in range(100)]


def test_aborted_fenced_and_repeated_rows_do_not_become_visible(server: Server, session: StreamSession) -> None:
    stream = new_stream(server)
    first, second = Transaction("w", "run-1", 0), Transaction("w", "run-2", 0)
    staged(session, stream, first, [b"aborted"]).finish()
    abort(session, stream, first)
    old = staged(session, stream, first, [b"old"]).finish()
    assert begin(session, stream, second).last == -1
    with pytest.raises(RefusedError, match="run-2"):
        commit(session, known_run_request(stream, first, old, 1))
    new = staged(session, stream, second, [b"new"]).finish()
    commit(session, known_run_request(stream, second, new, 1))
    late = staged(session, stream, second, [b"late"])
    assert late.committed
    assert late.finish() == []
    assert read(session, stream) == [b"new"]


def test_framed_and_arrow_rows_can_have_any_size(server: Server, session: StreamSession) -> None:
    for payload in ("framed", "arrow"):
        stream = new_stream(server)
        rows = [b"small", bytes(5 << 20), b"x" * 100_000] * 2
        transaction = Transaction("w", "run", 0)
        appender = ServerAppender(session, OpenStage(stream, transaction, 0, 0, payload), Source("w", 0, 0))
        if payload == "arrow":
            appender.arrow(pa.record_batch({"value": pa.array(rows, pa.binary())}))
        else:
            appender.framed(pa.array(rows, pa.binary()))
        commit(session, known_run_request(stream, transaction, appender.finish(), len(rows)))
        log = ServerLog({"s": session}, stream, framed=True)
        (state,) = log.states()
        wanted = Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)
        found: list[bytes] = []
        for one in read_range(log, wanted):
            if isinstance(one, SmallValues):
                found += one.values.fields["value"].to_pylist()
            elif payload == "arrow":
                for batch in decode_batches(one.group.payload):
                    found += batch.column("value").to_pylist()
            else:
                found.append(bytes(memoryview(one.group.payload)))
        assert found == rows
        content = log.content([state])
        assert content.payload == payload
        assert (content.schema is not None) == (payload == "arrow")


def test_a_value_that_is_too_long_is_refused_and_other_rows_are_staged(server: Server, session: StreamSession) -> None:
    stream = new_stream(server)
    with pytest.raises(DataFormatError, match="the longest message of stream"):
        staged(session, stream, Transaction("w", "r", 0), [bytes(3 << 20)])
    with pytest.raises(OptionError, match="unknown stream"):
        session.call(DescribeStream(stream + "x"))


def test_the_next_read_uses_the_bulk_link_of_a_read_that_stopped_early(server: Server, session: StreamSession) -> None:
    stream = new_stream(server)
    transaction = Transaction("w", "run", 0)
    values = [bytes(1000)] * 40_000
    commit(
        session,
        known_run_request(stream, transaction, staged(session, stream, transaction, values).finish(), len(values)),
    )
    before = session.opened
    for _ in range(5):
        log = ServerLog({"s": session}, stream)
        (state,) = log.states()
        wanted = Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)
        rows = iter(log.read(wanted))
        next(rows)
        rows.close()
    assert len(read(session, stream)) == len(values)
    assert session.opened - before <= 1


def test_a_time_gives_the_position_of_the_rows_committed_then(server: Server, session: StreamSession) -> None:
    import time

    stream = new_stream(server)
    for number in range(3):
        transaction = Transaction("w", "run", number)
        commit(
            session,
            known_run_request(stream, transaction, staged(session, stream, transaction, [b"%d" % number]).finish(), 1),
        )
        if number == 0:
            time.sleep(0.01)
            between = time.time_ns()
    log = ServerLog({"s": session}, stream)
    (state,) = log.states()
    at = log.position_at(state, between, None)
    assert read(session, stream, start=at) == [b"1", b"2"]
    assert log.boundary(state.key, state.start, state.start, state.end, None).position == at


def test_untyped_calls_of_an_earlier_release_fail_with_a_missing_object(session: StreamSession) -> None:
    with pytest.raises(RemoteError, match=f"unknown remote object {FIRST_SERVICE + 1}") as caught:
        session.client.remote(FIRST_SERVICE + 1).list_all()
    assert caught.value.code == UNKNOWN_OBJECT


def test_the_task_number_chooses_the_partition_of_a_stage(
    server: Server, session: StreamSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task sends two requests: one opens its stage, one finishes it."""
    stream, transaction, sent = new_stream(server, 3), Transaction("w", "r", 0), list[type]()
    call = session.call

    def recording_call(request: Request[Any], *, timeout: float | None = None) -> Any:
        sent.append(type(request))
        return call(request, timeout=timeout)

    monkeypatch.setattr(session, "call", recording_call)
    appender = ServerAppender(session, OpenStage(stream, transaction, None, 5, "raw"), Source("w", 0, 5))
    appender.raw(pa.array([b"row"], pa.binary()))
    parts = appender.finish()
    assert sent == [OpenStage, FinishStage]
    commit(session, known_run_request(stream, transaction, parts, 1))
    assert [read(session, stream, partition) for partition in range(3)] == [[], [], [b"row"]]


def test_a_message_limit_above_the_streams_is_refused_before_a_stage_is_opened(
    server: Server, session: StreamSession
) -> None:
    stream = new_stream(server)
    limit = server.streams.get(stream).definition.max_message_bytes
    before = Transaction("w", "before", 0)
    begin(session, stream, before)
    opening = OpenStage(stream, Transaction("w", "r", 0), None, 0, "raw", max_message_bytes=limit + 1)
    appender = ServerAppender(session, opening, Source("w", 0, 0))
    with pytest.raises(OptionError, match=f"'maxMessageBytes' is {limit + 1} bytes, .* is {limit} bytes"):
        appender.raw(pa.array([b"row"], pa.binary()))
    assert begin(session, stream, before).last == -1  # the refused run has not fenced it
