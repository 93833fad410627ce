"""Tests of restarts and kills during commits: positions stay, and each acknowledged transaction exists exactly once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node as nodes
from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.archives import embedded
from aeron_spark.errors import AeronSparkError, DataLossError
from aeron_spark.node import NodeHandle
from aeron_spark.node.locks import is_locked
from aeron_spark.streams.store import Streams
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from tests.aeron.node.programs import start_python
from tests.aeron.stream_store.rows import SETTINGS, ends, ids, staged, values, write
from tests.aeron.streams import TIMEOUT_S, close_everything, open_stream

RESTARTS: Final = 20

# Commits transactions to both partitions, and prints each number; kills itself at POINT of each fourth transaction.
WRITER: Final = """
import os, signal, sys
from pathlib import Path
from aeron_spark import node
from aeron_spark.direct.archives import embedded
from aeron_spark.streams import journal
from aeron_spark.streams.store import Streams
from tests.aeron.stream_store.rows import SETTINGS, write

aeron_dir, folder, point = sys.argv[1:]
armed = False

def die():
    os.kill(os.getpid(), signal.SIGKILL)

append = journal.Journal.append
def dying_append(self, payload):
    if armed and point == "published":
        die()
    if armed and point == "torn":
        entry = journal.encode_entry(payload)
        journal.write_at(self._descriptor, entry[: len(entry) // 2], self._size)
        die()
    append(self, payload)
    if armed and point == "journalled":
        die()
journal.Journal.append = dying_append

with node.ensure(aeron_dir) as handle, Streams(Path(folder), embedded(handle), SETTINGS) as streams:
    stream = streams.get("a")
    print("ready", flush=True)
    transaction = stream.last_transaction("w")
    while True:
        transaction += 1
        armed = transaction % 4 == 3 and point != "anywhere"
        rows = [b"%d" % transaction] * 20
        write(stream, transaction, {0: rows, 1: rows}, ahead=transaction % 2 == 1)
        print(transaction, flush=True)
"""


def check(stream: Stream, last: int) -> None:
    """Check that every transaction up to ``last`` is in both partitions, once, in order."""
    wanted = [b"%d" % transaction for transaction in range(last + 1) for _ in range(20)]
    assert values(stream, 0) == wanted
    assert values(stream, 1) == wanted


def both(transaction: int) -> dict[int, list[bytes]]:
    return {0: [b"%d" % transaction] * 20, 1: [b"%d" % transaction] * 20}


def test_restarts_never_change_committed_positions(streams: Streams, node: NodeHandle, rng: random.Random) -> None:
    stream = streams.create("a", 2)
    identity, transaction, before = ids(stream), 0, ends(stream)
    known: list[tuple[list[int], list[bytes]]] = []
    streams.close()
    for restart in range(RESTARTS):
        with Streams(streams.folder, embedded(node), SETTINGS) as store:
            stream = store.get("a")
            assert ids(stream) == identity
            assert ends(stream) == before
            assert stream.last_transaction("w") == transaction - 1
            for _ in range(rng.randrange(3)):
                write(stream, transaction, both(transaction))
                transaction += 1
            before = ends(stream)
            known.append((before, values(stream, 0)))
            # Rows that are staged or published, but not committed, are lost in the restart.
            lost = [(0, 0, [b"lost"] * rng.randrange(1, 500))]
            refs = staged(stream, transaction, lost, ahead=restart % 4 in (2, 3))
            if restart % 2:
                stages = {0: [stream._stages.take(ref, 0.0) for ref in refs]}
                stream._recordings.publish(stages, stream._ledger.ends)
    with Streams(streams.folder, embedded(node), SETTINGS) as store:
        check(store.get("a"), transaction - 1)
        for state in store.get("a").states():
            # The archive has no subscription for a session of an earlier server.
            assert len(archive_of(embedded(node)).recorded_channels(state.stream_id)) <= 1
        for position, rows in known:
            log = b"".join(data for _, data in store.get("a").blocks(0, 0, position[0], 1 << 20))
            assert len(log) == position[0]
            assert values(store.get("a"), 0)[: len(rows)] == rows


@pytest.mark.parametrize(("point", "counts"), [("published", False), ("torn", False), ("journalled", True)])
def test_a_transaction_of_a_writer_killed_in_a_commit_is_complete_or_absent(
    streams: Streams, node: NodeHandle, point: str, counts: bool
) -> None:
    stream = streams.create("a", 2)
    identity = ids(stream)
    streams.close()
    for iteration in range(2):
        program = start_python(WRITER, node.aeron_dir, str(streams.folder), point)
        output, _ = program.communicate(timeout=TIMEOUT_S)
        assert program.returncode == -signal.SIGKILL, output
        acknowledged = [int(word) for word in output.split() if word != "ready"]
        # The media driver still has the old publication: the next server must not wait for it or continue it.
        with Streams(streams.folder, embedded(node), SETTINGS) as store:
            stream, killed = store.get("a"), 4 * iteration + 3
            assert acknowledged == [*range(4 * iteration, killed)]
            assert ids(stream) == identity
            assert stream.last_transaction("w") == (killed if counts else killed - 1)
            check(stream, stream.last_transaction("w"))
            if counts:
                assert stream.commit("w", "r", killed, []).is_repeated
            else:
                write(stream, killed, both(killed))
            check(stream, killed)


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_a_writer_killed_at_any_moment_loses_no_acknowledged_transaction(
    streams: Streams, node: NodeHandle, rng: random.Random, kills: int
) -> None:
    stream = streams.create("a", 2)
    identity = ids(stream)
    streams.close()
    for _ in range(kills):
        program = start_python(WRITER, node.aeron_dir, str(streams.folder), "anywhere")
        assert program.stdout
        first = program.stdout.readline()
        assert first == "ready\n", first + program.stdout.read()
        time.sleep(rng.uniform(0.0, 0.5))
        program.kill()
        output, _ = program.communicate(timeout=TIMEOUT_S)
        with Streams(streams.folder, embedded(node), SETTINGS) as store:
            stream = store.get("a")
            assert ids(stream) == identity
            acknowledged = [int(word) for word in output.split()]
            assert stream.last_transaction("w") >= max(acknowledged, default=-1)
            check(stream, stream.last_transaction("w"))


@pytest.fixture
def own(aeron_dir: Path) -> Iterator[Path]:
    """The directory of a node that the test may kill."""
    yield aeron_dir
    close_everything()
    nodes.stop(aeron_dir, force=True, timeout=30)
    shutil.rmtree(aeron_dir, ignore_errors=True)
    shutil.rmtree(nodes.local_node_paths(aeron_dir).folder, ignore_errors=True)


def kill(aeron_dir: Path, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_locked(nodes.local_node_paths(aeron_dir).alive_lock), TIMEOUT_S, "the node to end")


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.soak)])
def test_a_node_killed_between_or_during_commits_loses_no_committed_row(
    own: Path, tmp_path: Path, rng: random.Random, kills: int
) -> None:
    handle = nodes.ensure(own)
    with Streams(tmp_path / "streams", embedded(handle), SETTINGS) as store:
        stream = store.create("a", 2)
        identity, transaction, in_commit = ids(stream), 0, 0
        for iteration in range(kills):
            for _ in range(3):
                write(stream, transaction, both(transaction))
                transaction += 1
            before = ends(stream)
            if iteration % 2:
                failed = commit_while(stream, transaction, rng.uniform(0.01, 0.05), partial(kill, own, handle.pid))
                handle.close()
                handle = nodes.ensure(own)
                failed()
                in_commit += stream.last_transaction("w") < transaction
                assert (ends(stream) == before) == (stream.last_transaction("w") < transaction)
            else:
                kill(own, handle.pid)
                handle.close()
                handle = nodes.ensure(own)
            until_committed(stream, transaction)
            transaction += 1
            assert ids(stream) == identity
            check_all(stream, transaction - 1)
        assert in_commit
        end = ends(stream)
    with Streams(tmp_path / "streams", embedded(handle), SETTINGS) as store:
        assert (ids(store.get("a")), ends(store.get("a"))) == (identity, end)
        check_all(store.get("a"), transaction - 1)
        store.delete("a")
    handle.close()


BULK: Final = 6_000
ROW: Final = bytes(8_000)


def commit_while(stream: Stream, transaction: int, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
    """Commit many rows in a thread, and call ``then`` after ``seconds``; return a wait for the commit."""
    rows = [b"%d" % transaction] * 20 + [ROW] * BULK
    refs = staged(stream, transaction, [(0, 0, rows)], ahead=True) + staged(stream, transaction, [(1, 0, rows)])

    def attempt() -> None:
        with suppress(AeronSparkError):
            stream.commit("w", "r", transaction, refs)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    time.sleep(seconds)
    then()

    def wait() -> None:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()

    return wait


def until_committed(stream: Stream, transaction: int) -> None:
    """Stage and commit the transaction until it is committed, as a client does."""

    def attempt() -> bool:
        try:
            if stream.last_transaction("w") < transaction:
                write(stream, transaction, both(transaction))
        except AeronSparkError as error:
            if not error.retriable:
                raise
            return False
        return True

    wait_for(attempt, TIMEOUT_S, f"transaction {transaction}")


def check_all(stream: Stream, last: int) -> None:
    wanted = [b"%d" % transaction for transaction in range(last + 1) for _ in range(20)]
    for partition in (0, 1):
        assert [value for value in values(stream, partition) if value != ROW] == wanted


def test_a_stream_whose_recording_lost_committed_rows_is_read_only(streams: Streams, node: NodeHandle) -> None:
    short, gone, fine = (streams.create(name, 2) for name in ("short", "gone", "fine"))
    for stream in (short, gone, fine):
        write(stream, 0, both(0))
        write(stream, 1, both(1))
    cut, deleted = short.states()[1], gone.states()[0]
    streams.close()
    archive = archive_of(embedded(node))
    archive.stop_recording_by_id(cut.recording_id, TIMEOUT_S)
    archive.truncate(cut.recording_id, 1_280)
    archive.stop_recording_by_id(deleted.recording_id, TIMEOUT_S)
    archive.delete(deleted.recording_id)
    with Streams(streams.folder, embedded(node), SETTINGS) as store:
        for name, wrong in (
            ("short", r"partition 1 of stream 'short'.*ends at position 1280.*up to position"),
            ("gone", r"partition 0 of stream 'gone'.*is missing.*up to position"),
        ):
            stream = store.get(name)
            for attempt in (
                lambda s=stream: s.begin("w", "r", 2),
                lambda s=stream: s.open_stage("w", "r", 2, 0, 0, "raw"),
                lambda s=stream: s.commit("w", "r", 2, []),
            ):
                with pytest.raises(DataLossError, match=wrong):
                    attempt()
        assert values(store.get("short"), 0) == values(store.get("fine"), 0)
        with pytest.raises(DataLossError, match="has no bytes at position"):
            values(store.get("gone"), 0)
        write(store.get("fine"), 2, both(2))
        check(store.get("fine"), 2)


def test_a_recording_that_another_program_stopped_is_extended(streams: Streams, node: NodeHandle) -> None:
    stream = streams.create("a", 2)
    write(stream, 0, both(0))
    archive_of(embedded(node)).stop_recording_by_id(stream.states()[0].recording_id, TIMEOUT_S)
    for transaction in (1, 2):
        until_committed(stream, transaction)
    check(stream, 2)


def test_other_recordings_of_the_archive_stay_unchanged(streams: Streams, node: NodeHandle) -> None:
    for other in open_stream(node):
        publishing = other.record().publisher()
        publishing.send([b"x"])
        streams.create("a", 1)
        streams.delete("a")
        publishing.send([b"y"])
        assert publishing.descriptor.stop_position is None


def test_the_error_names_a_damaged_journal_and_other_streams_are_served(streams: Streams, node: NodeHandle) -> None:
    for name in ("broken", "fine"):
        write(streams.create(name, 2), 0, both(0))
    streams.close()
    path = streams.folder / "broken" / "journal"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with Streams(streams.folder, embedded(node), SETTINGS) as store:
        with pytest.raises(DataLossError, match=str(path)):
            store.get("broken")
        check(store.get("fine"), 0)
        assert path.read_bytes() == data
