"""Copies an Aeron stream into a Delta table, exactly once.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 $(aeron-spark jobs path aeron_to_delta) \\
        --table /lake/flights --checkpoint /lake/_checkpoints/flights \\
        --option channel=aeron:ipc --option streamId=1001 --option startingOffsets=earliest

A stream of a secure server needs other options only; Spark distributes the file with the key:

    spark-submit ... --files me.key $(aeron-spark jobs path aeron_to_delta) --table ... --checkpoint ... \\
        --option server=feeds.example:20121 --option stream=flights --option identity=me.key \\
        --option serverKey=aeron-spark:CQ... --option startingOffsets=earliest
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_spark.jobs import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def command_line() -> session.JobArguments:
    """Return the job's command line."""
    arguments = session.JobArguments("aeron_to_delta", __doc__, lambda args: session.check_reading(args.options))
    arguments.add_table()
    arguments.add_options()
    arguments.add_query()
    arguments.add_schema()
    return arguments


def build(spark: SparkSession, args: session.Args) -> StreamingQuery:
    """Start the query that appends the stream's rows to ``args.table``."""
    return session.start_into_table(session.read_stream(spark, args.options, args.schema).writeStream, args)


if __name__ == "__main__":
    session.run(command_line(), build, session.await_end)
