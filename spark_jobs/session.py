"""What the jobs have in common: the session they need, the arguments they all take, and waiting for their query."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aeron_spark.spark import register

SETTINGS = {
    # it and the JVM that a worker holds fight over signals
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}

BEGIN_ATTEMPTS = 6
NOT_BACK = "Python worker failed to connect back"  # Spark's words


def session(name: str) -> SparkSession:
    """Return the session. Delta's jars are the submitter's business: ``--jars`` or ``--packages``."""
    builder = SparkSession.builder.appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)  # the workers run this Python, also where no virtual environment is active
    return spark


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
    """Begin a query that goes on where its checkpoint says, into a Delta table or into what ``rows`` says."""
    rows = rows.option("checkpointLocation", args.checkpoint)
    rows = rows.trigger(availableNow=True) if args.available_now else rows.trigger(processingTime=args.interval)
    if table is None:
        return begin(rows.start)
    rows = rows.format("delta")
    return begin(lambda: rows.start(table) if is_path(table) else rows.toTable(table))


def begin(start: Callable[[], StreamingQuery], seconds: float = math.inf) -> StreamingQuery:
    """Start a query, and return it once it runs, or has ended.

    Spark gives the Python process of a streaming source ten seconds to come up, on a busy machine too few, and has no
    setting for it. A query that ended for this has done nothing yet, and is started again. What else it waits for at
    its beginning has deadlines of its own, such as ``connectTimeout``. Raises TimeoutError after ``seconds`` of one.
    """
    for attempt in range(1, BEGIN_ATTEMPTS + 1):
        query = start()
        deadline = time.monotonic() + seconds
        while query.isActive and query.status["message"].startswith("Initializing"):
            if time.monotonic() > deadline:
                query.stop()
                raise TimeoutError(f"the query {query.name or query.id} did not begin within {seconds:g} s")
            time.sleep(0.05)
        if query.isActive or not missed_its_start(query):
            return query
        print(f"attempt {attempt} of {BEGIN_ATTEMPTS}: {NOT_BACK} within ten seconds", file=sys.stderr)
    return query


def missed_its_start(query: StreamingQuery) -> bool:
    """Whether a query has ended because its Python process did not come up in time."""
    return NOT_BACK in str(query.exception())


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
