"""Publishes each row that is appended to a Delta table on an Aeron stream: at least once, to a server exactly once.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 spark_jobs/delta_to_aeron.py \\
        --table /lake/flights --checkpoint /lake/_checkpoints/flights-out \\
        --option channel=aeron:ipc --option streamId=1002 --option record=auto

A stream of a secure server needs other options only; Spark distributes the file with the key:

    spark-submit ... --files me.key spark_jobs/delta_to_aeron.py --table ... --checkpoint ... \\
        --option server=feeds.example:20121 --option stream=flights --option identity=me.key \\
        --option serverKey=aeron-spark:CQ...

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
    arguments = argparse.ArgumentParser(
        prog="delta_to_aeron", description="Publishes a Delta table on an Aeron stream."
    )
    session.add_arguments(arguments)
    arguments.add_argument(
        "--column",
        action="append",
        dest="columns",
        metavar="EXPRESSION",
        help='a column to send, in SQL, such as "to_json(struct(*)) AS value"; may be repeated (default: all columns)',
    )
    return arguments


def build(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query that publishes the rows of ``args.table``."""
    rows = session.read_table(spark, args.table).selectExpr(*(args.columns or ["*"]))
    return session.start(rows.writeStream.format("aeron").options(**dict(args.options)), args)


if __name__ == "__main__":
    session.run(command_line(), build)
