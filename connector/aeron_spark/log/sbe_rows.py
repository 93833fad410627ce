"""Makes the record batches of a query's rows from the SBE messages of a range."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from aeron_spark.aeron.sbe_decoder import SbeDecoder
from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.log.columns import METADATA_PREFIX, POSITION
from aeron_spark.log.decoding import PlacedGroup, RowDecoder, SmallValues, of_recording, read_range, values_of
from aeron_spark.options import TimestampFrom
from aeron_spark.sbe.table import DecodeTable
from aeron_spark.wire.values import Rows

LOG: Final = logging.getLogger("aeron_spark.spark")

POSITION_COLUMNS: Final = pa.schema([field.with_name(METADATA_PREFIX + field.name) for field in POSITION])


def read_sbe(
    log: Log, wanted: Range, schema: pa.Schema, times: TimestampFrom | None, table: DecodeTable
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the SBE messages that begin in a range; see :class:`SbeRows`."""
    rows = SbeRows(schema, log.state(wanted.key), times, table)
    with of_recording(wanted.key):
        if log.framed:
            for found in read_range(log, wanted):
                yield from rows.framed(found)
        else:
            for messages in log.read(wanted):
                yield from rows.raw(messages)
    rows.report()


class SbeRows:
    """Decodes the messages of one range of a recording; ``schema`` is the Arrow schema of the query's rows.

    It has the columns of the decode table, and any of :data:`POSITION_COLUMNS`.
    """

    def __init__(
        self, schema: pa.Schema, recording: RecordingState, times: TimestampFrom | None, table: DecodeTable
    ) -> None:
        self._schema = schema
        self._key = recording.key
        self._decoder = SbeDecoder(table)
        self._names = table.schema.names
        metadata = pa.schema([field for field in schema if field.name not in self._names])
        self._metadata = RowDecoder(metadata, recording, times) if metadata.names else None
        self._others = 0
        self._dropped = 0

    def raw(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yield the rows of messages that are unchanged in the log. Raises DataFormatError as the options say."""
        metadata = None if self._metadata is None else self._metadata.raw_metadata(rows)
        yield from self._decode(rows.values, rows.positions, metadata)

    def framed(self, found: SmallValues | PlacedGroup) -> Iterator[pa.RecordBatch]:
        """Yield the rows of messages that are values in the wire format. Raises DataFormatError as the options say."""
        metadata = None if self._metadata is None else self._metadata.framed_metadata(found)
        positions = found.positions if isinstance(found, SmallValues) else pa.array([found.position], pa.int64())
        yield from self._decode(values_of(found), positions, metadata)

    def _decode(
        self, values: pa.Array[Any], positions: pa.Array[Any], metadata: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        def locate(index: int) -> str:
            return f"the Aeron message at position {positions[index].as_py()}"

        for found in self._decoder.decode(values, locate):
            self._others += found.others
            self._dropped += found.dropped
            if found.rows:
                arrays: dict[str, pa.Array[Any]] = dict(zip(self._names, found.columns, strict=True))
                if metadata is not None:
                    arrays |= {name: metadata[name].take(found.sources) for name in metadata.schema.names}
                yield pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)

    def report(self) -> None:
        """Log how many messages of the range were left out."""
        if self._dropped:
            LOG.warning("recording %s: %d malformed SBE messages were left out", self._key, self._dropped)
        if self._others:
            LOG.info("recording %s: %d SBE messages are not of the chosen types", self._key, self._others)
