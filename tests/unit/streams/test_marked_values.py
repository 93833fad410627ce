"""A value that pretends to be Arrow rows that a server has checked is not published: readers would not check it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.model import Shape
from aeron_spark.streams.partition import Partition
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.wire.chunks import Content, Header, encode
from aeron_spark.wire.staged_items import StagedValues
from tests.hostile_arrow import HOSTILE
from tests.unit.stream_client.recorded import ADDRESS, MemoryArchive, messages_of, stand_in

TERM_BYTES = 1 << 16


@pytest.mark.parametrize("last", [False, True])
def test_a_value_that_pretends_to_be_checked_arrow_rows_is_refused(monkeypatch: pytest.MonkeyPatch, last: bool) -> None:
    archive = MemoryArchive()
    stand_in(archive, monkeypatch)
    _, recording_id = archive.opened(ChannelUri("ipc"), 7, None)
    found = archive.recording(recording_id)
    assert found is not None
    definition = Definition("prices", 1, (7,), TERM_BYTES)
    partition = Partition(definition, 0, Shape.of(found), StoreParts(ADDRESS))
    partition.prepare(0, "")
    hostile = HOSTILE["offset"][0]
    header = Header(Content.ARROW, len(hostile) + (not last), rows=4, last=last)
    copied = [b"", b"x" * 100, encode(header, hostile)]  # a copy of a message of another program
    partition.publish(StagedValues(pa.array(copied, pa.binary()), None), lambda: None)
    marked = [b"", encode(replace(header, checked=True), hostile), b"x" * 100]
    with pytest.raises(DataFormatError, match="the mark of rows that a server has checked"):
        partition.publish(StagedValues(pa.array(marked, pa.binary()), None), lambda: None)
    assert list(messages_of(archive, recording_id, 1 << 30)) == copied
