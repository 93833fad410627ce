"""Copies an Aeron stream to another one, through servers or directly, with the same rows in the same order.

From a channel of a trusted network to a secure server, where each row arrives exactly once:

    spark-submit --files me.key $(aeron-spark jobs path mirror) --checkpoint /lake/_checkpoints/mirror \\
        --option channel=aeron:ipc --option streamId=1001 --option startingOffsets=earliest \\
        --target-option server=feeds.example:20121 --target-option stream=flights \\
        --target-option identity=me.key --target-option serverKey=aeron-spark:CQ...

From a server to a channel, where the rows of one micro-batch can be there twice after a kill:

    spark-submit --files me.key $(aeron-spark jobs path mirror) --checkpoint /lake/_checkpoints/mirror-out \\
        --option server=feeds.example:20121 --option stream=flights --option identity=me.key \\
        --option serverKey=aeron-spark:CQ... --option startingOffsets=earliest \\
        --target-option channel=aeron:ipc --target-option streamId=1002 --target-option record=auto

The copy has the payload of the stream: raw messages stay raw, with their reserved values. From a server to a server,
each partition is copied to the partition of its number, if the target has as many.
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
    arguments = session.JobArguments("mirror", __doc__, check)
    arguments.add_options("--option", "the stream that is copied, such as streamId=1001 or stream=flights")
    arguments.add_options("--target-option", "the copy, such as streamId=1002 or stream=copy")
    arguments.add_query()
    arguments.add_schema()
    return arguments


def check(args: session.Args) -> None:
    """Raise OptionError for a wrong option, or if both streams are the same one."""
    session.check_reading(args.options)
    session.check_writing(args.target_options)
    names = [
        [dict(options).get(name) for name in ("channel", "streamId", "server", "stream")]
        for options in (args.options, args.target_options)
    ]
    if names[0] == names[1]:
        raise OptionError(
            "a stream cannot be copied to itself", remedy="Give --target-option another stream than --option."
        )


def build(spark: SparkSession, args: session.Args) -> StreamingQuery:
    """Start the query that copies the stream."""
    rows = session.read_stream(spark, args.options, args.schema)
    given = {name.lower() for name, _ in args.target_options}
    options = dict(args.target_options)
    if not given & {"payload", "sbeschema"}:
        options["payload"] = payload = session.payload_of(args.options)
        if payload == "raw":  # the other columns would choose a channel, or are for readers
            rows = rows.select("value", "reservedValue")
    return session.start(rows.writeStream.format("aeron").options(**options), args)


if __name__ == "__main__":
    session.run(command_line(), build, session.await_end)
