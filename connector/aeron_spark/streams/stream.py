"""One named stream: what was committed to it, for readers; how more is committed, once and as a whole.

Two locks. ``_writing`` is held by whoever moves a partition's recording: one commit, purge or recovery at a time.
``_state`` guards ledger and journal, is held for as long as a record takes to reach the disk, and may be taken while
``_writing`` is held, never the other way round. Readers take neither: they see the last view.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive import ArchiveAddress, Recording
from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    DataLossError,
    RefusedError,
    StillWorking,
    UsageError,
)
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.journal import JournaledLedger, Opened
from aeron_spark.streams.ledger import NO_TRANSACTION
from aeron_spark.streams.model import CommitOutcome, Shape, StreamSettings
from aeron_spark.streams.reads import Reading
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.retention import Layout, ReaderLeases, purge_to, wanted_start
from aeron_spark.streams.schema_changes import merge
from aeron_spark.streams.stage_files import StageSpace
from aeron_spark.streams.stages import Stage, StageRef, Stages, by_partition
from aeron_spark.streams.time_index import SECOND_NS

LOG: Final = logging.getLogger("aeron_spark.streams")
STAGES: Final = "stages"
NOTE_INTERVAL_S: Final = 10.0  # between two notes in the archive's folder, each of which syncs a file
MOST_TOKEN_BYTES: Final = 4_096  # of UTF-8; each producer of each writer has one in the journal


class Stream(Reading):
    """A stream whose files are in ``folder``. Safe for use by many threads; made by :class:`Streams`.

    ``make_room`` frees places of another stream where the archive can record no more at once, and says whether it did.
    Raises DataLossError or DataFormatError where the journal is not right.
    """

    def __init__(
        self,
        folder: Path,
        definition: Definition,
        address: ArchiveAddress,
        settings: StreamSettings,
        space: StageSpace,
        opened: Opened,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
        make_room: Callable[[], bool] = bool,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._turn_timeout = settings.turn
        self._rest_after = settings.rest_after
        self._writing = threading.Lock()
        self._state = threading.Lock()
        self._loss: DataLossError | None = None  # why nothing can be written any more
        self._damage: DataLossError | None = None  # why the last commit failed, where a recording is not right
        self._noted_at = clock()
        self._leases = ReaderLeases()
        self._books = JournaledLedger(
            folder, definition.partitions, opened, ArchiveMark(address.archive_dir, definition)
        )
        self._ledger = self._books.ledger
        try:
            self._recordings = Recordings(
                definition, address, settings, self._ledger.recordings, clock=clock, make_room=make_room
            )
            self._stages = Stages(
                folder / STAGES,
                space,
                now=clock(),
                expiry_seconds=settings.stage_expiry,
                most_value_bytes=definition.max_message_bytes,
                sync=settings.sync_stages,
            )
        except BaseException:
            self._books.close()
            raise
        super().__init__(definition, address, settings, self._recordings.view(self._ledger))

    @property
    def problem(self) -> AeronSparkError | None:
        """Why the stream can only be read; None where all is well."""
        return self._loss or self._damage or self._books.fault

    # For readers: see Reading for the rest

    def position_at(self, time_ns: int) -> list[int]:
        """Return for each partition where the first transaction committed at or after ``time_ns`` begins, or its end.

        ``time_ns`` is ns since 1970, by this server's clock; the recording is not looked at.
        """
        self._refuse_closed()
        with self._state:
            found = self._ledger.position_at(time_ns)
            return [max(position, start) for position, start in zip(found, self._ledger.starts, strict=True)]

    def lease(self, reader: str, positions: Mapping[int, int], seconds: float) -> None:
        """Keep what lies at and behind ``positions`` (by partition) for so long; replaces the reader's lease.

        No positions, or no seconds, end it. Raises RefusedError where too many readers hold leases.
        """
        with self._state:
            self._refuse_closed()
            self._leases.hold(reader, positions, seconds, self._clock())

    # For writers

    def last_transaction(self, writer: str, producer: str = "") -> int:
        """Return the writer's last committed transaction, or -1; with ``producer`` that producer's."""
        with self._state:
            self._refuse_closed()
            return self._ledger.last_transaction(writer, producer)

    def last_transaction_with_token(self, writer: str, producer: str) -> tuple[int, str]:
        """Return an producer's last committed transaction, or -1, and the token that came with it, or ""."""
        with self._state:
            self._refuse_closed()
            return self._ledger.last_transaction(writer, producer), self._ledger.token(writer, producer)

    def begin(
        self, writer: str, run: str, transaction: int | None = None, *, single_use: bool = False, producer: str = "",
        acknowledged: int = NO_TRANSACTION, stamp: str = "", replaced: str = "",
    ) -> tuple[int, str]:  # fmt: skip
        """Begin a transaction, or whichever comes next.

        Returns the writer's last committed transaction, or -1, and its stamp, see ``Ledger.stamp``. A new run fences
        the one before. ``producer`` is who writes under the writer's id, the same over all runs; without it a transaction
        that anybody committed is a repeat. ``acknowledged`` is the last transaction that the writer saw committed,
        ``stamp`` what it was given then; ``replaced`` is the run with which it entered before. Raises RefusedError
        where a later run has fenced this one or the one before, where the writer entered before and is not known any
        more, where another producer has committed in the transaction's place, and, with the reason "diverged" and nothing
        changed, where this stream does not have what was acknowledged; DataLossError where nothing can be written.
        """
        with self._state:
            self._refuse_unwritable()
            self._ledger.check_acknowledged(writer, acknowledged, stamp)
            self._begin_run(writer, run, single_use, transaction, producer, replaced)
            return self._ledger.last_transaction(writer), self._ledger.stamp(writer)

    def first_lost(self, writer: str, acknowledged: int, stamp: str) -> int | None:
        """Return the writer's first transaction up to ``acknowledged`` that is not in this stream; see :meth:`enter`.

        None where all of them are.
        """
        with self._state:
            self._refuse_closed()
            return self._ledger.first_lost(writer, acknowledged, stamp)

    def open_stage(
        self,
        writer: str,
        run: str,
        transaction: int,
        partition: int,
        task: int,
        content: str,
        schema: bytes | None = None,
        *,
        single_use: bool = False,
        producer: str = "",
        acknowledged: int = NO_TRANSACTION,
        stamp: str = "",
        replaced: str = "",
    ) -> Stage:
        """Open a stage for a task's rows of one partition; see :meth:`enter` for the last three.

        Raises AlreadyCommitted, RefusedError (fenced; another producer's; no room), DataFormatError for another content
        or a schema that the stream's cannot become.
        """
        self._check_partition(partition)
        with self._state:
            self._refuse_unwritable()
            self._ledger.check_acknowledged(writer, acknowledged, stamp)
            self._begin_run(writer, run, single_use, transaction, producer, replaced)
            self._ledger.check_open(writer, run, transaction, producer)
            self._ledger.check_content(content)
            if schema is not None:
                merge(self._ledger.schema, schema)
            return self._stages.open(
                writer, run, transaction, partition, task, content, schema, now=self._clock(), single_use=single_use
            )

    def stage(self, stage_id: str) -> Stage:
        """Return an open stage. Raises RefusedError where there is none (any more)."""
        self._refuse_closed()
        return self._stages.get(stage_id)

    def commit(
        self, writer: str, run: str, transaction: int, stages: Iterable[StageRef], *, producer: str = "",
        rows: int | None = None, seconds: float | None = None, token: str = "",
    ) -> CommitOutcome:  # fmt: skip
        """Make the rows of these stages visible, all at once; a transaction that is committed is left as it is.

        Within a partition rows are in the order of tasks. Whatever else the writer staged for it is dropped. When this
        raises nothing of the transaction is visible, and the same commit may be tried again (unless it was refused).
        ``rows`` is how many rows the writer has of the transaction; ``seconds`` how long to wait for another commit.
        ``token`` is the producer's own text, kept with its last transaction; at most 4,096 bytes of UTF-8, else
        UsageError. Raises RefusedError where it names no stage or the stages have another number of rows, the run is
        fenced, the transaction another producer's or a stage gone, DataFormatError for a stage or schema that is not
        right, TransportError and WaitTimeout where Aeron or the disk failed, StillWorking where another commit takes
        longer, DataLossError.
        """

        def chosen() -> list[Stage]:
            refs = list(stages)
            _check_named(writer, transaction, refs, rows)
            return self._chosen(writer, run, transaction, refs)

        return self._commit_once(writer, run, transaction, producer, token, chosen, seconds)

    def commit_empty(
        self, writer: str, run: str, transaction: int, *, producer: str = "", seconds: float | None = None,
        token: str = "",
    ) -> CommitOutcome:  # fmt: skip
        """Note that a transaction which has no row is done; see :meth:`commit`."""
        return self._commit_once(writer, run, transaction, producer, token, list, seconds)

    def _commit_once(
        self, writer: str, run: str, transaction: int, producer: str, token: str, chosen: Callable[[], list[Stage]],
        seconds: float | None,
    ) -> CommitOutcome:  # fmt: skip
        _check_token(writer, transaction, token)
        with self._turn(seconds):
            with self._state:
                self._refuse_unwritable()
                already = self._ledger.is_committed(writer, transaction, producer)
                if not already:
                    self._ledger.check_open(writer, run, transaction, producer)
            if not already:
                self._commit(writer, run, transaction, chosen(), producer, token)
            for stage in self._stages.of(writer):
                if stage.description.transaction <= transaction:
                    stage.release()
            with self._state:
                return CommitOutcome(already, [state.end for state in self._view.states], self._ledger.stamp(writer))

    def publish_ahead(self, stage: Stage, published: int = 0) -> int:
        """Record more of a large stage than ``published`` bytes while it grows; return how many of it are recorded.

        Nobody sees them, and a commit that comes first cuts them off. -1: not now. Raises what a commit raises.
        """
        if not self._writing.acquire(blocking=False):
            return -1
        try:
            self._refuse_unwritable()
            if not self._stages.is_alone(stage):
                return -1
            return self._recordings.publish_ahead(stage, published, self._ledger.ends[stage.description.partition])
        finally:
            self._writing.release()

    def abort(self, writer: str, run: str, transaction: int) -> None:
        """Drop what this run staged for the transaction; one that is committed stays."""
        with self._turn():
            self._refuse_closed()
            for stage in self._stages.of(writer, transaction):
                if stage.description.run == run:
                    stage.discard()

    # For whoever runs the server

    def purge(
        self, *, partition: int | None = None, before_position: int | None = None, before_time_ns: int | None = None
    ) -> list[int]:
        """Delete whole segments before a position, or before what was committed at a time; return all starts then.

        Of one partition or of all. What a live lease holds stays, and what is not a whole segment.
        """
        self._check_partition(partition or 0)
        with self._turn():
            with self._state:
                self._refuse_unwritable()
                wanted = [before_position or 0] * self.definition.partitions
                if before_time_ns is not None:
                    wanted = list(map(max, wanted, self._ledger.position_at(before_time_ns)))
                chosen = range(len(wanted)) if partition is None else [partition]
                moved = self._retain({index: wanted[index] for index in chosen})
            self._recordings.purge(moved)
        return [state.start for state in self._view.states]

    def recover(self, recordings: Mapping[int, Recording] | None = None) -> None:
        """Undo what was recorded and not committed. ``recordings`` are the archive's, by id, where they were listed.

        A recording that is gone, or ends too early, makes the stream one that can only be read. What was cut off, and
        what is lost, is logged.
        """
        name = self.definition.name
        with self._turn():
            recovered = self._recordings.recover(recordings, self._ledger.starts, self._ledger.ends)
            self._loss = recovered.lost
            self._show(self._recordings.view(self._ledger))
        if self._books.torn:
            LOG.warning(
                "recovered stream %r: an unfinished record of %d bytes was cut off its journal", name, self._books.torn
            )
        for partition, (was, end) in sorted(recovered.cut.items()):
            LOG.warning(
                "recovered stream %r: partition %d was cut from position %d to %d: the journal does not say that the "
                "%d bytes between were committed",
                name, partition, was, end, was - end,
            )  # fmt: skip
        if self._loss is not None:
            LOG.error("stream %r is read-only: %s", name, self._loss)

    def give_room(self) -> bool:
        """Free this stream's places among the archive's recordings; whether it had any. Not while somebody commits."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            return self._recordings.give_room()
        finally:
            self._writing.release()

    def tick(self) -> list[AeronSparkError]:
        """Do what time brings; return what went wrong, which the next one tries again."""
        if not self._writing.acquire(blocking=False):
            return []  # a commit is under way
        try:
            if self._closed:
                return []
            self._recordings.rest(self._rest_after)
            self._recordings.drop_ahead(self._stages, self._ledger.ends)
            moved: dict[int, int] = {}
            with self._state:
                self._stages.expire(self._clock())
                self._leases.expire(self._clock())
                if self._loss is None:
                    moved = self._retain(self._outdated())
                    self._books.compact(self._wall())
                self._note()
            self._recordings.purge(moved)
        except AeronSparkError as error:
            return [error]
        finally:
            self._writing.release()
        return []

    def close(self, *, deleted: bool = False) -> None:
        """Let everything go; what is committed and what is staged stays on the disk."""
        with self._turn():
            with self._state:
                if self._closed:
                    return
                self._end("deleted" if deleted else "closed")
                self._stages.close()
                self._books.close()
            self._recordings.rest(0.0)

    # What the above is made of

    def _note(self) -> None:
        """Have the archive's folder know, now and then, how far the journal is; the state's lock is held."""
        if self._clock() - self._noted_at >= NOTE_INTERVAL_S:
            self._noted_at = self._clock()
            self._books.note()

    def _commit(self, writer: str, run: str, transaction: int, chosen: list[Stage], producer: str, token: str) -> None:
        with_rows = [stage for stage in chosen if stage.rows]
        with self._state:
            content, schema = self._shared(with_rows)
        stages = by_partition(with_rows)
        try:
            ends = self._recordings.publish(stages, self._ledger.ends)
        except DataLossError as error:
            if self._damage is None:
                LOG.error("stream %r is read-only: %s", self.definition.name, error)
            self._damage = error
            raise
        self._damage = None
        try:
            with self._state:
                # The run may have been fenced while it was published.
                record = self._ledger.prepare_commit(
                    writer,
                    run,
                    transaction,
                    now_ns=self._wall(),
                    ends=ends,
                    rows={index: sum(stage.rows for stage in of_partition) for index, of_partition in stages.items()},
                    content=content,
                    schema=schema,
                    single_use=any(stage.description.single_use for stage in chosen),
                    producer=producer,
                    token=token,
                )
                self._books.write(record)
                self._show(self._recordings.view(self._ledger))
        except BaseException:
            self._recordings.spoil(stages)
            raise

    def _chosen(self, writer: str, run: str, transaction: int, refs: list[StageRef]) -> list[Stage]:
        if len({ref.id for ref in refs}) != len(refs):
            raise UsageError("a commit names a stage twice", remedy="Name the stages of the attempts that succeeded.")
        chosen = [self._taken(ref) for ref in refs]
        for stage in chosen:
            whose = stage.description
            if (whose.writer, whose.run, whose.transaction) != (writer, run, transaction):
                raise UsageError(
                    f"stage {stage.id} is of transaction {whose.transaction} of writer {whose.writer!r}, run "
                    f"{whose.run!r}, and named by transaction {transaction} of {writer!r}, run {run!r}",
                    remedy="Name the stages of the transaction itself.",
                )
        return chosen

    def _taken(self, ref: StageRef) -> Stage:
        """Return a stage that a commit names. One that is not what was staged is refused, as if it were gone."""
        try:
            return self._stages.take(ref, self._clock())
        except DataFormatError as error:
            raise RefusedError(error.what, remedy=error.remedy) from error

    def _shared(self, stages: list[Stage]) -> tuple[str, bytes | None]:
        """Return the content and schema of a stream that has these stages' rows as well."""
        content, schema = self._ledger.content, self._ledger.schema
        for stage in stages:
            described = stage.description
            self._ledger.check_content(described.content)
            if content and content != described.content:
                raise DataFormatError(
                    f"one task of a transaction staged {content} and another {described.content}",
                    remedy="Write all of it with one payload.",
                )
            content = described.content
            if described.schema is not None:
                schema = merge(schema, described.schema)
        return content, schema

    def _begin_run(
        self, writer: str, run: str, single_use: bool, transaction: int | None, producer: str, replaced: str = ""
    ) -> None:  # fmt: skip
        entered = self._ledger.prepare_run(
            writer,
            run,
            now_ns=self._wall(),
            single_use=single_use,
            transaction=transaction,
            producer=producer,
            replaced=replaced,
        )
        if entered is not None:
            self._books.write(entered)

    def _outdated(self) -> dict[int, int]:
        """Return from where on the retention keeps each partition; empty where it keeps all."""
        definition = self.definition
        if not definition.retention_bytes and not definition.retention_seconds:
            return {}
        times = [0] * definition.partitions
        if definition.retention_seconds:
            times = self._ledger.position_at(self._wall() - int(definition.retention_seconds * SECOND_NS))
        return {
            index: wanted_start(
                end, retention_bytes=definition.retention_bytes, by_time=times[index] if times else None
            )
            for index, end in enumerate(self._ledger.ends)
        }

    def _retain(self, wanted: Mapping[int, int]) -> dict[int, int]:
        """Move the starts of partitions up to these positions as far as may be; return those that moved."""
        now, ledger = self._clock(), self._ledger
        starts = {}
        for index, position in wanted.items():
            shape = self._shape(index)
            starts[index] = purge_to(
                position,
                Layout(0, shape.term_length, shape.segment_length),
                start=ledger.starts[index],
                end=ledger.ends[index],
                held=self._leases.floor(index, now),
            )
        record = ledger.prepare_purge(starts)
        if record is None:
            return {}
        self._books.write(record)
        self._show(self._recordings.view(self._ledger))
        return dict(record.starts)

    def _shape(self, partition: int) -> Shape:
        return self._recordings.partitions[partition].shape

    @contextmanager
    def _turn(self, seconds: float | None = None) -> Iterator[None]:
        most = self._turn_timeout if seconds is None else max(0.0, min(seconds, self._turn_timeout))
        if not self._writing.acquire(timeout=most):
            raise StillWorking(
                f"waited {most:g} s for another commit of stream {self.definition.name!r} to end", remedy="Ask again."
            )
        try:
            yield
        finally:
            self._writing.release()

    def _refuse_unwritable(self) -> None:
        self._refuse_closed()
        if self._loss is not None:
            raise self._loss
        self._books.check_writable()


def _check_token(writer: str, transaction: int, token: str) -> None:
    size = len(token.encode("utf-8", "surrogatepass"))
    if size > MOST_TOKEN_BYTES:
        raise UsageError(
            f"the token of transaction {transaction} of writer {writer!r} has {size} bytes of UTF-8, and may have "
            f"{MOST_TOKEN_BYTES}",
            remedy="Give a shorter one.",
        )


def _check_named(writer: str, transaction: int, refs: list[StageRef], rows: int | None) -> None:
    """Refuse a commit that would leave rows out: one that names no stage, or stages without all of the rows."""
    named = sum(ref.rows for ref in refs)
    if refs and rows in (None, named):
        return
    has = "" if rows is None else f", and its writer has {rows}"
    raise RefusedError(
        f"transaction {transaction} of writer {writer!r} is not committed: its commit names {len(refs)} stages with "
        f"{named} rows{has}",
        remedy="Stage the rows of the transaction again",
    )
