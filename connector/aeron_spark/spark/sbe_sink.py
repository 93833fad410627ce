"""The plan of a sink with ``payload=sbe``: the schema is read once, on the query's driver, and checks the columns."""

from __future__ import annotations

from pyspark.sql.types import StructType

from aeron_spark.options import WriteOptions
from aeron_spark.sbe.encode_plan import EncodePlan, encode_plan
from aeron_spark.sbe.table import MessageColumns
from aeron_spark.spark.sbe_source import given_schema
from aeron_spark.spark.schema import arrow_schema


def sbe_plan(options: WriteOptions, schema: StructType) -> EncodePlan:
    """Return the plan that encodes rows of these columns. Raises OptionError and DataFormatError."""
    columns = MessageColumns(given_schema(options), options.sbe_settings())
    columns.check_names()
    return encode_plan(columns, arrow_schema(schema))
