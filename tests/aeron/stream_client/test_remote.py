"""Reading and appending to a server's streams over branches, on a real driver and archive."""

from __future__ import annotations

import secrets

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, OptionError, RefusedError
from aeron_spark.log.api import Range
from aeron_spark.log.decoding import SmallValues, read_range
from aeron_spark.log.writing import Source
from aeron_spark.server.program import Server
from aeron_spark.stream_client.appending import ServerAppender, Transaction, abort, commit, enter
from aeron_spark.stream_client.asking import StreamSession
from aeron_spark.stream_client.server_log import ServerLog
from aeron_spark.wire.arrow import decode_batches


def name_of(server: Server, partitions: int = 1) -> str:
    name = f"s-{secrets.token_hex(4)}"
    server.streams.create(name, partitions)
    return name


def staged(
    asking: StreamSession,
    stream: str,
    transaction: Transaction,
    values: list[bytes],
    *,
    task: int = 0,
    partition: int = 0,
    payload: str = "raw",
) -> ServerAppender:
    appender = ServerAppender(
        asking, stream, transaction, task=task, partition=partition, source=Source("w", transaction.id, task),
        payload=payload,
    )  # fmt: skip
    getattr(appender, payload)(pa.array(values, pa.binary()))
    return appender


def read(asking: StreamSession, stream: str, partition: int = 0, *, start: int | None = None) -> list[bytes]:
    log = ServerLog({"s": asking}, stream)
    state = log.states()[partition]
    begin = state.start if start is None else start
    wanted = Range(state.key, state.fingerprint, begin, state.end, state.end, state.term_length)
    return [value for rows in log.read(wanted) for value in rows.values.to_pylist()]


def test_a_transaction_is_there_after_its_commit_and_not_before(server: Server, asking: StreamSession) -> None:
    stream = name_of(server)
    values = [bytes([n % 256]) * (n % 3000) for n in range(5_000)]
    transaction = Transaction("w", "run", 0)
    appender = staged(asking, stream, transaction, values)
    found = appender.finish()
    assert read(asking, stream) == []
    assert commit(asking, stream, transaction, found, len(values))[0] is False
    assert read(asking, stream) == values
    assert commit(asking, stream, transaction, found, len(values))[0] is True
    assert read(asking, stream) == values


def test_tasks_and_partitions(server: Server, asking: StreamSession) -> None:
    stream = name_of(server, 2)
    transaction = Transaction("w", "run", 7)
    found = [
        one
        for task in (3, 0, 1, 2)
        for one in staged(
            asking, stream, transaction, [b"%d-%d" % (task, n) for n in range(100)], task=task, partition=task % 2
        ).finish()
    ]
    commit(asking, stream, transaction, found, 400)
    assert read(asking, stream, 0) == [b"%d-%d" % (task, n) for task in (0, 2) for n in range(100)]
    assert read(asking, stream, 1) == [b"%d-%d" % (task, n) for task in (1, 3) for n in range(100)]


def test_what_is_aborted_fenced_or_repeated_never_shows(server: Server, asking: StreamSession) -> None:
    stream = name_of(server)
    first, second = Transaction("w", "run-1", 0), Transaction("w", "run-2", 0)
    staged(asking, stream, first, [b"aborted"]).finish()
    abort(asking, stream, first)
    old = staged(asking, stream, first, [b"old"]).finish()
    assert enter(asking, stream, second)[0] == -1
    with pytest.raises(RefusedError, match="run-2"):
        commit(asking, stream, first, old, 1)
    new = staged(asking, stream, second, [b"new"]).finish()
    commit(asking, stream, second, new, 1)
    late = staged(asking, stream, second, [b"late"])
    assert late.committed
    assert late.finish() == []
    assert read(asking, stream) == [b"new"]


def test_framed_and_arrow_rows_of_any_size(server: Server, asking: StreamSession) -> None:
    for payload in ("framed", "arrow"):
        stream = name_of(server)
        rows = [b"small", bytes(5 << 20), b"x" * 100_000] * 2
        transaction = Transaction("w", "run", 0)
        appender = ServerAppender(
            asking, stream, transaction, task=0, partition=0, source=Source("w", 0, 0), payload=payload
        )
        if payload == "arrow":
            appender.arrow(pa.record_batch({"value": pa.array(rows, pa.binary())}))
        else:
            appender.framed(pa.array(rows, pa.binary()))
        commit(asking, stream, transaction, appender.finish(), len(rows))
        log = ServerLog({"s": asking}, stream, framed=True)
        (state,) = log.states()
        wanted = Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)
        found: list[bytes] = []
        for one in read_range(log, wanted):
            if isinstance(one, SmallValues):
                found += one.values.values.to_pylist()
            elif payload == "arrow":
                for batch in decode_batches(one.group.payload):
                    found += batch.column("value").to_pylist()
            else:
                found.append(bytes(memoryview(one.group.payload)))
        assert found == rows
        content = log.content([state])
        assert content is not None
        assert content.payload == payload
        assert (content.schema is not None) == (payload == "arrow")


def test_a_value_that_is_too_long_is_refused_and_nothing_is_lost(server: Server, asking: StreamSession) -> None:
    stream = name_of(server)
    with pytest.raises(DataFormatError, match="the longest message of stream"):
        staged(asking, stream, Transaction("w", "r", 0), [bytes(3 << 20)])
    with pytest.raises(OptionError, match="there is no stream"):
        asking.ask("describe", stream + "x")


def test_a_reader_that_stops_early_leaves_its_branch_to_the_next(server: Server, asking: StreamSession) -> None:
    stream = name_of(server)
    transaction = Transaction("w", "run", 0)
    values = [bytes(1000)] * 40_000
    commit(asking, stream, transaction, staged(asking, stream, transaction, values).finish(), len(values))
    before = asking.opened
    for _ in range(5):
        log = ServerLog({"s": asking}, stream)
        (state,) = log.states()
        wanted = Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)
        rows = iter(log.read(wanted))
        next(rows)
        rows.close()  # type: ignore[attr-defined]
    assert len(read(asking, stream)) == len(values)
    assert asking.opened - before <= 1


def test_positions_by_time(server: Server, asking: StreamSession) -> None:
    import time

    stream = name_of(server)
    for number in range(3):
        transaction = Transaction("w", "run", number)
        commit(asking, stream, transaction, staged(asking, stream, transaction, [b"%d" % number]).finish(), 1)
        if number == 0:
            time.sleep(0.01)
            between = time.time_ns()
    log = ServerLog({"s": asking}, stream)
    (state,) = log.states()
    at = log.position_at(state, between, None)
    assert read(asking, stream, start=at) == [b"1", b"2"]
    assert log.boundary(state.key, state.start, state.start, state.end, None).position == at
