"""Stages: the rows of transactions that are not committed, with the checks before and at the commit.

The file of a stage is ``<id>.part`` while it grows, and ``<id>.stage`` once it is finished. A lost stage is not a data
loss: its rows are not acknowledged, so the client stages them again. For this reason the next start removes incomplete
and damaged files, and fsync is called only with ``sync``.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from aeron_spark.aeron.checksum import crc32
from aeron_spark.errors import AeronSparkError, DataFormatError, EndedError, RefusedError, TransportError, UsageError
from aeron_spark.files import sync_folder, write_at, write_failed
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.schema_changes import Evolution, evolve
from aeron_spark.streams.stage_files import (
    ReusableStageFiles,
    StageHead,
    StageItems,
    StageShare,
    StageSpace,
    check_items,
    count_rows,
    crc_of,
    encode_head,
    read_head,
)
from aeron_spark.wire.arrow import conform, decode_batches
from aeron_spark.wire.chunks import Content
from aeron_spark.wire.foreign_arrow import read_schema
from aeron_spark.wire.staged_items import Item, StagedGroup, read_items
from aeron_spark.wire.stream_requests import (
    CommitTransaction,
    InlinePart,
    OpenStage,
    StagedPart,
    StreamStage,
    Transaction,
)

ARROW: Final = "arrow"
RELEASE_BYTES: Final = 16 << 20  # checked bytes after which their memory is released


def check_content(
    items: Iterable[Item], description: StageHead, first: int = 0, release_memory: Callable[[], object] = lambda: None
) -> int:
    """Return the number of rows up to the end of ``items``; ``first`` is the number of rows before them.

    Raises DataFormatError unless they have the content of the description, and its schema if they are Arrow rows.
    ``release_memory`` is called from time to time: it releases the memory of the items that were checked.
    """
    schema = read_schema(description.schema) if description.content == ARROW and description.schema else None
    held = 0
    for item in items:
        try:
            _check_item(item, description.content, schema)
        except DataFormatError as error:
            raise DataFormatError(
                f"rows {first} to {first + item.rows - 1} of task {description.task} of transaction "
                f"{description.transaction} of writer {description.writer!r} are refused: {error.what}",
                remedy="Correct the program that made them, and write them again.",
            ) from error
        first += item.rows
        held += item.payload.size if isinstance(item, StagedGroup) else 0
        if held >= RELEASE_BYTES:
            release_memory()
            held = 0
    return first


def _check_item(item: Item, content: str, schema: pa.Schema | None) -> None:
    found = ARROW if isinstance(item, StagedGroup) and item.header.content is Content.ARROW else "values"
    if (found == ARROW) != (content == ARROW):
        raise DataFormatError(f"they are {found}, and the stage is {content}")
    if isinstance(item, StagedGroup) and found == ARROW:
        for batch in decode_batches(item.payload, item.rows):
            if schema is not None:
                conform(batch, schema)


class RowItems(Protocol):
    """The items of one task's rows; the end of the ``with`` block ends their use."""

    def from_byte(self, begin: int) -> Iterator[Item]:
        """Yield the items from their byte ``begin`` on. Raises DataFormatError for an invalid one."""

    def release_memory(self) -> None:
        """Release the memory of the items that were read."""

    def __enter__(self) -> RowItems: ...

    def __exit__(self, *_: object) -> None: ...


class CommittableRows(Protocol):
    """The rows of one task that a commit publishes: those of a stage, or those of the request."""

    @property
    def id(self) -> str:
        """The id of the stage, "" without one."""

    @property
    def description(self) -> StageHead:
        """Their writer, transaction, partition, task and content."""

    @property
    def rows(self) -> int:
        """Their number."""

    def items(self) -> RowItems:
        """Return their items."""


@dataclass(frozen=True, slots=True)
class InlineItems:
    """Items in memory. Implements ``RowItems``."""

    data: pa.Buffer

    def from_byte(self, begin: int) -> Iterator[Item]:
        """See ``RowItems``."""
        return read_items(self.data, begin)

    def release_memory(self) -> None:
        """Do nothing: the request holds the memory."""

    def __enter__(self) -> InlineItems:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class InlineRows:
    """The rows of a task in a commit request, with the head that their stage would have."""

    description: StageHead
    part: InlinePart

    @classmethod
    def of(cls, request: CommitTransaction, part: InlinePart, partition: int) -> InlineRows:
        """Return the rows of a part of a commit, in the partition that the stream has chosen for it."""
        return cls(StageHead.of("", request.transaction, part, partition, evolves=request.evolve_schema), part)

    @property
    def rows(self) -> int:
        """Their number, as the request says."""
        return self.part.rows

    @property
    def id(self) -> str:
        """Return "": no stage has these rows."""
        return ""

    @property
    def bytes(self) -> int:
        """The size of the items."""
        return len(self.part.items)

    def items(self) -> InlineItems:
        return InlineItems(pa.py_buffer(self.part.items))

    def check(self, max_value_bytes: int) -> None:
        """Check all items. Raises RefusedError for another checksum or number of rows, DataFormatError as a stage."""
        crc = crc32(self.part.items)
        rows = count_rows(self.items().from_byte(0), max_value_bytes) if crc == self.part.crc else 0
        if (crc, rows) != (self.part.crc, self.rows):
            raise RefusedError(
                f"the commit of transaction {self.description.transaction} of writer {self.description.writer!r} has "
                f"{rows} rows with the checksum {crc:#010x}, and names {self.rows} rows with {self.part.crc:#010x}",
                remedy="Send the rows of the transaction again.",
            )
        check_content(self.items().from_byte(0), self.description)


def check_parts(request: CommitTransaction) -> None:
    """Check the parts that a commit names.

    Raises RefusedError without parts, or if they have another number of rows than the request says; UsageError if a
    stage occurs twice.
    """
    transaction, named = request.transaction, sum(part.rows for part in request.parts)
    if not request.parts or request.rows != named:
        raise RefusedError(
            f"transaction {transaction.number} of writer {transaction.writer!r} is not committed: its commit names "
            f"{len(request.parts)} stages with {named} rows, but its writer wrote {request.rows} rows",
            remedy="Stage the rows of the transaction again.",
        )
    ids = [part.id for part in request.parts if isinstance(part, StagedPart)]
    if len(set(ids)) != len(ids):
        raise UsageError(
            f"the commit of transaction {transaction.number} of writer {transaction.writer!r} names a stage twice",
            remedy="Name the stages of the successful attempts, each once.",
        )


def check_transaction(stages: Iterable[CommittableRows], transaction: Transaction) -> None:
    """Raise UsageError if a stage does not belong to this transaction."""
    writer, run, number = transaction.writer, transaction.run, transaction.number
    for stage in stages:
        found = stage.description
        if (found.writer, found.run, found.transaction) != (writer, run, number):
            raise UsageError(
                f"the commit of transaction {number} of writer {writer!r}, run {run!r}, names stage "
                f"{stage.id} of transaction {found.transaction} of writer {found.writer!r}, run {found.run!r}",
                remedy="Name the stages of the transaction itself.",
            )


def merge_content(
    ledger: Ledger, stages: Sequence[CommittableRows], policy: str, *, may_evolve: bool = True
) -> tuple[str, bytes | None]:
    """Return the content and the schema of the stream with the rows of these stages.

    ``policy`` is the stream's schema policy. ``may_evolve`` is whether the stages that evolve the schema may do so now.
    The stages of the first transaction fix the schema together. Raises DataFormatError if contents or schemas do not
    fit, RefusedError if the policy refuses new columns.
    """
    content, schema = ledger.content, ledger.schema
    for stage in stages:
        description = stage.description
        ledger.check_content(description.content, description.schema)
        if content and content != description.content:
            raise DataFormatError(
                f"tasks of transaction {description.transaction} of writer {description.writer!r} staged "
                f"{content} and {description.content} rows, expected one content",
                remedy="Write the whole transaction with one payload.",
            )
        content = description.content
        if description.schema is not None:
            if ledger.schema is not None:
                evolve(ledger.schema, description.schema, policy, Evolution.of(description.evolves, may_evolve))
            schema = evolve(schema, description.schema, policy, Evolution.PERMITTED)
    return content, schema


__all__ = ["Stage", "StageHead", "StageItems", "Stages", "by_partition"]

EXPIRY_S: Final = 3600.0  # time without a write; no task pauses for so long
FILE_BYTES: Final = 4096  # counted for each file, one block, so that empty stages are limited, too
ID_BYTES: Final = 16
CHECK_BYTES: Final = 8 << 20  # new bytes of a growing stage whose content is checked at a time
GROWING: Final = ".part"
FINISHED: Final = ".stage"
ANOTHER_STAGE: Final = "Open another stage for each attempt of a task."


class Stage:
    """One stage. Thread-safe: it may expire, or be removed, while its writer appends."""

    def __init__(self, owner: Stages, description: StageHead, begin: int, now: float, share: StageShare) -> None:
        """Call ``Stages.open`` instead."""
        self.description = description
        self.begin = begin  # offset of the items in the file
        self.bytes = 0  # of the items so far
        self.rows = 0  # set by ``finish``
        self.used_at = now  # seconds, monotonic
        self.is_finished = False
        self.share = share
        self._owner = owner
        self._crc: int | None = 0  # None: computed from the file, which an earlier process wrote
        self._descriptor = -1
        self._checked = 0  # bytes of the items whose content was checked
        self._checked_rows = 0
        self._check_at = CHECK_BYTES  # bytes at which the content of further items is checked
        # Without the lock, a thread could write to a descriptor that another thread has closed, and the system reused.
        self._lock = threading.RLock()
        self._on_removed: Callable[[AeronSparkError], object] | None = None

    @property
    def id(self) -> str:
        """The random id of the stage."""
        return self.description.id

    @property
    def path(self) -> Path:
        """The present path of the file."""
        return self._owner.folder / (self.id + (FINISHED if self.is_finished else GROWING))

    @property
    def ref(self) -> StagedPart:
        """The reference by which a commit names the stage. Raises UsageError before it is finished."""
        if not self.is_finished:
            raise UsageError(f"stage {self.id} is not finished", remedy="Finish it before the commit.")
        with self._lock:
            if self._crc is None:
                self._check_content()  # an earlier release may have finished it, which did not check the rows
                self._crc = crc_of(self.path, self.begin)
            return StagedPart(self.id, self.rows, self.bytes, self._crc)

    def append(self, data: bytes | bytearray | memoryview | pa.Buffer, now: float) -> None:
        """Append bytes of items, which may end anywhere within an item. ``data`` is not referenced afterwards.

        Raises RefusedError if the space for stages is full, TransportError if the disk is full or fails,
        DataFormatError for an invalid item; each removes the stage. Raises UsageError for a finished stage, EndedError
        for a removed one.
        """
        with self._lock:
            self._append(memoryview(data).cast("B"), now)

    def _append(self, view: memoryview, now: float) -> None:
        if self.is_finished:
            raise UsageError(f"stage {self.id} is finished and accepts no more rows", remedy=ANOTHER_STAGE)
        if self._descriptor < 0:
            raise EndedError(f"stage {self.id} was removed", remedy=ANOTHER_STAGE)
        assert self._crc is not None, "a stage without a checksum is one of an earlier process, and finished"
        try:
            self.share.reserve(len(view))
        except RefusedError as error:
            self.discard(error)
            raise
        self.bytes += len(view)
        try:
            write_at(self._descriptor, view, self.begin + self.bytes - len(view))
        except OSError as error:
            failed = write_failed(self.path, error)
            self.discard(failed)
            raise failed from error
        self._crc = crc32(view, self._crc)
        self.used_at = now
        if self.bytes >= self._check_at:  # not all at the end, so that a finish takes no longer for a large stage
            try:
                self._check_content()
            except (DataFormatError, TransportError) as error:
                self.discard(error)
                raise

    def finish(self) -> StagedPart:
        """Check all items and finish the stage; return its reference for the commit. May be called again.

        Raises DataFormatError for an invalid item, TransportError if the disk fails; both remove the stage. Raises
        EndedError for a removed stage.
        """
        with self._lock:
            if not self.is_finished:
                self._finish(self.path)
            return self.ref

    def _finish(self, path: Path) -> None:
        if self._descriptor < 0:
            raise EndedError(f"stage {self.id} was removed", remedy=ANOTHER_STAGE)
        try:
            os.ftruncate(self._descriptor, self.begin + self.bytes)  # a reused file may be longer
            self.rows = check_items(path, self.begin, self._owner.max_value_bytes)
            self._check_content()
            self._owner.finish_file(self._descriptor, path)
        except (DataFormatError, TransportError) as error:
            self.discard(error)
            raise
        except OSError as error:
            failed = write_failed(path, error)
            self.discard(failed)
            raise failed from error
        self.is_finished = True
        self.close()

    def _check_content(self) -> None:
        """Check the content of all items that are complete and not checked yet. Raises DataFormatError."""
        with StageItems(self.path, self.begin, self.bytes) as items:
            self._checked_rows = check_content(
                self._unchecked(items), self.description, self._checked_rows, items.release_memory
            )
        self._check_at = self.bytes + CHECK_BYTES

    def _unchecked(self, items: StageItems) -> Iterator[Item]:
        for end, item in items.complete(self._checked):
            yield item
            self._checked = end

    def items(self) -> StageItems:
        """Map the items of the finished stage; the caller closes the result."""
        if not self.is_finished:
            raise UsageError(f"stage {self.id} is not finished", remedy="Finish it before you read it.")
        return StageItems(self.path, self.begin)

    def current_items(self) -> StageItems:
        """Map the present items of a stage that may still grow; see :meth:`items`."""
        with self._lock:  # excludes a write that is under way
            if not self.is_finished and self._descriptor < 0:
                raise EndedError(f"stage {self.id} was removed", remedy=ANOTHER_STAGE)
            return StageItems(self.path, self.begin, self.bytes)

    def watch(self, on_removed: Callable[[AeronSparkError], object] | None) -> None:
        """Call ``on_removed`` with the reason when the stage is removed, or now if it was; None: do not call it.

        It is called under the locks of the stream and of the stage, and must take neither.
        """
        with self._lock:
            self._on_removed = on_removed
            if self.id not in self._owner:
                self.removed(None)

    def removed(self, error: AeronSparkError | None) -> None:
        """Tell the watcher that the stage was removed because of ``error``. ``Stages`` calls this, once."""
        on_removed, self._on_removed = self._on_removed, None
        if on_removed is not None:
            on_removed(error or EndedError(f"stage {self.id} was removed", remedy=ANOTHER_STAGE))

    def discard(self, error: AeronSparkError | None = None) -> None:
        """Remove the file because of ``error``, and release its space. Does nothing for a removed stage."""
        with self._lock:
            self.close()
            self._owner.remove(self, error)

    def release(self) -> None:
        """Remove the stage, and let a later stage overwrite its file. No reader may have the file open."""
        with self._lock:
            self.close()
            self._owner.remove(self, reuse=True)

    def discard_idle(self, since: float) -> bool:
        """Remove the stage unless it was used after ``since`` (seconds, monotonic); return whether it was removed."""
        with self._lock:
            if self.used_at > since:
                return False
            self.discard()
            return True

    def close(self) -> None:
        """Close the file, which stays on the disk. The stage accepts no more rows."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                self._owner.space.end_growth(self.share.owner)


class Stages:
    """The stages of one stream, in one folder. Thread-safe.

    A stage with a value of more than ``max_value_bytes``, which no message can have, is refused when it is finished.
    Times are in seconds, monotonic. The expiry of stages of an earlier process begins at ``now``.
    """

    def __init__(
        self,
        folder: Path,
        space: StageSpace,
        *,
        now: float,
        expiry_s: float = EXPIRY_S,
        max_value_bytes: int | None = None,
        sync: bool = False,
    ) -> None:
        self.folder = folder
        self.space = space
        self.max_value_bytes = max_value_bytes
        self._expiry = expiry_s
        self._sync = sync
        self._lock = threading.Lock()
        self._stages: dict[str, Stage] = {}
        self._reusable = ReusableStageFiles(folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in sorted(folder.iterdir()):
                self._load(path, now)
        except OSError as error:
            raise write_failed(folder, error) from error

    def __len__(self) -> int:
        return len(self._stages)

    def __contains__(self, stage_id: object) -> bool:
        return stage_id in self._stages

    def open(
        self, request: OpenStage, partition: int, *, now: float, share: StageShare | None = None, evolves: bool = False
    ) -> Stage:
        """Open a stage with a random id for a request's rows in a partition. ``share`` reserves its bytes.

        Raises RefusedError if the space is full, TransportError if the disk fails.
        """
        share = share or self.space.share()
        description = StageHead.of(
            secrets.token_hex(ID_BYTES), request.transaction, request, partition, evolves=evolves
        )
        head = encode_head(description)
        share.reserve(len(head) + FILE_BYTES)
        try:
            self.space.add_stage(share.owner)
        except RefusedError:
            share.release(len(head) + FILE_BYTES)
            raise
        stage = Stage(self, description, len(head), now, share)
        try:
            stage._descriptor = self._reusable.open(stage.path)
            with self._lock:
                self._stages[stage.id] = stage
            write_at(stage._descriptor, head, 0)
        except OSError as error:
            path = stage.path
            if stage._descriptor < 0:
                share.release(len(head) + FILE_BYTES)
                self.space.end_growth(share.owner)
                self.space.remove_stage(share.owner)
            else:
                stage.discard()
            raise write_failed(path, error) from error
        return stage

    def get(self, stage_id: str) -> Stage:
        """Return a stage by its id. Raises RefusedError for an unknown or removed one."""
        with self._lock:
            stage = self._stages.get(stage_id)
        if stage is None:
            raise RefusedError(
                f"unknown stage {stage_id[:64]!r}: it expired, was removed, or another server opened it",
                remedy="Stage the rows of the transaction again.",
            )
        return stage

    def take(self, ref: StagedPart, now: float) -> Stage:
        """Return the finished stage that a commit names, and restart its expiry.

        Raises RefusedError for an unknown stage, DataFormatError if rows, bytes or checksum differ from ``ref``,
        UsageError for an unfinished stage.
        """
        stage = self.get(ref.id)
        stage.used_at = now
        if stage.ref != ref:
            raise DataFormatError(
                f"stage {ref.id} has {_ref_text(stage.ref)}, but the commit names {_ref_text(ref)}",
                remedy="Stage the rows of the transaction again.",
            )
        return stage

    def of(self, writer: str, transaction: int | None = None) -> list[Stage]:
        """Return the stages of a writer, or those of one of its transactions."""
        with self._lock:
            return [
                stage
                for stage in self._stages.values()
                if stage.description.writer == writer and transaction in (None, stage.description.transaction)
            ]

    def listed(self, now: float) -> list[StreamStage]:
        """Return the stages by id."""
        with self._lock:
            stages = sorted(self._stages.items())
        return [
            StreamStage(
                id=stage_id,
                writer=stage.description.writer,
                transaction=stage.description.transaction,
                partition=stage.description.partition,
                bytes=stage.bytes,
                owner=stage.share.owner,
                finished=stage.is_finished,
                expires_in=max(0.0, stage.used_at + self._expiry - now),
            )
            for stage_id, stage in stages
        ]

    def is_only_stage(self, stage: Stage) -> bool:
        """Whether the stage exists, and no other stage of its partition does."""
        partition = stage.description.partition
        with self._lock:
            return [one for one in self._stages.values() if one.description.partition == partition] == [stage]

    def expire(self, now: float) -> list[str]:
        """Remove the stages that were not used for the time of expiry; return their ids."""
        self._reusable.expire(now)
        with self._lock:
            stages = list(self._stages.values())
        return [stage.id for stage in stages if stage.discard_idle(now - self._expiry)]

    def close(self) -> None:
        """Close the files, which stay on the disk. The next start removes the unfinished ones."""
        with self._lock:
            stages, self._stages = list(self._stages.values()), {}
        self._reusable.clear()
        for stage in stages:
            stage.close()
            stage.share.release(_cost(stage))
            self.space.remove_stage(stage.share.owner)
            stage.removed(None)

    def finish_file(self, descriptor: int, path: Path) -> None:
        """Rename the file of a checked stage as finished, with fsync if ``sync``. Raises OSError."""
        if self._sync:
            os.fsync(descriptor)
        path.rename(path.with_suffix(FINISHED))
        if self._sync:
            sync_folder(self.folder)

    def remove(self, stage: Stage, error: AeronSparkError | None = None, *, reuse: bool = False) -> None:
        """Remove a stage because of ``error`` and release its space.

        With ``reuse``, a later stage may overwrite the file.
        """
        with self._lock:
            if self._stages.pop(stage.id, None) is None:
                return
        with suppress(OSError):
            if reuse:
                self._reusable.keep(stage.path)
            else:
                stage.path.unlink(missing_ok=True)
        stage.share.release(_cost(stage))
        self.space.remove_stage(stage.share.owner)
        stage.removed(error)

    def _load(self, path: Path, now: float) -> None:
        """Load the stage of an earlier process, or remove its file if it is unfinished or damaged."""
        found = read_head(path) if path.suffix == FINISHED else None
        if found is None or found[0].id != path.stem:
            path.unlink()
            return
        description, begin = found
        stage = Stage(self, description, begin, now, self.space.share())
        stage.is_finished, stage._crc = True, None
        stage.bytes = path.stat().st_size - begin
        try:
            stage.rows = check_items(path, begin, self.max_value_bytes)
        except DataFormatError:
            path.unlink()
            return
        stage.share.reserve(_cost(stage), force=True)
        self.space.add_stage(stage.share.owner)
        self.space.end_growth(stage.share.owner)
        self._stages[stage.id] = stage


def by_partition(stages: Iterable[CommittableRows]) -> dict[int, list[CommittableRows]]:
    """Return the rows of a commit in the order of publication: by partition, task, and position in the commit."""
    ordered: dict[int, list[CommittableRows]] = {}
    for stage in sorted(stages, key=lambda stage: stage.description.task):
        ordered.setdefault(stage.description.partition, []).append(stage)
    return dict(sorted(ordered.items()))


def _cost(stage: Stage) -> int:
    return FILE_BYTES + stage.begin + stage.bytes


def _ref_text(ref: StagedPart) -> str:
    return f"{ref.rows} rows in {ref.bytes} bytes with the checksum {ref.crc:#010x}"
