"""Copies an Aeron stream into a Delta table, exactly once.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 spark_jobs/aeron_to_delta.py \\
        --table /lake/flights --checkpoint /lake/_checkpoints/flights \\
        --option channel=aeron:ipc --option streamId=1001 --option startingOffsets=earliest

A stream of a secure server needs other options only; Spark distributes the file with the key:

    spark-submit ... --files me.key spark_jobs/aeron_to_delta.py --table ... --checkpoint ... \\
        --option server=feeds.example:20121 --option stream=flights --option identity=me.key \\
        --option serverKey=aeron-spark:CQ... --option startingOffsets=earliest

If the driver runs in the cluster, add ``--py-files spark_jobs/session.py``.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

if __package__:
    from spark_jobs import session
else:  # spark-submit adds only the folder of this file to the path
    import session  # type: ignore[import-not-found,no-redef]


def command_line() -> argparse.ArgumentParser:
    """Return the job's command line."""
    arguments = argparse.ArgumentParser(prog="aeron_to_delta", description="Copies an Aeron stream into a Delta table.")
    session.add_arguments(arguments)
    arguments.add_argument("--schema", help="columns, as in SQL, of an arrow stream that has no recorded rows yet")
    return arguments


def build(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query that appends the stream's rows to ``args.table``."""
    stream = spark.readStream.format("aeron").options(**dict(args.options))
    if args.schema:
        stream = stream.schema(args.schema)
    return session.start(stream.load().writeStream, args, args.table)


if __name__ == "__main__":
    session.run(command_line(), build)
