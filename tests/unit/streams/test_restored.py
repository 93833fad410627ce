"""A model of stores that are copied, restored and damaged: the positions and acknowledgements that they accept."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aeron_spark.errors import DataLossError, RefusedError
from aeron_spark.log import epochs as epochs_module
from aeron_spark.log.api import RecordingState
from aeron_spark.log.epochs import DIVERGED, UNKNOWN, Epochs, epoch_text
from aeron_spark.stream_client.reader import Positions, check_epochs, set_position
from aeron_spark.streams import writers
from aeron_spark.streams.journal_records import Recorded, decode_record, encode_record
from aeron_spark.streams.ledger import Change, Ledger
from aeron_spark.streams.writers import parse_stamp, stamp_text
from aeron_spark.wire.stream_requests import NEXT_NUMBER, Transaction

MS = 1_000_000  # ns
START = 1_700_000_000_000 * MS
PARTITIONS = 2
FRAME = 32
STREAM = "flights"
WRITERS = ("desk-7", "desk-8")


def each(maximum: int) -> st.SearchStrategy[list[int]]:
    """A number from 0 to ``maximum`` for each partition."""
    return st.lists(st.integers(0, maximum), min_size=PARTITIONS, max_size=PARTITIONS)


@dataclass
class Store:
    """A journal, and the committed frames and transactions that it stands for, each with a unique id."""

    journal: list[bytes]
    frames: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    # for each record of the journal: the number of frames of each partition, and of transactions, after it
    marks: list[tuple[list[int], int]] = field(default_factory=list)
    committed: list[tuple[str, int, int]] = field(default_factory=list)

    def copy(self) -> Store:
        return Store(list(self.journal), [list(one) for one in self.frames], list(self.marks), list(self.committed))


@dataclass(frozen=True)
class ReaderState:
    """A reader's saved positions, with the frames before them that it received."""

    text: str
    received: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Acknowledged:
    """The transactions that were acknowledged to a writer, with their ids, and its last stamp."""

    writer: str
    stamp: str
    seen: tuple[tuple[int, int], ...]  # number, id


class Restores(RuleBasedStateMachine):
    """Openings, commits, copies, restores, journals that lost records; readers and writers with saved state.

    Copies are restored in any order, and the clock goes back. After each step, the stream accepts a saved position
    exactly if it has all bytes that the reader received before it. It accepts an acknowledgement exactly if it has all
    transactions that were acknowledged. Otherwise the error has the end of what both have in common. If it does not
    claim to be exact, it has this end or an earlier position or number.
    """

    max_saved = 16

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        for module in (epochs_module, writers):
            self.patches.setattr(module, "MAX_SAVED", self.max_saved)

    def teardown(self) -> None:
        self.patches.undo()

    @initialize(before=each(3))
    def begin(self, before: list[int]) -> None:
        self.ids = itertools.count()
        self.now = START
        self.random = itertools.count()
        recorded = [encode_record(Recorded(at, at, "00000000")) for at in range(PARTITIONS)]
        self.store = Store(recorded)
        self.store.marks = [([0] * PARTITIONS, 0)] * PARTITIONS
        self.copies: list[Store] = []
        self.readers: list[ReaderState] = []
        self.writers: list[Acknowledged] = []
        self.open()
        if any(before):  # by a release that knew no epochs
            self.pending = None
            self.commit(added=before, writer="old", shares=before)
            self.open()

    def open(self) -> None:
        self.ledger = Ledger.replay(PARTITIONS, map(decode_record, self.store.journal))
        self.pending: tuple[int, int] | None = (self.now, next(self.random))

    def append(self, record: Any) -> None:
        data = encode_record(record)
        self.store.journal.append(data)
        self.store.marks.append(([len(one) for one in self.store.frames], len(self.store.committed)))
        self.ledger.apply(decode_record(data))

    def change(self) -> None:
        if self.pending is not None:
            self.append(self.ledger.prepare_epoch(*self.pending))
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
        self.open()

    @rule(added=each(3), writer=st.sampled_from(WRITERS), shares=each(3))
    def commit(self, added: list[int], writer: str, shares: list[int]) -> None:
        """Commit; the writers save their acknowledgements, and two readers their positions, one at the end."""
        self.change()
        ends = {at: self.ledger.ends[at] + FRAME * more for at, more in enumerate(added) if more}
        number = self.ledger.last_transaction(writer) + 1
        record = self.ledger.prepare_commit(Transaction(writer, "run", number), Change(ends), self.now)
        for at, more in enumerate(added):
            self.store.frames[at] += itertools.islice(self.ids, more)
        self.store.committed.append((writer, number, next(self.ids)))
        self.append(record)
        for each_writer in WRITERS:
            seen = tuple((number, one) for name, number, one in self.store.committed if name == each_writer)
            self.writers.append(Acknowledged(each_writer, self.ledger.stamp(each_writer), seen))
        self.read([3] * PARTITIONS)
        self.read(shares)

    def read(self, shares: list[int]) -> None:
        positions, received = Positions(), []
        for at, state in self.states().items():
            count = len(self.store.frames[at]) * shares[at] // 3
            set_position(positions, state, FRAME * count)
            received.append(tuple(self.store.frames[at][:count]))
        self.readers.append(ReaderState(positions.to_json(), tuple(received)))

    @rule()
    def compact(self) -> None:
        self.store.journal = [encode_record(self.ledger.snapshot())]
        self.store.marks = [([len(one) for one in self.store.frames], len(self.store.committed))]

    @rule()
    def copy(self) -> None:
        self.copies.append(self.store.copy())

    @rule(choice=st.integers(0, 2**16), passed=st.integers(-5_000, 50_000).map(lambda ms: ms * MS))
    def restore(self, choice: int, passed: int) -> None:
        if self.copies:
            self.store = self.copies[choice % len(self.copies)].copy()
            self.now += passed
            self.open()

    @rule(lost=st.integers(1, 4), passed=st.integers(1, 50_000).map(lambda ms: ms * MS))
    def lose_records(self, lost: int, passed: int) -> None:
        """The disk did not write the last records of the journal, although fsync returned."""
        count = max(1 if len(self.store.journal) < PARTITIONS else PARTITIONS, len(self.store.journal) - lost)
        self.store.journal, self.store.marks = self.store.journal[:count], self.store.marks[:count]
        frames, committed = self.store.marks[-1]
        self.store.frames = [one[:count] for one, count in zip(self.store.frames, frames, strict=True)]
        self.store.committed = self.store.committed[:committed]
        self.now += passed
        self.open()

    @invariant()
    def the_replayed_journal_equals_the_ledger(self) -> None:
        again = Ledger.replay(PARTITIONS, map(decode_record, self.store.journal))
        assert again.snapshot() == self.ledger.snapshot()
        assert self.ledger.ends == [FRAME * len(one) for one in self.store.frames]

    @invariant()
    def readers_are_accepted_if_the_stream_has_all_they_received(self) -> None:
        states = self.states()
        for saved in self.readers:
            same = [_common(received, self.store.frames[at]) for at, received in enumerate(saved.received)]
            present = [count == len(received) for count, received in zip(same, saved.received, strict=True)]
            positions = Positions.from_json(saved.text)
            for one in (positions, _of_earlier_release(positions)):
                error = _diverged(one, states)
                assert (error is None) == all(present)
                if error is not None:
                    self.check_error(error, one, same, present)

    def check_error(self, error: DataLossError, positions: Positions, same: list[int], present: list[bool]) -> None:
        """The error names the diverged partitions; a reader can continue at its positions."""
        assert error.reason == DIVERGED
        found = error.positions
        assert isinstance(found, Positions)
        for at in range(PARTITIONS):
            text = f"partition {at} of stream {STREAM!r} diverged: the reader is at {positions[at]}, "
            named = re.search(text + "[^;]* same rows (at least )?up to", error.what)
            assert (named is None) is present[at]
            if named is None:
                assert found[at] == positions[at]
            elif named[1]:
                assert found[at] <= FRAME * same[at]
                assert any(epoch == UNKNOWN for epoch, _ in positions.epochs[at].pairs)
            else:
                assert found[at] == FRAME * same[at]
        assert _diverged(found, self.states()) is None

    @invariant()
    def writers_are_accepted_if_the_stream_has_all_acknowledged_transactions(self) -> None:
        for saved in self.writers:
            present = {(number, one) for name, number, one in self.store.committed if name == saved.writer}
            lost = [number for number, one in saved.seen if (number, one) not in present]
            last = max((number for number, _ in saved.seen), default=-1)
            newest = parse_stamp(saved.stamp)[0]
            for stamp in (saved.stamp, stamp_text([newest._replace(following=None)])):
                found = self.ledger.first_lost(saved.writer, last, stamp)
                assert (found is None) == (not lost)
                if found is not None and found != lost[0]:
                    assert found < lost[0]
                    with pytest.raises(RefusedError, match=f"{found} to {last} .* at least the last one is no longer"):
                        self.ledger.check_acknowledged(
                            Transaction(saved.writer, "run", NEXT_NUMBER, acknowledged=last, stamp=stamp)
                        )


def _diverged(positions: Positions, states: dict[int, RecordingState]) -> DataLossError | None:
    try:
        check_epochs(positions, states, STREAM, "reader")
    except DataLossError as error:
        return error
    return None


def _of_earlier_release(positions: Positions) -> Positions:
    """Return the positions with only the newest epoch of each, as an earlier release saved them."""
    newest = {at: Epochs.parse(epoch_text(saved.newest)) for at, saved in positions.epochs.items()}
    return Positions(positions, newest, positions.fingerprints)


def _common(received: tuple[int, ...], present: list[int]) -> int:
    pairs = zip(received, present, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@pytest.mark.slow
class TestRestores(Restores.TestCase):
    """A restored store accepts only positions and acknowledgements that it has (100 histories)."""

    settings = settings(max_examples=100, stateful_step_count=12, deadline=None)


class RestoresWithLittleState(Restores):
    """The same with clients and writers that keep only two epochs."""

    max_saved = 2


@pytest.mark.slow
class TestRestoresWithLittleState(RestoresWithLittleState.TestCase):
    """No error claims a position that is too late, if clients have few epochs (100 histories)."""

    settings = settings(max_examples=100, stateful_step_count=12, deadline=None)


@pytest.mark.full("10,000 histories take two minutes; make test has 100 of them")
class TestManyRestores(Restores.TestCase):
    """The same with 10,000 histories."""

    settings = settings(max_examples=10_000, stateful_step_count=25, deadline=None)
