"""Epochs in requests and responses, and the reason of an error at the client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from aeron_spark.errors import DataLossError, RefusedError
from aeron_spark.log.api import Range
from aeron_spark.log.epochs import DIVERGED, FIRST, epoch_at
from aeron_spark.log.writing import Source
from aeron_spark.server.server import Server
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.server_log import ServerLog
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.staging import ServerAppender, begin, commit, first_lost
from aeron_spark.streams.writers import Acknowledged, parse_stamp, stamp_text
from aeron_spark.wire.stream_requests import OpenStage, PartitionStates, StartRead, Transaction
from aeron_spark.wire.values import Rows
from tests.stream_requests import create_request, known_run_request

_names = itertools.count()
UNKNOWN = epoch_at(2_000_000_000 * 10**9, 5)  # of another history than any server of this test


def written(server: Server, session: StreamSession, writer: str = "desk-7") -> tuple[str, str]:
    """Create a stream with three transactions of one row; return its name, and the stamp of the last commit."""
    name = f"epochs-{next(_names)}"
    server.streams.create(create_request(name, 1))
    stamp = ""
    for number in range(3):
        one = Transaction(writer, "run", number)
        appender = ServerAppender(session, OpenStage(name, one, 0, 0, "raw"), Source("w", 0, 0))
        appender.raw(pa.array([b"%d" % number], pa.binary()))
        committed = commit(session, known_run_request(name, one, appender.finish(), 1))
        assert not committed.repeated
        stamp = committed.stamp
    return name, stamp


def test_a_server_refuses_a_writer_whose_acknowledgement_is_of_another_history(
    server: Server, session: StreamSession
) -> None:
    """The refusal names the transactions, and its reason is "diverged" at the client as well."""
    name, stamp = written(server, session)
    assert begin(session, name, Transaction("desk-7", "run", -1, acknowledged=2, stamp=stamp)).last == 2
    assert first_lost(session, name, "desk-7", 2, stamp) is None
    lost = stamp_text([Acknowledged(UNKNOWN, 58, 58), *parse_stamp(stamp)])
    with pytest.raises(RefusedError, match="transactions 3 to 57 of writer 'desk-7' were acknowledged") as caught:
        begin(session, name, Transaction("desk-7", "run", -1, acknowledged=57, stamp=lost))
    assert (caught.value.reason, caught.value.retriable) == (DIVERGED, False)
    assert "write the rows again" in caught.value.remedy.lower()
    assert first_lost(session, name, "desk-7", 57, lost) == 3


def test_a_read_is_refused_if_its_epoch_is_of_another_history(server: Server, session: StreamSession) -> None:
    """The server checks the epoch of a read before it sends the first byte."""
    name, _ = written(server, session)
    (state,) = server.streams.get(name).states()
    (found,) = session.call(PartitionStates(name)).partitions
    assert found.epochs == state.epochs.to_bytes()
    assert [begin for _, begin in state.epochs.pairs] == [0, 0]
    assert state.epochs.at(state.end) not in (FIRST, UNKNOWN)
    with (
        pytest.raises(DataLossError, match=r"partition 0 of stream '\S+' diverged: the reader is at 999") as caught,
        session.bulk_link() as link,
    ):
        session.call(StartRead(name, 0, 0, state.end, link.number, session.request_number(), UNKNOWN, 999))
    assert caught.value.reason == DIVERGED


def test_a_range_planned_in_another_history_is_refused(server: Server, session: StreamSession) -> None:
    """The server was replaced between the planning of a range and its reading."""
    name, _ = written(server, session)
    log = ServerLog({"s": session}, name)
    (state,) = log.states()
    planned = Range(
        state.key, state.fingerprint, 0, state.end, state.end, state.term_length, state.epoch_at(state.end)
    )  # fmt: skip
    assert sum(len(rows.positions) for rows in log.read(planned)) == 3
    with pytest.raises(DataLossError, match=f"diverged: the reader is at {state.end}") as caught:
        list(log.read(replace(planned, epoch=UNKNOWN)))
    assert caught.value.reason == DIVERGED


def test_each_range_that_a_reader_reads_has_the_epoch_of_its_end(
    server: Server, session: StreamSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses the range if it was replaced after the reader planned it."""
    name, _ = written(server, session)
    planned: list[Range] = []
    real = ServerLog.read

    def read(log: ServerLog, wanted: Range) -> Iterator[Rows]:
        planned.append(wanted)
        return real(log, wanted)

    monkeypatch.setattr(ServerLog, "read", read)
    assert sum(len(batch) for batch in StreamReader(session, name)) == 3
    (state,) = server.streams.get(name).states()
    assert [(one.end, one.epoch) for one in planned] == [(state.end, state.epochs.at(state.end))]
