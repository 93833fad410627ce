"""The columns of a source with ``payload=sbe``: the schema is read once, on the query's driver, without a JVM."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from aeron_spark.aeron.jvm import cluster_schema
from aeron_spark.errors import OptionError
from aeron_spark.log.sbe_rows import POSITION_COLUMNS
from aeron_spark.options import ReadOptions, SbeFormatOptions
from aeron_spark.sbe.compiler import load_schema
from aeron_spark.sbe.model import Schema
from aeron_spark.sbe.table import DecodeTable, MessageColumns
from aeron_spark.spark.schema import arrow_schema, check_schema
from aeron_spark.spark.task_context import find_file


def sbe_schema(options: ReadOptions) -> StructType:
    """Return the columns of the chosen messages. Raises OptionError and DataFormatError as ``sbe`` does."""
    columns = message_columns(options)
    columns.check_names()
    if not columns.columns:
        raise OptionError(
            f"the message {columns.messages[0].name!r} has no fields, so its rows have no columns",
            remedy="Set includeMetadata=true, or choose '*'.",
        )
    metadata = list(POSITION_COLUMNS) if options.include_metadata else []
    return from_arrow_schema(pa.schema([*columns.arrow_schema, *metadata]))


def sbe_table(options: ReadOptions, schema: StructType) -> DecodeTable:
    """Return the decode table of the query's columns. Raises OptionError for a column that does not exist."""
    chosen = arrow_schema(schema)
    metadata = [name for name in POSITION_COLUMNS.names if options.include_metadata and name in chosen.names]
    own = [field for field in chosen if field.name not in metadata]
    position = StructType([field for field in schema.fields if field.name in metadata])
    check_schema("sbe", position, from_arrow_schema(POSITION_COLUMNS))
    return message_columns(options).table(pa.schema(own))


def message_columns(options: ReadOptions) -> MessageColumns:
    """Return the columns of the messages that the options choose, from the schema on this machine."""
    schema = load_schema(cluster_schema()) if options.cluster_events else given_schema(options)
    return MessageColumns(schema, options.reader_settings(metadata=options.include_metadata))


def given_schema(options: SbeFormatOptions) -> Schema:
    """Return the schema that the options name, from this machine. Raises OptionError and DataFormatError."""
    source = options.sbe_schema
    assert source is not None  # the options have checked it
    is_text = source.lstrip("\ufeff \t\r\n").startswith("<")
    return load_schema(source if is_text else find_file("sbeSchema", source))
