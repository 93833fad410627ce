"""What the jobs have in common: the session they need, the arguments they all take, and waiting for their query."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

SETTINGS = {
    # it and the JVM that a worker holds fight over signals
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}


def session(name: str) -> SparkSession:
    """Return the session. Delta's jars are the submitter's business: ``--jars`` or ``--packages``."""
    builder = SparkSession.builder.appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every job takes."""
    parser.add_argument("--table", required=True, help="the Delta table: a path, or a name of the catalog")
    parser.add_argument("--checkpoint", required=True, help="where the query keeps how far it came")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=name_and_value,
        dest="options",
        metavar="NAME=VALUE",
        help="an option of the connector, such as streamId=1001 or stream=flights; once for each",
    )
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--available-now", action="store_true", help="end when all that is there now is done")
    how_long.add_argument(
        "--interval", default="10 seconds", help="time between two micro-batches (default: %(default)s)"
    )


def name_and_value(text: str) -> tuple[str, str]:
    """Parse ``name=value``; a value may hold further equals signs, as channels do."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def is_path(table: str) -> bool:
    """Whether a table is given by its path, and not by its name."""
    return "/" in table


def start(rows: DataStreamWriter, args: argparse.Namespace, table: str | None = None) -> StreamingQuery:
    """Start a query that goes on where its checkpoint says, into a Delta table or into what ``rows`` says."""
    rows = rows.option("checkpointLocation", args.checkpoint)
    rows = rows.trigger(availableNow=True) if args.available_now else rows.trigger(processingTime=args.interval)
    if table is None:
        return rows.start()
    return rows.format("delta").start(table) if is_path(table) else rows.format("delta").toTable(table)


def read_table(spark: SparkSession, table: str) -> DataFrame:
    """Return the stream of rows that are appended to a Delta table."""
    stream = spark.readStream.format("delta")
    return stream.load(table) if is_path(table) else stream.table(table)


def run(
    parser: argparse.ArgumentParser,
    build: Callable[[SparkSession, argparse.Namespace], StreamingQuery],
    argv: Sequence[str] | None = None,
) -> None:
    """Parse the command line, start the query, and wait for its end."""
    args = parser.parse_args(argv)
    spark = session(parser.prog)
    try:
        build(spark, args).awaitTermination()
    finally:
        spark.stop()
