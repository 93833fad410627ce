"""Aeron's own sample programs publish to the source and receive from the sink, on every kind of channel.

On UDP the programs use a second media driver, so their messages pass through sockets, as between two hosts.
"""

from __future__ import annotations

import re
import secrets
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from aeron_spark.direct.recordings import RecordingWarning
from aeron_spark.jobs.session import begin
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.streams import close_client
from tests.leaks import SHARED_MEMORY
from tests.ports import free_port
from tests.spark.foreign_programs import TIMEOUT_S, Program, run_program, run_sample
from tests.spark.queries import wait_for_query
from tests.spark.simulated_engine import (
    make_batch,
    make_numbered_batch,
    make_source,
    pickle_and_unpickle,
    read_table,
    save,
)
from tests.waiting import poll_until

MESSAGES: Final = 20_000
ROWS: Final = 500


@dataclass(frozen=True)
class ForeignDriver:
    """A media driver and archive that this package did not start."""

    aeron_dir: Path
    control: str


@dataclass(frozen=True)
class Channels:
    """The channels of a stream's publisher and subscriber."""

    publish: str
    subscribe: str
    network: bool = True


def ipc() -> Channels:
    return Channels("aeron:ipc", "aeron:ipc", network=False)


def unicast() -> Channels:
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    return Channels(channel, channel)


def multicast() -> Channels:
    channel = f"aeron:udp?endpoint=224.20.30.{1 + 2 * secrets.randbelow(120)}:{free_port()}|interface=localhost"
    return Channels(channel, channel)


def dynamic_mdc() -> Channels:
    control = f"control=127.0.0.1:{free_port()}|control-mode=dynamic"
    return Channels(f"aeron:udp?{control}", f"aeron:udp?endpoint=127.0.0.1:0|{control}")


KINDS: Final = (ipc, unicast, multicast, dynamic_mdc)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def foreign(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignDriver]:
    """The program io.aeron.archive.ArchivingMediaDriver, started as Aeron's manual describes."""
    folder = tmp_path_factory.mktemp("foreign")
    driver = ForeignDriver(SHARED_MEMORY / f"{run_name}-foreign", f"aeron:udp?endpoint=127.0.0.1:{free_port()}")
    settings = {
        "threading__mode": "SHARED",
        "archive__threading__mode": "SHARED",
        "dir__delete__on__shutdown": "true",
        "term__buffer__length": "1m",
        "spies__simulate__connection": "true",  # makes a recording count as a subscriber
        "archive__dir": folder / "archive",
        "archive__control__channel": driver.control,
        "archive__replication__channel": "aeron:udp?endpoint=127.0.0.1:0",
    }
    with run_program(folder, "archive.ArchivingMediaDriver", driver.aeron_dir, **settings) as running:

        def is_ready() -> bool:
            assert running.process.poll() is None, running.output
            return (driver.aeron_dir / "cnc.dat").exists() and (folder / "archive" / "archive.catalog").exists()

        wait_for(is_ready, TIMEOUT_S, "the foreign media driver")
        yield driver
        close_client(driver.aeron_dir)
    shutil.rmtree(driver.aeron_dir, ignore_errors=True)


def publish(folder: Path, aeron_dir: Path | str, channel: str, stream_id: int) -> None:
    """Run a sample that waits for a subscriber and publishes ``MESSAGES`` messages; wait for its end."""
    more = {"sample__messages": MESSAGES, "sample__messageLength": 100, "sample__exclusive__publications": "true"}
    with run_sample(folder, "StreamingPublisher", aeron_dir, channel, stream_id, **more) as publisher:
        publisher.wait_for_output("Done streaming")


def unpack_numbers(values: Iterable[bytes]) -> list[int]:
    """Return the numbers that the sample writes at the beginning of each message."""
    return [struct.unpack_from("<q", value)[0] for value in values]


@every_kind
def test_the_simulated_engine_reads_the_messages_of_a_foreign_publisher(
    node: NodeHandle, foreign: ForeignDriver, tmp_path: Path, kind: Callable[[], Channels]
) -> None:
    """The stream is recorded only when the query starts its recording, as in Spark."""
    channels, stream_id = kind(), 500 + KINDS.index(kind)
    options = {"channel": channels.subscribe, "streamId": str(stream_id), "aeronDir": node.aeron_dir}
    source = make_source(options, startingOffsets="earliest")
    reader = source.streamReader(source.schema())
    with pytest.warns(RecordingWarning):
        start = pickle_and_unpickle(reader.initialOffset())
    publish(tmp_path, foreign.aeron_dir if channels.network else node.aeron_dir, channels.publish, stream_id)
    found: list[bytes] = []

    def all_read() -> bool:
        nonlocal start
        end = pickle_and_unpickle(reader.latestOffset(start, reader.getDefaultReadLimit()))
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                found.extend(batch.column("value").to_pylist())
        start = end
        return len(found) >= MESSAGES

    poll_until(all_read, TIMEOUT_S, "all messages", state=lambda: str(len(found)))
    assert unpack_numbers(found) == list(range(MESSAGES))
    assert {len(value) for value in found} == {100}


def test_spark_reads_the_messages_of_a_foreign_publisher(spark: SparkSession, node: NodeHandle, tmp_path: Path) -> None:
    stream_id, table = 100, "published"
    options = {"channel": "aeron:ipc", "streamId": str(stream_id), "aeronDir": node.aeron_dir}
    stream = spark.readStream.format("aeron").options(payload="raw", startingOffsets="earliest", **options).load()
    # each start makes a new checkpoint folder
    query = begin(stream.writeStream.format("memory").queryName(table).start)
    try:
        # The query starts the recording of the stream, for which the sample waits.
        publish(tmp_path, node.aeron_dir, "aeron:ipc", stream_id)

        def count_rows() -> int:
            return sum(progress.numInputRows for progress in query.recentProgress)

        wait_for_query(query, "all rows", lambda: count_rows() >= MESSAGES)
    finally:
        query.stop()
    rows = spark.table(table).select("value", "position", "streamId", "sessionId").collect()
    assert unpack_numbers(row.value for row in sorted(rows, key=lambda row: row.position)) == list(range(MESSAGES))
    assert {len(row.value) for row in rows} == {100}
    assert {row.streamId for row in rows} == {stream_id}
    assert len({row.sessionId for row in rows}) == 1


@every_kind
def test_a_foreign_subscriber_receives_the_rows_of_the_sink(
    node: NodeHandle, foreign: ForeignDriver, tmp_path: Path, kind: Callable[[], Channels]
) -> None:
    channels, stream_id = kind(), 200 + KINDS.index(kind)
    options = {"channel": channels.publish, "streamId": str(stream_id), "aeronDir": node.aeron_dir}
    aeron_dir = foreign.aeron_dir if channels.network else node.aeron_dir
    texts = [f"row {number} of Spark" for number in range(ROWS)]
    with run_sample(tmp_path, "BasicSubscriber", aeron_dir, channels.subscribe, stream_id) as subscriber:
        subscriber.wait_for_output("Subscribing to")
        save(options, [make_batch(*texts)], ack="driver", connectTimeout="60s")
        subscriber.wait_for_output(f"<<{texts[-1]}>>")
        assert received_rows(subscriber) == texts


def received_rows(subscriber: Program) -> list[str]:
    return re.findall("<<(row .*?)>>", subscriber.output)


def test_a_foreign_subscriber_measures_the_rate_of_the_sink(node: NodeHandle, tmp_path: Path) -> None:
    options = {"channel": "aeron:ipc", "streamId": "300", "aeronDir": node.aeron_dir, "ack": "driver"}
    with run_sample(tmp_path, "RateSubscriber", node.aeron_dir, "aeron:ipc", 300) as subscriber:
        subscriber.wait_for_output("Subscribing to")
        save(options, [make_numbered_batch(0, 5_000, 1_000)], connectTimeout="60s")
        subscriber.wait_for_output("totals 5,?000 messages")


def test_a_query_reads_a_recording_of_a_foreign_archive(
    foreign: ForeignDriver, node: NodeHandle, tmp_path: Path
) -> None:
    channel, stream_id = f"aeron:udp?endpoint=127.0.0.1:{free_port()}", 400
    more = {
        "sample__messages": 3,  # one a second
        "sample__lingerTimeout": 0,
        "archive__control__channel": foreign.control,
        "archive__control__response__channel": "aeron:udp?endpoint=127.0.0.1:0",
    }
    with run_sample(
        tmp_path, "archive.RecordedBasicPublisher", foreign.aeron_dir, channel, stream_id, **more
    ) as publisher:
        recording = int(publisher.wait_for_output(r"recordingId = (\d+)").group(1))
        publisher.wait_for_output("Done sending")
        wait_for(lambda: publisher.process.poll() is not None, TIMEOUT_S, "the publisher to end")
    # The query connects through the foreign driver, and then through the node's driver, which sends to it over UDP.
    for aeron_dir in (str(foreign.aeron_dir), node.aeron_dir):
        options = {"channel": channel, "streamId": str(stream_id), "archive": foreign.control, "aeronDir": aeron_dir}
        rows = read_table(options, record="never").to_pylist()
        assert [row["value"].rstrip(b"\0").decode() for row in rows] == [f"Hello World! {n}" for n in range(3)]
        assert {(row["recordingId"], row["streamId"]) for row in rows} == {(recording, stream_id)}
