"""``aeron-spark server backup`` of a server that commits meanwhile, restored on another node, with real archives."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import aeron_spark
from aeron_spark import node as nodes
from aeron_spark.aeron.checksum import crc32
from aeron_spark.backup.copying import BackupSource, write_backup
from aeron_spark.backup.manifest import DAMAGE
from aeron_spark.backup.verifying import Checked, verify_store
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import DataFormatError, DataLossError, SetupError
from aeron_spark.log.api import Range
from aeron_spark.log.decoding import PlacedGroup, batches_of_group, read_range
from aeron_spark.node import NodeHandle
from aeron_spark.stream_client.server_log import ServerLog
from aeron_spark.streams import stages
from aeron_spark.streams.archive_mark import OTHER_TIME
from aeron_spark.streams.store import OK, RESTORING, StreamStore
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from aeron_spark.wire.chunks import Content, Header
from aeron_spark.wire.staged_items import encode_group_item
from aeron_spark.wire.stream_requests import CommitTransaction, InlinePart, Transaction
from tests.aeron.backup.conftest import SETTINGS as NODE_SETTINGS
from tests.aeron.stream_store.rows import SETTINGS, read_values, remove_marks, write
from tests.cli.conftest import run_program
from tests.hostile_arrow import HOSTILE
from tests.server_processes import connect, serving
from tests.stream_requests import create_request

TERM: Final = 1 << 20
TIMEOUT_S: Final = 120.0
VALUE_BYTES: Final = 8_000
VALUES: Final = 32  # in each partition of a transaction: 512 KB in two partitions
CUT_S: Final = 1.0  # for the ends of all streams, as docs/backup.md promises
BUSY_CUT_S: Final = 10.0  # of a busy machine
PAUSE_S: Final = 0.03  # between two commits: on a busy machine, a backup takes longer, and the load goes on beside it


class Load:
    """Commits transactions of numbered values in a thread, to all partitions of a stream, with pauses between them."""

    def __init__(self, stream: Stream, pause_s: float) -> None:
        self._stream = stream
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._commit)
        self.committed = 0
        self.error: BaseException | None = None
        self._thread.start()

    def _commit(self) -> None:
        try:
            while not self._ending.wait(self._pause_s):
                number = self.committed
                values = [b"%d." % number + b"x" * VALUE_BYTES] * VALUES
                write(self._stream, number, {0: values, 1: values})
                self.committed = number + 1
        except BaseException as error:
            self.error = error

    def await_transactions(self, count: int) -> None:
        wait_for(lambda: self.committed >= count, TIMEOUT_S, f"{count} transactions", state=lambda: repr(self.error))

    def end(self) -> None:
        self._ending.set()
        self._thread.join(TIMEOUT_S)
        assert self.error is None


def back_up(folder: Path, name: str, *options: str) -> dict[str, Any]:
    """Run the command, and return its result."""
    done = run_program(
        "server", "backup", str(folder / name), "--streams-dir", str(folder / "streams"), "--json", *options
    )
    assert done.code == 0, done.err
    found: dict[str, Any] = done.lines[0]
    return found


def restore(folder: Path, name: str, archive_dir: Path) -> Path:
    """Restore a backup for a node with this archive; return the folder of its streams."""
    streams = folder / f"restored {name}"
    done = run_program(
        "server", "restore", str(folder / name), "--streams-dir", str(streams), "--archive-dir", str(archive_dir)
    )
    assert done.code == 0, done.err
    return streams


def transactions_of(stream: Stream) -> list[int]:
    """Return the numbers of the transactions in a stream; check that each has all its values in both partitions."""
    found = []
    for partition in (0, 1):
        numbers = [int(value.partition(b".")[0]) for value in read_values(stream, partition)]
        assert numbers == sorted(numbers)
        counts = Counter(numbers)
        assert set(counts.values()) <= {VALUES}
        found.append(list(counts))
    assert found[0] == found[1]  # the cut is between two transactions
    return found[0]


@pytest.mark.parametrize(
    ("seconds", "pause_s", "cut_s"),
    [
        (2.0, PAUSE_S, BUSY_CUT_S),
        pytest.param(
            60.0, 0.0, CUT_S, marks=pytest.mark.full("it writes for a minute; make test does so for some seconds")
        ),
    ],
)
def test_a_backup_under_load_has_whole_transactions_and_is_restored_on_another_node(
    node: NodeHandle, tmp_path: Path, own_dir: Path, seconds: float, pause_s: float, cut_s: float
) -> None:
    """The server is backed up twice while it commits, and the second backup is restored."""
    with serving(node, tmp_path) as server:
        server.streams.create(create_request("empty", 2, segment_bytes=TERM))
        load = Load(server.streams.create(create_request("loaded", 2, segment_bytes=TERM)), pause_s)
        begun = time.monotonic()
        load.await_transactions(8)
        first = back_up(tmp_path, "first")
        while time.monotonic() - begun < seconds:
            time.sleep(0.1)
        before = load.committed
        second = back_up(tmp_path, "second", "--incremental")
        after = load.committed
        load.end()
        status = server._state.status({})
        assert status["last_backup_directory"] == str(tmp_path / "second")
        server.streams.delete("empty")
        server.streams.delete("loaded")
    for done in (first, second):
        assert done["streams"] == 2
    assert second["linked_bytes"] > 0
    assert second["bytes"] > first["bytes"]
    archive_dir = nodes.local_node_paths(own_dir).archive_dir
    streams_dir = restore(tmp_path, "second", archive_dir)
    checked = Checked()
    assert list(verify_store(streams_dir, archive_dir, checked)) == []
    assert checked.bytes > second["linked_bytes"]
    shutil.rmtree(tmp_path / "first")  # a link is as good as a copy
    with (
        nodes.ensure(own_dir, **NODE_SETTINGS) as handle,
        StreamStore(streams_dir, StoreParts(embedded(handle), SETTINGS)) as store,
    ):
        assert [store.condition(name).state for name in store.names] == [OK, OK]
        stream = store.get("loaded")
        numbers = transactions_of(stream)
        assert numbers == list(range(len(numbers)))
        assert before <= len(numbers) <= after
        write(stream, len(numbers), {0: [b"%d." % len(numbers)] * VALUES, 1: [b"%d." % len(numbers)] * VALUES})
        write(store.get("empty"), 0, {1: [b"first"]})
        assert transactions_of(stream) == [*numbers, len(numbers)]
        assert read_values(store.get("empty"), 1) == [b"first"]
    assert max(done["cut_seconds"] for done in (first, second)) < cut_s


def test_a_backup_has_what_was_purged_deleted_and_moved_while_it_copied(
    node: NodeHandle, tmp_path: Path, own_dir: Path
) -> None:
    with serving(node, tmp_path) as server:
        purged = server.streams.create(create_request("purged", 1, segment_bytes=TERM))
        deleted = server.streams.create(create_request("deleted", 1, segment_bytes=TERM))
        for number in range(4):
            write(purged, number, {0: [b"%d." % number + b"x" * VALUE_BYTES] * 200})
        write(deleted, 0, {0: [b"kept"]})
        begun, *cuts = server._backups.begin({"directory": "x"})
        before = read_values(purged, 0)
        purged.purge(before_position=purged.states()[0].end)
        server.streams.delete("deleted")
        write(purged, 4, {0: [b"later"]})
        server.streams.tick()
        source = BackupSource(
            Path(begun["streams_dir"]), Path(begun["archive_dir"]), [cut_of(cut) for cut in cuts], 10**18, "1"
        )
        write_backup(source, tmp_path / "copy")
        server._backups.end({"id": begun["id"], "bytes": 1})
        server.streams.tick()
        checked = Checked()
        found = verify_store(tmp_path / "copy" / "streams", tmp_path / "copy" / "archive", checked)
        assert list(found) == []
        assert checked.bytes > sum(map(len, before))
        assert checked.streams == 2
        purged.purge(before_position=purged.states()[0].end)  # the empty partition continues in a new recording
        assert purged.states()[0].start == purged.states()[0].recording.start > 0
        write(server.streams.create(create_request("moved", 1, segment_bytes=TERM)), 0, {0: [b"x"]})
        write(purged, 5, {0: [b"in the new recording"]})
        emptied = server.streams.create(create_request("emptied", 1, segment_bytes=TERM))
        write(emptied, 0, {0: [b"y" * VALUE_BYTES] * 200})
        emptied.purge(before_position=emptied.states()[0].end)
        (empty,) = emptied.states()
        assert empty.recording.start == empty.end > 0
        expired = server.streams.create(create_request("expired", 1, segment_bytes=TERM, retention_seconds=0.001))
        write(expired, 0, {0: [b"expired"]})
        wait_for(lambda: expired.states()[0].start > 0, TIMEOUT_S, "the housekeeping to expire the row")
        (state,) = expired.states()
        assert state.start == state.end > state.recording.start == 0, "its rows are gone, their recording is not"
        back_up(tmp_path, "moved")
        assert list(verify_store(tmp_path / "moved" / "streams", tmp_path / "moved" / "archive", Checked())) == []
        for name in ("purged", "moved", "emptied", "expired"):
            server.streams.delete(name)
    archive_dir = nodes.local_node_paths(own_dir).archive_dir
    streams_dir = restore(tmp_path, "moved", archive_dir)
    assert list(verify_store(streams_dir, archive_dir, Checked())) == []
    with (
        nodes.ensure(own_dir, **NODE_SETTINGS) as handle,
        StreamStore(streams_dir, StoreParts(embedded(handle), SETTINGS)) as store,
    ):
        write(store.get("purged"), 6, {0: [b"after the restore"]})
        assert read_values(store.get("purged"), 0) == [b"in the new recording", b"after the restore"]
        (restored,) = store.get("emptied").states()
        assert (restored.start, restored.end, restored.recording.start) == (empty.end,) * 3
        write(store.get("emptied"), 1, {0: [b"after the restore"]})
        assert read_values(store.get("emptied"), 0) == [b"after the restore"]
        write(store.get("expired"), 1, {0: [b"after the expiry"]})
        assert read_values(store.get("expired"), 0) == [b"after the expiry"]


def cut_of(value: object) -> Any:
    from aeron_spark.streams.model import StreamCut

    return StreamCut.from_json(value)


def commit_arrow(client: aeron_spark.Client, stream: str, payload: bytes) -> None:
    """Commit a group of four rows, which the client does not check."""
    items = b"".join(bytes(part) for part in encode_group_item(Header(Content.ARROW, 0, rows=4), payload))
    schema = pa.schema([("text", pa.string())]).serialize().to_pybytes()
    part = InlinePart(0, 0, "arrow", schema, 4, items, crc32(items))
    client._stream_session().call(CommitTransaction(stream, Transaction("hostile", "r", 7), (part,), 4, TIMEOUT_S))


def test_rows_of_a_restore_are_checked_although_another_server_has_marked_them(
    node: NodeHandle, tmp_path: Path, own_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload, why = HOSTILE["offset"]
    with serving(node, tmp_path) as server, connect(server.addresses[0], node.aeron_dir, timeout=TIMEOUT_S) as client:
        server.streams.create(create_request("marked", 1, segment_bytes=TERM))
        with monkeypatch.context() as hostile_server:
            hostile_server.setattr(stages, "check_content", lambda *given: None)
            commit_arrow(client, "marked", payload)
        with client.writer("marked") as out:
            out.write({"text": "good"})
        back_up(tmp_path, "marked")
        server.streams.delete("marked")
    restore(tmp_path, "marked", nodes.local_node_paths(own_dir).archive_dir)
    with (
        nodes.ensure(own_dir, **NODE_SETTINGS) as handle,
        serving(handle, tmp_path, tmp_path / "restored marked") as server,
        connect(server.addresses[0], handle.aeron_dir, timeout=TIMEOUT_S) as client,
    ):
        (restored,) = server.streams.get("marked").states()
        with client.writer("marked") as out:
            out.write({"text": "later"})
        log = ServerLog({"s": client._stream_session()}, "marked", framed=True)
        (state,) = log.states()
        assert state.checked_from == restored.end < state.end
        whole = Range(state.key, state.fingerprint, 0, state.end, state.end, state.term_length)
        groups = [one for one in read_range(log, whole) if isinstance(one, PlacedGroup)]
        marks = [(one.group.header.checked, one.is_checked) for one in groups]
        assert marks == [(True, False), (True, False), (True, True)]
        with pytest.raises(DataFormatError, match=f"marked.* the group at position 0: .*{why}"):
            list(client.reader("marked"))
        rows = [batch.to_pylist() for one in groups[1:] for batch in batches_of_group(one)]
        assert rows == [[{"text": "good"}], [{"text": "later"}]]


def test_half_of_a_restored_copy_is_refused_by_name(node: NodeHandle, tmp_path: Path, own_dir: Path) -> None:
    """The restored store with the original archive, although its mark is not behind, and the reverse."""
    with serving(node, tmp_path) as server:
        write(server.streams.create(create_request("half", 1, segment_bytes=TERM)), 0, {0: [b"a"]})
        back_up(tmp_path, "copy")
    archive_dir = nodes.local_node_paths(own_dir).archive_dir
    restored = restore(tmp_path, "copy", archive_dir)
    original = tmp_path / "streams"
    for streams_dir, archive, older in (
        (restored, Path(node.archive_dir), "archive of stream 'half' is older than its journal"),
        (original, archive_dir, "journal of stream 'half' is older than its archive"),
    ):
        (finding,) = [one for one in verify_store(streams_dir, archive, Checked()) if one.level == DAMAGE]
        assert older in finding.what
    with StreamStore(restored, StoreParts(embedded(node), SETTINGS)) as store:
        with pytest.raises(DataLossError, match="are of different times; of 1 streams the first is 'half'") as caught:
            store.check_one_time()
        assert caught.value.reason == OTHER_TIME
    done = run_program(
        "server", "127.0.0.1:1", "--allow-any-key", "--aeron-dir", node.aeron_dir, "--streams-dir", str(restored),
        "--identity", str(tmp_path / "server.key"),
    )  # fmt: skip
    assert done.code == 1
    assert "are of different times; of 1 streams the first is 'half'" in done.err
    remove_marks(node.archive_dir)
    with StreamStore(original, StoreParts(embedded(node), SETTINGS)) as store:
        store.check_one_time()
        store.delete("half")


def test_a_store_with_an_unfinished_restore_is_not_opened(node: NodeHandle, tmp_path: Path) -> None:
    (tmp_path / "streams" / RESTORING).mkdir(parents=True)
    with pytest.raises(SetupError, match=r"a restore into .* did not finish"):
        StreamStore(tmp_path / "streams", StoreParts(embedded(node), SETTINGS))
    (finding,) = verify_store(tmp_path / "streams", Path(node.archive_dir), Checked())
    assert "did not finish" in finding.what


def test_the_commands_name_their_problem_and_have_its_exit_code(node: NodeHandle, tmp_path: Path) -> None:
    folders = ("--streams-dir", str(tmp_path / "streams"), "--archive-dir", node.archive_dir)
    with serving(node, tmp_path) as server:
        write(server.streams.create(create_request("coded", 1, segment_bytes=TERM)), 0, {0: [b"x"]})
        back_up(tmp_path, "plain")
        back_up(tmp_path, "with key", "--with-identity")
        done = run_program("server", "backup", str(tmp_path / "plain"), "--streams-dir", str(tmp_path / "streams"))
        assert (done.code, "is not empty" in done.err) == (2, True)
        done = run_program("server", "verify", *folders)
        assert (done.code, f"is in use by server process {os.getpid()}" in done.err) == (3, True)
        server.streams.delete("coded")
    assert not (tmp_path / "plain" / "configuration").exists()
    assert (tmp_path / "with key" / "configuration" / "server").read_bytes() == (tmp_path / "server.key").read_bytes()
    done = run_program("server", "backup", str(tmp_path / "b"), "--streams-dir", str(tmp_path / "streams"))
    assert (done.code, "no server runs at the admin socket" in done.err) == (1, True)
    done = run_program("server", "verify", *folders)  # the node still runs
    assert (done.code, "is in use by node process" in done.err) == (3, True)
    copy = ("--streams-dir", str(tmp_path / "plain" / "streams"), "--archive-dir", str(tmp_path / "plain" / "archive"))
    assert run_program("server", "verify", *copy).code == 0
    (segment,) = (tmp_path / "plain" / "archive").glob("*.rec")
    segment.unlink()
    done = run_program("server", "verify", *copy, "--quick", "--json")
    assert done.code == 1
    finding, summary = done.lines
    assert (finding["stream"], finding["partition"], finding["start"]) == ("coded", 0, 0)
    assert "is missing" in finding["what"]
    assert summary["damages"] == 1
    done = run_program(
        "server", "restore", str(tmp_path / "plain"), "--streams-dir", str(tmp_path / "r1"), "--archive-dir",
        str(tmp_path / "r2"),
    )  # fmt: skip
    assert done.code == 1
    assert f"the backup is damaged: {segment}: it is missing" in done.err
    assert not (tmp_path / "r1").exists()
