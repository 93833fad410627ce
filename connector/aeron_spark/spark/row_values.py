"""What a writer's rows are: raw or framed values, or Arrow batches; and which columns each of them may have."""

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
NAMING: Final = ("channel", "streamId")  # of a row's own stream


def as_nullable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows with columns that may be null, as Spark has them of its sources.

    Whether Spark calls a column of a query nullable depends on how it was made; to a stream's schema, which later
    batches have to go with, it would be a promise.
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
    """Return ``raw``, ``framed`` or ``arrow``. Raises OptionError, before all else, for wrong columns."""
    names = schema.fieldNames()
    if not names:
        raise OptionError(
            "the DataFrame has no columns, and a row without columns cannot be written", remedy="Select some."
        )
    exactly = "value" in names and set(names) <= set(VALUE_COLUMNS)
    payload = options.payload
    if payload == "auto":
        payload = "raw" if exactly and _wrong_type(schema) is None else "arrow"
    naming = [name for name in NAMING if name in names]
    if exactly and naming and options.payload != "arrow" and isinstance(options.route, ServerRoute):
        raise OptionError(
            f"the column {naming[0]!r} names a row's own stream of the direct way, and {options.route.label} takes all "
            "rows",
            remedy="Leave it out, or write all columns with payload=arrow.",
        )
    if payload == "arrow":
        _check_arrow(schema)
        return payload
    if "value" not in names:
        close = difflib.get_close_matches("value", names, n=1)
        raise OptionError(
            f"payload={payload} needs a column 'value' (BINARY or STRING), and the DataFrame has {', '.join(names)}",
            remedy=f"Did you mean {close[0]!r}? Rename it to 'value'."
            if close
            else "Make one, or write with payload=arrow.",
        )
    extra = [name for name in names if name not in VALUE_COLUMNS]
    if extra:
        raise OptionError(
            f"payload={payload} has no place for the column {extra[0]!r}",
            remedy=f"Keep only {', '.join(VALUE_COLUMNS)}, or write all columns with payload=arrow.",
        )
    wrong = _wrong_type(schema)
    if wrong is not None:
        raise OptionError(wrong, remedy="Cast it.")
    return payload


def _check_arrow(schema: StructType) -> None:
    """Raise OptionError where a column could not be told from another one, or has a type that Arrow does not carry."""
    names = schema.fieldNames()
    for field in schema.fields:
        if names.count(field.name) > 1:
            raise OptionError(f"the DataFrame has two columns {field.name!r}", remedy="Rename one of them.")
        if field.name.startswith(METADATA_PREFIX):
            raise OptionError(
                f"the column {field.name!r} begins with {METADATA_PREFIX!r}, as the metadata columns of a reader do",
                remedy="Rename it, or leave it out.",
            )
        try:
            to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkTypeError as error:
            kind = field.dataType.simpleString().upper()
            raise OptionError(
                f"the column {field.name!r} is {kind}, which Arrow batches do not carry",
                remedy="Cast it, an interval of months to INT, say.",
            ) from error


def _wrong_type(schema: StructType) -> str | None:
    for field in schema.fields:
        wanted = VALUE_COLUMNS[field.name]
        if not isinstance(field.dataType, wanted):
            names = " or ".join(kind.typeName().upper() for kind in wanted)
            return f"the column {field.name!r} is {field.dataType.simpleString().upper()} and has to be {names}"
    return None
