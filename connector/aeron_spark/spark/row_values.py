"""The schema of a stream in Spark, and its rows as Arrow columns."""

from __future__ import annotations

import difflib
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.log import decoding
from aeron_spark.log.decoding import METADATA_PREFIX
from aeron_spark.options import DirectRoute, ReadOptions, ServerRoute, WriteOptions
from aeron_spark.options.kafka_names import replacement_of_column
from aeron_spark.spark.pyspark_api import from_arrow_schema, to_arrow_schema

RAW: Final = from_arrow_schema(decoding.RAW)
FRAMED: Final = from_arrow_schema(decoding.VALUE_COLUMN)


def metadata() -> list[StructField]:
    """Return the metadata columns of ``framed`` and ``arrow``."""
    return from_arrow_schema(pa.schema(decoding.metadata())).fields


def schema_of(payload: str, options: ReadOptions, rows: StructType | None = None) -> StructType:
    """Return the schema of a payload; ``rows`` is the schema of the batches in an ``arrow`` stream."""
    if payload == "raw":
        return with_stream_column(RAW, options.route)
    own = with_stream_column(FRAMED if rows is None else rows, options.route)
    return StructType([*own.fields, *(metadata() if options.include_metadata else [])])


def with_stream_column(rows: StructType, route: DirectRoute | ServerRoute) -> StructType:
    """Return the schema of rows with the column that several streams add.

    Raises OptionError if the rows have a column of this name, except the one of ``raw`` rows.
    """
    added = route.stream_column
    if added is None or (added in rows.fieldNames() and rows == RAW):
        return rows
    if added in rows.fieldNames():
        raise OptionError(
            f"{route.label} have a column {added!r}, and reading several streams adds one of this name",
            remedy="Read each stream in a separate query, or rename the column where the rows are written.",
        )
    return StructType([*rows.fields, *from_arrow_schema(pa.schema([decoding.STREAM_FIELDS[added]])).fields])


def rows_part(schema: StructType, stream_column: str | None = None) -> StructType:
    """Return the schema without the metadata columns and that of the stream."""
    return StructType(
        [
            field
            for field in schema.fields
            if not field.name.startswith(decoding.METADATA_PREFIX) and field.name != stream_column
        ]
    )


def metadata_part(schema: StructType) -> StructType:
    """Return the schema of the metadata columns alone."""
    return StructType([field for field in schema.fields if field.name.startswith(decoding.METADATA_PREFIX)])


def spark_schema(arrow: pa.Schema) -> StructType:
    """Return Spark's schema for the batches of an ``arrow`` stream, with all columns nullable.

    Each batch has its own schema, so a later batch may have nulls in a column that is not nullable in the first one.
    """
    try:
        found = from_arrow_schema(arrow)
    except PySparkTypeError as error:
        raise DataFormatError(
            f"the stream's Arrow schema has a type that Spark does not support: {error}",
            remedy="Read it with payload=raw, whose values are the unchanged messages.",
        ) from error
    return StructType([_nullable_in_spark(field) for field in found.fields])


def _nullable_in_spark(field: StructField) -> StructField:
    return StructField(field.name, _nullable_inside(field.dataType), True, field.metadata)


def _nullable_inside(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([_nullable_in_spark(field) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable_inside(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable_inside(kind.keyType), _nullable_inside(kind.valueType), True)
    return kind


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a reader, with its exact types."""
    return to_arrow_schema(schema)


def is_subset(chosen: StructType, available: StructType) -> bool:
    """Whether all columns of ``chosen`` are columns of ``available``, by name and type."""
    types = {field.name: field.dataType for field in available.fields}
    return all(types.get(field.name) == field.dataType for field in chosen.fields)


def check_schema(payload: str, chosen: StructType, available: StructType) -> None:
    """Raise OptionError if .schema(...) has columns that the payload does not have, ``available`` are those it has.

    A query may select any of them, in any order. Of ``arrow`` only the metadata columns are known here; the others are
    compared with each batch later.
    """
    kind = "columns"
    if payload == "arrow":
        chosen, available, kind = metadata_part(chosen), metadata_part(available), "metadata columns"
    if is_subset(chosen, available):
        return
    types = {field.name: field.dataType for field in available.fields}
    wrong = [field.name for field in chosen.fields if types.get(field.name) != field.dataType]
    fault = "is not one of them" if wrong[0] not in types else f"is {types[wrong[0]].simpleString().upper()} there"
    close = difflib.get_close_matches(wrong[0], types, n=1) if wrong[0] not in types else []
    suggestion = f"Did you mean {close[0]!r}? " if close else ""
    if wrong[0] not in types and (replacement := replacement_of_column(wrong[0])):
        suggestion = f"{replacement} "
    has_metadata = payload in ("raw", "sbe") or bool(metadata_part(available).fields)
    more = "" if has_metadata else " includeMetadata=true adds the metadata columns."
    found = f"the {kind} {_ddl(available)!r}: {wrong[0]!r} {fault}" if types else f"no {kind}"
    raise OptionError(
        f".schema({_ddl(chosen)!r}) was given, but a stream with payload={payload} has {found}",
        remedy=f"{suggestion}Choose some of its {kind}, or omit .schema(...) for all of them.{more}",
    )


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema.fields)


VALUE_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": (BinaryType, StringType),
    "reservedValue": (LongType, IntegerType),
    "channel": (StringType,),
    "streamId": (IntegerType, LongType),
}
STREAM_COLUMNS: Final = ("channel", "streamId")  # the stream of each row


def as_nullable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows with nullable columns.

    Whether a column of a query is nullable depends on the query's plan. Later batches must match the stream's schema,
    so it must not depend on that.
    """
    fields = [_nullable(field) for field in batch.schema]
    columns: list[pa.Array[Any]] = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _nullable(field: pa.Field[Any]) -> pa.Field[Any]:
    kind: Any = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(inner) for inner in kind])
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_nullable(kind.value_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        key: Any = _nullable(kind.key_field).with_nullable(False)
        kind = pa.map_(key, _nullable(kind.item_field))
    return pa.field(field.name, kind, True, field.metadata)


def payload_of(options: WriteOptions, schema: StructType) -> str:
    """Return ``raw``, ``framed`` or ``arrow``. Raises OptionError for wrong columns."""
    names = schema.fieldNames()
    if not names:
        raise OptionError("the DataFrame has no columns, expected at least one", remedy="Select some columns.")
    has_value_columns = "value" in names and set(names) <= set(VALUE_COLUMNS)
    payload = options.payload
    if payload == "auto":
        payload = "raw" if has_value_columns and _wrong_type(schema) is None else "arrow"
    stream_columns = [name for name in STREAM_COLUMNS if name in names]
    if has_value_columns and stream_columns and options.payload != "arrow" and isinstance(options.route, ServerRoute):
        raise OptionError(
            f"the column {stream_columns[0]!r} selects a row's stream only on the direct route, but all rows go to "
            f"{options.route.label}",
            remedy="Remove the column, or write all columns with payload=arrow.",
        )
    if payload == "arrow":
        _check_arrow(schema)
        return payload
    if "value" not in names:
        close = difflib.get_close_matches("value", names, n=1)
        raise OptionError(
            f"payload={payload} needs a column 'value' (BINARY or STRING), but the DataFrame has {', '.join(names)}",
            remedy=f"Did you mean {close[0]!r}? Rename it to 'value'."
            if close
            else "Add the column, or write with payload=arrow.",
        )
    extra = [name for name in names if name not in VALUE_COLUMNS]
    if extra:
        raise OptionError(
            f"payload={payload} does not support the column {extra[0]!r}",
            remedy=replacement_of_column(extra[0])
            or f"Select only {', '.join(VALUE_COLUMNS)}, or write all columns with payload=arrow.",
        )
    wrong = _wrong_type(schema)
    if wrong is not None:
        raise OptionError(wrong, remedy="Cast it.")
    return payload


def _check_arrow(schema: StructType) -> None:
    """Raise OptionError for two columns of the same name, a reserved name, or a type that Arrow does not support."""
    names = schema.fieldNames()
    for field in schema.fields:
        if names.count(field.name) > 1:
            raise OptionError(f"the DataFrame has two columns {field.name!r}", remedy="Rename one of them.")
        if field.name.startswith(METADATA_PREFIX):
            raise OptionError(
                f"the column {field.name!r} begins with {METADATA_PREFIX!r}, the prefix of a reader's metadata columns",
                remedy="Rename or remove it.",
            )
        try:
            to_arrow_schema(StructType([field]))
        except PySparkTypeError as error:
            kind = field.dataType.simpleString().upper()
            raise OptionError(
                f"the column {field.name!r} is {kind}, which Arrow batches do not support",
                remedy="Cast it, for example an interval of months to INT.",
            ) from error


def _wrong_type(schema: StructType) -> str | None:
    for field in schema.fields:
        expected = VALUE_COLUMNS[field.name]
        if not isinstance(field.dataType, expected):
            names = " or ".join(kind.typeName().upper() for kind in expected)
            return f"the column {field.name!r} is {field.dataType.simpleString().upper()}, expected {names}"
    return None
