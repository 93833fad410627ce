"""State test: random histories of commits, backups, kills and restores, with readers and writers that keep state.

The files are real, and copied by ``write_backup`` and ``restore_backup``. A model knows the values that the stream has.
Copies are restored in any order, also copies of a history that an earlier restore left, and the clock goes back. Each
state of a client is valid if and only if the stream has everything that it covers. Otherwise it has diverged, at the
end of what the stream and the client have in common.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.backup.copying import find_base, write_backup
from aeron_spark.backup.restoring import restore_backup
from aeron_spark.backup.verifying import Checked, verify_store
from aeron_spark.log.epochs import Divergence, Epochs
from aeron_spark.streams.ledger import NO_TRANSACTION
from tests.unit.backup.fake_store import FakeStore, FakeStream, read_values

NAME: Final = "copied"
PARTITIONS: Final = 2
STEPS: Final = 14
READERS: Final = 2
WRITERS: Final = ("w0", "w1")
HISTORIES: Final = 50
FULL_HISTORIES: Final = 10_000

Value = tuple[int, bytes]  # the end position of a value, and the value


@dataclass
class Transaction:
    """A committed transaction of the model."""

    writer: str
    number: int
    serial: int


@dataclass
class Reader:
    """The rows that a reader has read of each partition, with its positions and the epochs before them."""

    seen: list[list[Value]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    positions: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    saved: list[Epochs] = field(default_factory=lambda: [Epochs()] * PARTITIONS)


@dataclass
class Writer:
    """The transactions that were acknowledged to a writer, and the stamp of the last acknowledgement.

    ``highest`` is the highest number that it ever used; it uses no number twice, also after it accepted a loss.
    """

    acknowledged: list[Transaction] = field(default_factory=list)
    stamp: str = ""
    highest: int = NO_TRANSACTION


@dataclass
class Copy:
    """A backup, and what the stream had at its time."""

    folder: Path
    transactions: list[Transaction]
    values: list[list[Value]]


class World:
    """A store with one stream, its clients, its backups, and the model."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.steps: list[str] = []
        self.store = FakeStore(folder / "store-0")
        self.store.create(NAME, PARTITIONS)
        self.transactions: list[Transaction] = []
        self.values: list[list[Value]] = [[] for _ in range(PARTITIONS)]
        self.readers = [Reader() for _ in range(READERS)]
        self.writers = {name: Writer() for name in WRITERS}
        self.copies: list[Copy] = []
        self.serial = 0
        (folder / "backups").mkdir()

    @property
    def stream(self) -> FakeStream:
        return self.store.streams[NAME]

    def run(self, steps: int) -> None:
        ways = {
            self.commit: 6, self.read: 4, self.backup: 2, self.kill: 1, self.close: 1, self.restore: 2,
            self.leave_uncommitted: 1, self.set_clock_back: 1,
        }  # fmt: skip
        for _ in range(steps):
            (way,) = self.random.choices(list(ways), list(ways.values()))
            self.steps.append(way.__name__)
            way()
            self.check()

    def commit(self) -> None:
        name = self.random.choice(WRITERS)
        writer = self.writers[name]
        self.accept_loss(name)
        self.serial += 1
        rows = {
            index: [
                b"%d.%d.%d " % (self.serial, index, row) + bytes(self.random.choice((0, 3_000, 60_000)))
                for row in range(2)
            ]
            for index in range(PARTITIONS)
            if self.random.random() < 0.7
        }
        number = writer.highest = max(writer.highest, self.stream.ledger.last_transaction(name)) + 1
        self.stream.commit(rows, writer=name, transaction=number)
        made = Transaction(name, number, self.serial)
        self.transactions.append(made)
        for index in range(PARTITIONS):
            self.values[index] = read_values(self.store, self.stream, index)
        writer.acknowledged.append(made)
        writer.stamp = self.stream.ledger.stamp(name)

    def accept_loss(self, name: str) -> None:
        """Let a writer continue without the transactions that the stream does not have."""
        writer = self.writers[name]
        writer.acknowledged = [one for one in writer.acknowledged if one in self.transactions]
        writer.stamp = self.stream.ledger.stamp(name)

    def read(self) -> None:
        reader = self.random.choice(self.readers)
        for index in range(PARTITIONS):
            epochs, end = self.stream.ledger.epochs(index), self.stream.ledger.ends[index]
            found = epochs.divergence(reader.saved[index], reader.positions[index], end)
            if found is not None:  # the remedy: continue where the histories differ
                reader.positions[index] = found.at
                reader.seen[index] = [one for one in reader.seen[index] if one[0] <= found.at]
            new = [one for one in self.values[index] if one[0] > reader.positions[index]]
            reader.seen[index] += new
            assert reader.seen[index] == self.values[index]  # no value twice, none missing
            reader.positions[index], reader.saved[index] = end, Epochs.parse(epochs.before(end).to_text())

    def backup(self) -> None:
        folder = self.folder / "backups" / str(len(self.steps))
        base = find_base(folder) if self.random.random() < 0.5 else None
        write_backup(self.store.source(), folder, base)
        self.copies.append(Copy(folder, list(self.transactions), [list(one) for one in self.values]))

    def kill(self) -> None:
        self.store.kill()
        self.store.open({NAME: "framed"})

    def close(self) -> None:
        self.store.close()
        self.store.open({NAME: "framed"})

    def leave_uncommitted(self) -> None:
        """Record values that no commit follows, and kill the server."""
        self.stream.record(self.random.randrange(PARTITIONS), [b"uncommitted" * 100])
        self.kill()

    def restore(self) -> None:
        if not self.copies:
            return
        copy, before = self.random.choice(self.copies), self.store
        before.close()
        self.store = FakeStore(self.folder / f"store-{len(self.steps)}", before.seconds)
        self.store.random = before.random
        restore_backup(
            copy.folder, self.store.streams_dir, self.store.archive_dir, now_ns=self.store.now_ns(),
            random=self.random.getrandbits,
        )  # fmt: skip
        assert list(verify_store(self.store.streams_dir, self.store.archive_dir, Checked())) == []
        shutil.rmtree(before.folder)
        self.store.open({NAME: "framed"})
        self.transactions, self.values = list(copy.transactions), [list(one) for one in copy.values]
        for index in range(PARTITIONS):
            assert read_values(self.store, self.stream, index) == self.values[index]

    def set_clock_back(self) -> None:
        """Set the clock back, possibly to a time before the first epoch."""
        self.store.seconds = self.random.randrange(self.store.seconds + 1)

    def check(self) -> None:
        """Compare the ledger's verdict about the state of each client with the model's."""
        ledger = self.stream.ledger
        assert ledger.transactions == len(self.transactions)
        for reader in self.readers:
            for index in range(PARTITIONS):
                epochs, end = ledger.epochs(index), ledger.ends[index]
                found = epochs.divergence(reader.saved[index], reader.positions[index], end)
                assert found == self.expected_divergence(reader.seen[index], index)
        for name, writer in self.writers.items():
            if not writer.acknowledged:
                continue
            found = ledger.first_lost(name, writer.acknowledged[-1].number, writer.stamp)
            missing = [one.number for one in writer.acknowledged if one not in self.transactions]
            if not missing:
                assert found is None
                continue
            # Numbers that the writer gave up after an earlier restore lie between two acknowledged ones.
            kept = [one.number for one in writer.acknowledged if one.number < missing[0]]
            assert found is not None
            assert max(kept, default=NO_TRANSACTION) < found <= missing[0]

    def expected_divergence(self, seen: list[Value], index: int) -> Divergence | None:
        common = 0
        for one, other in zip(seen, self.values[index], strict=False):
            if one != other:
                break
            common = one[0]
        return None if seen == self.values[index][: len(seen)] else Divergence(common, is_exact=True)


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsync, which takes most of the time: no history ends with a crash of the machine."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None)


def run_histories(folder: Path, seeds: range) -> None:
    for seed in seeds:
        (folder / str(seed)).mkdir()
        world = World(folder / str(seed), seed)
        try:
            world.run(STEPS)
        except BaseException as error:
            error.add_note(f"seed {seed}, steps: {', '.join(world.steps)}")
            raise
        world.store.close()
        shutil.rmtree(folder / str(seed))


@pytest.mark.slow
@pytest.mark.usefixtures("unsynced")
def test_the_state_of_clients_is_valid_exactly_if_the_stream_has_what_it_covers(tmp_path: Path) -> None:
    run_histories(tmp_path, range(HISTORIES))


@pytest.mark.full("ten thousand histories take ten minutes")
@pytest.mark.usefixtures("unsynced")
def test_ten_thousand_histories_of_commits_backups_kills_and_restores(tmp_path: Path) -> None:
    run_histories(tmp_path, range(HISTORIES, FULL_HISTORIES))
