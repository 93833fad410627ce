"""The data source ``aeron``, and the choice of the Python that Spark's workers run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from aeron_spark.errors import OptionError, SetupError
from aeron_spark.options import ReadOptions, WriteOptions, has_batch_only_options
from aeron_spark.options.values import parse_end
from aeron_spark.spark import row_values
from aeron_spark.spark.pyspark_api import needs_newer
from aeron_spark.spark.shown_errors import short_errors
from aeron_spark.spark.task_context import check_route
from aeron_spark.spark.worker_python import describe_fault

if TYPE_CHECKING:
    from pyspark import SparkContext

    from aeron_spark.log.api import StreamContent
    from aeron_spark.spark.reader import Task


LOCAL: Final = re.compile(r"local(\[|$)")  # a master whose workers run on this machine


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the session's context, or None for a client of Spark Connect, whose server has it."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


def use_python_of_this_process(context: SparkContext) -> None:
    """Make the workers use the Python of this process if theirs cannot run this package.

    Raises SetupError if workers may run on other machines, because this process does not know their Pythons. If Spark
    sends this package to them, their Pythons are not checked.
    """
    python, sent = context.pythonExec, _sent_paths(context)
    is_local = LOCAL.match(context.master or "")
    if not is_local and PathFinder.find_spec("aeron_spark", sent):
        return
    fault = describe_fault(python, sent)
    if not fault:
        return
    if not is_local:
        raise SetupError(
            f"Spark's Python workers run {python!r}, and that Python {fault}",
            remedy="Set PYSPARK_PYTHON (or spark.pyspark.python) to a Python of this program's version that has "
            "aeron-spark on every host, before the session starts.",
        )
    context.pythonExec = sys.executable


def _sent_paths(context: SparkContext) -> list[str]:
    """Return the paths that Spark adds to those of a worker: the folder of all files that it sends, and each zip file.

    Jars are among the zip files with ``spark.jars.packages``.
    """
    from pyspark import SparkFiles  # the package pyspark-client does not have it

    root = SparkFiles.getRootDirectory()
    return [root, *(os.path.join(root, name) for name in context._python_includes or ())]


class AeronDataSource(DataSource):
    """Reads and writes Aeron streams. All options are documented in docs/options.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "aeron"

    _found_payload: str | None = None  # whose columns ``schema`` returned; Spark pickles it with this object

    @short_errors
    def schema(self) -> StructType:
        """Return the columns: fixed ones, or those of the stream's Arrow batches."""
        _refuse_table(self.options)
        options = self._read_options()
        payload: str = options.payload
        if payload == "sbe":
            from aeron_spark.spark.sbe import sbe_schema

            return sbe_schema(options)
        rows = None
        if payload in ("auto", "arrow"):
            check_route(options.route)
            content = _content(options)
            if payload == "auto":
                self._found_payload = payload = "raw" if content is None else content.payload
            if payload == "arrow":
                if content is None or content.schema is None:
                    raise OptionError(
                        f"the columns of {options.route.label} are unknown: "
                        f"{'nothing is recorded yet' if content is None else f'it has {content.payload} messages'}",
                        remedy="Set them with .schema(...), or read with payload=raw.",
                    )
                rows = row_values.spark_schema(content.schema)
        return row_values.schema_of(payload, options, rows)

    @short_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from aeron_spark.spark.reader import AeronBatchReader

        _refuse_table(self.options)
        options = ReadOptions.parse(self.options, streaming=False)
        if options.pushdown:
            from aeron_spark.spark.pyspark_api import HAS_FILTERS
            from aeron_spark.spark.reader import FilteringBatchReader

            if not HAS_FILTERS:
                raise needs_newer(
                    "option 'pushdown'", "4.1", instead="Or bound the batch with startPosition and endPosition."
                )

            return FilteringBatchReader(self._task(options, schema))
        return AeronBatchReader(self._task(options, schema))

    @short_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        from aeron_spark.spark.pyspark_api import HAS_READ_LIMITS
        from aeron_spark.spark.reader import AeronStreamReader, EarlierStreamReader

        task = self._task(ReadOptions.parse(self.options, streaming=True), schema)
        return AeronStreamReader(task) if HAS_READ_LIMITS else EarlierStreamReader(task)

    @short_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch. Raises OptionError for mode 'overwrite'."""
        from aeron_spark.spark.writer import AeronBatchWriter, write_task

        _refuse_table(self.options)
        if overwrite:
            raise OptionError(
                "mode 'overwrite' is not possible: published messages cannot be deleted", remedy="Use mode 'append'."
            )
        return AeronBatchWriter(write_task(WriteOptions.parse(self.options, streaming=False), schema))

    @short_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query; mode ``complete`` publishes all results again, like Kafka's sink."""
        from aeron_spark.spark.writer import AeronStreamWriter, write_task

        return AeronStreamWriter(write_task(WriteOptions.parse(self.options, streaming=True), schema))

    def _task(self, options: ReadOptions, schema: StructType) -> Task:
        return _task(options, schema, self._found_payload)

    def _read_options(self) -> ReadOptions:
        # Spark requests the schema before it chooses batch or streaming: refuse only options that both refuse.
        errors: list[OptionError] = []
        for streaming in (True, False):
            try:
                return ReadOptions.parse(self.options, streaming=streaming)
            except OptionError as error:
                errors.append(error)
        # An option that only a batch has means a batch: raise the batch's error.
        raise errors[has_batch_only_options(self.options)]


class BackfillSource(AeronDataSource):
    """Reads a stream up to an end, with ``Trigger.AvailableNow``; only the job ``backfill`` registers it.

    Its option ``end`` has positions as ``endingOffsets`` of a batch has them, or an ISO time. A query continues at its
    checkpoint, and has no rows after the end.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({name: text for name, text in options.items() if name.lower() != "end"})
        self._end = parse_end(next(text for name, text in options.items() if name.lower() == "end"))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "aeron-backfill"

    def _task(self, options: ReadOptions, schema: StructType) -> Task:
        return replace(super()._task(options, schema), end=self._end)


def _refuse_table(options: Mapping[str, str]) -> None:
    """Raise OptionError for a table of Spark's catalog: Spark stores its columns, and does not pass its options here.

    Spark passes the table's properties when it needs columns for CREATE TABLE, and nothing when a statement uses it.
    """
    if not options or any(name.lower().startswith("option.") for name in options):
        raise OptionError(
            "no stream is named: Spark does not pass the options of CREATE TABLE to a data source in Python"
            if options
            else "no option is given, so no stream is named",
            remedy="In SQL, use CREATE TEMPORARY VIEW name USING aeron OPTIONS (channel 'aeron:ipc', streamId '1001'), "
            "not CREATE TABLE. In Python, give .option('channel', ...) and .option('streamId', ...), or 'server' and "
            "'stream'.",
        )


def _task(options: ReadOptions, schema: StructType, found_payload: str | None) -> Task:
    """Return the task of a query; ``found_payload`` is that of the columns, if the source has found them."""
    from aeron_spark.direct.archive_recordings import this_host
    from aeron_spark.spark.reader import Task

    check_route(options.route)
    if options.payload == "sbe":
        from aeron_spark.spark.sbe import sbe_table

        return Task(options, _payload_of_values(options), schema, this_host(), sbe_table(options, schema))
    payload: str = options.payload
    if payload == "auto":
        payload = found_payload or _payload(options, schema)
    row_values.check_schema(payload, schema, row_values.schema_of(payload, options))
    return Task(options, payload, schema, this_host())


def _payload_of_values(options: ReadOptions) -> str:
    """Return how the stream has its values: as messages (also if nothing is recorded yet), or in the wire format."""
    content = _content(options)
    payload = "raw" if content is None else content.payload
    if payload == "arrow":
        raise OptionError(
            f"{options.route.label} has Arrow batches, expected SBE messages",
            remedy="Read it with payload=arrow; aeron_spark.from_sbe decodes a column of SBE messages.",
        )
    return payload


def _payload(options: ReadOptions, schema: StructType) -> str:
    """Return the payload of a stream with known columns: its own, or some that .schema(...) selects."""
    if schema == row_values.with_stream_column(row_values.RAW, options.route):
        return "raw"
    # The columns may be of any payload, or misspelt: the stream's content decides.
    content = _content(options)
    if content is not None:
        return content.payload
    own = row_values.rows_part(schema, options.route.stream_column)
    if own == row_values.FRAMED or not own.fields:
        return "framed"
    available = row_values.with_stream_column(row_values.RAW, options.route)
    return "raw" if row_values.is_subset(schema, available) else "arrow"


def _content(options: ReadOptions) -> StreamContent | None:
    from aeron_spark.log.query import QueryPlanner
    from aeron_spark.spark.reader import open_planning_log

    return QueryPlanner(options, open_planning_log, framed=False).content()
