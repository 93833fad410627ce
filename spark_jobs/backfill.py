"""Copies a range of a recorded stream into a Delta table, exactly once, and ends; a killed run continues.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 $(aeron-spark jobs path backfill) \\
        --table /lake/flights_march --checkpoint /lake/_checkpoints/march \\
        --start 2026-03-01T00:00:00Z --end 2026-04-01T00:00:00Z \\
        --option server=feeds.example:20121 --option stream=flights --option identity=me.key \\
        --option serverKey=aeron-spark:CQ...

A range of positions, which is what the column 'position' of raw messages and the offsets of a query have:

    ... --option channel=aeron:ipc --option streamId=1001 --start '{"embedded/7": 4096}' --end '{"embedded/7": 8192}'

A row is in the range if its message begins at or after the start and before the end. The same command continues a
killed run at its checkpoint, and does nothing if the range is copied already. Give each range a checkpoint of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_spark.errors import OptionError
from aeron_spark.jobs import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def command_line() -> session.JobArguments:
    """Return the job's command line."""
    arguments = session.JobArguments("backfill", __doc__, check)
    arguments.add_table()
    arguments.add_options()
    arguments.add_checkpoint()
    arguments.add_argument(
        "--start",
        default="earliest",
        help="earliest, a time in ISO, or JSON of recordings to positions; for the first run (default: %(default)s)",
    )
    arguments.add_argument("--end", required=True, help="latest, a time in ISO, or JSON of recordings to positions")
    arguments.add_schema()
    arguments.set_defaults(available_now=True)
    return arguments


def check(args: session.Args) -> None:
    """Raise OptionError for a wrong option, or a wrong range."""
    from aeron_spark.options.values import Moment, parse_end

    for name, _ in args.options:
        if name.lower() in ("startingoffsets", "startingtimestamp"):
            raise OptionError(f"option {name!r} cannot be used in a backfill", remedy="Give --start and --end.")
    session.check_reading([*args.options, start_option(args.start)])
    try:
        end = parse_end(args.end)
    except ValueError as error:
        raise OptionError(f"--end is {args.end!r}, expected {error}") from None
    if isinstance(end, Moment):
        session.check_reading([*args.options, ("startingTimestamp", args.end)])  # it needs the publish times, too


def start_option(text: str) -> tuple[str, str]:
    """Return the option of the source for a start."""
    is_time = text.lower() not in ("earliest", "latest") and not text.lstrip().startswith("{")
    return ("startingTimestamp" if is_time else "startingOffsets"), text


def build(spark: SparkSession, args: session.Args) -> StreamingQuery:
    """Start the query that copies the range into ``args.table``; it ends by itself."""
    from aeron_spark.spark.source import BackfillSource

    spark.dataSource.register(BackfillSource)
    options = [*args.options, start_option(args.start), ("end", args.end)]
    rows = session.read_stream(spark, options, args.schema, BackfillSource.name())
    return session.start_into_table(rows.writeStream, args)


if __name__ == "__main__":
    session.run(command_line(), build, session.await_end)
