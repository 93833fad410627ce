"""Foreign programs feed the source and receive from the sink, on every kind of channel: Aeron's own samples.

On UDP they use a media driver of their own, beside the node's: what they say goes over sockets, as from another host.
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
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from spark_jobs.session import begin
from tests.aeron.streams import close_client
from tests.leaks import SHARED_MEMORY
from tests.spark.foreign_programs import TIMEOUT_S, Program, find_free_port, run_program, run_sample
from tests.spark.queries import wait_for_query
from tests.spark.simulated_engine import make_source, pickle_and_unpickle, read_table
from tests.waiting import poll_until

MESSAGES: Final = 20_000
ROWS: Final = 500


@dataclass(frozen=True)
class Driver:
    """A media driver and archive of somebody else."""

    aeron_dir: Path
    control: str


@dataclass(frozen=True)
class Channels:
    """A stream as its two sides name it."""

    publish: str
    subscribe: str
    network: bool = True


def ipc() -> Channels:
    return Channels("aeron:ipc", "aeron:ipc", network=False)


def unicast() -> Channels:
    channel = f"aeron:udp?endpoint=127.0.0.1:{find_free_port()}"
    return Channels(channel, channel)


def multicast() -> Channels:
    channel = f"aeron:udp?endpoint=224.20.30.{1 + 2 * secrets.randbelow(120)}:{find_free_port()}|interface=localhost"
    return Channels(channel, channel)


def dynamic_mdc() -> Channels:
    control = f"control=127.0.0.1:{find_free_port()}|control-mode=dynamic"
    return Channels(f"aeron:udp?{control}", f"aeron:udp?endpoint=127.0.0.1:0|{control}")


KINDS: Final = (ipc, unicast, multicast, dynamic_mdc)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def foreign(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """io.aeron.archive.ArchivingMediaDriver, started as its own manual says."""
    place = tmp_path_factory.mktemp("foreign")
    driver = Driver(SHARED_MEMORY / f"{run_name}-foreign", f"aeron:udp?endpoint=127.0.0.1:{find_free_port()}")
    settings = {
        "threading__mode": "SHARED",
        "archive__threading__mode": "SHARED",
        "dir__delete__on__shutdown": "true",
        "term__buffer__length": "1m",
        "spies__simulate__connection": "true",  # so that a recording is listener enough
        "archive__dir": place / "archive",
        "archive__control__channel": driver.control,
        "archive__replication__channel": "aeron:udp?endpoint=127.0.0.1:0",
    }
    with run_program(place, "archive.ArchivingMediaDriver", driver.aeron_dir, **settings) as running:

        def ready() -> bool:
            assert running.process.poll() is None, running.output
            return (driver.aeron_dir / "cnc.dat").exists() and (place / "archive" / "archive.catalog").exists()

        wait_for(ready, TIMEOUT_S, "the foreign media driver")
        yield driver
        close_client(driver.aeron_dir)
    shutil.rmtree(driver.aeron_dir, ignore_errors=True)


def published(place: Path, directory: Path | str, channel: str, stream_id: int) -> None:
    """Run a sample that offers until somebody listens, and then so many messages, and wait for its end."""
    more = {"sample__messages": MESSAGES, "sample__messageLength": 100, "sample__exclusive__publications": "true"}
    with run_sample(place, "StreamingPublisher", directory, channel, stream_id, **more) as publisher:
        publisher.wait_for_output("Done streaming")


def first_words(values: Iterable[bytes]) -> list[int]:
    """Return the number that the sample writes at the beginning of each message."""
    return [struct.unpack_from("<q", value)[0] for value in values]


@every_kind
def test_a_foreign_publisher_feeds_the_source_driven_by_hand(
    node: NodeHandle, foreign: Driver, tmp_path: Path, kind: Callable[[], Channels]
) -> None:
    """Until its first batch nobody records: the query does that, as Spark's would."""
    channels, stream_id = kind(), 500 + KINDS.index(kind)
    options = {"channel": channels.subscribe, "streamId": str(stream_id), "aeronDir": node.aeron_dir}
    source = make_source(options, startingOffsets="earliest")
    reader = source.streamReader(source.schema())
    with pytest.warns(RecordingWarning):
        start = pickle_and_unpickle(reader.initialOffset())
    published(tmp_path, foreign.aeron_dir if channels.network else node.aeron_dir, channels.publish, stream_id)
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
    assert first_words(found) == list(range(MESSAGES))
    assert {len(value) for value in found} == {100}


@pytest.mark.parametrize(
    "kind",
    [
        ipc,
        *(
            pytest.param(kind, marks=pytest.mark.full("the source driven by hand takes in the same; ipc is with Spark"))
            for kind in KINDS[1:]
        ),
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_foreign_publisher_feeds_the_source(
    spark: SparkSession,
    node: NodeHandle,
    foreign: Driver,
    tmp_path: Path,
    kind: Callable[[], Channels],
) -> None:
    channels, stream_id = kind(), 100 + KINDS.index(kind)
    options = {"channel": channels.subscribe, "streamId": str(stream_id), "aeronDir": node.aeron_dir}
    table = f"fed_by_{kind.__name__}"
    stream = spark.readStream.format("aeron").options(payload="raw", startingOffsets="earliest", **options).load()
    query = begin(stream.writeStream.format("memory").queryName(table).start)  # with a checkpoint of each start's own
    try:
        # The query is what has the stream recorded; the sample then offers until somebody listens.
        directory = foreign.aeron_dir if channels.network else node.aeron_dir
        published(tmp_path, directory, channels.publish, stream_id)

        def rows_so_far() -> int:
            return sum(progress.numInputRows for progress in query.recentProgress)

        wait_for_query(query, "all rows", lambda: rows_so_far() >= MESSAGES)
    finally:
        query.stop()
    rows = spark.table(table).select("value", "position", "streamId", "sessionId").collect()
    assert first_words(row.value for row in sorted(rows, key=lambda row: row.position)) == list(range(MESSAGES))
    assert {len(row.value) for row in rows} == {100}
    assert {row.streamId for row in rows} == {stream_id}
    assert len({row.sessionId for row in rows}) == 1


@every_kind
def test_a_foreign_subscriber_receives_from_the_sink(
    spark: SparkSession,
    node: NodeHandle,
    foreign: Driver,
    tmp_path: Path,
    kind: Callable[[], Channels],
) -> None:
    channels, stream_id = kind(), 200 + KINDS.index(kind)
    options = {"channel": channels.publish, "streamId": str(stream_id), "aeronDir": node.aeron_dir}
    directory = foreign.aeron_dir if channels.network else node.aeron_dir
    texts = [f"row {number} of Spark" for number in range(ROWS)]
    with run_sample(tmp_path, "BasicSubscriber", directory, channels.subscribe, stream_id) as subscriber:
        subscriber.wait_for_output("Subscribing to")
        frame = spark.range(0, ROWS, 1, 1).selectExpr("concat('row ', id, ' of Spark') as value")
        write = frame.write.format("aeron").mode("append")
        write.options(ack="driver", connectTimeout="60s", **options).save()
        subscriber.wait_for_output(f"<<{texts[-1]}>>")
        assert received(subscriber) == texts


def received(subscriber: Program) -> list[str]:
    return re.findall("<<(row .*?)>>", subscriber.output)


def test_the_sink_can_be_measured_by_a_foreign_rate_subscriber(
    spark: SparkSession,
    node: NodeHandle,
    tmp_path: Path,
) -> None:
    options = {"channel": "aeron:ipc", "streamId": "300", "aeronDir": node.aeron_dir, "ack": "driver"}
    with run_sample(tmp_path, "RateSubscriber", node.aeron_dir, "aeron:ipc", 300) as subscriber:
        subscriber.wait_for_output("Subscribing to")
        frame = spark.range(0, 5_000, 1, 1).selectExpr("rpad(string(id), 1000, '.') as value")
        frame.write.format("aeron").mode("append").options(connectTimeout="60s", **options).save()
        subscriber.wait_for_output("totals 5,?000 messages")


def test_a_recording_made_in_a_foreign_archive_is_read(foreign: Driver, node: NodeHandle, tmp_path: Path) -> None:
    channel, stream_id = f"aeron:udp?endpoint=127.0.0.1:{find_free_port()}", 400
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
    # Through the foreign driver as well as through the node's own, which reaches the archive over the network.
    for aeron_dir in (str(foreign.aeron_dir), node.aeron_dir):
        options = {"channel": channel, "streamId": str(stream_id), "archive": foreign.control, "aeronDir": aeron_dir}
        rows = read_table(options, record="never").to_pylist()
        assert [row["value"].rstrip(b"\0").decode() for row in rows] == [f"Hello World! {n}" for n in range(3)]
        assert {(row["recordingId"], row["streamId"]) for row in rows} == {(recording, stream_id)}
