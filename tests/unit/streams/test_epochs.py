"""Tests of epochs: the positions and acknowledgements that a stream accepts after its store was restored."""

from __future__ import annotations

import msgspec
import pytest

from aeron_spark.errors import DataFormatError, RefusedError, UsageError
from aeron_spark.log.epochs import (
    DIVERGED,
    FIRST,
    MAX_SAVED,
    RANDOM_BITS,
    UNKNOWN,
    Divergence,
    Epochs,
    epoch_at,
    epoch_text,
    parse_epoch,
)
from aeron_spark.streams import ledger as ledger_module
from aeron_spark.streams.journal_records import CommitRecord, Epoch, RunStarted, Snapshot, decode_record, encode_record
from aeron_spark.streams.ledger import SINGLE_USE_EXPIRY_NS, Change, Ledger
from aeron_spark.streams.writers import Acknowledged, parse_stamp, stamp_text
from aeron_spark.wire.stream_requests import NEXT_NUMBER, Transaction

MS = 1_000_000  # ns
NOW = 1_700_000_000_000 * MS


def begin_epoch(ledger: Ledger, time_ns: int, random: int = 7, copied_ns: int = 0) -> int:
    """Begin an epoch, that of a restore with ``copied_ns``, and return it."""
    record = ledger.prepare_epoch(time_ns, random, copied_ns)
    ledger.apply(decode_record(encode_record(record)))
    return record.epoch


def commit(ledger: Ledger, ends: dict[int, int], *, writer: str = "w", single_use: bool = False) -> int:
    """Commit the writer's next transaction, and return its number."""
    number = ledger.last_transaction(writer) + 1
    transaction = Transaction(writer, "run", number, single_use)
    ledger.apply(ledger.prepare_commit(transaction, Change(ends), NOW))
    return number


def continued(writer: str, acknowledged: int, stamp: str) -> Transaction:
    """Return a transaction of a writer that knows this acknowledgement."""
    return Transaction(writer, "run", NEXT_NUMBER, acknowledged=acknowledged, stamp=stamp)


def test_an_epoch_has_44_bits_of_time_and_20_random_bits() -> None:
    epoch = epoch_at(NOW, 2**RANDOM_BITS - 1)
    assert epoch >> RANDOM_BITS == NOW // MS
    assert epoch & (2**RANDOM_BITS - 1) == 2**RANDOM_BITS - 1
    assert epoch_at(2**63 - 1, 0) < 2**64
    assert parse_epoch(epoch_text(epoch)) == epoch
    for wrong in ("", "1", "G" * 16, 7, None, "0" * 17):
        with pytest.raises(ValueError, match="not an epoch"):
            parse_epoch(wrong)


def test_epochs_rise_if_the_clock_goes_back() -> None:
    later = epoch_at(NOW, 2**20 - 1)
    for now in (NOW, NOW - 1, 0, -5):
        assert epoch_at(now, 0, later) > later


def test_the_epoch_of_the_byte_before_a_position_is_found() -> None:
    epochs = Epochs.of([(FIRST, 0), (5, 64), (6, 64), (7, 128)])
    assert [epochs.at(position) for position in (0, 32, 64, 65, 128, 129, 999)] == [0, 0, 0, 6, 6, 7, 7]
    assert epochs == Epochs(((FIRST, 0), (6, 64), (7, 128)))  # nothing was committed in epoch 5
    assert Epochs.from_bytes(epochs.to_bytes()) == epochs
    for wrong in (b"", b"x", bytes(17)):
        with pytest.raises(ValueError, match="bytes are not epochs"):
            Epochs.from_bytes(wrong)


def test_a_position_is_valid_up_to_the_end_of_its_epoch() -> None:
    epochs = Epochs(((FIRST, 0), (10, 64), (20, 128)))
    for epoch, position in ((FIRST, 0), (FIRST, 64), (10, 65), (10, 128), (20, 129), (20, 256)):
        assert epochs.has(epoch, position, 256)
        assert epochs.divergence(Epochs.parse(epoch_text(epoch)), position, 256) is None
    for epoch, position, end in ((FIRST, 65, 64), (10, 160, 128), (20, 288, 256)):
        assert not epochs.has(epoch, position, 256)
        assert epochs.divergence(Epochs.parse(epoch_text(epoch)), position, 256) == (end, True)
    for epoch in (15, 25):
        assert not epochs.has(epoch, 160, 256)


def test_a_position_diverged_where_its_history_left_the_last_common_epoch() -> None:
    """The times of the epochs do not matter: a copy of an earlier time may have a later history."""
    epochs = Epochs(((FIRST, 0), (10, 64), (20, 128), (30, 192)))
    for saved, position, at in (
        (((FIRST, 0), (10, 64), (15, 96)), 160, 96),  # the history of the position left epoch 10 first
        (((FIRST, 0), (10, 64), (35, 96)), 160, 96),
        (((FIRST, 0), (10, 64), (15, 160)), 320, 128),  # this history left epoch 10 first
        (((FIRST, 0), (10, 64), (15, 128)), 160, 128),
        (((FIRST, 0), (10, 64), (20, 128), (30, 192), (40, 500)), 600, 256),  # this partition ends in epoch 30
        (((FIRST, 0), (5, 0)), 32, 0),
    ):
        assert epochs.divergence(Epochs(saved), position, 256) == Divergence(at, is_exact=True)


def test_with_fewer_epochs_the_divergence_is_at_the_last_position_that_is_proved() -> None:
    epochs = Epochs(((FIRST, 0), (10, 64), (20, 128), (30, 192)))
    for saved, at, is_exact in (
        (((FIRST, 0), (UNKNOWN, 64), (35, 160)), 64, False),  # epochs 10 and 20 may be common
        (((UNKNOWN, 0), (35, 160)), 0, False),
        (((UNKNOWN, 0), (10, 64), (35, 160)), 128, True),
        (((FIRST, 0), (10, 64), (UNKNOWN, 96), (35, 160)), 96, False),
        (((FIRST, 0), (10, 64), (UNKNOWN, 130), (35, 160)), 128, True),  # this history left epoch 10 before that
    ):
        assert epochs.divergence(Epochs(saved), 192, 256) == Divergence(at, is_exact)
    assert epochs.divergence(Epochs.parse(epoch_text(35)), 192, 256) == Divergence(0, is_exact=False)


def test_saved_epochs_are_those_before_the_position_and_are_encoded_as_text() -> None:
    epochs = Epochs(((FIRST, 0), (10, 64), (20, 128)))
    assert [epochs.before(position).pairs for position in (0, 64, 65, 256)] == [
        ((FIRST, 0),), ((FIRST, 0),), ((FIRST, 0), (10, 64)), epochs.pairs,
    ]  # fmt: skip
    assert epochs.to_text() == "0000000000000000-0 000000000000000a-40 0000000000000014-80"
    for text in (epochs.to_text(), "?-0 000000000000000a-40", "000000000000000a"):  # the last is of an earlier release
        assert Epochs.parse(text).to_text() == text
    assert Epochs.parse("?-0 000000000000000a-40").pairs == ((UNKNOWN, 0), (10, 64))
    one = "000000000000000a"
    for wrong in (
        "",
        "a",
        "-",
        "?",
        "?-0",
        f"{one}-",
        f"{one}-x",
        f"{one}-9 {one}-8",
        f"{one}-0 ?-8",
        f"{one}-0  {one}-8",
        f"{one}-8000000000000000",  # positions have 63 bits
        7,
    ):
        with pytest.raises(ValueError, match=r"not an epoch|not a hexadecimal number|not epochs with rising"):
            Epochs.parse(wrong)


def test_encoded_epochs_have_rising_first_positions() -> None:
    epochs = Epochs(((10, 64), (20, 128)))
    assert Epochs.from_bytes(epochs.to_bytes()) == epochs
    for wrong in (b"", b"\0", Epochs(((10, 64), (20, 32))).to_bytes(), Epochs(((10, -1),)).to_bytes()):
        with pytest.raises(ValueError, match="epochs"):
            Epochs.from_bytes(wrong)


def test_a_hundred_short_epochs_do_not_displace_the_long_one_before_them() -> None:
    """A server that was restarted a hundred times is restored from a copy of the time before."""
    before, copied, begin = 100 << 20, 101 << 20, 102 << 20
    pairs = [(FIRST, 0), (1, 1 << 20), (2, before), *((10 + index, begin + 64 * index) for index in range(100))]
    position = begin + 64 * 100
    saved = Epochs(tuple(pairs)).before(position)
    known = [epoch for epoch, _ in saved.pairs if epoch != UNKNOWN]
    assert len(known) == MAX_SAVED
    assert known[:2] == [1, 2]
    assert known[-MAX_SAVED + 2 :] == list(range(110 - MAX_SAVED + 2, 110))
    assert Epochs.parse(saved.to_text()) == saved
    restored = Epochs(((FIRST, 0), (1, 1 << 20), (2, before), (200, copied)))
    assert restored.divergence(saved, position, copied + 64) == Divergence(copied, is_exact=True)
    late = Epochs((*pairs[:40], (200, pairs[40][1])))  # a copy that was made between the restarts
    at, is_exact = late.divergence(saved, position, position) or (position, True)
    assert (at, is_exact) == (begin, False)


def test_a_journal_without_epochs_begins_its_first_epoch_at_its_ends() -> None:
    ledger = Ledger(2)
    commit(ledger, {0: 96, 1: 32})
    old = msgspec.msgpack.decode(encode_record(ledger.snapshot()))
    assert "epochs" not in old
    assert "committed_in" not in old
    assert (ledger.epoch, ledger.epochs(0).at(96), ledger.epochs(0).has(FIRST, 96, 96)) == (FIRST, FIRST, True)
    again = Ledger.replay(2, [decode_record(encode_record(ledger.snapshot()))])
    first = begin_epoch(again, NOW)
    commit(again, {0: 128})
    assert again.epochs(0) == Epochs(((FIRST, 0), (first, 96)))
    assert again.epochs(0).has(FIRST, 96, 128)


def test_a_snapshot_has_the_epochs() -> None:
    ledger = Ledger(2)
    for opening in range(3):
        begin_epoch(ledger, NOW + opening * MS)
        commit(ledger, {0: 32 * (opening + 1)})
    snapshot = decode_record(encode_record(ledger.snapshot()))
    assert isinstance(snapshot, Snapshot)
    again = Ledger.replay(2, [snapshot])
    assert (again.epochs(0), again.epochs(1), again.epoch) == (ledger.epochs(0), ledger.epochs(1), ledger.epoch)
    assert again.snapshot() == ledger.snapshot()
    assert again.stamp("w") == ledger.stamp("w")


def test_records_of_earlier_releases_keep_their_bytes() -> None:
    """Records without epochs have the bytes of earlier releases."""
    assert encode_record(RunStarted("w", "r", 5)).hex() == (
        "85a474797065a7656e7465726564a6777269746572a177a372756ea172a774696d655f6e7305a46f6e6365c2"
    )
    assert encode_record(CommitRecord("w", "r", 0, 1)).hex() == (
        "85a474797065a9636f6d6d6974746564a6777269746572a177a372756ea172ab7472616e73616374696f6e00a774696d655f6e7301"
    )
    snapshot = (
        "a474797065a8736e617073686f74a774696d655f6e7300ac7472616e73616374696f6e7300a7636f6e74656e74a0a6736368656d61"
        "c0aa7265636f7264696e677380a67374617274739100a4656e64739100a4726f77739100a574696d657391c400a6626567696e7391c4"
        "00a77772697465727380"
    )
    # A snapshot with optional fields has more than 15, so the number of its fields has two bytes more.
    assert encode_record(Ledger(1).snapshot()).hex() == "de000c" + snapshot
    assert decode_record(bytes.fromhex("8c" + snapshot)) == Ledger(1).snapshot()


def test_the_number_of_remembered_epochs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_EPOCHS", 3)
    ledger = Ledger(1)
    epochs = []
    for opening in range(5):
        epochs.append(begin_epoch(ledger, NOW + opening * MS))
        commit(ledger, {0: 32 * (opening + 1)})
    assert [epoch for epoch, _ in ledger.epochs(0).pairs] == epochs[2:]
    assert ledger.epochs(0).at(32) == epochs[2]
    assert ledger.epochs(0).has(epochs[2], 32, 160)
    for position in (32, 64):  # of forgotten epochs, which cannot be checked
        assert ledger.epochs(0).has(epochs[0], position, 160)
        assert not ledger.epochs(0).has(epochs[4] + 1, position, 160)
    saved = Epochs(((FIRST, 0), (epochs[0], 0)))
    # After the end of the forgotten epochs. Their own ends are unknown.
    assert ledger.epochs(0).divergence(saved, 96, 160) == Divergence(0, is_exact=False)
    assert Ledger.replay(1, [ledger.snapshot()]).snapshot() == ledger.snapshot()


def test_a_stream_of_many_partitions_remembers_fewer_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_EPOCH_ENDS", 8)
    ledger = Ledger(4)
    for opening in range(5):
        begin_epoch(ledger, NOW + opening * MS)
        commit(ledger, {0: 32 * (opening + 1)})
    assert len(ledger.snapshot().epochs) == 2


def test_an_opening_without_commits_replaces_no_remembered_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_EPOCHS", 4)
    ledger = Ledger(1)
    first = begin_epoch(ledger, NOW)
    commit(ledger, {0: 32})
    for opening in range(1, 9):
        last = begin_epoch(ledger, NOW + opening * MS)
    commit(ledger, {0: 64})
    assert ledger.epochs(0).pairs == ((FIRST, 0), (first, 0), (last, 32))
    assert Ledger.replay(1, [ledger.snapshot()]).snapshot() == ledger.snapshot()


def test_an_idle_writer_and_an_idle_reader_continue_after_their_epoch_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: they were refused as after a restored copy, and accept_loss() did not help."""
    monkeypatch.setattr(ledger_module, "MAX_EPOCHS", 3)
    ledger = Ledger(2)
    begin_epoch(ledger, NOW)
    unused = ledger.stamp("unused")
    commit(ledger, {0: 32}, writer="idle")
    stamp, epoch = ledger.stamp("idle"), ledger.epochs(0).at(32)
    nothing_read = ledger.epochs(1).at(0)
    for opening in range(1, 9):
        begin_epoch(ledger, NOW + opening * MS)
        commit(ledger, {1: 32 * opening}, writer="busy")
    ledger.check_acknowledged(continued("idle", 0, stamp))
    ledger.check_acknowledged(continued("idle", 0, ledger.stamp("idle")))
    ledger.check_acknowledged(continued("unused", -1, unused))
    assert ledger.epochs(0).has(epoch, 32, 32)
    assert ledger.epochs(1).has(nothing_read, 0, 256)


def test_an_epoch_that_contradicts_the_journal_is_refused() -> None:
    ledger = Ledger(2)
    first = begin_epoch(ledger, NOW)
    commit(ledger, {0: 32})
    for wrong in (
        Epoch(first, (32, 0), 1),
        Epoch(first + 1, (64, 0), 1),
        Epoch(first + 1, (32,), 1),
        Epoch(first + 1, (32, 0), 2),
    ):
        with pytest.raises(DataFormatError, match="contradict"):
            ledger.apply(wrong)
    assert ledger.epoch == first


def test_rows_that_came_with_the_latest_restore_were_checked_by_another_server() -> None:
    ledger = Ledger(2)
    begin_epoch(ledger, NOW)
    commit(ledger, {0: 64})
    begin_epoch(ledger, NOW + MS)
    assert ledger.checked_from == [0, 0]
    begin_epoch(ledger, NOW + 2 * MS, copied_ns=NOW)
    begin_epoch(ledger, NOW + 3 * MS)  # the opening after the restore, which replaces its epoch
    commit(ledger, {0: 96, 1: 32})
    again = Ledger.replay(2, [decode_record(encode_record(ledger.snapshot()))])
    for one in (ledger, again):
        assert one.checked_from == [64, 0]
        begin_epoch(one, NOW + 4 * MS, copied_ns=NOW)
        assert one.checked_from == [96, 32]


@pytest.mark.parametrize("checked_from", [[], [0, 0], [32, 0], [2**62, 2**62]])
def test_no_snapshot_of_a_backup_makes_its_rows_checked(checked_from: list[int]) -> None:
    ledger = Ledger(2)
    commit(ledger, {0: 64, 1: 32})
    snapshot = msgspec.structs.replace(ledger.snapshot(), checked_from=checked_from)
    restored = Ledger.replay(2, [decode_record(encode_record(snapshot))])
    assert restored.checked_from == (checked_from or [0, 0])
    begin_epoch(restored, NOW, copied_ns=1)
    assert restored.checked_from == [64, 32]


def test_a_snapshot_with_checked_rows_of_another_number_of_partitions_is_refused() -> None:
    snapshot = msgspec.structs.replace(Ledger(2).snapshot(), checked_from=[32])
    with pytest.raises(DataFormatError, match="contradict"):
        Ledger(2).apply(snapshot)


def restored() -> tuple[Ledger, str]:
    """Return a restored copy with transactions up to 41 of desk-7, and the stamp of the lost transaction 57."""
    ledger = Ledger(1)
    begin_epoch(ledger, NOW)
    for number in range(42):
        assert commit(ledger, {0: 32 * (number + 1)}, writer="desk-7") == number
    copy = ledger.snapshot()
    for number in range(42, 58):
        commit(ledger, {0: 32 * (number + 1)}, writer="desk-7")
    assert ledger.last_transaction("desk-7") == 57
    return Ledger.replay(1, [copy]), ledger.stamp("desk-7")


TEXT = "transactions 42 to 57 of writer 'desk-7' were acknowledged and are no longer in the stream"


def test_the_refusal_names_the_acknowledged_transactions_that_an_older_copy_lacks() -> None:
    """A writer with lost transactions is refused before it uses any number."""
    ledger, stamp = restored()
    with pytest.raises(RefusedError, match=TEXT) as caught:
        ledger.check_acknowledged(continued("desk-7", 57, stamp))
    assert caught.value.reason == DIVERGED
    assert "accept_loss()" in caught.value.remedy
    with pytest.raises(RefusedError, match="transaction 42 of writer 'desk-7' was acknowledged and is no longer"):
        ledger.check_acknowledged(continued("desk-7", 42, stamp))


def test_a_writer_is_refused_after_another_run_has_used_the_lost_numbers() -> None:
    """The restored stream has more transactions of the writer id than were acknowledged."""
    ledger, stamp = restored()
    begin_epoch(ledger, NOW + 5 * MS)
    for _ in range(60):
        commit(ledger, {0: ledger.ends[0] + 32}, writer="desk-7")
    assert ledger.last_transaction("desk-7") == 101
    again = Ledger.replay(1, [decode_record(encode_record(ledger.snapshot()))])
    for one in (ledger, again):
        with pytest.raises(RefusedError, match=TEXT):
            one.check_acknowledged(continued("desk-7", 57, stamp))
        one.check_acknowledged(continued("desk-7", 101, ledger.stamp("desk-7")))


@pytest.mark.parametrize("later", [MS, -5 * MS])
def test_the_first_lost_transaction_is_where_the_histories_separated(later: int) -> None:
    """Monday's copy and Tuesday's are restored in either order, and the clock may go back in between."""
    ledger = Ledger(1)
    begin_epoch(ledger, NOW)
    for number in range(4):
        commit(ledger, {0: 32 * (number + 1)}, writer="desk-7")
    monday = ledger.snapshot()
    for number in range(4, 9):
        commit(ledger, {0: 32 * (number + 1)}, writer="desk-7")
    tuesday = Ledger.replay(1, [ledger.snapshot()])
    restored = Ledger.replay(1, [monday])
    begin_epoch(restored, NOW + later, 8)
    for number in range(4, 20):
        commit(restored, {0: 32 * (number + 1)}, writer="desk-7")
    assert restored.first_lost("desk-7", 8, tuesday.stamp("desk-7")) == 4
    begin_epoch(tuesday, NOW + 2 * later, 9)
    commit(tuesday, {0: 4096}, writer="desk-8")
    assert tuesday.first_lost("desk-7", 19, restored.stamp("desk-7")) == 4
    with pytest.raises(
        RefusedError, match="transactions 4 to 19 of writer 'desk-7' were acknowledged and are no longer"
    ):
        tuesday.check_acknowledged(continued("desk-7", 19, restored.stamp("desk-7")))


def test_a_refusal_says_if_the_stream_may_have_some_of_the_transactions_that_it_names() -> None:
    """The stamp is of an earlier release, or does not have the epoch in which the histories separated."""
    ledger, copies = Ledger(1), []
    for opening in range(40):
        begin_epoch(ledger, NOW + opening * MS)
        commit(ledger, {0: 32 * (opening + 1)})
        copies.append(ledger.snapshot())
    parts = parse_stamp(ledger.stamp("w"))
    assert len(parts) == MAX_SAVED
    first_lost = []
    for copy in copies[:-1]:
        old = Ledger.replay(1, [copy])
        begin_epoch(old, NOW + 100 * MS)
        first_lost.append(old.first_lost("w", 39, stamp_text(parts)))
        if first_lost[-1] != 39:  # a refusal that names one transaction is exact
            with pytest.raises(
                RefusedError, match="to 39 of writer 'w' were acknowledged and at least the last"
            ) as caught:
                old.check_acknowledged(continued("w", 39, stamp_text(parts)))
            assert "Read the stream" in caught.value.remedy
        assert old.first_lost("w", 39, stamp_text([parts[0]._replace(following=None)])) == 0
    kept = sorted(one.following or 0 for one in parts)
    assert first_lost == [max((one for one in kept if one <= count), default=0) for count in range(1, 40)]


def test_a_hundred_short_epochs_of_a_writer_do_not_displace_the_long_one_before_them() -> None:
    ledger = Ledger(1)
    begin_epoch(ledger, NOW)
    for number in range(200):
        commit(ledger, {0: 32 * (number + 1)})
    copy = Ledger.replay(1, [ledger.snapshot()])
    commit(ledger, {0: 7_000})
    for opening in range(100):
        begin_epoch(ledger, NOW + opening * MS + MS)
        commit(ledger, {0: 8_000 + 32 * opening})
    assert len(parse_stamp(ledger.stamp("w"))) == MAX_SAVED
    begin_epoch(copy, NOW + 200 * MS)
    assert copy.first_lost("w", 300, ledger.stamp("w")) == 200


def test_a_writer_that_the_copy_does_not_have_lost_all_its_transactions() -> None:
    ledger, stamp = restored()
    with pytest.raises(RefusedError, match="transactions 0 to 3 of writer 'new' were"):
        ledger.check_acknowledged(continued("new", 3, stamp))


def test_a_forgotten_writer_is_accepted_by_its_stamp() -> None:
    ledger = Ledger(1)
    begin_epoch(ledger, NOW)
    ledger.apply(RunStarted("single-use-1", "run", NOW, True))
    commit(ledger, {0: 32}, writer="single-use-1", single_use=True)
    stamp = ledger.stamp("single-use-1")
    assert ledger.forget_single_use_writers(NOW + 2 * SINGLE_USE_EXPIRY_NS) == ["single-use-1"]
    assert ledger.snapshot().committed_in == {}
    ledger.check_acknowledged(continued("single-use-1", 0, stamp))


def test_without_a_stamp_only_numbers_above_the_last_one_are_lost() -> None:
    ledger, _ = restored()
    ledger.check_acknowledged(continued("desk-7", 41, ""))
    ledger.check_acknowledged(continued("new", 7, ""))
    ledger.check_acknowledged(continued("desk-7", -1, ""))
    with pytest.raises(RefusedError, match=TEXT):
        ledger.check_acknowledged(continued("desk-7", 57, ""))


def test_stamps_are_encoded_as_text_and_invalid_ones_are_refused() -> None:
    parts = (Acknowledged(2**63, 17, 5), Acknowledged(2**62, 7, 0))
    assert stamp_text(parts) == "8000000000000000-11-5 4000000000000000-7-0"
    assert parse_stamp(stamp_text(parts)) == parts
    assert parse_stamp("8000000000000000-11") == (Acknowledged(2**63, 17, None),)  # of an earlier release
    ledger = Ledger(1)
    for wrong in ("x", "-", "0" * 16, "0" * 16 + "-", "0" * 16 + "-x", "0" * 16 + "-1-1-1", "0" * 16 + "-1-1 "):
        with pytest.raises(UsageError, match=r"not a stamp|not an epoch|not a hexadecimal number"):
            ledger.check_acknowledged(continued("w", 0, wrong))
