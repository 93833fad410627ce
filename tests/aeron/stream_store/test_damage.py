"""Tests of damaged stores: the state of the stream and the server's log name the damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import DataLossError
from aeron_spark.facts import Bus
from aeron_spark.log.epochs import Divergence, Epochs
from aeron_spark.node import NodeHandle
from aeron_spark.streams import archive_mark
from aeron_spark.streams.journal import RECORD_END, RECORD_HEAD, read_entries
from aeron_spark.streams.model import StreamNotOpened, StreamReadOnly, StreamRecovery
from aeron_spark.streams.store import DAMAGED, OK, READ_ONLY, StreamStore
from aeron_spark.streams.store_parts import StoreParts
from tests.aeron.stream_store.rows import SETTINGS, delete_streams, ends, read_values, remove_marks, write
from tests.stream_requests import create_request


class Facts:
    """Keeps the recoveries and problems of a store."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.recoveries: list[StreamRecovery] = []
        self.problems: list[tuple[str, str]] = []
        self.bus.on(StreamRecovery, self.recoveries.append)
        self.bus.on(StreamNotOpened, self._add_problem)
        self.bus.on(StreamReadOnly, self._add_problem)

    def _add_problem(self, fact: StreamNotOpened | StreamReadOnly) -> None:
        self.problems.append((fact.stream, str(fact.error)))


def journal_path(folder: Path, name: str) -> Path:
    return folder / name / "journal"


def remove_records(path: Path, count: int) -> None:
    """Remove the last records of a journal, as if the disk had not written them although fsync returned."""
    data = path.read_bytes()
    payloads, end = read_entries(data, path)
    removed = sum(RECORD_HEAD.size + len(payload) + len(RECORD_END) for payload in payloads[-count:])
    path.write_bytes(data[: end - removed])


def test_a_damaged_journal_is_reported_and_other_streams_are_served(node: NodeHandle, tmp_path: Path) -> None:
    """Regression: the stream was missing in every list, and the server did not log the damage."""
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS)) as store:
        for name in ("damaged", "intact"):
            write(store.create(create_request(name, 1)), 0, {0: [b"row"]})
    path = journal_path(tmp_path / "s", "damaged")
    intact_bytes = path.read_bytes()
    path.write_bytes(intact_bytes[:40] + bytes([intact_bytes[40] ^ 0xFF]) + intact_bytes[41:])
    facts = Facts()
    store = StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS, facts=facts.bus))
    with store:
        assert [one.definition.name for one in store.all()] == ["intact"]
        state, problem = store.condition("damaged")
        assert (state, store.condition("intact")) == (DAMAGED, (OK, ""))
        assert "was damaged after it was written" in problem
        store.tick()
        assert facts.problems == [("damaged", problem)]  # reported once
        with pytest.raises(DataLossError, match=f"{path}.* was damaged"):
            store.get("damaged")
        write(store.get("intact"), 1, {0: [b"more"]})
        definition = store.definition("damaged")
        assert definition.partitions == 1
    path.write_bytes(intact_bytes)
    delete_streams(store, node)


def test_rows_without_journal_records_are_truncated_reported_and_refused_to_their_readers(
    node: NodeHandle, tmp_path: Path
) -> None:
    """The server truncates only after the operator removed the mark, and logs what it truncated.

    Positions in the truncated range are refused.
    """
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS)) as store:
        stream = store.create(create_request("x", 2))
        write(stream, 0, {0: [b"a"], 1: [b"a"]})
        committed_ends = ends(stream)
        write(stream, 1, {0: [b"b"]})
        write(stream, 2, {0: [b"c"]})
        lost = stream.states()[0]
    remove_records(journal_path(tmp_path / "s", "x"), 2)
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS)) as store:
        state, problem = store.condition("x")
        assert state == DAMAGED
        assert "the journal has 1 transactions and epoch" in problem
        assert "the archive has at least 3 transactions and epoch" in problem
    remove_marks(node.archive_dir)
    facts = Facts()
    store = StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS, facts=facts.bus))
    with store:
        stream = store.get("x")
        assert ends(stream) == committed_ends
        assert [(one.stream, one.torn_bytes, one.truncated, one.loss) for one in facts.recoveries] == [
            ("x", 0, {0: (lost.end, committed_ends[0])}, None)
        ]
        for transaction in (1, 2, 3):  # the stream becomes longer than before the loss
            write(stream, transaction, {0: [b"new"]})
            assert ends(stream)[0] <= lost.end or transaction == 3
            with pytest.raises(DataLossError, match=f"the reader is at {lost.end}, .* without the bytes before"):
                stream.check_epoch(0, lost.epochs.at(lost.end), lost.end)
            found = stream.states()[0].epochs.divergence(lost.epochs.before(lost.end), lost.end, ends(stream)[0])
            assert found == Divergence(committed_ends[0], is_exact=True)
        stream.check_epoch(0, lost.epochs.at(committed_ends[0]), committed_ends[0])
        stream.check_epoch(1, lost.epochs.at(committed_ends[1]), committed_ends[1])
        assert read_values(stream, 0) == [b"a", b"new", b"new", b"new"]
    delete_streams(store, node)


def test_a_journal_of_an_older_copy_is_refused_and_no_recording_is_truncated(node: NodeHandle, tmp_path: Path) -> None:
    """Regression: restoring the journal alone, as its remedy said, truncated acknowledged rows."""
    path, marks = journal_path(tmp_path / "s", "x"), Path(node.archive_dir) / archive_mark.MARKS_FOLDER
    marks_of_others = set(marks.glob("*"))  # of streams that earlier tests have left in the archive
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS)) as store:
        write(store.create(create_request("x", 1)), 0, {0: [b"a"]})
    assert set(marks.glob("*")) > marks_of_others
    copy = path.read_bytes()
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS)) as store:
        write(store.get("x"), 1, {0: [b"b"]})
    intact_bytes = path.read_bytes()
    path.write_bytes(copy)
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS)) as store:
        state, problem = store.condition("x")
        assert state == DAMAGED
        assert "the journal of stream 'x' is older than its archive" in problem
        assert "copies of one time" in problem
    path.write_bytes(intact_bytes)
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS)) as store:
        assert store.condition("x") == (OK, "")
        assert read_values(store.get("x"), 0) == [b"a", b"b"]
    delete_streams(store, node)
    assert set(marks.glob("*")) == marks_of_others


def test_damage_that_a_commit_finds_is_reported_once(node: NodeHandle, tmp_path: Path) -> None:
    """Regression: each commit failed, but the state of the stream was still "ok"."""
    facts = Facts()
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS, facts=facts.bus)) as store:
        stream = store.create(create_request("x", 1))
        write(stream, 0, {0: [b"a"]})
        stream.release_slots()  # closes the publication, so the next commit checks the recording
        (recording,) = (state.shape.recording_id for state in stream.states())
        archive_of(embedded(node)).truncate(recording, 0)
        for _ in range(2):
            with pytest.raises(DataLossError):
                write(stream, 1, {0: [b"b"]})
        state, problem = store.condition("x")
        assert state == READ_ONLY
        assert "recording" in problem
        assert facts.problems == [("x", problem)]  # reported once
    delete_streams(store, node)


def test_an_incomplete_journal_record_is_removed_and_reported(node: NodeHandle, tmp_path: Path) -> None:
    """Regression: the server did not log that it removed the record."""
    with StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS)) as store:
        write(store.create(create_request("x", 1)), 0, {0: [b"a"]})
    path = journal_path(tmp_path / "s", "x")
    with path.open("ab") as file:
        file.write(b"\x07")
    facts = Facts()
    store = StreamStore(tmp_path / "s", StoreParts(embedded(node), SETTINGS, facts=facts.bus))
    with store:
        assert read_values(store.get("x"), 0) == [b"a"]
    assert [(one.stream, one.torn_bytes, one.truncated) for one in facts.recoveries] == [("x", 1, {})]
    delete_streams(store, node)


def test_each_opening_that_changes_a_stream_begins_an_epoch(node: NodeHandle, tmp_path: Path) -> None:
    """Two openings at the same time of the clock also begin different epochs."""
    found: list[Epochs] = []
    for opening, random in enumerate((5, 6, 5, 7)):
        with StreamStore(
            tmp_path / "s",
            StoreParts(embedded(node), SETTINGS, wall=lambda: 1_700_000_000 * 10**9),
            random=lambda _, r=random: r,
        ) as store:
            stream = store.create(create_request("x", 1)) if not opening else store.get("x")
            if opening != 2:  # an opening without changes begins no epoch
                write(stream, opening, {0: [b"row"]})
            found.append(stream.states()[0].epochs)
    delete_streams(store, node)
    assert [len(one.pairs) for one in found] == [2, 3, 3, 4]
    assert found[2] == found[1]
    assert len({epoch for epoch, _ in found[-1].pairs}) == 4
    assert [epoch & 0xFFFFF for epoch, _ in found[-1].pairs] == [0, 5, 6, 7]
