"""``receive --payload sbe``: decodes received messages into rows, the same on both routes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from aeron_spark.aeron.jvm import cluster_schema
from aeron_spark.errors import DataFormatError
from aeron_spark.log.sbe_rows import SbeBatches
from aeron_spark.options import ReadOptions, SbeOptions
from aeron_spark.sbe.compiler import load_schema
from aeron_spark.sbe.table import MessageColumns


class SbeReceiver:
    """Decodes received batches. Raises OptionError and DataFormatError for a wrong option or schema at its creation."""

    def __init__(self, options: SbeOptions, *, metadata: bool) -> None:
        has_events = isinstance(options, ReadOptions) and options.cluster_events
        source = cluster_schema() if has_events else options.sbe_schema
        assert source is not None  # the options have checked it
        columns = MessageColumns(load_schema(source), options.reader_settings(metadata=metadata))
        table = columns.table()
        self.schema: pa.Schema = table.schema
        self._batches = SbeBatches(table, "the stream", has_metadata=metadata)

    def decoded(self, batches: Iterator[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of batches, as rows of columns. Raises DataFormatError as the options say."""
        for payload, batch in batches:
            if payload == "arrow":
                raise DataFormatError(
                    "the stream has Arrow batches, expected SBE messages", remedy="Leave out --payload sbe."
                )
            for rows in self._batches.decode(batch):
                yield "arrow", rows
        self._batches.report()
