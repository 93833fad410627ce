"""The schemas of rows by payload, and the conversion of an ``arrow`` stream's schema to Spark's."""

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
    """Return the schema of a payload; ``rows`` is the schema of the batches in an ``arrow`` stream."""
    if payload == "raw":
        return RAW
    own = FRAMED if rows is None else rows
    return StructType([*own.fields, *(metadata() if include_metadata else [])])


def rows_part(schema: StructType) -> StructType:
    """Return the schema without the metadata columns."""
    return StructType([field for field in schema.fields if not field.name.startswith(columns.METADATA_PREFIX)])


def metadata_part(schema: StructType) -> StructType:
    """Return the schema of the metadata columns alone."""
    return StructType([field for field in schema.fields if field.name.startswith(columns.METADATA_PREFIX)])


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
    """Return the Arrow schema that Spark expects from a reader, with its exact types."""
    return to_arrow_schema(schema, timezone="UTC")


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
    has_metadata = payload in ("raw", "sbe") or bool(metadata_part(available).fields)
    more = "" if has_metadata else " includeMetadata=true adds the metadata columns."
    found = f"the {kind} {_ddl(available)!r}: {wrong[0]!r} {fault}" if types else f"no {kind}"
    raise OptionError(
        f".schema({_ddl(chosen)!r}) was given, but a stream with payload={payload} has {found}",
        remedy=f"{suggestion}Choose some of its {kind}, or omit .schema(...) for all of them.{more}",
    )


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema.fields)
