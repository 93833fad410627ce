"""A store alters, renames, ends and reopens streams while writers and readers use them, and across restarts."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import OptionError, RefusedError, StillWorking, TransportError
from aeron_spark.node import NodeHandle
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.streams import definition as renaming
from aeron_spark.streams.definition import ADDITIVE, Definition
from aeron_spark.streams.schema_changes import serialize
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.stream_requests import NEXT_NUMBER, Transaction
from tests.aeron.stream_store.rows import SETTINGS, delete_streams, read_values, stage_rows, write
from tests.stream_requests import commit_request, create_request, empty_request, stage_request

ENDED_NS = 1_700_000_000 * 10**9


@pytest.fixture
def store(node: NodeHandle, tmp_path: Path) -> StreamStore:
    return StreamStore(tmp_path / "own", StoreParts(embedded(node), SETTINGS))


def end(store: StreamStore, name: str) -> None:
    store.alter(name, lambda definition: definition.ended(ENDED_NS))


def test_an_ended_stream_refuses_rows_and_repeats_commits(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    first = stage_rows(stream, 0, [(0, 0, [b"one"])])
    stream.commit(commit_request("w", "r", 0, first, producer="p"))
    staged = stage_rows(stream, 1, [(0, 0, [b"two"])])
    waiting = stream.when_beyond([state.end for state in stream.states()])
    end(streams, "a")
    assert waiting.result(0) is False
    assert streams.condition("a").state == "ended"
    refused: list[Callable[[], object]] = [
        partial(stream.begin, Transaction("w", "r", NEXT_NUMBER)), partial(stream.begin, Transaction("x", "r", 0)),
        partial(stream.commit_empty, empty_request("w", "r", 2)),
        partial(stream.commit, commit_request("w", "r", 1, staged)),
        partial(stream.open_stage, stage_request("w", "r", 1, 0, 0, "raw")),
    ]  # fmt: skip
    for attempt in refused:
        with pytest.raises(RefusedError, match="was ended at 2023-11-14T22:13:20Z") as error:
            attempt()
        assert error.value.reason == "ended"
    assert stream.commit(commit_request("w", "r", 0, first, producer="p")).repeated
    assert stream.begin(Transaction("w", "r", 0, producer="p")).last == 0
    assert read_values(stream, 0) == [b"one"]
    streams.alter("a", Definition.reopened)
    assert not stream.commit(commit_request("w", "r", 1, staged)).repeated
    assert read_values(stream, 0) == [b"one", b"two"]


def test_no_row_follows_the_end_of_a_stream_that_ends_during_commits(streams: StreamStore) -> None:
    """Writers commit as fast as they can while the stream ends: its rows after the end are those at the end."""
    stream = streams.create(create_request("a", 1))
    committed: list[bytes] = []
    refused: list[str] = []
    begun = threading.Barrier(3, timeout=30)

    def write_until_refused(writer: str) -> None:
        begun.wait()
        for number in range(10_000):
            value = f"{writer}{number}".encode()
            try:
                write(stream, number, {0: [value]}, writer=writer)
            except RefusedError as error:
                refused.append(error.reason)
                return
            committed.append(value)

    threads = [threading.Thread(target=write_until_refused, args=(writer,)) for writer in ("v", "w")]
    for one in threads:
        one.start()
    begun.wait()
    while len(committed) < 10:
        assert any(one.is_alive() for one in threads)
    end(streams, "a")
    at_end = read_values(stream, 0)
    for one in threads:
        one.join(30)
        assert not one.is_alive()
    assert refused == ["ended", "ended"]
    assert read_values(stream, 0) == at_end
    assert sorted(at_end) == sorted(committed)


def test_changes_of_a_stream_survive_a_restart(store: StreamStore, node: NodeHandle) -> None:
    stream = store.create(create_request("a", 2, retention_bytes=1 << 30))
    write(stream, 0, {0: [b"one"], 1: [b"two"]})
    stamp = stream.begin(Transaction("w", "r", 0)).stamp
    store.alter("a", lambda definition: definition.altered(retention_seconds=60.0, schema_policy="additive"))
    stream.claim_writer("w", "alice")
    renamed = store.rename("a", "b")
    assert read_values(renamed, 0) == [b"one"]
    end(store, "b")
    store.close()
    with StreamStore(store.folder, StoreParts(embedded(node), SETTINGS)) as again:
        assert again.names == ["b"]
        found = again.get("b")
        kept = found.definition
        assert (kept.retention_bytes, kept.retention_seconds, kept.schema_policy) == (1 << 30, 60.0, "additive")
        assert (kept.is_ended, kept.names_before, kept.original_name) == (True, ("a",), "a")
        assert [read_values(found, partition) for partition in (0, 1)] == [[b"one"], [b"two"]]
        assert found.begin(Transaction("w", "r2", 0, acknowledged=0, stamp=stamp)).last == 0
        with pytest.raises(RefusedError, match="belongs to another key"):
            found.claim_writer("w", "bob")
        with pytest.raises(OptionError, match="stream 'a' was renamed to 'b'"):
            again.get("a")
        again.alter("b", Definition.reopened)
        write(found, 1, {0: [b"three"]}, run="r2")
        assert read_values(found, 0) == [b"one", b"three"]
    delete_streams(again, node)


class Crash(Exception):
    """The server's process ends here."""


@pytest.mark.parametrize("step", ["write_definition", "rename", "sync_folder"])
def test_a_start_finishes_or_forgets_a_rename_that_a_crash_interrupted(
    store: StreamStore, node: NodeHandle, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise Crash

    stream = store.create(create_request("a", 1))
    write(stream, 0, {0: [b"one"]})
    with monkeypatch.context() as patch:
        patch.setattr(StreamStore, "_open_stream", crash)  # the process is gone, and opens nothing again
        if step == "rename":
            patch.setattr(Path, "rename", crash)
        else:
            patch.setattr(renaming, step, crash)
        with pytest.raises(Crash):
            store.rename("a", "b")
    store.close()
    with StreamStore(store.folder, StoreParts(embedded(node), SETTINGS)) as again:
        name = "a" if step == "write_definition" else "b"
        assert again.names == [name]
        assert again.condition(name).state == "ok"
        write(again.get(name), 1, {0: [b"two"]})
        assert read_values(again.get(name), 0) == [b"one", b"two"]
    delete_streams(again, node)


@pytest.mark.parametrize(("step", "name"), [("write_definition", "a"), ("rename", "a"), ("sync_folder", "b")])
def test_a_stream_is_served_after_a_rename_that_the_disk_did_not_allow(
    streams: StreamStore, monkeypatch: pytest.MonkeyPatch, step: str, name: str
) -> None:
    stream = streams.create(create_request("a", 1))
    write(stream, 0, {0: [b"one"]})

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def fail_to_write(folder: Path, *_: object) -> None:
        raise TransportError(f"{folder} cannot be written")

    with monkeypatch.context() as patch:
        if step == "rename":
            patch.setattr(Path, "rename", fail)
        else:
            patch.setattr(renaming, step, fail if step == "sync_folder" else fail_to_write)
        with pytest.raises(TransportError):
            streams.rename("a", "b")
    assert streams.names == [name]
    assert streams.condition(name).state == "ok"
    write(streams.get(name), 1, {0: [b"two"]})
    assert read_values(streams.get(name), 0) == [b"one", b"two"]


def test_a_renamed_stream_keeps_its_leases_and_its_former_name_can_be_used(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    write(stream, 0, {0: [b"one"]})
    stream.lease("reader", {0: 0}, 60.0, "alice")
    waiting = stream.when_beyond([1 << 40])
    renamed = streams.rename("a", "b")
    assert [(lease.owner, lease.reader) for lease in renamed.live_leases()] == [("alice", "reader")]
    for use in (stream.states, partial(waiting.result, 0), partial(streams.get, "a")):
        with pytest.raises(OptionError, match="stream 'a' was renamed to 'b'"):
            use()
    assert streams.renamed_to("a") == "b"
    other = streams.create(create_request("a", 1))
    write(other, 0, {0: [b"other"]})
    assert (read_values(other, 0), read_values(renamed, 0)) == ([b"other"], [b"one"])
    streams.delete("a")
    assert read_values(renamed, 0) == [b"one"]
    with pytest.raises(OptionError, match="unknown stream 'a'"):
        streams.get("a")
    with pytest.raises(OptionError, match="stream 'b' exists already"):
        streams.rename("b", "b")
    with pytest.raises(OptionError, match="unknown stream 'c'"):
        streams.rename("c", "d")
    assert streams.rename("b", "a").definition.names_before == ("b",)


def test_a_stream_is_not_renamed_while_a_backup_copies_its_files(streams: StreamStore) -> None:
    streams.create(create_request("a", 1))
    with streams.holds.hold("backup", 60.0), pytest.raises(StillWorking, match="its files are in use for a backup"):
        streams.rename("a", "b")
    assert streams.rename("a", "b").definition.name == "b"


def test_a_schema_is_fixed_at_the_creation_and_after_a_restart(store: StreamStore, node: NodeHandle) -> None:
    narrow = serialize(pa.schema([pa.field("a", pa.int64())]))
    wide = serialize(pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())]))
    store.create(create_request("a", 1, schema=narrow))
    store.close()

    def check(stream: Stream) -> None:
        assert stream.content() == ("arrow", narrow)
        with pytest.raises(RefusedError, match="the data adds the columns 'b'") as error:
            stream.open_stage(stage_request("w", "r", 0, 0, 0, "arrow", wide))
        assert error.value.reason == "schema"

    with StreamStore(store.folder, StoreParts(embedded(node), SETTINGS)) as again:
        check(again.get("a"))
        again.alter("a", lambda definition: definition.altered(schema_policy="additive"))
        again.get("a").open_stage(stage_request("w", "r", 0, 0, 0, "arrow", wide))
    delete_streams(again, node)


def test_another_limit_of_columns_applies_to_open_streams(streams: StreamStore, live: LiveOptions) -> None:
    stream = streams.create(create_request("a", 1, schema_policy=ADDITIVE))
    two, three = (serialize(pa.schema([(name, pa.int8()) for name in names])) for names in ("ab", "abc"))

    live.replace(ServerOptions(max_columns=2))
    stream.open_stage(stage_request("w", "r", 0, 0, 0, "arrow", two))
    for request in (
        partial(stream.open_stage, stage_request("w", "r", 0, 0, 1, "arrow", three)),
        partial(streams.create, create_request("b", 1, schema=three)),
    ):
        with pytest.raises(RefusedError, match=r"the schema has more columns.* limit of 2 \(maxColumns\)"):
            request()
    live.replace(ServerOptions(max_columns=3))
    stream.open_stage(stage_request("w", "r", 0, 0, 2, "arrow", three))
    streams.create(create_request("b", 1, schema=three))
