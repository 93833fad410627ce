"""Tests of the ledger: each rule, and all of them against a model that replays the journal after each step."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aeron_spark.errors import DataFormatError, RefusedError, UsageError
from aeron_spark.streams import ledger as ledger_module
from aeron_spark.streams.journal_records import (
    CommitRecord,
    ContentFixed,
    Purged,
    Record,
    Recorded,
    RecordingOf,
    RunStarted,
    WriterOwned,
    WriterReleased,
    decode_record,
    encode_record,
)
from aeron_spark.streams.ledger import NO_TRANSACTION, SINGLE_USE_EXPIRY_NS, AlreadyCommitted, Change, Ledger
from aeron_spark.streams.time_index import SECOND_NS
from aeron_spark.wire.stream_requests import NEXT_NUMBER, Transaction

NOW = 1_700_000_000 * SECOND_NS


def of(number: int = NEXT_NUMBER, run: str = "run", *, writer: str = "writer", **fields: Any) -> Transaction:
    """Return a transaction, of a run that replaces none unless ``fields`` say so."""
    return Transaction(writer, run, number, **fields)


def commit(
    ledger: Ledger, number: int, *, run: str = "run", writer: str = "writer", now_ns: int = NOW,
    single_use: bool = False, producer: str = "", **change: Any,
) -> CommitRecord:  # fmt: skip
    transaction = of(number, run, writer=writer, single_use=single_use, producer=producer)
    record = ledger.prepare_commit(transaction, Change(**change), now_ns)
    ledger.apply(record)
    return record


def test_a_new_stream_is_empty() -> None:
    ledger = Ledger(2)
    assert (ledger.starts, ledger.ends, ledger.rows, ledger.position_at(0)) == ([0, 0],) * 4
    assert (ledger.last_transaction("w"), ledger.writers, ledger.content, ledger.schema) == (
        NO_TRANSACTION,
        {},
        "",
        None,
    )


def test_the_error_for_rows_of_another_content_names_a_column_that_was_meant() -> None:
    ledger = Ledger(1)
    ledger.content = "raw"
    schema = pa.schema([("vlaue", pa.string())]).serialize().to_pybytes()
    with pytest.raises(DataFormatError, match=r"has raw rows, and the new rows are arrow, .* Did you mean 'value'"):
        ledger.check_content("arrow", schema)


def test_a_schema_can_be_fixed_before_the_first_transaction_only() -> None:
    ledger = Ledger(1)
    ledger.apply(ContentFixed("arrow", b"schema"))
    assert (ledger.content, ledger.schema, ledger.transactions) == ("arrow", b"schema", 0)
    with pytest.raises(DataFormatError, match="arrow rows, and the new rows are raw"):
        ledger.check_content("raw")
    assert Ledger.replay(1, [ledger.snapshot()]).snapshot() == ledger.snapshot()
    with pytest.raises(DataFormatError, match="contradict each other"):
        ledger.apply(ContentFixed("arrow", b"other"))
    begun = Ledger(1)
    commit(begun, 0)
    with pytest.raises(DataFormatError, match="contradict each other"):
        begun.apply(ContentFixed("arrow", b"schema"))


def test_a_released_writer_id_stays_without_an_owner_after_a_restart() -> None:
    records: list[Record] = [WriterOwned("w", "alice", 1), RunStarted("w", "run", 2), WriterReleased("w")]
    ledger = Ledger.replay(1, records)
    assert ledger.owners.records() == ()
    assert ledger.writers["w"].run == "run"
    assert Ledger.replay(1, [ledger.snapshot()]).owners.records() == ()


def test_a_transaction_is_committed_once() -> None:
    ledger = Ledger(2)
    record = commit(ledger, 5, ends={0: 96, 1: 64}, rows={0: 3, 1: 2}, content="raw")
    assert record == CommitRecord("writer", "run", 5, NOW, {0: 96, 1: 64}, {0: 3, 1: 2}, "raw")
    assert (ledger.ends, ledger.rows, ledger.last_transaction("writer"), ledger.transactions) == (
        [96, 64],
        [3, 2],
        5,
        1,
    )
    before = ledger.snapshot()
    for repeated in (5, 4, 0):
        assert ledger.is_committed(of(repeated))
        with pytest.raises(AlreadyCommitted, match=f"transaction {repeated} of writer 'writer' is committed"):
            ledger.prepare_commit(of(repeated), Change({0: 128}), NOW)
        with pytest.raises(AlreadyCommitted, match="the last one is 5"):
            ledger.check_open(of(repeated))
    assert ledger.snapshot() == before
    assert not ledger.is_committed(of(6))
    assert not ledger.is_committed(of(0, writer="another"))


def test_a_transaction_without_rows_is_committed() -> None:
    ledger = Ledger(1)
    commit(ledger, 0)
    assert (ledger.ends, ledger.last_transaction("writer"), len(ledger.times[0])) == ([0], 0, 0)


def test_a_later_run_fences_the_earlier_ones() -> None:
    ledger = Ledger(1)
    for run in ("one", "two", "three"):
        record = ledger.prepare_run(of(run=run), NOW)
        assert record == RunStarted("writer", run, NOW)
        ledger.apply(record)
        assert ledger.prepare_run(of(run=run), NOW) is None
    for run in ("one", "two"):
        for refused in (
            lambda run=run: ledger.prepare_run(of(run=run), NOW),
            lambda run=run: ledger.check_open(of(0, run)),
            lambda run=run: ledger.prepare_commit(of(0, run), Change(), NOW),
        ):
            with pytest.raises(RefusedError, match=f"run '{run}' of writer 'writer' is fenced: the later run 'three'"):
                refused()
    assert ledger.prepare_run(of(run="one", writer="another"), NOW) is not None


def test_transactions_of_a_fenced_run_stay_committed() -> None:
    """The response to its commit was lost, so it repeats the commit; it is not refused as fenced."""
    ledger = Ledger(1)
    commit(ledger, 3, run="one")
    commit(ledger, 4, run="two")
    assert ledger.writers["writer"].run == "two"
    with pytest.raises(AlreadyCommitted):
        ledger.prepare_commit(of(3, "one"), Change(), NOW)
    with pytest.raises(RefusedError, match="fenced"):
        ledger.prepare_commit(of(5, "one"), Change(), NOW)


def test_the_number_of_earlier_runs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_EARLIER_RUNS", 2)
    ledger = Ledger(1)
    for run in "abcd":
        ledger.apply(RunStarted("writer", run, NOW))
    assert ledger.writers["writer"].earlier == ("b", "c")


def test_commit_times_rise_if_the_clock_does_not() -> None:
    ledger = Ledger(1)
    times = [commit(ledger, number, now_ns=now).time_ns for number, now in enumerate((100, 100, 50, 0, 200))]
    assert times == [100, 101, 102, 103, 200]


def test_a_time_is_found_in_each_partition() -> None:
    ledger = Ledger(2)
    commit(ledger, 0, now_ns=100, ends={0: 32})
    commit(ledger, 1, now_ns=200, ends={0: 64, 1: 32})
    commit(ledger, 2, now_ns=300, ends={1: 96})
    assert {at: ledger.position_at(at) for at in (0, 100, 101, 200, 201, 300, 301)} == {
        0: [0, 0],
        100: [0, 0],
        101: [32, 0],
        200: [32, 0],
        201: [64, 32],
        300: [64, 32],
        301: [64, 96],
    }
    ledger.apply(Purged({0: 32, 1: 32}))
    assert ledger.position_at(0) == [32, 32]
    ledger.apply(Purged({0: 64}))
    assert (ledger.position_at(0), ledger.position_at(200)) == ([64, 32], [64, 32])


def test_a_stream_has_one_content() -> None:
    ledger = Ledger(1)
    commit(ledger, 0, content="arrow", schema=b"s1", ends={0: 32})
    assert commit(ledger, 1, content="arrow", schema=b"s1").schema is None
    assert commit(ledger, 2, content="arrow", schema=b"s2").schema == b"s2"
    assert (ledger.content, ledger.schema) == ("arrow", b"s2")
    with pytest.raises(DataFormatError, match="the stream has arrow rows, and the new rows are raw"):
        ledger.prepare_commit(of(3), Change(content="raw"), NOW)
    with pytest.raises(UsageError, match="unknown content"):
        ledger.check_content("csv")


def test_starts_only_rise() -> None:
    ledger = Ledger(2)
    commit(ledger, 0, ends={0: 1000, 1: 1000})
    record = ledger.prepare_purge({0: 500, 1: 0})
    assert record == Purged({0: 500})
    ledger.apply(record)
    assert ledger.prepare_purge({0: 400}) is None
    with pytest.raises(UsageError, match="after its committed end"):
        ledger.prepare_purge({1: 1001})
    for wrong in ({0: 400}, {1: 1001}, {7: 1}):
        with pytest.raises(DataFormatError, match="contradict"):
            ledger.apply(Purged(wrong))
    assert ledger.starts == [500, 0]


def test_a_partition_with_rows_keeps_its_recording() -> None:
    ledger = Ledger(2)
    ledger.apply(Recorded(1, 77, "f00", 4096))
    assert (ledger.recordings, ledger.starts, ledger.ends) == ({1: RecordingOf(77, "f00", 4096)}, [0, 4096], [0, 4096])
    commit(ledger, 0, ends={1: 8192})
    for wrong in (Recorded(1, 78, "f01", 0), Recorded(1, 78, "f01", 8192), Recorded(2, 1, "", 0)):
        with pytest.raises(DataFormatError, match="gets another recording"):
            ledger.apply(wrong)
    ledger.apply(Purged({1: 8192}))
    ledger.apply(Recorded(1, 78, "f01", 8192))
    assert ledger.recordings[1] == RecordingOf(78, "f01", 8192, "f00")
    ledger.apply(Recorded(1, 79, "f02", 8192))
    again = Ledger.replay(2, [decode_record(encode_record(ledger.snapshot()))])
    # the first fingerprint names the partition in offsets for ever
    assert [one.recordings[1].identity for one in (ledger, again)] == ["f00", "f00"]
    assert again.recordings[1].fingerprint == "f02"


def test_a_purge_that_a_lease_prevents_stays_pending_until_the_start_reaches_it() -> None:
    ledger = Ledger(2)
    commit(ledger, 0, ends={0: 1000, 1: 1000})
    record = ledger.prepare_purge({0: 500}, {0: 800, 1: 0})
    assert record == Purged({0: 500}, {0: 800})
    ledger.apply(decode_record(encode_record(record)))
    assert ledger.prepare_purge({}, {0: 700, 1: 0}) is None
    again = Ledger.replay(2, [decode_record(encode_record(ledger.snapshot()))])
    assert ledger.pending == again.pending == {0: 800}
    for wrong in ({0: 400}, {0: 1001}, {7: 1}):
        with pytest.raises(DataFormatError, match="contradict"):
            ledger.apply(Purged({}, wrong))
    ledger.apply(Purged({0: 800}))
    assert ledger.pending == {}


def test_a_purge_of_all_rows_leaves_no_entry_of_the_time_index() -> None:
    ledger = Ledger(2)
    commit(ledger, 0, ends={0: 1000, 1: 1000})
    ledger.apply(Purged({0: 1000, 1: 0}))
    assert [len(index) for index in ledger.times] == [0, 1]
    assert ledger.position_at(0) == [1000, 0]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (CommitRecord("writer", "run", 5, NOW + 9), "twice"),
        (CommitRecord("writer", "run", 6, NOW), "is not after"),
        (CommitRecord("writer", "run", 6, NOW + 9, {0: 31}), "would end at position 31, before its end 32"),
        (CommitRecord("writer", "run", 6, NOW + 9, {1: 31}), "no partition 1"),
        (CommitRecord("writer", "run", 6, NOW + 9, {}, {1: 31}), "no partition 1"),
        (Ledger(2).snapshot(), r"a snapshot has \[2\] partitions"),
    ],
)
def test_records_that_contradict_the_state_change_nothing(record: Record, why: str) -> None:
    ledger = Ledger(1)
    commit(ledger, 5, ends={0: 32})
    before = ledger.snapshot()
    with pytest.raises(DataFormatError, match=why):
        ledger.apply(record)
    assert ledger.snapshot() == before


def test_impossible_ends_and_ids_are_refused() -> None:
    with pytest.raises(UsageError, match="no partition 3"):
        Ledger(1).prepare_commit(of(0), Change({3: 32}), NOW)
    for call in (Ledger(1).is_committed, lambda transaction: Ledger(1).prepare_commit(transaction, Change(), NOW)):
        with pytest.raises(UsageError, match="transaction id -1 is negative"):
            call(of(-1))


def test_single_use_writers_are_forgotten_after_a_day() -> None:
    ledger = Ledger(1)
    commit(ledger, 0, writer="single-use", single_use=True, rows={0: 1})
    commit(ledger, 0, writer="named")
    late = NOW + SINGLE_USE_EXPIRY_NS + 2
    assert ledger.forget_single_use_writers(late - 2) == []
    assert ledger.forget_single_use_writers(late) == ["single-use"]
    assert set(ledger.writers) == {"named"}


def test_a_single_use_writer_stays_one_after_a_commit_without_stages() -> None:
    ledger = Ledger(1)
    ledger.apply(RunStarted("single-use", "run", NOW, True))
    commit(ledger, 0, writer="single-use")
    assert ledger.forget_single_use_writers(NOW + SINGLE_USE_EXPIRY_NS + 9) == ["single-use"]
    ledger.apply(RunStarted("named", "run", NOW))
    commit(ledger, 0, writer="named", single_use=True)
    assert ledger.forget_single_use_writers(NOW + SINGLE_USE_EXPIRY_NS + 9) == []


def test_a_thinned_index_never_returns_a_later_position() -> None:
    ledger, step, count = Ledger(1), SECOND_NS // 4, 400
    for number in range(count):
        commit(ledger, number, now_ns=NOW + number * step, ends={0: 32 * (number + 1)})
    later = NOW + 2 * 3600 * SECOND_NS
    assert ledger.times[0].thin(later) == count - count // 4 - 1  # the last one is never joined
    for number in range(count):
        (found,) = ledger.position_at(NOW + number * step)
        assert 32 * (number - 3) <= found <= 32 * number
    assert ledger.position_at(NOW + count * step) == [32 * count]
    assert Ledger.replay(1, [ledger.snapshot()]).snapshot() == ledger.snapshot()
    assert ledger.times[0].thin(later) == 0


class AgainstModel(RuleBasedStateMachine):
    """Writers, runs, transactions, repetitions and aborts, against a model of a few dictionaries."""

    writers = st.sampled_from(["a", "b", "c"])
    runs = st.sampled_from(["r1", "r2", "r3", "r4"])
    partitions = 3

    @initialize()
    def begin(self) -> None:
        self.ledger = Ledger(self.partitions)
        self.journal: list[bytes] = []
        self.now = NOW
        self.current: dict[str, str] = {}
        self.fenced: set[tuple[str, str]] = set()
        self.lasts: dict[tuple[str, str], int] = {}  # by writer and producer
        self.log: list[tuple[str, int, int, dict[int, int]]] = []  # writer, transaction, time, bytes by partition
        self.starts = [0] * self.partitions

    def ends(self) -> list[int]:
        return [sum(added.get(at, 0) for *_, added in self.log) for at in range(self.partitions)]

    def last(self, writer: str) -> int:
        return max((number for name, number, *_ in self.log if name == writer), default=-1)

    def keep(self, record: Record) -> None:
        self.journal.append(encode_record(record))
        self.ledger.apply(record)

    def take_over(self, writer: str, run: str) -> None:
        if writer in self.current and self.current[writer] != run:
            self.fenced.add((writer, self.current[writer]))
        self.current[writer] = run

    @rule(writer=writers, run=runs)
    def begin_run(self, writer: str, run: str) -> None:
        if (writer, run) in self.fenced:
            with pytest.raises(RefusedError, match="fenced"):
                self.ledger.prepare_run(of(run=run, writer=writer), self.now)
            return
        record = self.ledger.prepare_run(of(run=run, writer=writer), self.now)
        assert (record is None) == (self.current.get(writer) == run)
        if record is not None:
            self.keep(record)
        self.take_over(writer, run)

    @rule(
        writer=writers,
        run=runs,
        transaction=st.integers(0, 12),
        added=st.dictionaries(st.integers(0, 2), st.integers(0, 4).map(lambda frames: 32 * frames)),
        passed=st.integers(-5, 5 * SECOND_NS),
        journalled=st.booleans(),
        producer=st.sampled_from(["A", "B"]),
    )
    def commit(
        self, writer: str, run: str, transaction: int, added: dict[int, int], passed: int, journalled: bool,
        producer: str,
    ) -> None:  # fmt: skip
        self.now += passed
        ends = {at: self.ends()[at] + more for at, more in added.items()}
        given = (
            of(transaction, run, writer=writer, producer=producer),
            Change(ends, dict.fromkeys(added, 1)),
            self.now,
        )
        if transaction <= self.lasts.get((writer, producer), -1):
            with pytest.raises(AlreadyCommitted):
                self.ledger.prepare_commit(*given)
        elif (writer, run) in self.fenced:
            with pytest.raises(RefusedError, match="fenced"):
                self.ledger.prepare_commit(*given)
        elif transaction <= self.last(writer):
            with pytest.raises(RefusedError, match="another producer"):
                self.ledger.prepare_commit(*given)
        else:
            record = self.ledger.prepare_commit(*given)
            if journalled:  # otherwise the server was killed before, or the transaction was aborted
                self.keep(record)
                self.take_over(writer, run)
                self.lasts[writer, producer] = transaction
                self.log.append((writer, transaction, record.time_ns, added))

    @rule(at=st.integers(0, 2), tenths=st.integers(0, 10))
    def retain(self, at: int, tenths: int) -> None:
        start = self.ends()[at] * tenths // 10
        record = self.ledger.prepare_purge({at: start})
        assert (record is None) == (start <= self.starts[at])
        if record is not None:
            self.keep(record)
            self.starts[at] = start

    @rule()
    def compact(self) -> None:
        self.journal = [encode_record(self.ledger.snapshot())]

    @rule()
    def restart(self) -> None:
        self.ledger = Ledger.replay(self.partitions, map(decode_record, self.journal))

    @invariant()
    def agrees(self) -> None:
        ledger = self.ledger
        assert (ledger.ends, ledger.starts) == (self.ends(), self.starts)
        assert ledger.rows == [sum(at in added for *_, added in self.log) for at in range(self.partitions)]
        assert ledger.transactions == len(self.log)
        assert {writer: state.run for writer, state in ledger.writers.items()} == self.current
        for writer in ("a", "b", "c"):
            assert ledger.last_transaction(writer) == self.last(writer)
        again = Ledger.replay(self.partitions, map(decode_record, self.journal))
        assert again.snapshot() == ledger.snapshot()
        assert Ledger.replay(self.partitions, [ledger.snapshot()]).snapshot() == ledger.snapshot()

    @invariant()
    def finds_times(self) -> None:
        times = [time for _, _, time, _ in self.log]
        assert times == sorted(set(times))
        for time in (*times, *(time + 1 for time in times), 0):
            found = self.ledger.position_at(time)
            for at in range(self.partitions):
                before = sum(added.get(at, 0) for _, _, when, added in self.log if when < time)
                assert found[at] == max(self.starts[at], before)

    @invariant()
    def finds_commit_times_of_positions(self) -> None:
        for at in range(self.partitions):
            begin = 0
            for _, _, time, added in self.log:
                end = begin + added.get(at, 0)
                if begin < end and end > self.starts[at]:
                    first = max(begin, self.starts[at])
                    assert {self.ledger.committed_at(at, first), self.ledger.committed_at(at, end - 1)} == {time}
                begin = end
            assert self.ledger.committed_at(at, begin) is None


TestAgainstModel = pytest.mark.slow(AgainstModel.TestCase)
TestAgainstModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
