"""The bytes of written rows on both routes: a stage on a server, its recording, and the messages of a publication.

Stages and recordings outlive a release, so the same rows must have the same bytes in the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest

from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.direct import writing as direct
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from aeron_spark.stream_client.staging import ServerAppender, commit
from aeron_spark.wire.arrow import encode_batch, split_rows
from aeron_spark.wire.bulk_messages import BULK_HEAD
from aeron_spark.wire.chunks import NOT_CONTINUED, Chunk, Content, Header, payload_limit, split
from aeron_spark.wire.staged_items import encode_group_item
from aeron_spark.wire.stream_requests import OpenStage, Transaction
from tests.stream_requests import create_request, known_run_request
from tests.unit.stream_client.joined import MemoryBulkLink, World
from tests.unit.stream_client.recorded import messages_of

NOW: Final = 1_700_000_000_000_000_000
SOURCE: Final = Source("w-1", 7, 2)
LIMIT: Final = 1 << 13  # bytes of a message: an eighth of a term of 64 KiB
VALUES: Final = [b"a", b"", b"x" * 300, bytes(range(256)) * 80, b"last"]  # the fourth is longer than a message
RESERVED: Final = [1, -2, 3, 2**62, 0]
SHORT: Final = [value for value in VALUES if len(value) < LIMIT]
ROWS: Final = pa.record_batch({"n": list(range(3000)), "t": [f"row {n}" * (n % 7) for n in range(3000)]})
LONG_ROW: Final = pa.record_batch({"n": [1], "t": ["x" * 30_000]})

Append = Callable[[Any], None]


def values(given: list[bytes]) -> pa.Array[Any]:
    return pa.array(given, pa.binary())


def reserved(count: int) -> pa.Array[Any]:
    return pa.array(RESERVED[:count], pa.int64())


APPENDS: Final[dict[str, Append]] = {
    "raw": lambda one: (one.raw(values(SHORT)), one.raw(values(SHORT), reserved(len(SHORT)))),
    "framed": lambda one: (one.framed(values(VALUES)), one.framed(values(VALUES[:3]), reserved(3))),
    "arrow": lambda one: (one.arrow(ROWS), one.arrow(LONG_ROW)),
}


def digest(parts: Iterable[bytes]) -> tuple[int, str]:
    """Return the number of bytes of the parts, and the beginning of the SHA-256 of the parts with their lengths."""
    found, size = hashlib.sha256(), 0
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
        size += len(part)
    return size, found.hexdigest()[:16]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path / "streams", monkeypatch)
    world.server.store.create(create_request("s", 1, segment_bytes=8 * LIMIT))
    yield world
    world.close()


def staged(world: World, payload: str, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, list[bytes]]:
    """Stage the rows of a payload and commit them; return the bytes of the stage, and the recorded messages."""
    sent: list[bytes] = []
    send = world.carry_bulk_message

    def note_and_send(link: MemoryBulkLink, message: bytes, timeout: float) -> None:
        sent.append(message[BULK_HEAD.size :])
        send(link, message, timeout)

    monkeypatch.setattr(world, "carry_bulk_message", note_and_send)
    transaction = Transaction("w-1", "r", 0)
    opening = OpenStage("s", transaction, 0, 0, payload)
    appender = ServerAppender(world.stream_session(), opening, SOURCE, clock=lambda: NOW)
    APPENDS[payload](appender)
    commit(world.stream_session(), known_run_request("s", transaction, appender.finish(), appender.rows))
    (state,) = world.server.store.get("s").states()
    return b"".join(sent), list(messages_of(world.archive, state.shape.recording_id, state.end))


@pytest.mark.parametrize(
    ("payload", "stage", "recording"),
    [
        ("raw", (752, "31b697494d1ac4ed"), (610, "53e5e84f649d9977")),
        ("framed", (21848, "49749250cebb755e"), (21886, "7918ee8378eb3395")),
    ],
)
def test_a_stage_and_its_recording_have_the_same_bytes_as_in_earlier_releases(
    world: World, monkeypatch: pytest.MonkeyPatch, payload: str, stage: tuple[int, str], recording: tuple[int, str]
) -> None:
    stage_bytes, messages = staged(world, payload, monkeypatch)
    assert digest([stage_bytes]) == stage
    assert digest(messages) == recording


def arrow_groups() -> list[tuple[Header, pa.Buffer]]:
    """Return the groups of the Arrow rows; their bytes may change with Arrow's releases."""
    found, rows = [], 0
    for batch in (ROWS, LONG_ROW):
        for first, part in split_rows(batch, payload_limit(LIMIT, SOURCE.writer)):
            header = Header(
                Content.ARROW, 0, published_ns=NOW, batch=7, row=rows + first, rows=part.num_rows, partition=2,
                writer="w-1",
            )  # fmt: skip
            found.append((header, encode_batch(part)))
        rows += batch.num_rows
    assert len(found) > 3
    return found


def test_a_stage_of_arrow_rows_has_one_group_per_part_of_a_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_bytes, _ = staged(world, "arrow", monkeypatch)
    expected = [part.to_pybytes() for header, data in arrow_groups() for part in encode_group_item(header, data)]
    assert stage_bytes == b"".join(expected)


class Publisher:
    """Notes the messages to publish, each with its reserved value."""

    def __init__(self, address: object, connected: object) -> None:
        self.max_message_bytes = LIMIT
        self.messages: list[tuple[bytes, int]] = []
        publishers.append(self)

    def publish_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        numbers = [0] * len(values) if reserved is None else reserved.to_pylist()
        self.messages += list(zip(values.to_pylist(), numbers, strict=True))

    def publish_group(self, chunks: Callable[[], Iterable[Chunk]], reserved: int = 0) -> None:
        self.messages += [(_message(chunk), reserved) for chunk in chunks()]


publishers: list[Publisher] = []


def _message(chunk: Chunk) -> bytes:
    return chunk.encode_header(NOT_CONTINUED) + pa.py_buffer(chunk.payload).to_pybytes()


def published(payload: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, int]]:
    """Publish the rows of a payload on the direct route; return the messages with their reserved values."""
    monkeypatch.setattr(direct, "Publisher", Publisher)
    archive = ArchiveAddress("embedded", "/nowhere", "aeron:ipc")
    monkeypatch.setattr(direct, "archives_of", lambda route: SimpleNamespace(aeron_dir="/nowhere", archives=(archive,)))
    publishers.clear()
    options = WriteOptions.parse(
        {"channel": "aeron:ipc", "streamId": "1", "ack": "driver", "payload": payload, "aeronDir": "/nowhere"},
        streaming=False,
    )
    appender = direct.DirectAppender(options, SOURCE, clock=lambda: NOW)
    APPENDS[payload](appender)
    (publisher,) = publishers
    return publisher.messages


@pytest.mark.parametrize(
    ("payload", "messages"), [("raw", (674, "64f8e3c01d40a311")), ("framed", (21966, "13c36f64c494231d"))]
)
def test_published_rows_have_the_same_bytes_as_in_earlier_releases(
    monkeypatch: pytest.MonkeyPatch, payload: str, messages: tuple[int, str]
) -> None:
    found = published(payload, monkeypatch)
    assert digest(data + number.to_bytes(8, "little", signed=True) for data, number in found) == messages


def test_each_part_of_a_batch_of_arrow_rows_is_published_as_the_chunks_of_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = [
        _message(chunk) for header, data in arrow_groups() for chunk in split(data, header, max_message_bytes=LIMIT)
    ]
    assert [data for data, _ in published("arrow", monkeypatch)] == expected
