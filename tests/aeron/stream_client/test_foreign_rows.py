"""Rows of a hostile writer: the server refuses them, and a reader that meets them in an older stream names them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing

import pyarrow as pa
import pytest

import aeron_spark
from aeron_spark.aeron.checksum import crc32
from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.log.api import Range
from aeron_spark.log.decoding import PlacedGroup, read_range
from aeron_spark.server.server import Server
from aeron_spark.stream_client.server_log import ServerLog
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.streams import stages
from aeron_spark.wire import chunks
from aeron_spark.wire.bulk_messages import BulkMessageKind, encode_bulk_head
from aeron_spark.wire.chunks import Content, Header
from aeron_spark.wire.staged_items import encode_group_item
from aeron_spark.wire.stream_requests import (
    CommitTransaction,
    CreateStream,
    FinishStage,
    InlinePart,
    OpenStage,
    Transaction,
)
from tests.aeron.stream_client.conftest import Connect
from tests.hostile_arrow import HOSTILE, stream_of

SCHEMA = pa.schema([("text", pa.string())])
ENCODED = SCHEMA.serialize().to_pybytes()
ROWS = 4


@pytest.fixture(scope="module")
def client(connect: Connect) -> aeron_spark.Client:
    return connect()


@pytest.fixture
def stream(client: aeron_spark.Client) -> str:
    name = f"foreign-{secrets.token_hex(4)}"
    client.create_stream(name, schema=SCHEMA)
    return name


def items_of(payload: bytes, rows: int = ROWS) -> bytes:
    header = Header(Content.ARROW, 0, rows=rows, writer="hostile")
    return b"".join(bytes(part) for part in encode_group_item(header, payload))


def commit(session: StreamSession, stream: str, items: bytes, rows: int = ROWS, schema: bytes = ENCODED) -> None:
    part = InlinePart(0, 0, "arrow", schema, rows, items, crc32(items))
    session.call(CommitTransaction(stream, Transaction("hostile", "r", 7), (part,), rows, 5.0))


def stage_at_once(session: StreamSession, stream: str, items: bytes) -> None:
    session.call(
        OpenStage(stream, Transaction("hostile", "r", 7), 0, 3, "arrow", ENCODED, 0, 0, items=items, rows=ROWS,
                  crc=crc32(items))
    )  # fmt: skip


def stage_over_a_link(session: StreamSession, stream: str, items: bytes) -> None:
    with session.bulk_link(10.0) as link:
        number = session.request_number()
        opened = session.call(
            OpenStage(stream, Transaction("hostile", "r", 7), 0, 3, "arrow", ENCODED, link.number, number)
        )
        step = link.room - 64
        for at in range(0, len(items), step):
            link.send(encode_bulk_head(number, BulkMessageKind.STAGE, at), items[at : at + step], timeout=10.0)
        session.call(FinishStage(stream, opened.stage, len(items), 5.0))


@pytest.mark.parametrize("send", [commit, stage_at_once, stage_over_a_link])
def test_hostile_rows_are_refused_and_a_reader_reads_on(
    client: aeron_spark.Client, session: StreamSession, stream: str, send: Callable[[StreamSession, str, bytes], None]
) -> None:
    reader = client.reader(stream, follow=True, timeout=60.0)
    with closing(iter(reader)) as found, client.writer(stream) as out:
        for number, (payload, why) in enumerate(HOSTILE.values()):
            with pytest.raises((DataFormatError, RefusedError), match=why) as error:
                send(session, stream, items_of(payload))
            assert "rows 0 to 3 of task " in error.value.what
            assert "of transaction 7 of writer 'hostile' are refused" in error.value.what
            out.write({"text": f"good {number}"})
            out.commit()
            assert next(found).to_pylist() == [{"text": f"good {number}"}]
    assert client.stream(stream).schema == SCHEMA


def test_a_server_marks_the_arrow_rows_that_it_has_checked(
    client: aeron_spark.Client, session: StreamSession, stream: str
) -> None:
    for size in (1, 400_000):  # one chunk, and several
        with client.writer(stream) as out:
            out.write({"text": "x" * size})
    log = ServerLog({"s": session}, stream, framed=True)
    (state,) = log.states()
    assert state.checked_from == 0
    whole = Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)
    for found in groups_of(log, whole):
        assert found.group.header.checked
        assert found.is_checked


def groups_of(log: ServerLog, wanted: Range) -> list[PlacedGroup]:
    found = [one for one in read_range(log, wanted) if isinstance(one, PlacedGroup)]
    assert len(found) == 2
    return found


@pytest.mark.parametrize("metadata", [False, True])
def test_a_reader_names_hostile_rows_of_an_earlier_release(
    client: aeron_spark.Client, session: StreamSession, stream: str, metadata: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier_release:
        earlier_release.setattr(stages, "check_content", lambda *given: None)
        earlier_release.setattr(chunks, "CHECKED", 0)
        commit(session, stream, items_of(HOSTILE["offset"][0]))
    later = client.reader(stream, start="latest", metadata=metadata, follow=True, timeout=60.0)
    with client.writer(stream) as out:
        out.write({"text": "good"})
    with pytest.raises(DataFormatError, match=rf"{stream}.* the group at position 0: .*not an Arrow IPC stream"):
        list(client.reader(stream, metadata=metadata))
    with closing(iter(later)) as found:
        assert next(found).column("text").to_pylist() == ["good"]


def test_rows_that_are_not_what_the_stage_announces_are_refused(
    client: aeron_spark.Client, session: StreamSession, stream: str
) -> None:
    numbers = pa.record_batch({"text": [1, 2, 3, 4]})
    with pytest.raises(DataFormatError, match="column 'text' is int64, wanted is string"):
        commit(session, stream, items_of(stream_of(numbers)))
    words = pa.record_batch({"text": ["a", "b", "c", "d"]})
    with pytest.raises(DataFormatError, match="has 4 rows, but its header announces 9"):
        commit(session, stream, items_of(stream_of(words), 9), 9)
    assert list(client.reader(stream)) == []


def test_a_schema_with_too_many_columns_or_wrong_names_is_refused(
    client: aeron_spark.Client, session: StreamSession, server: Server, stream: str
) -> None:
    wide = pa.schema([(f"c{number}", pa.int8()) for number in range(14_000)]).serialize().to_pybytes()
    named = [
        pa.schema([("name", pa.int8())]).serialize().to_pybytes().replace(b"name", b"\xff\xfeme"),
        pa.schema([("a", pa.struct([("name", pa.int8())]))]).serialize().to_pybytes().replace(b"name", b"\xff\xfeme"),
    ]
    requests = [
        lambda schema: session.call(CreateStream(f"{stream}-2", 1, 0, 0.0, 0, schema=schema)),
        lambda schema: commit(session, stream, items_of(HOSTILE["offset"][0]), schema=schema),
        lambda schema: session.call(OpenStage(stream, Transaction("hostile", "r", 7), 0, 3, "arrow", schema, 0, 0,
                                              items=b"x", rows=1, crc=0)),
    ]  # fmt: skip
    for request in requests:
        with pytest.raises(RefusedError, match=r"more columns.* than the limit of 2000 \(maxColumns\)") as error:
            request(wide)
        assert error.value.reason == "limit"
        for schema in named:
            with pytest.raises(DataFormatError, match="is not UTF-8"):
                request(schema)
