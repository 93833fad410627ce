"""Queries that read archives: the node's, a foreign one, one over UDP, several at once, one with credentials."""

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
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.direct.recordings import RecordingWarning
from aeron_spark.errors import ConnectError, OptionError, RefusedError, SetupError
from aeron_spark.node import NodeHandle
from tests.aeron.archives import foreign_archive, guarded_archive
from tests.aeron.streams import Stream, close_client, numbered, open_stream, own_node
from tests.ports import free_port
from tests.spark.queries import CollectingSink, read_stream, run_query, wait_for_query
from tests.spark.simulated_engine import Query, read_numbers, read_table

SECRET = "open sesame"


@dataclass(frozen=True)
class RemoteArchive:
    """A node, and the control endpoint at which UDP clients reach its archive."""

    handle: NodeHandle
    control: str

    @property
    def uri(self) -> str:
        return f"aeron:udp?endpoint={self.control}"


@pytest.fixture(scope="module")
def remote(run_name: str) -> Iterator[RemoteArchive]:
    """The archive of another media driver, with a control channel on UDP."""
    control = f"127.0.0.1:{free_port()}"
    with own_node(run_name, control=control) as handle:
        yield RemoteArchive(handle, control)


def remote_options(node: NodeHandle, stream: Stream, archive: str) -> dict[str, str]:
    """Return the options with which the driver of ``node`` reads a stream of another node's archive."""
    return {**stream.options, "aeronDir": node.aeron_dir, "archive": archive}


@pytest.fixture
def local_stream(node: NodeHandle) -> Iterator[Stream]:
    """A stream on the node, which is not recorded yet."""
    yield from open_stream(node)


@pytest.fixture
def remote_stream(remote: RemoteArchive) -> Iterator[Stream]:
    """A stream that the remote archive records."""
    for one in open_stream(remote.handle):
        yield one.record()


RESPONSE_CHANNELS = {
    "ephemeral ports": {},
    "an explicit channel": {"responseChannel": "aeron:udp?endpoint=127.0.0.1:0"},
    "response channels": {"responseChannel": "response", "replayChannel": "response"},
}


@pytest.mark.parametrize("channels", RESPONSE_CHANNELS)
def test_a_query_reads_a_remote_archive_over_udp(
    node: NodeHandle, remote: RemoteArchive, remote_stream: Stream, channels: str
) -> None:
    options = {**remote_options(node, remote_stream, remote.uri), **RESPONSE_CHANNELS[channels]}
    publisher = remote_stream.publisher()
    publisher.send(numbered(0, 500, 1_000))
    assert read_numbers(options) == list(range(500))
    query = Query(options, maxRowsPerTrigger=300)
    assert list(query.run_batches()) == [list(range(300)), list(range(300, 500))]
    publisher.send(numbered(500, 510))
    assert list(query.run_batches()) == [list(range(500, 510))]
    assert set(query.last_offset["recordings"]) == {f"{remote.control}/{publisher.recording_id}"}


def test_an_alias_names_an_archive_in_offsets_instead_of_its_address(
    node: NodeHandle, remote: RemoteArchive, remote_stream: Stream
) -> None:
    publisher = remote_stream.publisher()
    publisher.send(numbered(0, 3))
    query = Query(remote_options(node, remote_stream, f"{remote.uri}|alias=desk"))
    assert query.run_batch() == [0, 1, 2]
    assert set(query.last_offset["recordings"]) == {f"desk/{publisher.recording_id}"}


def test_a_query_of_several_archives_names_recordings_by_archive_and_id(
    spark: SparkSession,
    node: NodeHandle,
    remote: RemoteArchive,
    local_stream: Stream,
    remote_stream: Stream,
    tmp_path: Path,
) -> None:
    local_stream.id = remote_stream.id
    local_stream.record()
    first, second = local_stream.publisher(), remote_stream.publisher()
    options = remote_options(node, remote_stream, f"embedded,{remote.uri}")
    seen = CollectingSink()
    with run_query(read_stream(spark, options, maxRowsPerTrigger=15), tmp_path, seen) as query:
        first.send(numbered(0, 20))
        second.send(numbered(100, 120))
        wait_for_query(query, "both archives", lambda: len(seen.numbers) >= 40)
        first.send(numbered(20, 25))
        wait_for_query(query, "further rows of one archive", lambda: len(seen.numbers) >= 45)
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
    offsets = json.dumps({first.key: first.position, f"{remote.control}/{second.recording_id}": 0})
    assert read_numbers(options, startingOffsets=offsets) == list(range(100, 120))


def test_the_error_for_an_unreachable_archive_names_its_address(node: NodeHandle, remote_stream: Stream) -> None:
    unused = f"localhost:{free_port()}"
    text = (
        rf"no archive answered at aeron:udp\?endpoint={unused} stream 10 within 1 s\. Start the archive, correct option"
    )
    with pytest.raises(ConnectError, match=text) as raised:
        read_numbers(remote_options(node, remote_stream, f"aeron:udp?endpoint={unused}"), connectTimeout="1s")
    assert "Exception" not in str(raised.value), "the text must not be that of a Java exception"
    with pytest.raises(SetupError, match=r"^the host name 'no-such-host\.invalid' cannot be resolved") as unknown:
        read_numbers(
            remote_options(node, remote_stream, "aeron:udp?endpoint=no-such-host.invalid:8010"), connectTimeout="1s"
        )
    assert "replayChannel" not in unknown.value.remedy, (
        "another response channel does not help if the host name is wrong"
    )
    with pytest.raises(SetupError, match=r"^option 'credentialsFile': /no/such cannot be read: No such file"):
        read_numbers(remote_options(node, remote_stream, f"aeron:udp?endpoint={unused}"), credentialsFile="/no/such")


def test_a_query_starts_a_missing_recording_and_warns_about_it(local_stream: Stream) -> None:
    query = Query(local_stream.options)
    text = f"stream {local_stream.id} of aeron:ipc was not recorded; earlier messages, if any, are lost"
    with pytest.warns(RecordingWarning, match=re.escape(text)):
        assert query.run_batch() == []
    local_stream.publisher().send(numbered(0, 5))
    assert query.run_batch() == list(range(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Query(local_stream.options).run_batch() == list(range(5)), (
            "there must be no warning for a recorded stream"
        )


def test_with_record_never_a_query_reads_finished_recordings_and_fails_without_one(local_stream: Stream) -> None:
    with pytest.raises(OptionError, match=r"has no recording, and option 'record' is 'never'.*set option 'record'"):
        Query(local_stream.options, record="never").request_initial_offset()
    publisher = local_stream.record().publisher()
    publisher.send(numbered(0, 5))
    publisher.stop()
    local_stream.archive.stop_recording(local_stream.channel, local_stream.id)
    assert Query(local_stream.options, record="never").run_batch() == list(range(5))
    assert not local_stream.archive.recorded_channels(local_stream.id), "the query must not start a recording"


def test_an_archive_with_credentials_refuses_queries_without_the_right_ones(
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
            options = remote_options(node, stream, f"aeron:udp?endpoint={control}")
            assert read_numbers(options, credentialsFile=right) == list(range(30))
            for credentials in ({}, {"credentialsFile": wrong}):
                with pytest.raises(RefusedError, match="credentialsFile") as raised:
                    read_numbers(options, **credentials)
                assert SECRET not in str(raised.value)
            stream.close()
        close_client(aeron_dir)


def test_a_node_handle_uses_a_foreign_archive_without_changing_it(aeron_dir: Path, tmp_path: Path) -> None:
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
            assert process.poll() is None
            stream.close()
        close_client(aeron_dir)
