"""Checks the columns of a writer's rows, and converts them to raw or framed values, or Arrow batches."""

from __future__ import annotations

import difflib
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructType

from aeron_spark.errors import OptionError
from aeron_spark.log.columns import METADATA_PREFIX
from aeron_spark.options import ServerRoute, WriteOptions

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
            remedy=f"Select only {', '.join(VALUE_COLUMNS)}, or write all columns with payload=arrow.",
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
            to_arrow_schema(StructType([field]), timezone="UTC")
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
