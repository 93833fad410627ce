"""Deletes the rows of a stream that all named checkpoints have passed. Without --purge, it only says which.

    spark-submit $(aeron-spark jobs path retention) --option channel=aeron:ipc --option streamId=1001 \\
        --checkpoint /lake/_checkpoints/flights --checkpoint /lake/_checkpoints/audit --keep 10GiB --purge

Name the checkpoint of each query that reads the stream: rows that another query needs are deleted, too. A checkpoint
has passed a position if a micro-batch up to it is committed. A recording, or a partition, that a checkpoint does not
have is kept. On the direct route, space is freed in whole segments (files). A reader's lease on a server keeps its
rows. The job deletes once and ends: run it from a timer, as often as you like. After a kill, run it again.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aeron_spark.errors import OptionError
from aeron_spark.jobs import session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from aeron_spark.log.api import RecordingState
    from aeron_spark.log.offsets import Offset


@dataclass(frozen=True)
class Passed:
    """A recording or partition: its first readable position, and the one before which nothing is needed any more."""

    key: str
    start: int
    position: int
    reason: str = ""  # for keeping all rows

    @property
    def bytes(self) -> int:
        """The bytes that a purge makes unreadable at most."""
        return self.position - self.start


def command_line() -> session.JobArguments:
    """Return the job's command line."""
    arguments = session.JobArguments("retention", __doc__, check)
    arguments.add_options()
    arguments.add_argument(
        "--checkpoint",
        action="append",
        required=True,
        dest="checkpoints",
        metavar="CHECKPOINT",
        help="the checkpoint of a query that reads the stream; repeat it for each of them",
    )
    arguments.add_argument("--keep", default="0", metavar="SIZE", help="bytes to keep before the passed position")
    arguments.add_argument("--purge", action="store_true", help="delete; without it, only say what would be deleted")
    return arguments


def check(args: session.Args) -> None:
    """Raise OptionError for a wrong option or size."""
    from aeron_spark.texts import INT64_MAX, parse_size

    session.check_reading(args.options, streaming=False)
    for name, text in args.options:
        if name.lower() in ("stream", "streamid") and set(text) & set(",*?["):
            raise OptionError(
                f"option {name!r} is {text!r}, expected one stream", remedy="Run the job for each of them."
            )
    try:
        parse_size(args.keep, 0, INT64_MAX)
    except ValueError as error:
        raise OptionError(f"--keep is {args.keep!r}, expected {error}") from None


def build(spark: SparkSession, args: session.Args) -> list[Passed]:
    """Purge what all checkpoints have passed if ``args.purge`` is set; return it for each recording or partition."""
    from aeron_spark.texts import INT64_MAX, parse_size

    planner = session.planner(args.options)
    states = planner.states()
    offsets = [session.committed_offset(spark, one, planner.log.stream) for one in args.checkpoints]
    found = plan(states, offsets, parse_size(args.keep, 0, INT64_MAX))
    for one in found:
        if one.reason:
            session.LOG.info("%s: %s, so all rows are kept", one.key, one.reason)
            continue
        verb = "purges" if args.purge else "would purge"
        session.LOG.info("%s: %s up to %s bytes, before position %d", one.key, verb, f"{one.bytes:,}", one.position)
        if args.purge and one.bytes:
            purge(args.options, one)
    return found


def plan(states: Iterable[RecordingState], offsets: Sequence[Offset], keep: int) -> list[Passed]:
    """Return up to where all ``offsets`` have read each recording, but for the last ``keep`` bytes before that."""
    found = []
    for state in states:
        reason = next((text for offset in offsets if (text := _why_unread(state, offset))), "")
        passed = [state.start if reason else offset.position(state.key) or 0 for offset in offsets]
        found.append(Passed(state.key, state.start, max(state.start, min(passed) - (0 if reason else keep)), reason))
    return found


def _why_unread(state: RecordingState, offset: Offset) -> str:
    """Return why an offset has not read a recording, or an empty text."""
    position = offset.position(state.key)
    if position is None:
        return "a checkpoint does not have it"
    if offset.fingerprint(state.key) != state.fingerprint:
        return "a checkpoint has another recording of this id"
    if state.divergence(offset.epochs.get(state.key), position) is not None:
        return "a checkpoint is of a later state than this restored stream"
    return ""


def purge(options: Sequence[tuple[str, str]], passed: Passed) -> None:
    """Delete the rows of one recording or partition before a position, as ``aeron-spark streams purge`` does."""
    from aeron_spark.log.api import split_key
    from aeron_spark.options import ReadOptions, ServerRoute
    from aeron_spark.pool import POOL
    from aeron_spark.spark.task_context import resolve_key_files, with_servers
    from aeron_spark.wire.stream_requests import PurgeStream

    owner, number = split_key(passed.key)
    route = resolve_key_files(with_servers(ReadOptions.parse(dict(options), streaming=False).route))
    if isinstance(route, ServerRoute):
        request = PurgeStream(route.stream, number, before_position=passed.position)
        (report,) = POOL.sessions(route)[owner].call(request).partitions
        session.LOG.info(
            "%s: begins at position %d, freed %s bytes", passed.key, report.start, f"{report.freed_bytes:,}"
        )
        return
    from aeron_spark.log.facade import Purge
    from aeron_spark.log_factory import streams_of

    running: Any = nullcontext  # nothing waits for a signal
    wanted = Purge(None, passed.position, None, None, recordings=(number,))
    for found in streams_of(dict(options), running).purge(None, wanted, Confirmed()).objects:
        session.LOG.info("%s: begins at position %d", passed.key, found["new_start"])


class Confirmed:
    """The user has given --purge."""

    def check(self, preview: str) -> None:
        """Do nothing."""

    def ask(self, question: str) -> None:
        """Say yes."""


def report(found: list[Passed], stop: threading.Event) -> int:
    """Log the sum; return the exit code."""
    session.LOG.info("%s bytes passed by all checkpoints", f"{sum(one.bytes for one in found):,}")
    return 0


if __name__ == "__main__":
    session.run(command_line(), build, report)
