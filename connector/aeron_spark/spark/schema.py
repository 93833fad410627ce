"""What rows look like, by payload; and how an ``arrow`` stream's own schema becomes Spark's."""

from __future__ import annotations

import difflib
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.log import columns

RAW: Final = from_arrow_schema(columns.RAW)
FRAMED: Final = from_arrow_schema(columns.VALUE)


def metadata() -> list[StructField]:
    """Return the metadata columns of ``framed`` and ``arrow``."""
    return from_arrow_schema(pa.schema(columns.metadata())).fields


def schema_of(payload: str, include_metadata: bool, rows: StructType | None = None) -> StructType:
    """Return the schema of a payload; ``rows`` is that of the batches in an ``arrow`` stream."""
    if payload == "raw":
        return RAW
    own = FRAMED if rows is None else rows
    return StructType([*own.fields, *(metadata() if include_metadata else [])])


def rows_part(schema: StructType) -> StructType:
    """Return the schema without the metadata columns."""
    return StructType([field for field in schema.fields if not field.name.startswith(columns.METADATA_PREFIX)])


def spark_schema(arrow: pa.Schema) -> StructType:
    """Return Spark's schema for the batches of an ``arrow`` stream: all of it nullable, as Spark has it of its sources.

    Each batch on the wire says for itself what it allows, so what the first one promised need not hold for the next.
    """
    try:
        found = from_arrow_schema(arrow)
    except PySparkTypeError as error:
        raise DataFormatError(
            f"the stream's Arrow schema has a type that Spark does not know: {error}",
            remedy="Read it with payload=raw, whose values are the messages as they are.",
        ) from error
    return StructType([_nullable(field) for field in found.fields])


def _nullable(field: StructField) -> StructField:
    return StructField(field.name, _nullable_inside(field.dataType), True, field.metadata)


def _nullable_inside(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([_nullable(field) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable_inside(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable_inside(kind.keyType), _nullable_inside(kind.valueType), True)
    return kind


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of a reader, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")


def is_choice(given: StructType, expected: StructType) -> bool:
    """Whether all columns of ``given`` are columns of ``expected``, by name and type."""
    types = {field.name: field.dataType for field in expected.fields}
    return all(types.get(field.name) == field.dataType for field in given.fields)


def check_given(payload: str, given: StructType, expected: StructType) -> None:
    """Raise OptionError where ``given`` is no choice of the columns of ``raw`` or ``framed``.

    Any of them may be chosen, in any order. ``arrow`` has the columns of its batches, which are compared with those.
    """
    if payload == "arrow":
        return
    if is_choice(given, expected):
        return
    types = {field.name: field.dataType for field in expected.fields}
    wrong = [field.name for field in given.fields if types.get(field.name) != field.dataType]
    what = "is not one of them" if wrong[0] not in types else f"is {types[wrong[0]].simpleString().upper()} there"
    close = difflib.get_close_matches(wrong[0], types, n=1) if wrong[0] not in types else []
    meant = f"Did you mean {close[0]!r}? " if close else ""
    more = " includeMetadata=true adds the columns of metadata." if payload == "framed" and len(types) == 1 else ""
    raise OptionError(
        f".schema({_ddl(given)!r}) was given, and a stream with payload={payload} has the columns {_ddl(expected)!r}: "
        f"{wrong[0]!r} {what}",
        remedy=f"{meant}Choose some of its columns, or leave .schema(...) out for all of them.{more}",
    )


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema.fields)
