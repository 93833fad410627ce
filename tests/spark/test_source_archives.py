"""Archives: this machine's own, somebody else's, elsewhere by UDP, several at once, guarded by credentials."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aeron_spark import node as nodes
from aeron_spark.aeron.archive import ArchiveAddress
from aeron_spark.direct.recordings import RecordingWarning
from aeron_spark.errors import ConnectError, OptionError, RefusedError, SetupError
from aeron_spark.node import NodeHandle
from tests.aeron.archives import foreign_archive, free_port, guarded_archive
from tests.aeron.streams import Stream, close_client, number, numbered, open_stream, own_node
from tests.spark.queries import CollectingSink, read_batch, read_stream, run_query, wait_for_query
from tests.spark.simulated_engine import Query, read_numbers, read_table

SECRET = "open sesame"


@dataclass(frozen=True)
class Remote:
    """A node whose archive is reached by UDP."""

    handle: NodeHandle
    control: str

    @property
    def uri(self) -> str:
        return f"aeron:udp?endpoint={self.control}"


@pytest.fixture(scope="module")
def remote(run_name: str) -> Iterator[Remote]:
    """An archive elsewhere: another driver's, with a control channel on the network."""
    control = f"127.0.0.1:{free_port()}"
    with own_node(run_name, control=control) as handle:
        yield Remote(handle, control)


def seen_from(node: NodeHandle, stream: Stream, archive: str) -> dict[str, str]:
    """Return the options for a stream of another node's archive, read by the driver of ``node``."""
    return {**stream.options, "aeronDir": node.aeron_dir, "archive": archive}


@pytest.fixture
def near(node: NodeHandle) -> Iterator[Stream]:
    """A stream on this node that nobody records yet."""
    yield from open_stream(node)


@pytest.fixture
def far(remote: Remote) -> Iterator[Stream]:
    """A recorded stream in the archive elsewhere."""
    for one in open_stream(remote.handle):
        yield one.record()


WAYS = {
    "ephemeral ports": {},
    "a port of one's own": {"responseChannel": "aeron:udp?endpoint=127.0.0.1:0"},
    "response channels": {"responseChannel": "response", "replayChannel": "response"},
}


@pytest.mark.parametrize("way", WAYS)
def test_an_archive_elsewhere_is_read_by_udp(node: NodeHandle, remote: Remote, far: Stream, way: str) -> None:
    options = {**seen_from(node, far, remote.uri), **WAYS[way]}
    publisher = far.publisher()
    publisher.send(numbered(0, 500, 1_000))
    assert read_numbers(options) == list(range(500))
    query = Query(options, maxRowsPerTrigger=300)
    assert list(query.run_batches()) == [list(range(300)), list(range(300, 500))]
    publisher.send(numbered(500, 510))
    assert list(query.run_batches()) == [list(range(500, 510))]
    assert set(query.last_offset["recordings"]) == {f"{remote.control}/{publisher.recording_id}"}


def test_an_alias_names_an_archive_whatever_its_address(node: NodeHandle, remote: Remote, far: Stream) -> None:
    publisher = far.publisher()
    publisher.send(numbered(0, 3))
    query = Query(seen_from(node, far, f"{remote.uri}|alias=desk"))
    assert query.run_batch() == [0, 1, 2]
    assert set(query.last_offset["recordings"]) == {f"desk/{publisher.recording_id}"}


def test_several_archives_are_one_stream_with_recordings_keyed_by_archive(
    spark: SparkSession, node: NodeHandle, remote: Remote, near: Stream, far: Stream, tmp_path: Path
) -> None:
    near.id = far.id
    near.record()
    first, second = near.publisher(), far.publisher()
    options = seen_from(node, far, f"embedded,{remote.uri}")
    seen = CollectingSink()
    with run_query(read_stream(spark, options, maxRowsPerTrigger=15), tmp_path, seen) as query:
        first.send(numbered(0, 20))
        second.send(numbered(100, 120))
        wait_for_query(query, "both archives", lambda: len(seen.numbers) >= 40)
        first.send(numbered(20, 25))
        wait_for_query(query, "more of one", lambda: len(seen.numbers) >= 45)
    assert seen.numbers == [*range(25), *range(100, 120)]
    assert max(seen.sizes) <= 15
    newest = max((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offset = json.loads(newest.read_text().splitlines()[-1])
    keys = {first.key, f"{remote.control}/{second.recording_id}"}
    assert set(offset["recordings"]) == keys
    with pytest.raises(
        OptionError, match=f"ids are not unique with several archives.*one of the archives {remote.control}, embedded"
    ):
        read_numbers(options, startingOffsets=json.dumps({str(first.recording_id): 0}))
    only = json.dumps({first.key: first.position, f"{remote.control}/{second.recording_id}": 0})
    assert read_numbers(options, startingOffsets=only) == list(range(100, 120))


def test_an_archive_that_is_not_there_is_named(node: NodeHandle, far: Stream) -> None:
    nobody = f"localhost:{free_port()}"
    said = (
        rf"no archive answered at aeron:udp\?endpoint={nobody} stream 10 within 1 s\. Start the archive, correct option"
    )
    with pytest.raises(ConnectError, match=said) as raised:  # finding U5
        read_numbers(seen_from(node, far, f"aeron:udp?endpoint={nobody}"), connectTimeout="1s")
    assert "Exception" not in str(raised.value), "no word of Java's"
    with pytest.raises(SetupError, match=r"^the host name 'no-such-host\.invalid' cannot be resolved") as unknown:
        read_numbers(seen_from(node, far, "aeron:udp?endpoint=no-such-host.invalid:8010"), connectTimeout="1s")
    assert "replayChannel" not in unknown.value.remedy, "no channel of one's own helps where the name is wrong"
    with pytest.raises(SetupError, match=r"^option 'credentialsFile': /no/such cannot be read: No such file"):
        read_numbers(seen_from(node, far, f"aeron:udp?endpoint={nobody}"), credentialsFile="/no/such")


def test_a_channel_nobody_records_is_put_on_record_and_that_is_said(near: Stream) -> None:
    query = Query(near.options)
    said = f"stream {near.id} of aeron:ipc was not recorded; earlier messages, if any, are lost"
    with pytest.warns(RecordingWarning, match=re.escape(said)):
        assert query.run_batch() == []
    near.publisher().send(numbered(0, 5))
    assert query.run_batch() == list(range(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Query(near.options).run_batch() == list(range(5)), "what is recorded needs no word"


def test_record_never_refuses_what_nobody_records_and_reads_what_somebody_did(near: Stream) -> None:
    with pytest.raises(OptionError, match=r"has no recording, and option 'record' is 'never'.*set option 'record'"):
        Query(near.options, record="never").request_initial_offset()
    publisher = near.record().publisher()
    publisher.send(numbered(0, 5))
    publisher.stop()
    near.archive.stop_recording(near.channel, near.id)
    assert Query(near.options, record="never").run_batch() == list(range(5))
    assert not near.archive.recorded_channels(near.id), "it must not be put on record"


@pytest.mark.full("test_foreign_programs has a query of Spark that puts a live channel on record")
def test_spark_puts_a_live_channel_on_record(spark: SparkSession, near: Stream, tmp_path: Path) -> None:
    seen = CollectingSink()
    with run_query(read_stream(spark, near.options), tmp_path, seen) as query:
        wait_for_query(query, "the stream to be recorded", lambda: bool(near.archive.recorded_channels(near.id)))
        near.publisher().send(numbered(0, 20))
        wait_for_query(query, "20 rows", lambda: len(seen.numbers) >= 20)
    assert seen.numbers == list(range(20))


def test_an_archive_with_credentials_is_read_with_them_and_refuses_without(
    node: NodeHandle, aeron_dir: Path, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(f"{SECRET}\n")
    wrong.write_text("friend")
    with guarded_archive(aeron_dir, tmp_path / "archive", SECRET) as control:
        address = ArchiveAddress("guarded", str(aeron_dir), "aeron:ipc?term-length=64k", credentials_file=str(right))
        with nodes.ensure(aeron_dir) as foreign:
            stream = Stream(foreign, address=address).record()
            stream.publisher().send(numbered(0, 30))
            options = seen_from(node, stream, f"aeron:udp?endpoint={control}")
            assert read_numbers(options, credentialsFile=right) == list(range(30))
            for given in ({}, {"credentialsFile": wrong}):
                with pytest.raises(RefusedError, match="credentialsFile") as raised:
                    read_numbers(options, **given)
                assert SECRET not in str(raised.value)
            stream.close()
        close_client(aeron_dir)


def test_somebody_else_s_archive_is_used_as_it_is(spark: SparkSession, aeron_dir: Path, tmp_path: Path) -> None:
    with foreign_archive(aeron_dir, tmp_path / "archive") as process:
        with nodes.ensure(aeron_dir) as handle:
            assert (handle.foreign, handle.pid) == (True, process.pid)
            stream = Stream(handle).record()
            publisher = stream.publisher()
            publisher.send(numbered(0, 50, 1_000))
            assert read_numbers(stream.options) == list(range(50))
            assert read_table(stream.options).num_rows == 50
            assert Query(stream.options, maxRowsPerTrigger=20).run_available_now() == [
                list(range(20)),
                list(range(20, 40)),
                list(range(40, 50)),
            ]
            rows = read_batch(spark, stream.options).collect()
            assert sorted(number(row.value) for row in rows) == list(range(50))
            assert process.poll() is None
            stream.close()
        close_client(aeron_dir)
