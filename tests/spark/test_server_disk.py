"""A server's reads from disk, for Spark and for a Python client: only the needed bytes, and never damaged ones."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark.aeron import boundary_walk as walking
from aeron_spark.errors import DataLossError
from aeron_spark.node import NodeHandle
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from tests.aeron.stream_store.rows import read_messages, write
from tests.server_processes import connect
from tests.spark.simulated_engine import read_table
from tests.spark.stream_server import StreamServer

MIB: Final = 1 << 20
MESSAGE: Final = 8 << 10  # an eighth of a term of 64 KiB, with its header
FRAME_HEADER: Final = 32


class ReadBytes:
    """Counts the bytes of a stream's log that the server reads: to send them, or to find message boundaries.

    A search for boundaries reads only headers. It counts as all bytes that it passes and one message more.
    """

    def __init__(self, stream: Stream, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._blocks, self._walk = stream.blocks, walking.walk
        patch.setattr(stream, "blocks", self.blocks)
        patch.setattr(walking, "walk", self.walk)

    def blocks(self, *arguments: Any) -> Iterator[tuple[int, bytes]]:
        for position, data in self._blocks(*arguments):
            self.count += len(data)
            yield position, data

    def walk(self, *arguments: Any, **more: Any) -> Any:
        found = self._walk(*arguments, **more)
        self.count += max((found.boundary or 0) - arguments[2].start, 0) + MESSAGE
        return found


@pytest.mark.parametrize("mib", [16, pytest.param(1024, marks=pytest.mark.soak)])
def test_a_query_finds_its_starting_time_without_reading_the_whole_stream(
    server: StreamServer, monkeypatch: pytest.MonkeyPatch, mib: int
) -> None:
    stream = server.create_stream(segment_bytes=64 << 10)
    padding = bytes(MESSAGE - 128)
    for transaction in range(mib):
        write(stream, transaction, {0: [b"%9d" % transaction + padding] * (MIB // MESSAGE)})
    start = datetime.now(timezone.utc)
    wait_for(lambda: datetime.now(timezone.utc) > start, 60.0, "the clock to advance")
    for transaction in (mib, mib + 1):
        write(stream, transaction, {0: [b"%9d" % transaction]})
    read, size = ReadBytes(stream, monkeypatch), stream.states()[0].end
    found = read_table(server.options(stream), startingTimestamp=start.isoformat())
    assert [int(value) for value in found["value"].to_pylist()] == [mib, mib + 1]
    assert size > 0.9 * mib * MIB
    assert 0 < read.count < size / 100
    ended = read_table(server.options(stream), endingTimestamp=start.isoformat())
    assert len(ended) == mib * (MIB // MESSAGE)


@pytest.mark.parametrize("damaged", ["value", "frame length"])
def test_a_bit_flipped_on_disk_is_an_error_with_recording_and_position_and_no_wrong_value_is_delivered(
    server: StreamServer, node: NodeHandle, damaged: str
) -> None:
    stream = server.create_stream()
    values = [secrets.token_bytes(100) for _ in range(1_000)]
    write(stream, 0, {0: values})
    (state,) = stream.states()
    position = read_messages(stream, 0)[600][0]
    with Path(node.archive_dir, f"{state.shape.recording_id}-0.rec").open("r+b") as file:
        at = position + (FRAME_HEADER + 50 if damaged == "value" else 1)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))
    with pytest.raises(DataLossError) as failed:
        read_table(server.options(stream))
    _assert_names(str(failed.value), state.shape.recording_id, position)
    delivered: list[bytes] = []
    with connect(server.endpoint.addresses[0], node.aeron_dir) as client:
        reader = client.reader(stream.definition.name)
        with pytest.raises(DataLossError) as refused:
            delivered.extend(value for batch in reader for value in batch.column("value").to_pylist())
    _assert_names(str(refused.value), state.shape.recording_id, position)
    assert delivered == values[: len(delivered)]
    assert len(delivered) <= 600


def _assert_names(text: str, recording: int, position: int) -> None:
    assert f"recording {recording})" in text
    assert re.search(rf"position.{position}\b", text)
