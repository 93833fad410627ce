"""The plan of a sink with ``payload=sbe``: the schema is read once, on the query's driver, and checks the columns."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.types import StructField, StructType

from aeron_spark.errors import OptionError
from aeron_spark.options import WriteOptions
from aeron_spark.sbe.encode_plan import USE_TYPE, EncodePlan, encode_plan
from aeron_spark.sbe.table import MessageColumns
from aeron_spark.spark.sbe_source import given_schema
from aeron_spark.spark.schema import arrow_schema


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
