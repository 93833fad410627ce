"""Compares a table with the stream that it is a copy of: which rows are missing, repeated or changed.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 $(aeron-spark jobs path audit) \\
        --table /lake/flights --checkpoint /lake/_checkpoints/flights --key flight_id \\
        --option channel=aeron:ipc --option streamId=1001

With --checkpoint, that of the query which writes the table, the stream is read up to the last committed micro-batch,
so that the query may run meanwhile. Without it, up to the stream's end. The table may have further columns.

--key names the columns that identify a row. By default it is the position of the message, if the table has its
columns; else rows are compared as a whole, and a changed row is one that is missing and one that is only in the table.
Rows only in the table are no fault: the stream may not have them any more.

The exit code is 1 if a row is missing, repeated or changed. The job changes nothing; after a kill, run it again.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from aeron_spark.errors import OptionError
from aeron_spark.jobs import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

# The columns that identify a row of a table of raw messages, or of one with metadata.
POSITIONS = (("recordingId", "position"), ("_aeron_recordingId", "_aeron_position", "_aeron_row"))
FAULTS = ("missing", "repeated", "changed")
TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"  # to_json would cut microseconds
MOST_CHARACTERS = 300  # of a row in the log


@dataclass(frozen=True)
class Audit:
    """The numbers of rows. ``examples`` has some of the faults, each with its kind and its row as JSON."""

    stream: int
    table: int
    missing: int
    repeated: int
    changed: int
    only_in_table: int
    examples: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether the table has each row of the stream once, unchanged."""
        return not self.missing + self.repeated + self.changed


def command_line() -> session.JobArguments:
    """Return the job's command line."""
    arguments = session.JobArguments("audit", __doc__, check)
    arguments.add_table()
    arguments.add_options()
    arguments.add_argument("--checkpoint", help="the checkpoint of the query that writes the table")
    arguments.add_argument("--key", action="append", default=[], metavar="COLUMN", help="a column of the key")
    arguments.add_argument(
        "--examples", type=int, default=20, metavar="N", help="faults to log at most (default: %(default)s)"
    )
    return arguments


def check(args: session.Args) -> None:
    """Raise OptionError for a wrong option."""
    session.check_reading(args.options, streaming=False)
    if args.checkpoint and any(name.lower().startswith("ending") for name, _ in args.options):
        raise OptionError("an option of the end and --checkpoint both end the stream", remedy="Give only one of them.")


def build(spark: SparkSession, args: session.Args) -> Audit:
    """Compare the rows; nothing is written."""
    options = dict(args.options)
    if args.checkpoint:
        options["endingOffsets"] = ending_offsets(spark, args)
    stream = spark.read.format("aeron").options(**options).load()
    reader = spark.read.format("delta").options(**dict(args.table_options))
    table = reader.load(args.table) if session.is_path(args.table) else reader.table(args.table)
    lacking = [name for name in stream.columns if name not in table.columns]
    if lacking:
        raise OptionError(
            f"table {args.table} has no column {lacking[0]!r}, which the stream has",
            remedy="Read the stream as the query does that writes the table, such as with --option payload=raw.",
        )
    key = args.key or next((list(names) for names in POSITIONS if set(names) <= set(stream.columns)), [])
    unknown = [name for name in key if name not in stream.columns]
    if unknown:
        raise OptionError(
            f"the stream has no column {unknown[0]!r}", remedy=f"Choose from {', '.join(stream.columns)}."
        )
    return compare(stream, table.select(*stream.columns), key, args.examples)


def ending_offsets(spark: SparkSession, args: session.Args) -> str:
    """Return the positions of the last committed micro-batch; those of newer recordings are their beginnings."""
    planner = session.planner(args.options)
    states = planner.states()
    offset = session.committed_offset(spark, args.checkpoint, planner.log.stream)
    return json.dumps({state.key: max(state.start, offset.position(state.key) or 0) for state in states})


def compare(stream: DataFrame, table: DataFrame, key: Sequence[str], examples: int = 20) -> Audit:
    """Compare two DataFrames of the same columns; rows of equal ``key`` are the same row, of which one is changed.

    Without a key, only equal rows are the same row.
    """
    from pyspark.sql import functions as f

    joined = counted(stream, key, "stream").join(counted(table, key, "table"), "row_key", "full_outer")
    rows_s, rows_t = f.coalesce("stream_count", f.lit(0)), f.coalesce("table_count", f.lit(0))
    both = joined.select(
        rows_s.alias("stream"),
        rows_t.alias("table"),
        f.greatest(rows_s - rows_t, f.lit(0)).alias("missing"),
        f.when(rows_s > 0, f.greatest(rows_t - rows_s, f.lit(0))).otherwise(f.lit(0)).alias("repeated"),
        f.when((rows_s > 0) & (rows_t > 0), f.size(f.array_except("table_rows", "stream_rows")))
        .otherwise(f.lit(0))
        .alias("changed"),
        f.when(rows_s == 0, rows_t).otherwise(f.lit(0)).alias("only_in_table"),
        f.coalesce("stream_row", "table_row").alias("row"),
    )
    names = [name for name in both.columns if name != "row"]
    sums = both.agg(*(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in names)).first()
    assert sums is not None  # an aggregation without groups has one row
    found = []
    if any(sums[name] for name in FAULTS):
        faulty = both.where(" or ".join(f"{name} > 0" for name in FAULTS)).limit(examples).collect()
        found = [(next(name for name in FAULTS if row[name]), row["row"][:MOST_CHARACTERS]) for row in faulty]
    return Audit(**{name: sums[name] for name in names}, examples=found)


def counted(rows: DataFrame, key: Sequence[str], side: str) -> DataFrame:
    """Return for each key the count of its rows, the hashes of their contents, and one row as JSON."""
    from pyspark.sql import functions as f

    def text(names: Sequence[str]) -> object:
        return f.to_json(f.struct(*names), {"timestampFormat": TIMES, "timestampNTZFormat": TIMES.removesuffix("XXX")})

    whole = rows.select(
        f.sha2(text(key or rows.columns), 256).alias("row_key"),  # type: ignore[arg-type]
        text(rows.columns).alias("row"),  # type: ignore[attr-defined]
    )
    return whole.groupBy("row_key").agg(
        f.count("*").alias(f"{side}_count"),
        f.collect_set(f.sha2("row", 256)).alias(f"{side}_rows"),
        f.first("row").alias(f"{side}_row"),
    )


def report(audit: Audit, stop: threading.Event) -> int:
    """Log the result, print it as JSON, and return the exit code."""
    for kind, row in audit.examples:
        session.LOG.info("%s: %s", kind, row)
    numbers = {name: value for name, value in asdict(audit).items() if name != "examples"}
    session.LOG.info("%s", ", ".join(f"{name.replace('_', ' ')}: {value:,}" for name, value in numbers.items()))
    print(json.dumps(numbers))
    return 0 if audit.is_clean else 1


if __name__ == "__main__":
    session.run(command_line(), build, report, is_cancelled=True)
