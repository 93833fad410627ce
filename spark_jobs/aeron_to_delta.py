"""From an Aeron stream into a Delta table, exactly once.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 spark_jobs/aeron_to_delta.py \\
        --table /lake/flights --checkpoint /lake/_checkpoints/flights \\
        --option channel=aeron:ipc --option streamId=1001 --option startingOffsets=earliest

From a stream of a secure server, by other options alone; the key is in a file that Spark brings along:

    spark-submit ... --files me.key spark_jobs/aeron_to_delta.py --table ... --checkpoint ... \\
        --option server=feeds.example:20121 --option stream=flights --option identity=me.key \\
        --option serverKey=aeron-spark:CQ... --option startingOffsets=earliest

Where the driver runs in the cluster, add ``--py-files spark_jobs/session.py``.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

if __package__:
    from spark_jobs import session
else:  # spark-submit: this file's folder is on the path, not the one above it
    import session  # type: ignore[import-not-found,no-redef]


def parser() -> argparse.ArgumentParser:
    """Return the job's command line."""
    arguments = argparse.ArgumentParser(prog="aeron_to_delta", description="From an Aeron stream into a Delta table.")
    session.add_arguments(arguments)
    arguments.add_argument("--schema", help="columns of an arrow stream of which nothing is recorded yet, as in SQL")
    return arguments


def build(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query that appends the stream's rows to ``args.table``."""
    stream = spark.readStream.format("aeron").options(**dict(args.options))
    if args.schema:
        stream = stream.schema(args.schema)
    return session.start(stream.load().writeStream, args, args.table)


if __name__ == "__main__":
    session.run(parser(), build)
