"""Appending to a stream directly: raw values, framed values, Arrow batches; at least once, acknowledged as asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.aeron.archive import ArchiveAddress
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archives import ArchiveConnections, StreamAddress, archives_of
from aeron_spark.direct.publisher import PublishAddress, Publisher
from aeron_spark.direct.recordings import check_audible
from aeron_spark.errors import ConnectError, DataFormatError, OptionError
from aeron_spark.log.writing import RowEncoder, Source
from aeron_spark.options import WriteOptions, direct_route
from aeron_spark.transport.channel import ChannelUri, refuse_archive_streams
from aeron_spark.wire.chunk import Header, Payload
from aeron_spark.wire.groups import split


class DirectAppender:
    """Appends to the stream of ``options`` for one task. Rows count up from 0 over everything appended.

    ``connected`` is called each time a publication has its subscriber, and its recording, before it publishes.
    """

    def __init__(
        self, options: WriteOptions, source: Source, *, clock: Callable[[], int] = time.time_ns,
        connected: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.options = options
        self._connected = connected
        self._encoder = RowEncoder(source, clock=clock, reuses_memory=True)
        self.way = direct_route(options.route)
        self._reach = archives_of(self.way)
        self._publishers: dict[tuple[str, int], Publisher] = {}

    @property
    def rows(self) -> int:
        """How many rows were appended."""
        return self._encoder.rows

    @property
    def dropped(self) -> int:
        """Messages that were dropped because nobody was connected (``whenUnconnected=drop``)."""
        return sum(publisher.dropped for publisher in self._publishers.values())

    def raw(
        self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None, at: tuple[str, int] | None = None
    ) -> None:
        """Append each value as one message, its bytes untouched. ``at``: another stream than the options'."""
        publisher = self._publisher(at)
        self._check_values(values, publisher.max_message_bytes)
        self._encoder.raw(values, reserved, _PublisherSink(publisher, publisher.max_message_bytes))

    def framed(
        self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None, at: tuple[str, int] | None = None
    ) -> None:
        """Append each value in the wire format, in chunks where it is larger than a message."""
        publisher = self._publisher(at)
        limit = self._limit(publisher)
        self._encoder.framed(values, reserved, _PublisherSink(publisher, limit), limit)

    def arrow(self, batch: pa.RecordBatch, at: tuple[str, int] | None = None) -> None:
        """Append the rows of a batch as Arrow, split by rows to fit a message, one larger row in chunks."""
        publisher = self._publisher(at)
        limit = self._limit(publisher)
        self._encoder.arrow(batch, _PublisherSink(publisher, limit), limit)

    def finish(self) -> None:
        """Return once everything appended is acknowledged."""
        for publisher in self._publishers.values():
            publisher.wait_acknowledged()

    def _limit(self, publisher: Publisher) -> int:
        asked, most = self.options.max_message_bytes, publisher.max_message_bytes
        if asked is not None and asked > most:
            raise OptionError(
                f"option 'maxMessageBytes' is {asked}, and this channel's longest message has {most} bytes",
                remedy="Lower it, or raise the channel's term-length, of which a message may be an eighth.",
            )
        return most if asked is None else asked

    def _check_values(self, values: pa.Array[Any], most: int) -> None:
        if values.null_count:
            raise DataFormatError(
                f"{values.null_count} of {len(values)} values are null, which a message cannot be",
                remedy="Filter the nulls out before writing, or write all columns with payload=arrow.",
            )
        if self.options.max_message_bytes is not None:
            most = min(most, self.options.max_message_bytes)
        lengths: Any = pc.binary_length(values)  # type: ignore[call-overload]  # stubs know no Array[Any]
        longest = pc.max(lengths).as_py() or 0
        if longest > most:
            raise DataFormatError(
                f"a value has {longest} bytes, and the longest message of this channel has {most}",
                remedy="Write with payload=framed, which sends it in chunks, or raise the channel's term-length, "
                "of which a message may be an eighth (16 MiB at most).",
            )

    def _publisher(self, at: tuple[str, int] | None) -> Publisher:
        way = self.way
        channel, stream_id = (way.channel, way.stream_id) if at is None else at
        publisher = self._publishers.get((channel, stream_id))
        if publisher is None:
            if at is not None:  # a row's own stream was not seen when the query was built
                refuse_archive_streams(ChannelUri.parse(channel), stream_id)
            options = self.options
            address = PublishAddress(
                self._reach.aeron_dir,
                channel,
                stream_id,
                acknowledging_archive(options, self._reach, channel, stream_id, self._encoder.source.writer),
                options.offer_timeout,
                way.connect_timeout,
                options.when_unconnected == "drop",
            )
            publisher = self._publishers[channel, stream_id] = Publisher(address, self._connected)
        return publisher


class _PublisherSink:
    """Publishes encoded rows; a group goes in chunks whose messages have at most ``max_message_bytes``."""

    def __init__(self, publisher: Publisher, max_message_bytes: int) -> None:
        self._publisher = publisher
        self._limit = max_message_bytes

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        self._publisher.publish_values(values, reserved)

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        self._publisher.publish_group(partial(split, payload, header, max_message_bytes=self._limit), reserved)


def acknowledging_archive(
    options: WriteOptions, found: ArchiveConnections, channel: str, stream_id: int, writer: str = ""
) -> ArchiveAddress | None:
    """Return the archive whose recording acknowledges, or None where the driver's word is enough.

    Has the stream recorded first where ``record`` says so, for ``writer``. With ``ack=auto`` an archive that is not
    there acknowledges nothing.
    """
    if options.ack == "driver" and options.record == "never":
        return None
    if options.ack == "auto" and options.when_unconnected == "drop":
        return None
    log = ArchiveLog(StreamAddress(channel, stream_id, found.archives[:1]))
    try:
        recorded = log.recorded()
    except ConnectError:
        if options.ack == "archive" or options.record != "never":
            raise
        return None
    if not recorded and options.record != "never":
        check_audible(log, channel)
        log.start_recording(writer)
        recorded = True
    if options.ack == "driver" or (options.ack == "auto" and not recorded):
        return None
    if not recorded:
        raise OptionError(
            f"option 'ack' is 'archive', and stream {stream_id} of {channel} is not recorded",
            remedy="Set option 'record' to 'auto', which has it recorded, or 'ack' to 'driver'.",
        )
    return found.archives[0]
