"""Common parts of the jobs: their command lines, their Spark session, and the start and the end of their queries."""

from __future__ import annotations

import argparse
import json
import logging
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from aeron_spark.errors import AeronSparkError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from aeron_spark.log.api import SourceStream
    from aeron_spark.log.offsets import Offset
    from aeron_spark.log.query import QueryPlanner

Result = TypeVar("Result")
Args = argparse.Namespace

LOG: Final = logging.getLogger("aeron_spark.jobs")
LOG_FORMAT: Final = "%(asctime)s %(levelname)s aeron-spark: %(message)s"  # Spark's

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

TERMINATED: Final = 143  # the exit code that a shell reports for SIGTERM
WATCH_INTERVAL_S: Final = 1  # between two looks at a running query: SIGTERM waits for the next one
PROGRESS_INTERVAL_S: Final = 10.0  # between two log lines about a query's progress
# A micro-batch that runs when SIGTERM comes may end, because a direct sink would repeat its rows after the next start.
# Kubernetes kills a process 30 s after SIGTERM.
LAST_BATCH_TIMEOUT_S: Final = 20.0
HOOK_PRIORITY: Final = 100  # above that of Spark's hooks, so that the query ends before the session
HOOK_TIMEOUT_S: Final = 25  # the last micro-batch, and the end of the query

OPTION_CALL: Final = re.compile(r"\.option\('(\w+)', '([^']*)'\)")  # in the remedies of the connector's errors
INTERVAL: Final = re.compile(r"[1-9]\d* ?(milliseconds?|seconds?|minutes?|hours?|days?)")


class JobArguments(argparse.ArgumentParser):
    """The command line of a job. A wrong one ends the program with exit code 2 and one line, before Spark starts.

    ``text`` is the docstring of the job's module: its first line is the summary. ``check`` raises OptionError for
    arguments that do not go together, or that the connector would refuse.
    """

    def __init__(self, name: str, text: str | None, check: Callable[[Args], None]) -> None:
        summary, _, rest = (text or "").partition("\n")
        super().__init__(
            prog=name,
            description=summary,
            epilog=rest.strip("\n"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._check = check

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if not rest:
            try:
                self._check(found)
            except OptionError as error:
                self.error(str(error))
        return found, rest

    def error(self, message: str) -> Any:
        """End the program, without the usage, which is long."""
        text = OPTION_CALL.sub(r"--option \1=\2", " ".join(message.split()))
        self.exit(2, f"{self.prog}: {text} (--help shows the arguments)\n")

    def add_options(
        self, flag: str = "--option", of: str = "the connector, such as streamId=1001 or stream=flights"
    ) -> None:
        """Add an argument for options, which may be repeated. ``--table-option`` becomes ``args.table_options``."""
        self.add_argument(
            flag,
            action="append",
            default=[],
            type=parse_option,
            dest=f"{flag.lstrip('-').replace('-', '_')}s",
            metavar="NAME=VALUE",
            help=f"an option of {of}; may be repeated",
        )

    def add_table(self) -> None:
        """Add the arguments of a job with a Delta table."""
        self.add_argument("--table", required=True, help="the Delta table: a path, or a name of the catalog")
        self.add_options("--table-option", "Delta, such as mergeSchema=true or startingVersion=7")

    def add_schema(self) -> None:
        """Add the argument for the columns of an empty stream."""
        self.add_argument("--schema", help="columns, as in SQL, of an arrow stream that has no recorded rows yet")

    def add_query(self) -> None:
        """Add the arguments of a job that runs until it is stopped."""
        self.add_checkpoint()
        trigger = self.add_mutually_exclusive_group()
        trigger.add_argument("--available-now", action="store_true", help="process all rows available now, then end")
        trigger.add_argument(
            "--interval",
            type=parse_interval,
            default="10 seconds",
            help="time between two micro-batches (default: %(default)s)",
        )

    def add_checkpoint(self) -> None:
        """Add the argument for the checkpoint of the job's query."""
        self.add_argument("--checkpoint", required=True, help="the folder in which the query stores its progress")


def parse_option(text: str) -> tuple[str, str]:
    """Parse ``name=value``; a value may contain further equals signs, as channels do."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"invalid option {text!r}, expected NAME=VALUE")
    return name, value


def parse_interval(text: str) -> str:
    """Return an interval as Spark reads it."""
    if not INTERVAL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"invalid interval {text!r}, expected a text such as '10 seconds'")
    return text


def check_reading(options: Sequence[tuple[str, str]], *, streaming: bool = True) -> None:
    """Raise OptionError for options that the source would refuse."""
    from aeron_spark.options import ReadOptions

    ReadOptions.parse(dict(options), streaming=streaming)


def check_writing(options: Sequence[tuple[str, str]]) -> None:
    """Raise OptionError for options that the sink of a stream would refuse."""
    from aeron_spark.options import WriteOptions

    WriteOptions.parse(dict(options), streaming=True)


def session(name: str) -> SparkSession:
    """Return the Spark session. ``spark-submit`` must add Delta's jars with ``--jars`` or ``--packages``."""
    from pyspark.sql import SparkSession

    from aeron_spark.spark import register

    builder = SparkSession.builder.appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)  # it also makes the workers run this Python, without an active virtual environment
    return spark


def is_path(table: str) -> bool:
    """Return whether a table is given by its path instead of its name."""
    return "/" in table


def read_stream(
    spark: SparkSession, options: Sequence[tuple[str, str]], schema: str | None = None, source: str = "aeron"
) -> DataFrame:
    """Return a streaming DataFrame of an Aeron stream."""
    stream = spark.readStream.format(source).options(**dict(options))
    return (stream.schema(schema) if schema else stream).load()


def read_table(spark: SparkSession, table: str, options: Sequence[tuple[str, str]] = ()) -> DataFrame:
    """Return a streaming DataFrame of the rows that are appended to a Delta table."""
    stream = spark.readStream.format("delta").options(**dict(options))
    return stream.load(table) if is_path(table) else stream.table(table)


def planner(options: Sequence[tuple[str, str]], *, streaming: bool = False) -> QueryPlanner:
    """Return the planner of a stream, for its recordings and its content."""
    from aeron_spark.log.query import QueryPlanner
    from aeron_spark.options import ReadOptions
    from aeron_spark.spark.reader import open_planning_log

    return QueryPlanner(ReadOptions.parse(dict(options), streaming=streaming), open_planning_log, framed=False)


def payload_of(options: Sequence[tuple[str, str]]) -> str:
    """Return the payload with which a query reads a stream."""
    given = {name.lower(): text for name, text in options}.get("payload", "auto")
    if given != "auto":
        return given
    content = planner(options, streaming=True).content()
    return "raw" if content is None else content.payload


def committed_offset(spark: SparkSession, checkpoint: str, stream: SourceStream) -> Offset:
    """Return the offset of a stream up to which the query of a checkpoint has committed its micro-batches.

    Raises OptionError if the checkpoint has none, or is of other streams only.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    from aeron_spark.log.offsets import Offset

    files = spark.read.format("binaryFile").option("pathGlobFilter", "[0-9]*").option("ignoreMissingFiles", "true")
    commits = f"{checkpoint.rstrip('/')}/commits"
    try:
        paths = files.load(commits).select(f.regexp_extract("path", r"/(\d+)$", 1).cast("long").alias("id"))
        last = paths.agg(f.max("id")).first()
    except AnalysisException as error:
        raise OptionError(f"{commits} cannot be read: {error}", remedy="Name the checkpoint of a query.") from None
    if last is None or last[0] is None:
        raise OptionError(f"{commits} has no committed micro-batch", remedy="Name the checkpoint of a query that ran.")
    (row,) = files.load(f"{checkpoint.rstrip('/')}/offsets/{last[0]}").select("content").collect()
    for line in bytes(row.content).decode().splitlines()[2:]:
        with suppress(AeronSparkError):  # an offset of another source, or of another stream
            return Offset.parse(json.loads(line)).of_stream(stream)
    raise OptionError(
        f"checkpoint {checkpoint} is not of {stream.label}", remedy="Name the checkpoint of a query that reads it."
    )


def start(rows: DataStreamWriter, args: Args) -> StreamingQuery:
    """Start a query from its checkpoint, into the sink that ``rows`` has."""
    rows = with_trigger(rows, args)
    return begin(rows.start)


def start_into_table(rows: DataStreamWriter, args: Args) -> StreamingQuery:
    """Start a query from its checkpoint, into the Delta table of the arguments."""
    rows = with_trigger(rows, args).format("delta").options(**dict(args.table_options))
    return begin(lambda: rows.start(args.table) if is_path(args.table) else rows.toTable(args.table))


def with_trigger(rows: DataStreamWriter, args: Args) -> DataStreamWriter:
    """Return a query with the checkpoint and the trigger of the arguments."""
    rows = rows.option("checkpointLocation", args.checkpoint)
    return rows.trigger(availableNow=True) if args.available_now else rows.trigger(processingTime=args.interval)


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
    from pyspark.errors import StreamingQueryException

    with suppress(StreamingQueryException):
        query.awaitTermination(END_TIMEOUT_S)


class Running:
    """A query that a job runs to its end, or until SIGTERM: it logs the progress, and lets the last micro-batch end."""

    def __init__(
        self, query: StreamingQuery, stop: threading.Event, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._query = query
        self._stop = stop
        self._clock = clock
        self._rows = 0
        self._batch = -1  # the last one that is counted
        self._logged_at = clock()

    def await_end(self) -> int:
        """Return the exit code when the query has ended. Raises StreamingQueryException if it failed."""
        while not self._query.awaitTermination(WATCH_INTERVAL_S):
            self._count()
            if self._stop.is_set():
                self._stop_after_batch()
                break
        self._count()
        LOG.info("%s rows, last micro-batch: %s", f"{self._rows:,}", "none" if self._batch < 0 else self._batch)
        return 0

    def _count(self) -> None:
        """Count the rows of the micro-batches that ended since the last call, and log them now and then."""
        for progress in self._query.recentProgress:
            # a trigger without rows has the number of the micro-batch that is next
            if progress["batchId"] > self._batch and progress["numInputRows"]:
                self._batch = progress["batchId"]
                self._rows += progress["numInputRows"]
                if self._clock() - self._logged_at >= PROGRESS_INTERVAL_S:
                    self._logged_at = self._clock()
                    LOG.info("micro-batch %d ended, %s rows so far", self._batch, f"{self._rows:,}")

    def _stop_after_batch(self) -> None:
        """Stop the query when its micro-batch has ended, or at the latest after ``LAST_BATCH_TIMEOUT_S``."""
        LOG.info("SIGTERM: the query ends after its micro-batch")
        deadline = self._clock() + LAST_BATCH_TIMEOUT_S
        running = self._batch
        while self._batch == running and self._query.isActive and self._query.status["isTriggerActive"]:
            if self._clock() > deadline:
                LOG.warning("the micro-batch did not end within %g s: the next start repeats it", LAST_BATCH_TIMEOUT_S)
                break
            time.sleep(POLL_INTERVAL_S)
            self._count()
        self._query.stop()


def await_end(query: StreamingQuery, stop: threading.Event) -> int:
    """Wait for the end of a job's query; return the exit code."""
    return Running(query, stop).await_end()


def run(
    parser: argparse.ArgumentParser,
    build: Callable[[SparkSession, Args], Result],
    finish: Callable[[Result, threading.Event], int],
    argv: Sequence[str] | None = None,
    *,
    is_cancelled: bool = False,
) -> None:
    """Run a job as a program: parse its command line, build, and wait for the end that ``finish`` returns.

    SIGTERM sets the event that ``finish`` gets; with ``is_cancelled``, it cancels Spark's work instead, whose result
    is of no use. Exits if the code is not 0. For an error of this package the code is 1, and the last line is the
    error's text.
    """
    from aeron_spark.spark import error_text

    args, text = parser.parse_args(argv), None
    with logged_to_stderr():
        spark = session(parser.prog)
        stop, ended = threading.Event(), threading.Event()
        LOG.info("%s begins, application %s", parser.prog, spark.conf.get("spark.app.id"))
        try:
            with stopped_by_sigterm(spark, stop, ended), cancelled(spark, stop, ended, is_cancelled):
                code = finish(build(spark, args), stop)
            LOG.info("%s ended, exit code %d", parser.prog, code)
        except AeronSparkError as error:
            LOG.error("%s failed: %s", parser.prog, error)
            code = 2 if isinstance(error, OptionError) else 1
        except BaseException as error:
            if is_cancelled and stop.is_set():
                text, code = "SIGTERM ended it before its result", TERMINATED
            else:
                text, code = error_text(error), 1
            if text is None:
                LOG.error("%s failed: %s", parser.prog, type(error).__name__)
                raise
        finally:
            ended.set()
            spark.stop()
        if text is not None:
            LOG.error("%s failed: %s", parser.prog, text)
    if code:
        sys.exit(code)


@contextmanager
def logged_to_stderr() -> Iterator[None]:
    """Log the job's lines beside Spark's while the block lasts."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT, "%y/%m/%d %H:%M:%S"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.removeHandler(handler)


@contextmanager
def cancelled(spark: SparkSession, stop: threading.Event, ended: threading.Event, wanted: bool) -> Iterator[None]:
    """Cancel the work of Spark while ``stop`` is set, if that is ``wanted``."""
    from aeron_spark.spark.source import context_of

    context = context_of(spark)

    def cancel() -> None:
        while not ended.wait(WATCH_INTERVAL_S):
            if stop.is_set():
                spark.interruptAll() if context is None else context.cancelAllJobs()

    if not wanted:
        yield
        return
    thread = threading.Thread(target=cancel, name="aeron-spark-cancel")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class ShutdownHook:
    """Runs when the JVM gets SIGTERM, as it does with ``spark-submit``: it lets the job end before Spark's session."""

    def __init__(self, stop: threading.Event, ended: threading.Event) -> None:
        self._stop = stop
        self._ended = ended

    def run(self) -> None:
        """Request the job's end, and wait for it, in a thread of the callback server."""
        self._stop.set()
        self._ended.wait(HOOK_TIMEOUT_S)

    class Java:
        """The interface that the JVM calls."""

        implements = ("java.lang.Runnable",)


@contextmanager
def stopped_by_sigterm(spark: SparkSession, stop: threading.Event, ended: threading.Event) -> Iterator[None]:
    """Set ``stop`` if this process or the JVM of the session gets SIGTERM."""
    from pyspark.java_gateway import ensure_callback_server_started

    from aeron_spark.spark.source import context_of

    context, remove = context_of(spark), None
    if context is not None:  # with Spark Connect, the JVM is the server's
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        java = cast(Any, context._jvm)
        hooks = java.org.apache.hadoop.util.ShutdownHookManager.get()
        hook = java.java.lang.Thread(ShutdownHook(stop, ended))  # which has equality, as Hadoop's set of hooks needs
        hooks.addShutdownHook(hook, HOOK_PRIORITY, HOOK_TIMEOUT_S, java.java.util.concurrent.TimeUnit.SECONDS)
        remove = partial(hooks.removeShutdownHook, hook)
    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, lambda *_: stop.set()) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, previous)
        if remove is not None and not stop.is_set():
            remove()
