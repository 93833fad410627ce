"""After a restore of its server, a query fails before it reads a row, or continues at the divergence."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from aeron_spark.errors import DataFormatError, DataLossError
from aeron_spark.log.api import Log, Range, RecordingState, ServerStream, SourceStream
from aeron_spark.log.epochs import FIRST, Epochs, NoEpochWarning, epoch_text
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import DataLossWarning, QueryPlanner
from aeron_spark.options import ReadOptions
from tests.unit.log.fake_log import FakeLog

KEY = "s:1/3"
BEFORE, LOST, AFTER = 1 << 40, 2 << 40, 3 << 40  # epochs: of the copy, of the lost rows, of the restored store
COPY_END = 65536
EXAMPLE_KEY = "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
TEXT = (
    "partition 3 of stream 'flights' diverged: the query is at 81920, and the store was restored from a copy that has "
    "the same rows up to 65536"
)
UNPROVED = "the same rows at least up to 0, and rows after it may be read again"


class ServedLog(FakeLog):
    """Partition 3 of the stream 'flights' of a server, in messages of 4 KiB."""

    archives = ("s:1",)
    epochs = Epochs()
    start = 0

    @property
    def stream(self) -> SourceStream:
        return ServerStream("flights", {"s:1": "key"})

    def states(self) -> list[RecordingState]:
        (state,) = super().states()
        return [
            RecordingState(
                KEY, state.fingerprint, self.start, state.end, True, 65536, channel="flights", epochs=self.epochs
            )
        ]  # fmt: skip

    def state(self, key: str) -> RecordingState:
        (state,) = self.states()
        return state

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        assert record == "auto"

    def check_recorded(self, states: list[RecordingState]) -> None:
        assert states

    def set_content(self, end: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Set the end position, and the epochs of the commits with their first positions."""
        self.messages: Mapping[str, Sequence[tuple[int, int]]] = {KEY: [(4096, 1)] * (end // 4096)}
        self.epochs = Epochs(((FIRST, 0), *pairs))


def served(end: int, *pairs: tuple[int, int]) -> ServedLog:
    log = ServedLog({})
    log.set_content(end, pairs)
    return log


def query(log: ServedLog, *, fail: bool = True, starting: str = "earliest") -> QueryPlanner:
    given = {"server": "s:1", "serverKey": EXAMPLE_KEY, "stream": "flights", "startingOffsets": starting}
    options = ReadOptions.parse({**given, "failOnDataLoss": str(fail).lower()}, streaming=True)
    return QueryPlanner(options, lambda options, framed: cast("Log", log), framed=False)


def reread(offset: Offset) -> Offset:
    """Return the offset after it was written to a checkpoint and read again."""
    return Offset.parse(json.loads(json.dumps(offset.to_dict())))


def range_after_loss(log: ServedLog, start: Offset, text: str) -> Range:
    """Return the range of a query that continues in spite of a loss, and check that both of its steps warn."""
    with pytest.warns(DataLossWarning, match=text):
        end = reread(query(log, fail=False).latest(start, limited=True))
    with pytest.warns(DataLossWarning, match=text):
        (wanted,) = query(log, fail=False).between(start, end)
    return wanted


def offset_in_lost_history() -> Offset:
    """Return the offset of a query that has read up to 81920, which is beyond the end of the copy."""
    log = served(81920, (BEFORE, 0), (LOST, COPY_END))
    stream = query(log)
    end = reread(stream.latest(stream.initial(), limited=True))
    assert (end.recordings, end.epochs) == ({KEY: 81920}, {KEY: Epochs(((FIRST, 0), (BEFORE, 0), (LOST, COPY_END)))})
    return end


def of_earlier_release(offset: Offset) -> Offset:
    """Return the offset as a release wrote it that knew only the newest epoch."""
    newest = {key: epoch_text(saved.newest) for key, saved in offset.epochs.items()}
    return Offset.parse(json.loads(json.dumps({**offset.to_dict(), "epochs": newest})))


@pytest.mark.parametrize("grown", [0, 8192, 40960])
def test_a_query_beyond_the_restored_copy_fails_before_it_reads_a_row(grown: int) -> None:
    """It fails even if the restored stream has grown beyond the query's position."""
    offset = offset_in_lost_history()
    stream = query(served(COPY_END + grown, (BEFORE, 0), (AFTER, COPY_END)))
    for plan in (lambda: stream.latest(offset, limited=True), lambda: stream.between(offset, offset)):
        with pytest.raises(DataLossError, match=TEXT) as caught:
            plan()
        assert caught.value.reason == "diverged"
        assert "failOnDataLoss=false to continue at position 65536" in caught.value.remedy


@pytest.mark.parametrize("grown", [0, 8192, 40960])
def test_a_query_beyond_a_copy_of_a_running_server_fails_too(grown: int) -> None:
    """The lost rows have the epoch of the copy, because the server ran while the copy was made."""
    log = served(81920, (BEFORE, 0))
    stream = query(log)
    offset = reread(stream.latest(stream.initial(), limited=True))
    assert offset.epochs == {KEY: Epochs(((FIRST, 0), (BEFORE, 0)))}
    with pytest.raises(DataLossError, match=TEXT):
        query(served(COPY_END + grown, (BEFORE, 0), (AFTER, COPY_END))).latest(offset, limited=True)


def test_a_batch_that_was_planned_in_the_lost_history_is_not_repeated() -> None:
    """The checkpoint has the end of the batch, but the restored stream has other rows before it."""
    end = offset_in_lost_history()
    saved = Epochs(((FIRST, 0), (BEFORE, 0)))
    start = Offset({KEY: 32768}, end.fingerprints, stream=end.stream, epochs={KEY: saved})
    log = served(122880, (BEFORE, 0), (AFTER, COPY_END))
    with pytest.raises(DataLossError, match=TEXT):
        query(log).between(start, end)
    with pytest.warns(DataLossWarning, match="diverged"):
        (wanted,) = query(log, fail=False).between(start, end)
    assert (wanted.start, wanted.end, wanted.epoch) == (32768, COPY_END, BEFORE)


@pytest.mark.parametrize("later", [AFTER, LOST - 1])
def test_a_query_continues_where_its_history_left_that_of_a_copy_of_another_history(later: int) -> None:
    """Regression: it continued at 81920, because the newest epoch of the stream begins after that.

    Monday's copy was restored and grew, and then Tuesday's was restored. The clock may be behind meanwhile.
    """
    start = offset_in_lost_history()
    log = served(122880, (BEFORE, 0), (later, 98304))
    with pytest.raises(DataLossError, match=TEXT):
        query(log).latest(start, limited=True)
    wanted = range_after_loss(log, start, TEXT)
    assert (wanted.start, wanted.end) == (COPY_END, 122880)


def test_the_error_says_that_rows_of_the_copy_were_purged() -> None:
    log = served(122880, (BEFORE, 0), (AFTER, COPY_END))
    log.start = 73728
    with pytest.raises(DataLossError, match=TEXT + "; its rows up to 73728 were purged") as caught:
        query(log).latest(offset_in_lost_history(), limited=True)
    assert "to continue at position 73728" in caught.value.remedy


def test_a_checkpoint_with_only_the_newest_epoch_is_accepted_and_gets_the_others() -> None:
    log = served(81920, (BEFORE, 0), (LOST, COPY_END))
    start = of_earlier_release(offset_in_lost_history())
    assert start.to_dict()["epochs"] == {KEY: epoch_text(LOST)}
    stream = query(log)
    assert stream.latest(start, limited=True) is start  # without progress, Spark compares the texts
    log.set_content(90112, [(BEFORE, 0), (LOST, COPY_END)])
    assert stream.latest(start, limited=True).epochs == {KEY: Epochs(((FIRST, 0), (BEFORE, 0), (LOST, COPY_END)))}


def test_with_only_the_newest_epoch_the_error_claims_no_common_position() -> None:
    """The stream does not have this epoch, so where the histories separated is unknown."""
    start = of_earlier_release(offset_in_lost_history())
    log = served(122880, (BEFORE, 0), (AFTER, 98304))
    with pytest.raises(DataLossError, match=UNPROVED):
        query(log).latest(start, limited=True)
    wanted = range_after_loss(log, start, UNPROVED)
    assert (wanted.start, wanted.end) == (0, 122880)
    copy = served(122880, (BEFORE, 0), (LOST, COPY_END), (AFTER, 73728))  # it has this epoch, up to an earlier position
    with pytest.raises(DataLossError, match="the same rows up to 73728"):
        query(copy).latest(start, limited=True)


def test_a_range_of_a_batch_query_has_the_epoch_of_its_end() -> None:
    """The server may have been restored since, so it compares the epoch before it sends a byte."""
    given = {"server": "s:1", "serverKey": EXAMPLE_KEY, "stream": "flights"}
    log = served(122880, (BEFORE, 0), (AFTER, COPY_END))
    stream = QueryPlanner(
        ReadOptions.parse(given, streaming=False), lambda options, framed: cast("Log", log), framed=False
    )
    assert stream.whole() == [Range(KEY, "00000000", 0, 122880, 122880, 65536, AFTER)]


def test_a_query_that_was_not_beyond_the_copy_continues_without_an_error() -> None:
    log = served(32768, (BEFORE, 0))
    stream = query(log)
    start = reread(stream.latest(stream.initial(), limited=True))
    log.set_content(122880, [(BEFORE, 0), (AFTER, COPY_END)])
    end = reread(stream.latest(start, limited=True))
    assert stream.between(start, end) == [Range(KEY, "00000000", 32768, 122880, 122880, 65536, AFTER)]


@pytest.mark.parametrize("grown", [4096, 8192, 40960])
def test_a_query_that_began_at_latest_without_reading_continues_at_the_divergence(grown: int) -> None:
    """Regression: its first batch began at the old position and skipped the rows before it without a warning."""
    lost = served(81920, (BEFORE, 0), (LOST, COPY_END))
    start = reread(query(lost, starting="latest").initial())
    assert start.initial
    assert start.recordings == {KEY: 81920}
    log = served(COPY_END + grown, (BEFORE, 0), (AFTER, COPY_END))
    with pytest.warns(DataLossWarning, match=TEXT):
        end = reread(query(log, fail=False, starting="latest").latest(start, limited=True))
    found = query(log, fail=False, starting="latest").between(start, end)
    assert found == [Range(KEY, "00000000", COPY_END, COPY_END + grown, COPY_END + grown, 65536, AFTER)]


@pytest.mark.parametrize("grown", [0, 8192, 40960])
def test_with_fail_on_data_loss_false_a_query_warns_and_continues_at_the_divergence(grown: int) -> None:
    """It reads the rows of the restored stream from there once, even if the batch is repeated."""
    start = offset_in_lost_history()
    log = served(COPY_END + grown, (BEFORE, 0), (AFTER, COPY_END))
    stream = query(log, fail=False)
    with pytest.warns(DataLossWarning, match=TEXT):
        end = reread(stream.latest(start, limited=True))
    assert end.recordings == {KEY: COPY_END + grown}
    for again in (stream, query(log, fail=False)):
        with pytest.warns(DataLossWarning, match=TEXT):
            found = again.between(start, end)
        assert found == (
            [Range(KEY, "00000000", COPY_END, COPY_END + grown, COPY_END + grown, 65536, AFTER)] if grown else []
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stream.latest(end, limited=True) is end  # the offset is in the history of the restored stream
        log.set_content(COPY_END + grown + 4096, [(BEFORE, 0), (AFTER, COPY_END)])
        after = stream.latest(end, limited=True)
        (wanted,) = stream.between(end, after)
    assert (wanted.start, wanted.end) == (COPY_END + grown, COPY_END + grown + 4096)


def test_a_checkpoint_without_epochs_is_accepted_once_and_upgraded() -> None:
    log = served(81920, (BEFORE, 0))
    stream = query(log)
    old = json.loads(json.dumps(stream.latest(stream.initial(), limited=True).to_dict()))
    del old["epochs"]
    start = Offset.parse(old)
    with pytest.warns(NoEpochWarning, match="the checkpoint has no epochs of s:1/3"):
        end = reread(stream.latest(start, limited=True))
    assert (end.recordings, end.epochs) == ({KEY: 81920}, {KEY: Epochs(((FIRST, 0), (BEFORE, 0)))})
    assert stream.between(start, end) == []
    assert stream.latest(end, limited=True) is end
    assert stream.latest(start, limited=True).epochs  # this warning is given only once
    with pytest.raises(DataLossError, match=UNPROVED), pytest.warns(NoEpochWarning):
        query(served(COPY_END, (BEFORE, 0))).latest(start, limited=True)


def test_offsets_with_epochs_are_canonical_text_and_are_checked() -> None:
    offset = offset_in_lost_history()
    text = offset.to_dict()
    assert text["epochs"] == {KEY: f"{epoch_text(FIRST)}-0 {epoch_text(BEFORE)}-0 {epoch_text(LOST)}-10000"}
    assert list(text) == sorted(text)
    assert reread(offset) == offset
    for wrong in ({KEY: 7}, {KEY: "x"}, {"s:1/4": epoch_text(LOST)}, {"x": epoch_text(LOST)}, []):
        with pytest.raises(DataFormatError, match="damaged"):
            Offset.parse({**text, "epochs": wrong})
