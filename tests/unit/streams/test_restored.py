"""A store that is copied, restored and cut: which kept positions and acknowledgements each history accepts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aeron_spark.errors import DataLossError
from aeron_spark.log.api import RecordingState
from aeron_spark.log.epochs import DIVERGED, Epochs
from aeron_spark.stream_client.positions import Positions, check_epochs
from aeron_spark.streams.journal_records import Recorded, decode_record, encode_record
from aeron_spark.streams.ledger import Ledger

MS = 1_000_000  # ns
START = 1_700_000_000_000 * MS
PARTITIONS = 2
FRAME = 32
STREAM = "flights"
WRITERS = ("desk-7", "desk-8")


def each(most: int) -> st.SearchStrategy[list[int]]:
    """A number from 0 to ``most`` for each partition."""
    return st.lists(st.integers(0, most), min_size=PARTITIONS, max_size=PARTITIONS)


@dataclass
class Store:
    """What is on the disk, and what it stands for: an id for each frame ever committed, none of them used twice."""

    journal: list[bytes]
    frames: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    # of each record of the journal that commits: how many frames of each partition, which writer, number and id
    marks: list[tuple[list[int], int]] = field(default_factory=list)
    committed: list[tuple[str, int, int]] = field(default_factory=list)

    def copy(self) -> Store:
        return Store(list(self.journal), [list(one) for one in self.frames], list(self.marks), list(self.committed))

    def is_past_of(self, other: Store) -> bool:
        """Whether everything that is committed here is committed there, too."""
        return self.committed == other.committed[: len(self.committed)]


@dataclass(frozen=True)
class Kept:
    """A reader's positions as it kept them, with the frames that it was given before them."""

    text: str
    given: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Acknowledged:
    """The transactions that a writer saw acknowledged, with their ids, and the stamp it was given last."""

    writer: str
    stamp: str
    seen: tuple[tuple[int, int], ...]  # number, id


class Restores(RuleBasedStateMachine):
    """Openings, commits, copies, restores, journals that lost their tail; readers and writers that kept their state.

    After each step every kept position is accepted exactly where the stream has all the bytes before it that were given
    to its reader, and every acknowledgement where the stream has all the transactions that it was for.
    """

    @initialize(before=each(3))
    def begin(self, before: list[int]) -> None:
        self.ids = itertools.count()
        self.now = START
        self.random = itertools.count()
        self.exact = True  # whether where histories parted can be known: time rises, and what is restored was the past
        recorded = [encode_record(Recorded(at, at, "00000000")) for at in range(PARTITIONS)]
        self.store = Store(recorded)
        self.store.marks = [([0] * PARTITIONS, 0)] * PARTITIONS
        self.copies: list[Store] = []
        self.readers: list[Kept] = []
        self.writers: list[Acknowledged] = []
        self.open()
        if any(before):  # by a release that knew no epochs
            self.pending = None
            self.commit(added=before, writer="old", shares=before)
            self.open()

    def open(self) -> None:
        self.ledger = Ledger.replay(PARTITIONS, map(decode_record, self.store.journal))
        self.pending: tuple[int, int] | None = (self.now, next(self.random))

    def keep(self, record: Any) -> None:
        data = encode_record(record)
        self.store.journal.append(data)
        self.store.marks.append(([len(one) for one in self.store.frames], len(self.store.committed)))
        self.ledger.apply(decode_record(data))

    def change(self) -> None:
        if self.pending is not None:
            self.keep(self.ledger.prepare_epoch(*self.pending))
            self.pending = None

    def states(self) -> dict[int, RecordingState]:
        made = {}
        for at in range(PARTITIONS):
            epochs = Epochs.from_bytes(self.ledger.epochs(at).to_bytes())
            made[at] = RecordingState(
                f"server/{at}", "00000000", self.ledger.starts[at], self.ledger.ends[at], True, 65536, epochs=epochs
            )
        return made

    @rule(passed=st.integers(-5_000, 50_000).map(lambda ms: ms * MS))
    def restart(self, passed: int) -> None:
        self.now += passed
        self.exact &= passed > 0
        self.open()

    @rule(added=each(3), writer=st.sampled_from(WRITERS), shares=each(3))
    def commit(self, added: list[int], writer: str, shares: list[int]) -> None:
        """Commit, and let the writer keep its acknowledgement, and readers their positions: at the end, and before."""
        self.change()
        ends = {at: self.ledger.ends[at] + FRAME * more for at, more in enumerate(added) if more}
        number = self.ledger.last_transaction(writer) + 1
        record = self.ledger.prepare_commit(writer, "run", number, now_ns=self.now, ends=ends)
        for at, more in enumerate(added):
            self.store.frames[at] += itertools.islice(self.ids, more)
        self.store.committed.append((writer, number, next(self.ids)))
        self.keep(record)
        for each_writer in WRITERS:
            seen = tuple((number, one) for who, number, one in self.store.committed if who == each_writer)
            self.writers.append(Acknowledged(each_writer, self.ledger.stamp(each_writer), seen))
        self.read([3] * PARTITIONS)
        self.read(shares)

    def read(self, shares: list[int]) -> None:
        positions, given = Positions(), []
        for at, state in self.states().items():
            count = len(self.store.frames[at]) * shares[at] // 3
            positions.move(state, FRAME * count)
            given.append(tuple(self.store.frames[at][:count]))
        self.readers.append(Kept(positions.to_json(), tuple(given)))

    @rule()
    def compact(self) -> None:
        self.store.journal = [encode_record(self.ledger.snapshot())]
        self.store.marks = [([len(one) for one in self.store.frames], len(self.store.committed))]

    @rule()
    def copy(self) -> None:
        self.copies.append(self.store.copy())

    @rule(choice=st.integers(0, 2**16), passed=st.integers(1, 50_000).map(lambda ms: ms * MS))
    def restore(self, choice: int, passed: int) -> None:
        if self.copies:
            chosen = self.copies[choice % len(self.copies)].copy()
            self.exact &= chosen.is_past_of(self.store)
            self.store = chosen
            self.now += passed
            self.open()

    @rule(lost=st.integers(1, 4), passed=st.integers(1, 50_000).map(lambda ms: ms * MS))
    def lose_the_tail(self, lost: int, passed: int) -> None:
        """A disk lied: the last records of the journal are gone after the restart."""
        left = max(1 if len(self.store.journal) < PARTITIONS else PARTITIONS, len(self.store.journal) - lost)
        self.store.journal, self.store.marks = self.store.journal[:left], self.store.marks[:left]
        frames, committed = self.store.marks[-1]
        self.store.frames = [one[:count] for one, count in zip(self.store.frames, frames, strict=True)]
        self.store.committed = self.store.committed[:committed]
        self.now += passed
        self.open()

    @invariant()
    def the_journal_is_the_ledger(self) -> None:
        again = Ledger.replay(PARTITIONS, map(decode_record, self.store.journal))
        assert again.snapshot() == self.ledger.snapshot()
        assert self.ledger.ends == [FRAME * len(one) for one in self.store.frames]

    @invariant()
    def readers_go_on_where_all_that_they_were_given_is_there(self) -> None:
        states = self.states()
        for kept in self.readers:
            same = [_common(given, self.store.frames[at]) for at, given in enumerate(kept.given)]
            there = [count == len(given) for count, given in zip(same, kept.given, strict=True)]
            positions = Positions.from_json(kept.text)
            error = _diverged(positions, states)
            assert (error is None) == all(there)
            if error is not None:
                self.check_error(error, positions, same, there)

    def check_error(self, error: DataLossError, positions: Positions, same: list[int], there: list[bool]) -> None:
        """The error names the partitions that diverged; its positions are those where reading can go on."""
        assert error.reason == DIVERGED
        found = error.positions
        assert isinstance(found, Positions)
        for at in range(PARTITIONS):
            named = f"partition {at} of stream {STREAM!r} diverged: the reader is at {positions[at]}" in error.what
            assert named is not there[at]
            if there[at]:
                assert found[at] == positions[at]
            elif self.exact:
                assert found[at] == FRAME * same[at]
        assert _diverged(found, self.states()) is None

    @invariant()
    def writers_go_on_where_all_that_was_acknowledged_is_there(self) -> None:
        for kept in self.writers:
            there = {(number, one) for who, number, one in self.store.committed if who == kept.writer}
            lost = [number for number, one in kept.seen if (number, one) not in there]
            last = max((number for number, _ in kept.seen), default=-1)
            found = self.ledger.first_lost(kept.writer, last, kept.stamp)
            assert (found is None) == (not lost)
            if lost and self.exact:
                assert found == lost[0]


def _diverged(positions: Positions, states: dict[int, RecordingState]) -> DataLossError | None:
    try:
        check_epochs(positions, states, STREAM, "reader")
    except DataLossError as error:
        return error
    return None


def _common(given: tuple[int, ...], there: list[int]) -> int:
    pairs = zip(given, there, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


class TestRestores(Restores.TestCase):
    """Finding C3: a restored store accepts what it has, and nothing of a lost future (500 histories)."""

    settings = settings(max_examples=500, stateful_step_count=12, deadline=None)


@pytest.mark.full("10,000 histories take two minutes; make test has 500 of them")
class TestManyRestores(Restores.TestCase):
    """Finding C3: the same with 10,000 histories."""

    settings = settings(max_examples=10_000, stateful_step_count=25, deadline=None)
