"""SBE messages in Spark: the function that decodes them, the sink, and the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column
from pyspark.sql.functions import col as column_named
from pyspark.sql.types import StructField, StructType

from aeron_spark.aeron.jvm import cluster_schema
from aeron_spark.errors import OptionError
from aeron_spark.log.sbe_rows import POSITION_COLUMNS
from aeron_spark.options import ReadOptions, SbeFormatOptions, WriteOptions
from aeron_spark.process import ProcessCache
from aeron_spark.sbe.encoding import USE_TYPE, EncodePlan, encode_plan
from aeron_spark.sbe.model import Schema
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import OnMalformed, settings_of
from aeron_spark.sbe.table import CORRUPT_RECORD, DecodeTable, MessageColumns
from aeron_spark.spark.pyspark_api import from_arrow_schema, needs_newer
from aeron_spark.spark.row_values import arrow_schema, check_schema, with_stream_column
from aeron_spark.spark.task_context import find_file

_KIND: Final = "_kind"  # the name of the row's message, which is NULL in a row without one


def from_sbe(
    column: Column | str, schema: str, message: str | None = None, options: Mapping[str, str] | None = None
) -> Column:
    """Return the messages of a BINARY column as a STRUCT, with the columns of ``payload=sbe``.

    ``schema`` is the path of the schema's XML file on this machine, its name in SparkFiles, or the XML itself.
    ``message`` is a name or template id, several separated by commas, or ``*``; None means the schema's only message.
    ``options`` are those of the source without ``sbe``, in lower case: ``mode`` (``FAILFAST`` or ``PERMISSIVE``),
    ``others`` (``skip`` or ``fail``), ``framing`` (``one`` or ``cluster``), ``decimals``, ``times``, ``enums``,
    ``sets``. The struct is NULL for a NULL value and for a message of another type.

    Raises OptionError for a wrong option, DataFormatError for a wrong schema. A malformed message fails the task, or
    with ``PERMISSIVE`` has only ``_corrupt_record``. Raises SetupError with Spark 4.0.
    """
    try:
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # the stubs do not have it
    except ImportError:
        raise needs_newer("from_sbe", "4.1", instead="Or read the stream with payload=sbe.") from None
    table = function_table(schema, message, options or {})
    fields = [field for field in table.schema if field.name != _KIND]
    decode = arrow_udf(_decoder(table), from_arrow_schema(pa.schema(fields)))
    found: Column = decode(column_named(column) if isinstance(column, str) else column)
    return found


def function_table(schema: str, message: str | None, options: Mapping[str, str]) -> DecodeTable:
    """Return the decode table of a function. Raises OptionError and DataFormatError."""
    settings = settings_of(message, options)
    if settings.mode is OnMalformed.DROPMALFORMED:
        raise OptionError(
            "a function has one result for each value, so mode DROPMALFORMED is not possible",
            remedy="Use PERMISSIVE, and filter the rows that have no _corrupt_record.",
        )
    if not settings.framing.is_single:
        raise OptionError(
            "a function has one result for each value, so only framing 'one' or 'cluster' is possible",
            remedy="Read the stream with payload=sbe and sbeFraming.",
        )
    is_text = schema.lstrip("\ufeff \t\r\n").startswith("<")
    columns = MessageColumns(load_schema(schema if is_text else find_file("schema", schema)), settings)
    columns.check_names()
    return columns.table(name=_KIND)


_DECODERS: ProcessCache[DecodeTable, Any] = ProcessCache()  # of this worker


def _decoder(table: DecodeTable) -> Callable[[pa.Array[Any]], pa.Array[Any]]:
    def decode(values: pa.Array) -> pa.Array:  # type: ignore[type-arg]  # Spark evaluates these hints
        return decode_values(table, values)

    # Spark recognises the kind of the function by its hints, and cannot evaluate texts of this module's imports.
    decode.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return decode


def decode_values(table: DecodeTable, values: pa.Array[Any]) -> pa.Array[Any]:
    """Return a struct for each value (binary). Raises DataFormatError as the table's policies say."""
    from aeron_spark.aeron.sbe_decoder import SbeDecoder

    decoder = _DECODERS.get(table, lambda: SbeDecoder(table), lambda _: True, lambda _: None)
    values = values if values.type == pa.binary() else values.cast(pa.binary())
    fields = [field for field in table.schema if field.name != _KIND]
    kind = table.schema.get_field_index(_KIND)
    parts, sources = [], []
    for found in decoder.decode(values, lambda index: f"value {index} of a batch"):
        by_name = dict(zip(table.schema.names, found.columns, strict=True))
        missing = found.columns[kind].is_null()
        if CORRUPT_RECORD in by_name:
            missing = pc.and_(missing, by_name[CORRUPT_RECORD].is_null())
        own = [by_name[field.name] for field in fields]
        parts.append(pa.StructArray.from_arrays(own, fields=fields, mask=missing))
        sources.append(found.sources)
    struct = pa.struct(fields)
    found_rows = pa.concat_arrays(parts) if parts else pa.array([], struct)
    if len(found_rows) == len(values):
        return found_rows
    # Messages that are not wanted have no row.
    rows = pa.array(range(len(values)), pa.int32())
    return found_rows.take(pc.index_in(rows, pa.concat_arrays(sources)))


def sbe_schema(options: ReadOptions) -> StructType:
    """Return the columns of the chosen messages. Raises OptionError and DataFormatError as ``sbe`` does."""
    columns = message_columns(options)
    columns.check_names()
    if not columns.columns:
        raise OptionError(
            f"the message {columns.messages[0].name!r} has no fields, so its rows have no columns",
            remedy="Set includeMetadata=true, or choose '*'.",
        )
    rows = with_stream_column(from_arrow_schema(columns.arrow_schema), options.route)
    metadata = from_arrow_schema(POSITION_COLUMNS).fields if options.include_metadata else []
    return StructType([*rows.fields, *metadata])


def sbe_table(options: ReadOptions, schema: StructType) -> DecodeTable:
    """Return the decode table of the query's columns. Raises OptionError for a column that does not exist."""
    chosen = arrow_schema(schema)
    metadata = [name for name in POSITION_COLUMNS.names if options.include_metadata and name in chosen.names]
    own = [field for field in chosen if field.name not in (*metadata, options.route.stream_column)]
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


def sbe_plan(options: WriteOptions, schema: StructType) -> EncodePlan:
    """Return the plan that encodes rows of these columns. Raises OptionError and DataFormatError."""
    columns = MessageColumns(given_schema(options), options.sbe_settings())
    columns.check_names()
    return encode_plan(columns, pa.schema([_arrow_field(field) for field in schema.fields]))


def _arrow_field(field: StructField) -> pa.Field[pa.DataType]:
    try:
        (found,) = arrow_schema(StructType([field]))
    except PySparkTypeError as error:
        kind = field.dataType.simpleString().upper()
        raise OptionError(
            f"the column {field.name!r} is {kind}, which no field of an SBE message is", remedy=USE_TYPE
        ) from error
    return found
