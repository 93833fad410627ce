"""Streams of a test's own: published in this process, recorded by the archive of a node, waited for, changed."""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from aeron_spark import node as nodes
from aeron_spark.aeron import client as clients
from aeron_spark.aeron.archive import Archive, ArchiveAddress, Recording, archive_of
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.publication import BatchPublication
from aeron_spark.direct.appender import DirectAppender
from aeron_spark.direct.archives import embedded
from aeron_spark.direct.publisher import close_all as close_publications
from aeron_spark.log.writing import Source
from aeron_spark.node import NodeHandle
from aeron_spark.options import WriteOptions
from aeron_spark.waiting import Deadline, wait_for
from tests.leaks import SHARED_MEMORY

PATIENCE: Final = 120.0  # seconds; a slow machine may need some of them, an idle one milliseconds
HEADER: Final = 32
_ids = itertools.count(5_001)


def frame(length: int) -> int:
    """Return the bytes of the log that a message of ``length`` takes, where it is not fragmented."""
    return -(-(HEADER + length) // HEADER) * HEADER


class Publishing:
    """One publisher session of a stream, and its recording."""

    def __init__(self, stream: Stream, offering: BatchPublication, recording_id: int) -> None:
        self.stream = stream
        self.offering = offering
        self.recording_id = recording_id

    @property
    def key(self) -> str:
        """The recording as offsets name it."""
        return f"{self.stream.address.name}/{self.recording_id}"

    @property
    def position(self) -> int:
        """The position behind the last message."""
        return self.offering.position

    def send(self, values: Iterable[bytes], reserved: Sequence[int] | None = None) -> list[int]:
        """Publish each value as a message and wait until all are recorded; return where each begins."""
        positions = []
        for index, value in enumerate(values):
            array = pa.array([value], pa.binary())
            extra = None if reserved is None else pa.array([reserved[index]], pa.int64())
            deadline = Deadline(PATIENCE, "room to publish")
            while self.offering.offer_values(array, extra, 0)[0] == 0:
                deadline.idle()
            length, most = len(value), int(self.offering.publication.maxPayloadLength())
            pieces = [most] * (length // most) + ([length % most] if length % most or not length else [])
            # Padding to the end of a term comes before a message, so its place is known from its end.
            positions.append(self.offering.position - sum(frame(piece) for piece in pieces))
        self.recorded()
        return positions

    def recorded(self) -> None:
        """Wait until everything published is recorded."""
        wait_for(
            lambda: self.stream.archive.position(self.recording_id) >= self.position, PATIENCE, f"recording {self.key}"
        )

    def stop(self) -> int:
        """Close the publication and wait until its recording has stopped; return where."""
        self.offering.close()
        return wait_for(lambda: self.descriptor.stop_position, PATIENCE, f"recording {self.key} to stop")

    @property
    def descriptor(self) -> Recording:
        """What the archive says of the recording."""
        found = self.stream.archive.recording(self.recording_id)
        assert found is not None
        return found


class Stream:
    """A channel and a stream id that no other test has, on the driver and archive of ``handle``."""

    def __init__(self, handle: NodeHandle, channel: str = "aeron:ipc", address: ArchiveAddress | None = None) -> None:
        self.handle = handle
        self.channel = channel
        self.id = next(_ids)
        self.address = embedded(handle) if address is None else address
        self.open: list[Publishing] = []

    @property
    def archive(self) -> Archive:
        """This process's session with the archive."""
        return archive_of(self.address)

    @property
    def options(self) -> dict[str, str]:
        """The options that name this stream."""
        return {"channel": self.channel, "streamId": str(self.id), "aeronDir": self.handle.aeron_dir}

    def record(self) -> Stream:
        """Have the stream recorded from now on."""
        self.archive.start_recording(self.channel, self.id)
        return self

    def publisher(self, **parameters: object) -> Publishing:
        """Open a publication with further channel ``parameters``; the stream is recorded, so it becomes a recording."""
        offering = BatchPublication(client_of(self.handle.aeron_dir), _with(self.channel, parameters), self.id)
        found = wait_for(
            lambda: self.archive.recording_of_session(offering.session_id, self.id), PATIENCE, "a recording"
        )
        publishing = Publishing(self, offering, found)
        self.open.append(publishing)
        return publishing

    def extend(self, stopped: Publishing) -> Publishing:
        """Go on with a stopped recording in a new publication, as a publisher does that was started again."""
        was = stopped.descriptor
        assert was.stop_position is not None
        self.archive.stop_recording(self.channel, self.id)  # what records every publication would record it twice
        location = jclass("io.aeron.archive.codecs.SourceLocation").LOCAL
        self.archive.java.extendRecording(stopped.recording_id, self.channel, self.id, location)
        bits = was.term_length.bit_length() - 1
        publishing = self.publisher(
            **{
                "init-term-id": was.initial_term_id,
                "term-id": was.initial_term_id + (was.stop_position >> bits),
                "term-offset": was.stop_position & (was.term_length - 1),
                "term-length": was.term_length,
                "mtu": was.mtu,
            }
        )
        assert publishing.recording_id == stopped.recording_id
        return publishing

    def append(self, payload: str, rows: pa.Array[Any] | pa.RecordBatch, clock: int, **options: str) -> None:
        """Append in the wire format, as the sink does, with ``clock`` as the time of publishing."""
        written = WriteOptions.parse({**self.options, "record": "auto", **options}, streaming=False)
        appender = DirectAppender(written, Source("test", 1, 0), clock=lambda: clock)
        if payload == "framed":
            appender.framed(rows)
        else:
            appender.arrow(rows)
        appender.finish()

    def close(self) -> None:
        """End what this stream has open; its recordings stay."""
        for publishing in self.open:
            if not publishing.offering.closed:
                publishing.offering.close()


def _with(channel: str, parameters: Mapping[str, object]) -> str:
    if not parameters:
        return channel
    more = "|".join(f"{name}={value}" for name, value in parameters.items())
    return f"{channel}{'|' if '?' in channel else '?'}{more}"


def numbered(first: int, last: int, length: int = 100) -> list[bytes]:
    """Return values that say their number, ``length`` bytes each: log bytes and rows are easy to tell from them."""
    return [f"{number}.".encode().ljust(length, b"-") for number in range(first, last)]


def number(value: bytes | bytearray) -> int:
    """Return the number that :func:`numbered` gave a value."""
    return int(bytes(value).split(b".", 1)[0])


def close_everything() -> None:
    """End this process's publications, archive sessions and clients, before their driver goes."""
    close_publications()
    clients.close_all()


def close_client(aeron_dir: str | Path) -> None:
    """End what this process has at one driver, before that goes; clients of other drivers live on."""
    clients.close_client(str(aeron_dir))


@contextmanager
def own_node(run_name: str, **settings: Any) -> Iterator[NodeHandle]:
    """Run a node of a fixture's own; nothing is left of it afterwards."""
    aeron_dir = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    try:
        with nodes.ensure(aeron_dir, **{"term_length": "256k", "ipc_term_length": "256k", **settings}) as handle:
            yield handle
        close_client(aeron_dir)
    finally:
        nodes.stop(aeron_dir, force=True, timeout=30)
        shutil.rmtree(aeron_dir, ignore_errors=True)
        shutil.rmtree(nodes.local_node_paths(aeron_dir).folder, ignore_errors=True)


def streams_of(handle: NodeHandle) -> Iterator[Stream]:
    """For a fixture: one stream, closed at its end."""
    stream = Stream(handle)
    yield stream
    stream.close()
