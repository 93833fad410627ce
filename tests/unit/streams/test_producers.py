"""Tests of producer ids: a producer may repeat its transactions, and another producer's equal id is refused."""

from __future__ import annotations

import msgspec
import pytest

from aeron_spark.errors import RefusedError
from aeron_spark.streams import ledger as ledger_module
from aeron_spark.streams.journal_records import CommitRecord, decode_record, encode_record
from aeron_spark.streams.ledger import NO_TRANSACTION, AlreadyCommitted, Change, Ledger
from aeron_spark.wire.stream_requests import Begun
from tests.unit.streams.test_ledger import NOW, commit, of


def test_a_repetition_is_recognised_by_its_producer_and_another_producers_id_is_refused() -> None:
    ledger = Ledger(1)
    commit(ledger, 0, run="a1", producer="query A")
    commit(ledger, 1, run="a1", producer="query A")
    before = ledger.snapshot()
    # After a restart, query A has another run and repeats its last micro-batch.
    assert ledger.prepare_run(of(1, "a2", producer="query A"), NOW) is not None
    with pytest.raises(AlreadyCommitted):
        ledger.check_open(of(1, "a2", producer="query A"))
    for other in (of(0, "b1", producer="query B"), of(1, "b1", producer="query B")):
        for refused in (
            lambda t=other: ledger.prepare_run(t, NOW),
            lambda t=other: ledger.check_open(t),
            lambda t=other: ledger.prepare_commit(t, Change(), NOW),
        ):
            with pytest.raises(RefusedError, match=r"run 'b1' is refused: transaction 1 .* run 'a1'"):
                refused()
    assert ledger.snapshot() == before
    assert (ledger.last_transaction("writer", "query A"), ledger.last_transaction("writer", "query B")) == (
        1,
        NO_TRANSACTION,
    )


def test_each_of_two_producers_may_repeat_only_its_own_transactions() -> None:
    ledger = Ledger(1)
    for transaction, run, producer in ((0, "a1", "A"), (5, "b1", "B"), (7, "a2", "A")):
        commit(ledger, transaction, run=run, producer=producer)
    assert [ledger.is_committed(of(number, producer="A")) for number in (0, 6, 7, 8)] == [True, True, True, False]
    assert [ledger.is_committed(of(number, producer="B")) for number in (5, 6)] == [True, False]
    with pytest.raises(RefusedError, match="run 'b2' is refused: transaction 7"):
        ledger.check_open(of(6, "b2", producer="B"))
    assert ledger.prepare_commit(of(8, "b2", producer="B"), Change(), NOW).producer == "B"


def test_each_producer_may_repeat_transactions_without_a_producer() -> None:
    """Journals of earlier releases have no producers, and a query repeats its last micro-batch after an upgrade."""
    now = msgspec.msgpack.decode(encode_record(Ledger(1).snapshot()))
    writers = {"writer": {"run": "r1", "last": 4, "earlier": [], "time_ns": NOW, "once": False}}
    old = {**now, "transactions": 1, "time_ns": NOW, "writers": writers}
    for records in ([decode_record(msgspec.msgpack.encode(old))], [CommitRecord("writer", "r1", 4, NOW)]):
        ledger = Ledger.replay(1, records)
        assert ledger.is_committed(of(4, producer="A"))
        commit(ledger, 5, run="r2", producer="A")
        assert [ledger.is_committed(of(number, producer="B")) for number in (4, 5)] == [True, False]
        with pytest.raises(RefusedError, match="'r2'"):
            ledger.check_open(of(5, "r3", producer="B"))


def test_the_number_of_producers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_PRODUCERS", 2)
    ledger = Ledger(1)
    for transaction, producer in enumerate("abcb"):
        commit(ledger, transaction, producer=producer)
    assert ledger.writers["writer"].producers == (("c", 2), ("b", 3))
    with pytest.raises(RefusedError):
        ledger.check_open(of(0, producer="a"))


def test_a_writers_token_is_that_of_its_last_transaction_whoever_committed_it() -> None:
    ledger = Ledger(1)
    assert (ledger.begun("writer").last, ledger.begun("writer").token) == (NO_TRANSACTION, "")
    for number, (producer, token) in enumerate((("A", "a0"), ("B", "b1"), ("A", "a2"), ("B", ""), ("", "none"))):
        commit(ledger, number, producer=producer, token=token)
        expected = Begun(number, ledger.stamp("writer"), token)
        assert ledger.begun("writer") == expected
        assert Ledger.replay(1, [ledger.snapshot()]).begun("writer") == expected
