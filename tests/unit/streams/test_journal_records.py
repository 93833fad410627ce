"""Tests of the encoding of the journal's records; unknown records are refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.streams.journal_records import (
    MAX_PARTITIONS,
    CommitRecord,
    ContentFixed,
    Purged,
    Record,
    Recorded,
    RunStarted,
    WriterReleased,
    decode_record,
    encode_record,
)
from aeron_spark.streams.ledger import Ledger

RECORDS: list[Record] = [
    Recorded(3, 77, "00ff00ff", 1 << 40),
    RunStarted("writer", "run", 1_700_000_000_000_000_000, True),
    CommitRecord("writer", "run", 2**63 - 1, 5, {0: 96, 9_999: 2**62}, {0: 3}, "arrow", b"\xff\0schema", True),
    CommitRecord("w", "r", 0, 1),
    CommitRecord("w", "r", 0, 1, producer="query"),
    Purged({0: 4096}),
    ContentFixed("arrow", b"\xff\0schema"),
    WriterReleased("w"),
    Ledger(2).snapshot(),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_decoded_as_it_was_encoded(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_the_bytes_of_a_commit_are_as_documented() -> None:
    text = {"type": "committed", "writer": "w", "run": "r", "transaction": 7, "time_ns": 9, "ends": {0: 64}}
    assert decode_record(msgspec.msgpack.encode(text)) == CommitRecord("w", "r", 7, 9, {0: 64})
    assert msgspec.msgpack.decode(encode_record(CommitRecord("w", "r", 7, 9, {0: 64}))) == text


def test_keys_on_the_disk_stay_the_same_under_other_names_of_attributes() -> None:
    """Journals of earlier releases have these keys."""
    committed = {
        "type": "committed", "writer": "w", "run": "r", "transaction": 7, "time_ns": 9, "once": True, "author": "q",
        "token": "t",
    }  # fmt: skip
    record = CommitRecord("w", "r", 7, 9, single_use=True, producer="q", token="t")
    assert msgspec.msgpack.decode(encode_record(record)) == committed
    started = {"type": "entered", "writer": "w", "run": "r", "time_ns": 9, "once": True}
    assert msgspec.msgpack.decode(encode_record(RunStarted("w", "r", 9, single_use=True))) == started
    assert msgspec.msgpack.decode(encode_record(Purged({0: 96}))) == {"type": "retained", "starts": {0: 96}}
    ledger = Ledger(1)
    ledger.apply(record)
    writer = msgspec.msgpack.decode(encode_record(ledger.snapshot()))["writers"]["w"]
    assert writer == {
        "run": "r", "last": 7, "earlier": [], "time_ns": 9, "once": True, "authors": [["q", 7]], "committed_by": "r",
        "tokens": {"q": "t"},
    }  # fmt: skip


def test_a_commit_of_one_partition_is_small_in_a_stream_of_many() -> None:
    record = CommitRecord("query-7f3a2c", "run-123", 12, 1_700_000_000_000_000_000, {9_999: 1 << 40}, {9_999: 1000})
    assert len(encode_record(record)) < 128


@pytest.mark.parametrize(
    "change",
    [
        *({"type": "later"}, {"more": 1}, {"transaction": -1}, {"ends": {0: -1}}, {"ends": {-1: 1}}, {"time_ns": "x"}),
        {"rows": dict.fromkeys(range(MAX_PARTITIONS + 1), 0)},  # chosen numbers make a dict of this size slow
    ],
)
def test_unknown_records_and_fields_are_refused(change: dict[str, object]) -> None:
    text = {"type": "committed", "writer": "w", "run": "r", "transaction": 7, "time_ns": 9}
    decode_record(msgspec.msgpack.encode(text))
    with pytest.raises(DataFormatError, match="not known to this release"):
        decode_record(msgspec.msgpack.encode({**text, **change}))


@given(st.binary(max_size=60))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DataFormatError):
        decode_record(data)


def test_truncated_records_are_refused() -> None:
    for record in RECORDS:
        whole = encode_record(record)
        for length in range(len(whole)):
            with pytest.raises(DataFormatError):
                decode_record(whole[:length])
