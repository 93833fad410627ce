"""Publishes the rows that are appended to a Delta table, or its change feed, on an Aeron stream.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 $(aeron-spark jobs path delta_to_aeron) \\
        --table /lake/flights --checkpoint /lake/_checkpoints/flights-out \\
        --option channel=aeron:ipc --option streamId=1002 --option record=auto

A stream of a secure server needs other options only; Spark distributes the file with the key:

    spark-submit ... --files me.key $(aeron-spark jobs path delta_to_aeron) --table ... --checkpoint ... \\
        --option server=feeds.example:20121 --option stream=flights --option identity=me.key \\
        --option serverKey=aeron-spark:CQ...

To a server each row is published exactly once, on the direct route at least once. With --change-feed, each change of
the table is a row, with Delta's columns _change_type, _commit_version and _commit_timestamp; without it, the query
fails at the first commit that changes or deletes rows, as Delta's source does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_spark.jobs import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def command_line() -> session.JobArguments:
    """Return the job's command line."""
    arguments = session.JobArguments("delta_to_aeron", __doc__, lambda args: session.check_writing(args.options))
    arguments.add_table()
    arguments.add_options()
    arguments.add_query()
    arguments.add_argument(
        "--column",
        action="append",
        dest="columns",
        metavar="EXPRESSION",
        help='a column to send, in SQL, such as "to_json(struct(*)) AS value"; may be repeated (default: all columns)',
    )
    arguments.add_argument(
        "--change-feed",
        action="store_true",
        help="publish inserts, updates and deletes; the table needs a change feed",
    )
    return arguments


def build(spark: SparkSession, args: session.Args) -> StreamingQuery:
    """Start the query that publishes the rows of ``args.table``."""
    more = [("readChangeFeed", "true")] if args.change_feed else []
    rows = session.read_table(spark, args.table, [*more, *args.table_options]).selectExpr(*(args.columns or ["*"]))
    return session.start(rows.writeStream.format("aeron").options(**dict(args.options)), args)


if __name__ == "__main__":
    session.run(command_line(), build, session.await_end)
