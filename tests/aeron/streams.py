"""Streams of one test: this process publishes them, and the archive of a node records them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from aeron_spark import node as nodes
from aeron_spark.aeron import client as clients
from aeron_spark.aeron.archive import Archive, archive_of
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.publications import BatchPublication
from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.direct.writing import PUBLICATIONS, DirectAppender
from aeron_spark.log.writing import Source
from aeron_spark.node import NodeHandle
from aeron_spark.options import WriteOptions
from aeron_spark.waiting import Deadline, wait_for
from tests.nodes import new_aeron_dir, remove_node

TIMEOUT_S: Final = 120.0  # an idle machine needs milliseconds
HEADER_LENGTH: Final = 32
# The workers of a run share nodes. A server's store takes ids that are higher than those of all recordings.
_ids = itertools.count(5_001 + 10_000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")))


def frame(length: int) -> int:
    """Return the bytes in the log of an unfragmented message of ``length`` bytes."""
    return -(-(HEADER_LENGTH + length) // HEADER_LENGTH) * HEADER_LENGTH


class PublishedRecording:
    """A publication of a stream, and its recording."""

    def __init__(self, stream: Stream, publication: BatchPublication, recording_id: int) -> None:
        self.stream = stream
        self.publication = publication
        self.recording_id = recording_id

    @property
    def key(self) -> str:
        """The name of the recording in offsets."""
        return f"{self.stream.address.name}/{self.recording_id}"

    @property
    def position(self) -> int:
        """The position after the last message."""
        return self.publication.position

    def send(self, values: Iterable[bytes], reserved: Sequence[int] | None = None) -> list[int]:
        """Publish each value as a message and wait until all are recorded; return the position of each."""
        positions = []
        for index, value in enumerate(values):
            array = pa.array([value], pa.binary())
            extra = None if reserved is None else pa.array([reserved[index]], pa.int64())
            deadline = Deadline(TIMEOUT_S, "room to publish")
            while self.publication.offer_values(array, extra, 0)[0] == 0:
                deadline.idle()
            length, limit = len(value), int(self.publication.publication.maxPayloadLength())
            fragments = [limit] * (length // limit) + ([length % limit] if length % limit or not length else [])
            # Padding may precede a message at the end of a term, so its position is computed from its end.
            positions.append(self.publication.position - sum(frame(fragment) for fragment in fragments))
        self.wait_recorded()
        return positions

    def wait_recorded(self) -> None:
        """Wait until all published messages are recorded."""
        wait_for(
            lambda: self.stream.archive.position(self.recording_id) >= self.position, TIMEOUT_S, f"recording {self.key}"
        )

    def stop(self) -> int:
        """Close the publication and wait until its recording has stopped; return the stop position."""
        self.publication.close()
        return wait_for(lambda: self.descriptor.stop_position, TIMEOUT_S, f"recording {self.key} to stop")

    @property
    def descriptor(self) -> Recording:
        """The archive's description of the recording."""
        found = self.stream.archive.recording(self.recording_id)
        assert found is not None
        return found


class Stream:
    """A channel and a stream id of one test, on the driver and archive of ``handle``."""

    def __init__(self, handle: NodeHandle, channel: str = "aeron:ipc", address: ArchiveAddress | None = None) -> None:
        self.handle = handle
        self.channel = channel
        self.id = next(_ids)
        self.address = embedded(handle) if address is None else address
        self.open: list[PublishedRecording] = []

    @property
    def archive(self) -> Archive:
        """This process's session with the archive."""
        return archive_of(self.address)

    @property
    def options(self) -> dict[str, str]:
        """The options that name this stream."""
        return {"channel": self.channel, "streamId": str(self.id), "aeronDir": self.handle.aeron_dir}

    def record(self) -> Stream:
        self.archive.start_recording(self.channel, self.id)
        return self

    def publisher(self, **parameters: object) -> PublishedRecording:
        """Open a publication with further channel ``parameters``, and wait for its recording."""
        publication = BatchPublication(client_of(self.handle.aeron_dir), _with(self.channel, parameters), self.id)
        found = wait_for(
            lambda: self.archive.recording_of_session(publication.session_id, self.id), TIMEOUT_S, "a recording"
        )
        publishing = PublishedRecording(self, publication, found)
        self.open.append(publishing)
        return publishing

    def extend(self, stopped: PublishedRecording) -> PublishedRecording:
        """Extend a stopped recording with a new publication, as a restarted publisher does."""
        was = stopped.descriptor
        assert was.stop_position is not None
        # otherwise the archive would record the new publication a second time
        self.archive.stop_recording(self.channel, self.id)
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
        """Append rows in the wire format, as the sink does, with ``clock`` as the publish time."""
        written = WriteOptions.parse({**self.options, "record": "auto", **options}, streaming=False)
        appender = DirectAppender(written, Source("test", 1, 0), clock=lambda: clock)
        if payload == "framed":
            appender.framed(rows)
        else:
            appender.arrow(rows)
        appender.finish()

    def close(self) -> None:
        """Close the publications of this stream; its recordings stay."""
        for publishing in self.open:
            if not publishing.publication.closed:
                publishing.publication.close()


def _with(channel: str, parameters: Mapping[str, object]) -> str:
    if not parameters:
        return channel
    more = "|".join(f"{name}={value}" for name, value in parameters.items())
    return f"{channel}{'|' if '?' in channel else '?'}{more}"


def numbered(first: int, last: int, length: int = 100) -> list[bytes]:
    """Return values of ``length`` bytes that contain their numbers."""
    return [f"{number}.".encode().ljust(length, b"-") for number in range(first, last)]


def number(value: bytes | bytearray) -> int:
    """Return the number that :func:`numbered` gave a value."""
    return int(bytes(value).split(b".", 1)[0])


def close_everything() -> None:
    """Close this process's publications, archive sessions and clients, before their driver ends."""
    for key in PUBLICATIONS.cached_keys():
        publication = PUBLICATIONS.take(key)
        if publication is not None:
            publication.close()
    for aeron_dir in clients.CLIENTS.cached_keys():
        clients.close_client(aeron_dir)


def close_client(aeron_dir: str | Path) -> None:
    """Close this process's client of one driver, before that driver ends; clients of other drivers stay open."""
    clients.close_client(str(aeron_dir))


@contextmanager
def own_node(run_name: str, **settings: Any) -> Iterator[NodeHandle]:
    """Run a node for one fixture, and remove its directories afterwards."""
    aeron_dir = new_aeron_dir(run_name)
    try:
        with nodes.ensure(aeron_dir, **{"term_length": "256k", "ipc_term_length": "256k", **settings}) as handle:
            yield handle
    finally:
        remove_node(aeron_dir)


def open_stream(handle: NodeHandle) -> Iterator[Stream]:
    """Yield one stream, and close it afterwards; for a fixture."""
    stream = Stream(handle)
    yield stream
    stream.close()
