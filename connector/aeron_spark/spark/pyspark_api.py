"""The parts of PySpark that differ between the versions that this package supports.

    part                                            since   with an older Spark
    Arrow batches for a streaming sink              4.1     4.0 has them by another class, see below
    filters for a batch reader (``pushdown``)       4.1     refused
    functions on Arrow arrays (``from_sbe``)        4.1     refused
    a start and a limit for a batch's end           4.2     ``EarlierStreamReader``; a limit is refused
    a source's report for the query's progress      4.2     ``LagListener`` is refused

Whether a Spark has something is found by its names, because vendors add features of newer versions to older ones; the
version is only named.

A stand-in for a class that an older version does not have only lets this package be imported. Code that uses one is not
reached: ``HAS_READ_LIMITS`` and ``HAS_FILTERS`` choose other code or a refusal.
"""

# mypy: disable-error-code="assignment, no-redef, misc"

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from inspect import signature
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

from aeron_spark.errors import SetupError

try:
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
except ImportError:  # Spark 4.0

    class Filter: ...

    EqualTo = GreaterThan = GreaterThanOrEqual = In = LessThan = LessThanOrEqual = Filter

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A streaming sink with Arrow batches. Spark 4.0 passes them to each writer of the second class."""


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.0 and 4.1

    class ReadLimit: ...

    class SupportsTriggerAvailableNow: ...

    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadLimit

__all__ = [
    "HAS_FILTERS",
    "HAS_READ_LIMITS",
    "DataSourceStreamArrowWriter",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "from_arrow_schema",
    "needs_newer",
    "to_arrow_schema",
]

HAS_FILTERS: Final = hasattr(datasource, "EqualTo")
HAS_READ_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None

# Until Spark 4.1, the time zone of a timestamp is always UTC
_to_arrow: Final = (
    partial(types.to_arrow_schema, timezone="UTC")
    if "timezone" in signature(types.to_arrow_schema).parameters
    else types.to_arrow_schema
)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of Spark's columns, with times in UTC."""
    return _to_arrow(schema)


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Return Spark's columns for an Arrow schema: a timestamp without time zone is TIMESTAMP_NTZ."""
    return types.from_arrow_schema(schema, prefer_timestamp_ntz=True)


def needs_newer(feature: str, since: str, *, instead: str = "") -> SetupError:
    """Return the error for a feature that this process's Spark does not have; ``instead``: another way, a sentence."""
    remedy = f"Use Spark {since} or newer (pip install 'pyspark>={since}'). {instead}".rstrip()
    return SetupError(f"{feature} needs Spark {since} or newer, and this is Spark {pyspark.__version__}", remedy=remedy)
