"""Tests of restarts and kills during commits: positions stay, and each acknowledged transaction exists exactly once."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node as nodes
from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import AeronSparkError, DataLossError
from aeron_spark.facts import Bus
from aeron_spark.node import NodeHandle
from aeron_spark.streams.model import RecordingStopped
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_requests import Transaction
from tests.aeron.stream_store.rows import SETTINGS, delete_streams, ends, identities, read_values, stage_rows, write
from tests.aeron.streams import TIMEOUT_S, open_stream
from tests.nodes import kill_node
from tests.programs import start_python
from tests.stream_requests import commit_request, create_request, stage_request

RESTARTS: Final = 20

# Commits transactions to both partitions, and prints the number of each. It kills itself at POINT of each fourth one.
WRITER: Final = """
import os, signal, sys
from pathlib import Path
from aeron_spark import node
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.streams import journal
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts
from tests.aeron.stream_store.rows import SETTINGS, write

aeron_dir, folder, point = sys.argv[1:]
is_kill_due = False

def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)

append = journal.Journal.append
def append_or_die(self, payload):
    if is_kill_due and point == "published":
        kill_self()
    if is_kill_due and point == "torn":
        entry = journal.encode_entry(payload)
        journal.write_at(self._descriptor, entry[: len(entry) // 2], self._size)
        kill_self()
    append(self, payload)
    if is_kill_due and point == "journalled":
        kill_self()
journal.Journal.append = append_or_die

with node.ensure(aeron_dir) as handle, StreamStore(Path(folder), StoreParts(embedded(handle), SETTINGS)) as streams:
    stream = streams.get("a")
    print("ready", flush=True)
    transaction = stream.last_committed("w").transaction
    while True:
        transaction += 1
        is_kill_due = transaction % 4 == 3 and point != "anywhere"
        rows = [b"%d" % transaction] * 20
        write(stream, transaction, {0: rows, 1: rows}, ahead=transaction % 2 == 1)
        print(transaction, flush=True)
"""


def check_transactions(stream: Stream, last: int) -> None:
    """Check that both partitions contain each transaction up to ``last`` once, in order."""
    expected = [b"%d" % transaction for transaction in range(last + 1) for _ in range(20)]
    assert read_values(stream, 0) == expected
    assert read_values(stream, 1) == expected


def rows_of_both_partitions(transaction: int) -> dict[int, list[bytes]]:
    return {0: [b"%d" % transaction] * 20, 1: [b"%d" % transaction] * 20}


def test_restarts_never_change_committed_positions(streams: StreamStore, node: NodeHandle, rng: random.Random) -> None:
    stream = streams.create(create_request("a", 2))
    identity, transaction, before = identities(stream), 0, ends(stream)
    committed_at: list[tuple[list[int], list[bytes]]] = []
    streams.close()
    for restart in range(RESTARTS):
        with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as store:
            stream = store.get("a")
            assert identities(stream) == identity
            assert ends(stream) == before
            assert stream.last_committed("w").transaction == transaction - 1
            for _ in range(rng.randrange(3)):
                write(stream, transaction, rows_of_both_partitions(transaction))
                transaction += 1
            before = ends(stream)
            committed_at.append((before, read_values(stream, 0)))
            # Rows that are staged or published, but not committed, are lost in the restart.
            lost = [(0, 0, [b"lost"] * rng.randrange(1, 500))]
            refs = stage_rows(stream, transaction, lost, ahead=restart % 4 in (2, 3))
            if restart % 2:
                stages = {0: [stream._stages.take(ref, 0.0) for ref in refs]}
                stream._recordings.publish(stages, stream._ledger.ends)
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as store:
        check_transactions(store.get("a"), transaction - 1)
        for state in store.get("a").states():
            # The archive has ended its subscriptions for publications of earlier servers.
            assert len(archive_of(embedded(node)).recorded_channels(state.shape.stream_id)) <= 1
        for position, rows in committed_at:
            log = b"".join(data for _, data in store.get("a").blocks(0, 0, position[0], 1 << 20))
            assert len(log) == position[0]
            assert read_values(store.get("a"), 0)[: len(rows)] == rows


@pytest.mark.sampled
@pytest.mark.parametrize(("point", "is_committed"), [("published", False), ("torn", False), ("journalled", True)])
def test_a_transaction_of_a_writer_killed_in_a_commit_is_complete_or_absent(
    streams: StreamStore, node: NodeHandle, point: str, is_committed: bool
) -> None:
    stream = streams.create(create_request("a", 2))
    identity = identities(stream)
    streams.close()
    for iteration in range(2):
        program = start_python(WRITER, node.aeron_dir, str(streams.folder), point)
        output, _ = program.communicate(timeout=TIMEOUT_S)
        assert program.returncode == -signal.SIGKILL, output
        acknowledged = [int(word) for word in output.split() if word != "ready"]
        # The media driver still has the old publication: the next server must not wait for it or continue it.
        with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as store:
            stream, killed = store.get("a"), 4 * iteration + 3
            assert acknowledged == [*range(4 * iteration, killed)]
            assert identities(stream) == identity
            assert stream.last_committed("w").transaction == (killed if is_committed else killed - 1)
            check_transactions(stream, stream.last_committed("w").transaction)
            if is_committed:
                assert stream.commit(commit_request("w", "r", killed, [])).repeated
            else:
                write(stream, killed, rows_of_both_partitions(killed))
            check_transactions(stream, killed)


@pytest.mark.sampled
@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_a_writer_killed_at_any_moment_loses_no_acknowledged_transaction(
    streams: StreamStore, node: NodeHandle, rng: random.Random, kills: int
) -> None:
    stream = streams.create(create_request("a", 2))
    identity = identities(stream)
    streams.close()
    for _ in range(kills):
        program = start_python(WRITER, node.aeron_dir, str(streams.folder), "anywhere")
        first = program.stdout.readline()
        assert first == "ready\n", first + program.stdout.read()
        time.sleep(rng.uniform(0.0, 0.5))
        program.kill()
        output, _ = program.communicate(timeout=TIMEOUT_S)
        with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as store:
            stream = store.get("a")
            assert identities(stream) == identity
            acknowledged = [int(word) for word in output.split()]
            assert stream.last_committed("w").transaction >= max(acknowledged, default=-1)
            check_transactions(stream, stream.last_committed("w").transaction)


@pytest.mark.sampled
@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.soak)])
def test_a_node_killed_between_or_during_commits_loses_no_committed_row(
    own_dir: Path, tmp_path: Path, rng: random.Random, kills: int
) -> None:
    handle = nodes.ensure(own_dir)
    with StreamStore(tmp_path / "streams", StoreParts(embedded(handle), SETTINGS)) as store:
        stream = store.create(create_request("a", 2))
        identity, transaction, interrupted_commits = identities(stream), 0, 0
        for iteration in range(kills):
            for _ in range(3):
                write(stream, transaction, rows_of_both_partitions(transaction))
                transaction += 1
            before = ends(stream)
            if iteration % 2:
                failed = commit_in_thread(stream, transaction, rng.uniform(0.01, 0.05), partial(kill_node, own_dir))
                handle.close()
                handle = nodes.ensure(own_dir)
                failed()
                interrupted_commits += stream.last_committed("w").transaction < transaction
                assert (ends(stream) == before) == (stream.last_committed("w").transaction < transaction)
            else:
                kill_node(own_dir)
                handle.close()
                handle = nodes.ensure(own_dir)
            commit_until_successful(stream, transaction)
            transaction += 1
            assert identities(stream) == identity
            check_transactions_without_bulk_rows(stream, transaction - 1)
        assert interrupted_commits
        end = ends(stream)
    with StreamStore(tmp_path / "streams", StoreParts(embedded(handle), SETTINGS)) as store:
        assert (identities(store.get("a")), ends(store.get("a"))) == (identity, end)
        check_transactions_without_bulk_rows(store.get("a"), transaction - 1)
        store.delete("a")
    handle.close()


BULK_ROW_COUNT: Final = 6_000
BULK_ROW: Final = bytes(8_000)


def commit_in_thread(
    stream: Stream, transaction: int, seconds: float, interrupt: Callable[[], None]
) -> Callable[[], None]:
    """Commit many rows in a thread, and call ``interrupt`` after ``seconds``. Return a wait for the thread's end."""
    rows = [b"%d" % transaction] * 20 + [BULK_ROW] * BULK_ROW_COUNT
    refs = stage_rows(stream, transaction, [(0, 0, rows)], ahead=True) + stage_rows(stream, transaction, [(1, 0, rows)])

    def attempt() -> None:
        with suppress(AeronSparkError):
            stream.commit(commit_request("w", "r", transaction, refs))

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    time.sleep(seconds)
    interrupt()

    def wait() -> None:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()

    return wait


def commit_until_successful(stream: Stream, transaction: int) -> None:
    """Stage and commit a transaction again until the commit succeeds, as a client does."""

    def attempt() -> bool:
        try:
            if stream.last_committed("w").transaction < transaction:
                write(stream, transaction, rows_of_both_partitions(transaction))
        except AeronSparkError as error:
            if not error.retriable:
                raise
            return False
        return True

    wait_for(attempt, TIMEOUT_S, f"transaction {transaction}")


def check_transactions_without_bulk_rows(stream: Stream, last: int) -> None:
    expected = [b"%d" % transaction for transaction in range(last + 1) for _ in range(20)]
    for partition in (0, 1):
        assert [value for value in read_values(stream, partition) if value != BULK_ROW] == expected


def test_a_stream_whose_recording_lost_committed_rows_is_read_only(streams: StreamStore, node: NodeHandle) -> None:
    short, gone, fine = (streams.create(create_request(name, 2)) for name in ("short", "gone", "fine"))
    for stream in (short, gone, fine):
        write(stream, 0, rows_of_both_partitions(0))
        write(stream, 1, rows_of_both_partitions(1))
    truncated, deleted = short.states()[1], gone.states()[0]
    streams.close()
    archive = archive_of(embedded(node))
    archive.stop_recording_by_id(truncated.shape.recording_id, TIMEOUT_S)
    archive.truncate(truncated.shape.recording_id, 1_280)
    archive.stop_recording_by_id(deleted.shape.recording_id, TIMEOUT_S)
    archive.delete(deleted.shape.recording_id)
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as store:
        for name, wrong in (
            ("short", r"partition 1 of stream 'short'.*ends at position 1280.*up to position"),
            ("gone", r"partition 0 of stream 'gone'.*is missing.*up to position"),
        ):
            stream = store.get(name)
            for attempt in (
                lambda s=stream: s.claim_writer("another", "alice"),
                lambda s=stream: s.begin(Transaction("w", "r", 2)),
                lambda s=stream: s.open_stage(stage_request("w", "r", 2, 0, 0, "raw")),
                lambda s=stream: s.commit(commit_request("w", "r", 2, [])),
            ):
                with pytest.raises(DataLossError, match=wrong):
                    attempt()
        assert read_values(store.get("short"), 0) == read_values(store.get("fine"), 0)
        with pytest.raises(DataLossError, match="has no bytes at position"):
            read_values(store.get("gone"), 0)
        write(store.get("fine"), 2, rows_of_both_partitions(2))
        check_transactions(store.get("fine"), 2)


def test_a_recording_that_another_program_stopped_is_reported_once_and_extended(
    tmp_path: Path, node: NodeHandle
) -> None:
    facts, stopped = Bus(), list[RecordingStopped]()
    facts.on(RecordingStopped, stopped.append)
    with StreamStore(tmp_path / "observed", StoreParts(embedded(node), SETTINGS, facts=facts)) as store:
        stream = store.create(create_request("a", 2))
        write(stream, 0, rows_of_both_partitions(0))
        recording_id = stream.states()[0].shape.recording_id
        archive_of(embedded(node)).stop_recording_by_id(recording_id, TIMEOUT_S)
        for transaction in (1, 2):
            commit_until_successful(stream, transaction)
        check_transactions(stream, 2)
    assert [(fact.stream, fact.partition, fact.recording_id) for fact in stopped] == [("a", 0, recording_id)]
    assert "partition 0 of stream 'a'" in stopped[0].error.what
    delete_streams(store, node)


def test_other_recordings_of_the_archive_stay_unchanged(streams: StreamStore, node: NodeHandle) -> None:
    for other in open_stream(node):
        publishing = other.record().publisher()
        publishing.send([b"x"])
        streams.create(create_request("a", 1))
        streams.delete("a")
        publishing.send([b"y"])
        assert publishing.descriptor.stop_position is None
