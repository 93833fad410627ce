"""Common parts of the jobs: their Spark session, their arguments, and the start of their query."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aeron_spark.spark import register

SETTINGS = {
    # the fault handler and a worker's JVM would replace each other's signal handlers
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}

BEGIN_ATTEMPTS = 6
START_FAILURE = "Python worker failed to connect back"  # Spark's text
# Beginnings of Spark's status messages. A failed query has the second one some time before it counts as ended.
STARTING, FAILING = "Initializing", "Terminated with exception"
POLL_INTERVAL_S = 0.05
END_TIMEOUT_S = 60  # for Spark to remove a failed query


def session(name: str) -> SparkSession:
    """Return the Spark session. ``spark-submit`` must add Delta's jars with ``--jars`` or ``--packages``."""
    builder = SparkSession.builder.appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)  # it also makes the workers run this Python, without an active virtual environment
    return spark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every job."""
    parser.add_argument("--table", required=True, help="the Delta table: a path, or a name of the catalog")
    parser.add_argument("--checkpoint", required=True, help="the folder in which the query stores its progress")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=parse_option,
        dest="options",
        metavar="NAME=VALUE",
        help="an option of the connector, such as streamId=1001 or stream=flights; may be repeated",
    )
    trigger = parser.add_mutually_exclusive_group()
    trigger.add_argument("--available-now", action="store_true", help="process all rows available now, then end")
    trigger.add_argument(
        "--interval", default="10 seconds", help="time between two micro-batches (default: %(default)s)"
    )


def parse_option(text: str) -> tuple[str, str]:
    """Parse ``name=value``; a value may contain further equals signs, as channels do."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"invalid option {text!r}, expected NAME=VALUE")
    return name, value


def is_path(table: str) -> bool:
    """Return whether a table is given by its path instead of its name."""
    return "/" in table


def start(rows: DataStreamWriter, args: argparse.Namespace, table: str | None = None) -> StreamingQuery:
    """Start a query from its checkpoint, into the Delta table ``table`` or into the sink that ``rows`` has."""
    rows = rows.option("checkpointLocation", args.checkpoint)
    rows = rows.trigger(availableNow=True) if args.available_now else rows.trigger(processingTime=args.interval)
    if table is None:
        return begin(rows.start)
    rows = rows.format("delta")
    return begin(lambda: rows.start(table) if is_path(table) else rows.toTable(table))


def begin(start: Callable[[], StreamingQuery], timeout_s: float = math.inf) -> StreamingQuery:
    """Start a query, and return it when it runs or has ended.

    Spark waits ten seconds for the Python process of a streaming source to start. A busy machine needs longer, and
    Spark has no setting for it. A query that ended for this reason has processed nothing, so it is started again.
    Other waits at its start have separate deadlines, such as ``connectTimeout``.

    Raises TimeoutError if one start takes longer than ``timeout_s``.
    """
    for attempt in range(1, BEGIN_ATTEMPTS + 1):
        query = start()
        deadline = time.monotonic() + timeout_s
        while query.isActive and (status := query.status["message"]).startswith((STARTING, FAILING)):
            if time.monotonic() > deadline:
                query.stop()
                raise TimeoutError(
                    f"the query {query.name or query.id} did not start within {timeout_s:g} s; its last status was "
                    f"{status!r}, and it was stopped"
                )
            time.sleep(POLL_INTERVAL_S)
        if query.isActive or not has_missed_start_deadline(query):
            return query
        print(
            f"start {attempt} of {BEGIN_ATTEMPTS} of query {query.name or query.id} failed: {START_FAILURE} within ten "
            "seconds",
            file=sys.stderr,
        )
        await_removal(query)
    return query


def has_missed_start_deadline(query: StreamingQuery) -> bool:
    """Return whether a query has ended because its Python process did not start within Spark's ten seconds."""
    return START_FAILURE in str(query.exception())


def await_removal(query: StreamingQuery) -> None:
    """Wait until Spark has removed a failed query. Until then, it refuses another query of the same name."""
    with suppress(StreamingQueryException):
        query.awaitTermination(END_TIMEOUT_S)


def read_table(spark: SparkSession, table: str) -> DataFrame:
    """Return a streaming DataFrame of the rows that are appended to a Delta table."""
    stream = spark.readStream.format("delta")
    return stream.load(table) if is_path(table) else stream.table(table)


def run(
    parser: argparse.ArgumentParser,
    build: Callable[[SparkSession, argparse.Namespace], StreamingQuery],
    argv: Sequence[str] | None = None,
) -> None:
    """Parse the command line, start the job's query, and wait for its end."""
    args = parser.parse_args(argv)
    spark = session(parser.prog)
    try:
        build(spark, args).awaitTermination()
    finally:
        spark.stop()
