"""Tests of producer ids: a producer may repeat its transactions, and another producer's equal id is refused."""

from __future__ import annotations

import msgspec
import pytest

from aeron_spark.errors import RefusedError
from aeron_spark.streams import ledger as ledger_module
from aeron_spark.streams.journal_records import Committed, decode_record, encode_record
from aeron_spark.streams.ledger import NO_TRANSACTION, AlreadyCommitted, Ledger
from tests.unit.streams.test_ledger import NOW, commit


def test_a_repetition_is_recognised_by_its_producer_and_another_producers_id_is_refused() -> None:
    ledger = Ledger(1)
    commit(ledger, 0, run="a1", producer="query A")
    commit(ledger, 1, run="a1", producer="query A")
    before = ledger.snapshot()
    # After a restart, query A has another run and repeats its last micro-batch.
    assert ledger.prepare_run("writer", "a2", now_ns=NOW, transaction=1, producer="query A") is not None
    with pytest.raises(AlreadyCommitted):
        ledger.check_open("writer", "a2", 1, "query A")
    for transaction in (0, 1):
        for refused in (
            lambda t=transaction: ledger.prepare_run("writer", "b1", now_ns=NOW, transaction=t, producer="query B"),
            lambda t=transaction: ledger.check_open("writer", "b1", t, "query B"),
            lambda t=transaction: ledger.prepare_commit("writer", "b1", t, now_ns=NOW, producer="query B"),
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
    assert [ledger.is_committed("writer", number, "A") for number in (0, 6, 7, 8)] == [True, True, True, False]
    assert [ledger.is_committed("writer", number, "B") for number in (5, 6)] == [True, False]
    with pytest.raises(RefusedError, match="run 'b2' is refused: transaction 7"):
        ledger.check_open("writer", "b2", 6, "B")
    assert ledger.prepare_commit("writer", "b2", 8, now_ns=NOW, producer="B").producer == "B"


def test_each_producer_may_repeat_transactions_without_a_producer() -> None:
    """Journals of earlier releases have no producers, and a query repeats its last micro-batch after an upgrade."""
    now = msgspec.msgpack.decode(encode_record(Ledger(1).snapshot()))
    writers = {"writer": {"run": "r1", "last": 4, "earlier": [], "time_ns": NOW, "once": False}}
    old = {**now, "transactions": 1, "time_ns": NOW, "writers": writers}
    for records in (
        [decode_record(msgspec.msgpack.encode(old))],
        [Committed("writer", "r1", 4, NOW)],
    ):
        ledger = Ledger.replay(1, records)
        assert ledger.is_committed("writer", 4, "A")
        commit(ledger, 5, run="r2", producer="A")
        assert [ledger.is_committed("writer", number, "B") for number in (4, 5)] == [True, False]
        with pytest.raises(RefusedError, match="'r2'"):
            ledger.check_open("writer", "r3", 5, "B")


def test_the_number_of_producers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_PRODUCERS", 2)
    ledger = Ledger(1)
    for transaction, producer in enumerate("abcb"):
        commit(ledger, transaction, producer=producer)
    assert ledger.writers["writer"].producers == (("c", 2), ("b", 3))
    with pytest.raises(RefusedError):
        ledger.check_open("writer", "run", 0, "a")


def test_a_writers_token_is_that_of_its_last_transaction_whoever_committed_it() -> None:
    ledger = Ledger(1)
    assert ledger.begun("writer")[::2] == (NO_TRANSACTION, "")
    for number, (producer, token) in enumerate((("A", "a0"), ("B", "b1"), ("A", "a2"), ("B", ""), ("", "none"))):
        commit(ledger, number, producer=producer, token=token)
        expected = (number, ledger.stamp("writer"), token)
        assert ledger.begun("writer") == expected
        assert Ledger.replay(1, [ledger.snapshot()]).begun("writer") == expected
