"""A query whose server was restored from an older copy: told before a row is read, or it goes on where they parted."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from aeron_spark.errors import DataFormatError, DataLossError
from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.log.epochs import FIRST, Epochs, NoEpochWarning, epoch_text
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import DataLossWarning, QueryPlanner
from aeron_spark.log.source_stream import ServerStream, SourceStream
from aeron_spark.options import ReadOptions
from tests.unit.log.fake_log import FakeLog

KEY = "s:1/3"
BEFORE, LOST, AFTER = 1 << 40, 2 << 40, 3 << 40  # epochs: of the copy, of its lost future, of the restored store
COPY = 65536  # where the copy ended
EXAMPLE_KEY = "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
TEXT = (
    "partition 3 of stream 'flights' diverged: the query is at 81920, and the store was restored from a copy that "
    "ended at 65536"
)


class Served(FakeLog):
    """Partition 3 of the stream 'flights' of a server, in messages of 4 KiB."""

    archives = ("s:1",)
    epochs = Epochs()

    @property
    def stream(self) -> SourceStream:
        return ServerStream("flights", {"s:1": "key"})

    def states(self) -> list[RecordingState]:
        (state,) = super().states()
        return [
            RecordingState(
                KEY, state.fingerprint, 0, state.end, True, 65536, channel="flights", epochs=self.epochs
            )
        ]  # fmt: skip

    def state(self, key: str) -> RecordingState:
        (state,) = self.states()
        return state

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        assert record == "auto"

    def check_recorded(self, states: list[RecordingState]) -> None:
        assert states

    def hold(self, end: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Hold so many bytes, committed in these epochs."""
        self.messages: Mapping[str, Sequence[tuple[int, int]]] = {KEY: [(4096, 1)] * (end // 4096)}
        self.epochs = Epochs(((FIRST, 0), *pairs))


def served(end: int, *pairs: tuple[int, int]) -> Served:
    log = Served({})
    log.hold(end, pairs)
    return log


def query(log: Served, *, fail: bool = True, starting: str = "earliest") -> QueryPlanner:
    given = {"server": "s:1", "serverKey": EXAMPLE_KEY, "stream": "flights", "startingOffsets": starting}
    options = ReadOptions.parse({**given, "failOnDataLoss": str(fail).lower()}, streaming=True)
    return QueryPlanner(options, lambda options, framed: cast("Log", log), framed=False)


def kept(offset: Offset) -> Offset:
    """The offset as a checkpoint keeps it."""
    return Offset.parse(json.loads(json.dumps(offset.to_dict())))


def of_the_lost_future() -> Offset:
    """Where a query was that had read up to 81920, behind the end of the copy."""
    log = served(81920, (BEFORE, 0), (LOST, COPY))
    stream = query(log)
    end = kept(stream.latest(stream.initial(), limited=True))
    assert (end.recordings, end.epochs) == ({KEY: 81920}, {KEY: LOST})
    return end


@pytest.mark.parametrize("grown", [0, 8192, 40960])
def test_a_query_of_a_lost_future_fails_before_a_row_is_read(grown: int) -> None:
    """Finding C3: also where the restored stream has grown past the query's position."""
    offset = of_the_lost_future()
    stream = query(served(COPY + grown, (BEFORE, 0), (AFTER, COPY)))
    for look in (lambda: stream.latest(offset, limited=True), lambda: stream.between(offset, offset)):
        with pytest.raises(DataLossError, match=TEXT) as caught:
            look()
        assert caught.value.reason == "diverged"
        assert "failOnDataLoss=false to continue at position 65536" in caught.value.remedy


@pytest.mark.parametrize("grown", [0, 8192, 40960])
def test_a_query_of_a_future_that_was_lost_without_a_new_start_of_the_server_fails_too(grown: int) -> None:
    """Finding C3: the copy was made while the server ran, so that its lost future is of the copy's epoch."""
    log = served(81920, (BEFORE, 0))
    stream = query(log)
    offset = kept(stream.latest(stream.initial(), limited=True))
    assert offset.epochs == {KEY: BEFORE}
    with pytest.raises(DataLossError, match=TEXT):
        query(served(COPY + grown, (BEFORE, 0), (AFTER, COPY))).latest(offset, limited=True)


def test_a_batch_that_was_planned_in_a_lost_future_is_not_repeated() -> None:
    """Finding C3: its end is in the checkpoint, and the restored stream has other rows up to there."""
    end = of_the_lost_future()
    start = Offset({KEY: 32768}, end.fingerprints, stream=end.stream, epochs={KEY: BEFORE})
    log = served(122880, (BEFORE, 0), (AFTER, COPY))
    with pytest.raises(DataLossError, match=TEXT):
        query(log).between(start, end)
    with pytest.warns(DataLossWarning, match="diverged"):
        (wanted,) = query(log, fail=False).between(start, end)
    assert (wanted.start, wanted.end, wanted.epoch) == (32768, COPY, BEFORE)


def test_what_a_batch_query_planned_has_the_epoch_of_its_end() -> None:
    """Finding C3: the server compares it before it sends a byte, and may have been replaced since."""
    given = {"server": "s:1", "serverKey": EXAMPLE_KEY, "stream": "flights"}
    log = served(122880, (BEFORE, 0), (AFTER, COPY))
    stream = QueryPlanner(
        ReadOptions.parse(given, streaming=False), lambda options, framed: cast("Log", log), framed=False
    )
    assert stream.whole() == [Range(KEY, "00000000", 0, 122880, 122880, 65536, AFTER)]


def test_a_query_that_was_not_beyond_the_copy_goes_on_unharmed() -> None:
    log = served(32768, (BEFORE, 0))
    stream = query(log)
    start = kept(stream.latest(stream.initial(), limited=True))
    log.hold(122880, [(BEFORE, 0), (AFTER, COPY)])
    end = kept(stream.latest(start, limited=True))
    assert stream.between(start, end) == [Range(KEY, "00000000", 32768, 122880, 122880, 65536, AFTER)]


@pytest.mark.parametrize("grown", [4096, 8192, 40960])
def test_a_query_that_began_at_latest_and_had_read_nothing_reads_on_where_the_histories_parted(grown: int) -> None:
    """Finding C3: its first batch began at the old position, so that the rows between were skipped without a word."""
    lost = served(81920, (BEFORE, 0), (LOST, COPY))
    start = kept(query(lost, starting="latest").initial())
    assert start.initial
    assert start.recordings == {KEY: 81920}
    log = served(COPY + grown, (BEFORE, 0), (AFTER, COPY))
    with pytest.warns(DataLossWarning, match=TEXT):
        end = kept(query(log, fail=False, starting="latest").latest(start, limited=True))
    found = query(log, fail=False, starting="latest").between(start, end)
    assert found == [Range(KEY, "00000000", COPY, COPY + grown, COPY + grown, 65536, AFTER)]


@pytest.mark.parametrize("grown", [0, 8192, 40960])
def test_with_fail_on_data_loss_false_it_warns_and_goes_on_where_the_histories_parted(grown: int) -> None:
    """Finding C3: the rows of the restored stream are read from there on, once, also when the batch is repeated."""
    start = of_the_lost_future()
    log = served(COPY + grown, (BEFORE, 0), (AFTER, COPY))
    stream = query(log, fail=False)
    with pytest.warns(DataLossWarning, match=TEXT):
        end = kept(stream.latest(start, limited=True))
    assert end.recordings == {KEY: COPY + grown}
    for again in (stream, query(log, fail=False)):
        with pytest.warns(DataLossWarning, match=TEXT):
            found = again.between(start, end)
        assert found == ([Range(KEY, "00000000", COPY, COPY + grown, COPY + grown, 65536, AFTER)] if grown else [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stream.latest(end, limited=True) is end  # it is in the history of the restored stream now
        log.hold(COPY + grown + 4096, [(BEFORE, 0), (AFTER, COPY)])
        after = stream.latest(end, limited=True)
        (wanted,) = stream.between(end, after)
    assert (wanted.start, wanted.end) == (COPY + grown, COPY + grown + 4096)


def test_a_checkpoint_without_epochs_is_accepted_once_and_upgraded() -> None:
    log = served(81920, (BEFORE, 0))
    stream = query(log)
    old = json.loads(json.dumps(stream.latest(stream.initial(), limited=True).to_dict()))
    del old["epochs"]
    start = Offset.parse(old)
    with pytest.warns(NoEpochWarning, match="the checkpoint has no epochs of s:1/3"):
        end = kept(stream.latest(start, limited=True))
    assert (end.recordings, end.epochs) == ({KEY: 81920}, {KEY: BEFORE})
    assert stream.between(start, end) == []
    assert stream.latest(end, limited=True) is end
    assert stream.latest(start, limited=True).epochs  # warned of once
    with pytest.raises(DataLossError, match=TEXT), pytest.warns(NoEpochWarning):
        query(served(COPY, (BEFORE, 0))).latest(start, limited=True)


def test_offsets_with_epochs_are_canonical_text_and_are_checked() -> None:
    offset = of_the_lost_future()
    text = offset.to_dict()
    assert text["epochs"] == {KEY: epoch_text(LOST)}
    assert list(text) == sorted(text)
    assert kept(offset) == offset
    for wrong in ({KEY: 7}, {KEY: "x"}, {"s:1/4": epoch_text(LOST)}, {"x": epoch_text(LOST)}, []):
        with pytest.raises(DataFormatError, match="damaged"):
            Offset.parse({**text, "epochs": wrong})
