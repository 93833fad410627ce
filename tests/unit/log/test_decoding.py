"""The columns of decoded rows: only those of the schema are made, and a constant one is made once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.log import decoding
from aeron_spark.log.api import Log, Range, RecordingState, ServerStream, SourceStream, direct_stream
from aeron_spark.log.decoding import (
    METADATA_PREFIX,
    ConstantColumns,
    PlacedGroup,
    RowDecoder,
    SmallValues,
    batches_of_group,
    read_range,
)
from aeron_spark.wire.arrow import encode_batch
from aeron_spark.wire.chunks import Content, Group, Header, encode
from aeron_spark.wire.values import FIELDS, Rows, decode_values, encode_values
from tests.hostile_arrow import HOSTILE

STATE = RecordingState(
    key="archive/7", fingerprint="", start=0, end=10_000, active=True, term_length=1 << 16, stream_id=1001,
    session_id=-5, channel="aeron:ipc",
)  # fmt: skip
PUBLISHED_NS = 1_700_000_000_123_456_789
PUBLISHED = datetime(2023, 11, 14, 22, 13, 20, 123456, timezone.utc)
HEADER = Header(Content.BYTES, 0, published_ns=PUBLISHED_NS, batch=4, partition=2, writer="desk")
NUMBERS = pa.record_batch({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})
OF_RECORDING = {"channel": "aeron:ipc", "streamId": 1001, "sessionId": -5, "recordingId": 7}
OF_WRITER = {"timestamp": PUBLISHED, "writer": "desk", "batch": 4, "partition": 2}


def messages(count: int) -> Rows:
    values = pa.array([b"%d" % number for number in range(count)], pa.binary())
    return Rows(values, pa.array(range(0, 64 * count, 64), pa.int64()), pa.array([9] * count, pa.int64()))


def small_values(count: int, wanted: frozenset[str] = frozenset(FIELDS)) -> SmallValues:
    raw = messages(count)
    found = decode_values(encode_values(raw.values, HEADER, 10), 0, wanted)
    return SmallValues(found, raw.positions, raw.reserved)


def arrow_group(position: int = 640, published_ns: int = PUBLISHED_NS) -> PlacedGroup:
    header = replace(HEADER, content=Content.ARROW, rows=3, row=10, published_ns=published_ns)
    return PlacedGroup(Group(header, position, encode_batch(NUMBERS)), 9)


def choose(schema: pa.Schema, *names: str) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


ALL_FRAMED = pa.schema([*decoding.VALUE_COLUMN, *decoding.metadata()])
ALL_ARROW = pa.schema([*NUMBERS.schema, *decoding.metadata()])


def metadata_of(position: int, row: int) -> dict[str, Any]:
    found = OF_RECORDING | OF_WRITER | {"position": position, "reservedValue": 9, "row": row}
    return {METADATA_PREFIX + name: value for name, value in found.items()}


def test_all_columns_of_messages() -> None:
    found = RowDecoder(decoding.RAW, STATE, None).raw(messages(2))
    assert found.schema == decoding.RAW
    assert found.to_pylist() == [
        {"value": b"%d" % row, "position": 64 * row, "reservedValue": 9, "timestamp": None} | OF_RECORDING
        for row in range(2)
    ]


def test_all_columns_of_small_values_and_of_a_large_one() -> None:
    decoder = RowDecoder(ALL_FRAMED, STATE, None)
    assert decoder.fields == set(FIELDS)
    assert decoder.framed(small_values(2)).to_pylist() == [
        {"value": b"%d" % row} | metadata_of(64 * row, 10 + row) for row in range(2)
    ]
    large = PlacedGroup(Group(replace(HEADER, row=3), 640, pa.py_buffer(b"large")), 9)
    assert decoder.framed(large).to_pylist() == [{"value": b"large"} | metadata_of(640, 3)]


def test_all_columns_of_arrow_batches() -> None:
    (found,) = RowDecoder(ALL_ARROW, STATE, None).arrow(arrow_group())
    assert found.to_pylist() == [one | metadata_of(640, 10 + row) for row, one in enumerate(NUMBERS.to_pylist())]


@pytest.mark.parametrize("column", ALL_FRAMED.names)
def test_one_column_of_values_needs_one_field_at_most(column: str) -> None:
    decoder = RowDecoder(choose(ALL_FRAMED, column), STATE, None)
    assert len(decoder.fields) <= 1
    found = decoder.framed(small_values(3, decoder.fields))
    assert found.equals(RowDecoder(ALL_FRAMED, STATE, None).framed(small_values(3)).select([column]))


@pytest.mark.parametrize("column", decoding.RAW.names)
def test_one_column_of_messages_is_chosen(column: str) -> None:
    found = RowDecoder(choose(decoding.RAW, column), STATE, None).raw(messages(3))
    assert found.equals(RowDecoder(decoding.RAW, STATE, None).raw(messages(3)).select([column]))


@pytest.mark.parametrize("names", [["name"], ["_aeron_row", "id"], ["_aeron_writer"]], ids=str)
def test_columns_of_arrow_batches_are_chosen_in_any_order(names: list[str]) -> None:
    (found,) = RowDecoder(choose(ALL_ARROW, *names), STATE, None).arrow(arrow_group())
    (every,) = RowDecoder(ALL_ARROW, STATE, None).arrow(arrow_group())
    assert found.equals(every.select(names))


def test_the_metadata_of_a_group_of_another_payload_is_an_error() -> None:
    decoder = RowDecoder(choose(ALL_FRAMED, "_aeron_row"), STATE, None)
    with pytest.raises(DataFormatError, match="position 640 does not have values"):
        decoder.framed(arrow_group())
    with pytest.raises(DataFormatError, match="position 0 does not have Arrow batches"):
        list(decoder.arrow(small_values(1)))
    with pytest.raises(DataFormatError, match="position 0 does not have Arrow batches"):
        RowDecoder(ALL_ARROW, STATE, None).framed(small_values(1))


def test_a_time_of_a_group_is_rounded_like_that_of_small_values() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    for time_ns, micros in ((1_999, 1), (-1_999, -1), (-2_000, -2)):
        schema = choose(ALL_ARROW, "_aeron_timestamp")
        (found,) = RowDecoder(schema, STATE, None).arrow(arrow_group(published_ns=time_ns))
        header = replace(HEADER, published_ns=time_ns)
        values = decode_values(encode_values(pa.array([b""]), header, 0))
        small = SmallValues(values, pa.array([0]), pa.array([0]))
        framed = RowDecoder(schema, STATE, None).framed(small)
        assert found[0][0].as_py() == framed[0][0].as_py() == epoch + timedelta(microseconds=micros)


def address(array: pa.Array[Any]) -> int:
    data = array.buffers()[-1]
    return data.address


def test_a_constant_column_is_made_once_for_all_batches_of_a_recording() -> None:
    decoder = RowDecoder(decoding.RAW, STATE, None)
    first, second = decoder.raw(messages(100)), decoder.raw(messages(7))
    for name in OF_RECORDING:
        assert address(first[name]) == address(second[name])
    arrow = RowDecoder(ALL_ARROW, STATE, None)
    one, two = (next(arrow.arrow(arrow_group(position))) for position in (640, 1280))
    for name in ("channel", "writer", "batch", "partition", "timestamp", "reservedValue"):
        assert address(one[METADATA_PREFIX + name]) == address(two[METADATA_PREFIX + name])
    assert [batch["_aeron_position"].to_pylist() for batch in (one, two)] == [[640] * 3, [1280] * 3]


def test_a_constant_column_grows_and_changes_its_value() -> None:
    constants = ConstantColumns()
    for value, rows in (("a", 2), ("a", 3), ("a", 1), ("a", 9), ("b", 2), ("a", 4)):
        assert constants.column("writer", value, rows).to_pylist() == [value] * rows
    for number, rows in ((1, 0), (1, 2), (-1, 2)):
        assert constants.column("batch", number, rows).equals(pa.array([number] * rows, pa.int64()))
    assert constants.column("timestamp", 5, 1).type == decoding.MICROSECONDS


@pytest.mark.parametrize("of_server", [True, False])
@pytest.mark.parametrize("checked", [False, True])
def test_only_the_mark_of_a_server_saves_the_check_of_an_arrow_group(of_server: bool, checked: bool) -> None:
    hostile, why = HOSTILE["offset"]
    message = encode(Header(Content.ARROW, len(hostile), rows=4, checked=checked), hostile)
    stream = ServerStream("s", {}) if of_server else direct_stream("aeron:ipc", 7)
    log = OneMessageLog(stream, message, checked_from=0 if of_server else None)  # an archive's recording has none
    (found,) = read_range(cast("Log", log), Range("r", "f", 0, 1, 1, 65_536))
    assert isinstance(found, PlacedGroup)
    assert found.is_checked == (checked and of_server)
    if found.is_checked:
        assert [batch.num_rows for batch in batches_of_group(found)] == [4]
    else:
        with pytest.raises(DataFormatError, match=f"the group at position 0: .*{why}"):
            list(batches_of_group(found))


@pytest.mark.parametrize(
    ("position", "checked_from", "is_checked"),
    [(0, 0, True), (0, 32, False), (32, 32, True), (64, 32, True), (96, 128, False), (0, None, False)],
)
def test_the_mark_of_a_group_that_came_with_a_restore_does_not_save_its_check(
    position: int, checked_from: int | None, is_checked: bool
) -> None:
    hostile, why = HOSTILE["offset"]
    message = encode(Header(Content.ARROW, len(hostile), rows=4, checked=True), hostile)
    log = OneMessageLog(ServerStream("s", {}), message, checked_from)
    (found,) = read_range(cast("Log", log), Range("r", "f", position, position + 1, position + 1, 65_536))
    assert isinstance(found, PlacedGroup)
    assert found.is_checked == is_checked
    if not is_checked:
        with pytest.raises(DataFormatError, match=f"the group at position {position}: .*{why}"):
            list(batches_of_group(found))


@dataclass
class OneMessageLog:
    """A log with one message, where the range begins."""

    stream: SourceStream
    message: bytes
    checked_from: int | None

    def state(self, key: str) -> RecordingState:
        return replace(STATE, checked_from=self.checked_from)

    def read(self, wanted: Range) -> Iterator[Rows]:
        positions = pa.array([wanted.start], pa.int64())
        yield Rows(pa.array([self.message], pa.binary()), positions, positions)
