"""Decodes recorded SBE messages to record batches of rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import pyarrow as pa

from aeron_spark.aeron.sbe_decoder import SbeDecoder
from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import Log, Range
from aeron_spark.log.decoding import (
    METADATA_PREFIX,
    POSITION,
    VALUE,
    RowDecoder,
    SmallValues,
    of_recording,
    read_range,
    values_of,
)
from aeron_spark.sbe.encoding import EncodePlan, SbeEncoder
from aeron_spark.sbe.table import DecodeTable
from aeron_spark.wire.chunks import decode, is_framed
from aeron_spark.wire.values import Rows


def encoded_batches(
    plan: EncodePlan, batches: Iterable[pa.RecordBatch], name_row: Callable[[int], str]
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the column ``value`` with one message for each row; ``name_row`` names one in an error.

    Raises DataFormatError for a value that its field cannot hold.
    """
    encoder = SbeEncoder(plan, name_row)
    for batch in batches:
        for messages in encoder.encode(batch):
            yield pa.RecordBatch.from_arrays([messages], ["value"])


LOG: Final = logging.getLogger("aeron_spark.spark")

POSITION_COLUMNS: Final = pa.schema([field.with_name(METADATA_PREFIX + field.name) for field in POSITION])


class SbeRows:
    """Decodes messages into the columns of a table, and counts the messages that are left out.

    ``label`` names their source in the log; ``names`` are the columns of the rows: those of the table, and of the
    metadata that :meth:`decode` gets.
    """

    def __init__(self, table: DecodeTable, names: list[str], label: str) -> None:
        self._decoder = SbeDecoder(table)
        self._table = table
        self._names = names
        self._label = label
        self._found = 0
        self._others = 0
        self._dropped = 0

    def decode(
        self, values: pa.Array[Any], positions: pa.Array[Any] | None, metadata: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``values`` (binary), whose ``positions`` and ``metadata`` have the same length.

        Raises DataFormatError, with the position, as the table's policies say.
        """

        def locate(index: int) -> str:
            return f"value {index}" if positions is None else f"the Aeron message at position {positions[index]}"

        for found in self._decoder.decode(values, locate):
            self._found += found.rows
            self._others += found.others
            self._dropped += found.dropped
            if found.rows:
                arrays: dict[str, pa.Array[Any]] = dict(zip(self._table.schema.names, found.columns, strict=True))
                if metadata is not None:
                    arrays |= {name: metadata[name].take(found.sources) for name in metadata.schema.names}
                yield pa.RecordBatch.from_arrays([arrays[name] for name in self._names], self._names)

    def report(self) -> None:
        """Log how many messages were left out."""
        if self._dropped:
            LOG.warning("%s: %d malformed SBE messages were left out", self._label, self._dropped)
        if self._others:
            # a wrong schema looks like this
            level = logging.INFO if self._found else logging.WARNING
            LOG.log(level, "%s: %d SBE messages are not of the chosen types or schema", self._label, self._others)


def read_sbe(
    log: Log, wanted: Range, schema: pa.Schema, table: DecodeTable, decoder_of: Callable[[pa.Schema], RowDecoder]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the SBE messages that begin in a range of a recording.

    ``schema`` is the Arrow schema of the query's rows: the columns of the table, any of :data:`POSITION_COLUMNS`, and
    that of the stream. ``decoder_of`` returns the decoder that makes these columns.
    """
    metadata = pa.schema([field for field in schema if field.name not in table.schema.names])
    decoder = decoder_of(metadata) if metadata.names else None
    rows = SbeRows(table, schema.names, f"recording {wanted.key}")
    with of_recording(wanted.key):
        if not log.framed:
            for messages in log.read(wanted):
                of_messages = None if decoder is None else decoder.raw_metadata(messages)
                _refuse_framed(messages)
                yield from rows.decode(messages.values, messages.positions, of_messages)
        else:
            fields = {VALUE} if decoder is None else {VALUE, *decoder.fields}
            for found in read_range(log, wanted, fields):
                of_values = None if decoder is None else decoder.framed_metadata(found)
                positions = found.positions if isinstance(found, SmallValues) else pa.array([found.position])
                yield from rows.decode(values_of(found), positions, of_values)
    rows.report()


def _refuse_framed(messages: Rows) -> None:
    """Raise DataFormatError if the first message is a value in the wire format, of a stream that was empty before.

    Its header would pass for that of another SBE message, and its value would be skipped.
    """
    first = cast("bytes", messages.values[0].as_py())
    if is_framed(first):
        try:
            decode(first)
        except DataFormatError:
            return  # an SBE message that happens to begin like one
        raise DataFormatError(
            "the stream has values in the wire format, which was not known when the query began, because nothing was "
            "recorded then",
            remedy="Start the query again, with the same checkpoint.",
        )


POSITION_NAME: Final = "position"


class SbeBatches:
    """Decodes the column ``value`` of received batches. ``has_metadata``: keep their other columns, with the prefix."""

    def __init__(self, table: DecodeTable, label: str, *, has_metadata: bool) -> None:
        self._table = table
        self._label = label
        self._has_metadata = has_metadata
        self._rows: SbeRows | None = None

    def decode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch. Raises DataFormatError as the table's policies say."""
        others = {name: batch[name] for name in batch.schema.names if name != VALUE}
        renamed = {METADATA_PREFIX + name.removeprefix(METADATA_PREFIX): array for name, array in others.items()}
        kept = renamed if self._has_metadata else {}
        if self._rows is None:
            self._rows = SbeRows(self._table, [*self._table.schema.names, *kept], self._label)
        metadata = pa.RecordBatch.from_arrays(list(kept.values()), list(kept)) if kept else None
        yield from self._rows.decode(batch[VALUE], renamed.get(METADATA_PREFIX + POSITION_NAME), metadata)

    def report(self) -> None:
        """Log how many messages were left out."""
        if self._rows is not None:
            self._rows.report()
