"""What was staged and is not committed yet: one file a task attempt and partition, on the server's disk.

A stage is ``<id>.part`` while it grows and ``<id>.stage`` once it is whole. A stage that is lost is never a loss:
whoever staged it was not told that it is committed, and stages it anew. So what is half-written or not right after a
crash is removed, and the file is synced only where ``sync`` asks for it.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from aeron_spark.aeron.checksum import crc32
from aeron_spark.disk import sync_folder, write_at, write_failed
from aeron_spark.errors import DataFormatError, EndedError, RefusedError, TransportError, UsageError
from aeron_spark.streams.stage_files import (
    Description,
    ReusableStageFiles,
    StageItems,
    StageRef,
    StageSpace,
    check_items,
    crc_of,
    encode_head,
    read_head,
)

__all__ = ["Description", "Stage", "StageItems", "StageRef", "Stages", "by_partition"]

EXPIRY_SECONDS: Final = 3600.0  # without growth; longer than any task is away and comes back
FILE_BYTES: Final = 4096  # what an empty file counts: a block, so that many empty ones are not free
ID_BYTES: Final = 16
GROWING: Final = ".part"
WHOLE: Final = ".stage"
ANOTHER_STAGE: Final = "Open a stage for each attempt of a task"


class Stage:
    """One stage. Thread-safe: its expiry, or the end of its run, may come while its writer appends."""

    def __init__(self, owner: Stages, description: Description, begin: int, now: float) -> None:
        """Use ``Stages.open``."""
        self.description = description
        self.begin = begin  # where the items begin in the file
        self.bytes = 0  # of the items so far
        self.rows = 0  # known once it is whole
        self.grown_at = now  # seconds, monotonic
        self.whole = False
        self._owner = owner
        self._crc: int | None = 0  # None: to be computed from the file, which was there before this process
        self._descriptor = -1
        # Without it a file that is discarded while it is written to could be another one by the time of the write.
        self._lock = threading.RLock()

    @property
    def id(self) -> str:
        """The random id it was opened under."""
        return self.description.id

    @property
    def path(self) -> Path:
        """Where its file is now."""
        return self._owner.folder / (self.id + (WHOLE if self.whole else GROWING))

    @property
    def ref(self) -> StageRef:
        """What a commit has to say of it. UsageError before it is whole."""
        if not self.whole:
            raise UsageError(f"stage {self.id} is not finished", remedy="Finish it before it is committed")
        with self._lock:
            if self._crc is None:
                self._crc = crc_of(self.path, self.begin)
            return StageRef(self.id, self.rows, self.bytes, self._crc)

    def append(self, data: bytes | bytearray | memoryview | pa.Buffer, now: float) -> None:
        """Append bytes of items, cut anywhere; nothing is kept of ``data``.

        Raises RefusedError where the server's room for stages is full, TransportError where the disk is or fails; the
        stage is then gone. Raises UsageError where it is whole, EndedError where it is gone.
        """
        with self._lock:
            self._append(memoryview(data).cast("B"), now)

    def _append(self, view: memoryview, now: float) -> None:
        if self.whole:
            raise UsageError(f"stage {self.id} is finished: it takes no more rows", remedy=ANOTHER_STAGE)
        if self._descriptor < 0:
            raise EndedError(f"stage {self.id} is gone", remedy=ANOTHER_STAGE)
        assert self._crc is not None, "only a stage of an earlier process has none, and that is whole"
        try:
            self._owner.space.take(len(view))
        except RefusedError:
            self.discard()
            raise
        self.bytes += len(view)
        try:
            write_at(self._descriptor, view, self.begin + self.bytes - len(view))
        except OSError as error:
            path = self.path
            self.discard()
            raise write_failed(path, error) from error
        self._crc = crc32(view, self._crc)
        self.grown_at = now

    def finish(self) -> StageRef:
        """Check all items and make the stage whole; return what a commit has to say of it. Again: the same.

        Raises DataFormatError where an item is not right, TransportError where the disk fails; the stage is then gone.
        """
        with self._lock:
            if not self.whole:
                self._finish(self.path)
            return self.ref

    def _finish(self, path: Path) -> None:
        if self._descriptor < 0:
            raise EndedError(f"stage {self.id} is gone", remedy=ANOTHER_STAGE)
        try:
            os.ftruncate(self._descriptor, self.begin + self.bytes)  # it may have been another one's, and longer
            self.rows = check_items(path, self.begin, self._owner.most_value_bytes)
            self._owner.keep(self._descriptor, path)
        except (DataFormatError, TransportError):
            self.discard()
            raise
        except OSError as error:
            self.discard()
            raise write_failed(path, error) from error
        self.whole = True
        self.close()

    def items(self) -> StageItems:
        """Return the items of the whole stage, mapped and not read. Use as a context manager, or let go of it."""
        if not self.whole:
            raise UsageError(f"stage {self.id} is not finished", remedy="Finish it before it is read")
        return StageItems(self.path, self.begin)

    def grown(self) -> StageItems:
        """Return the items of a stage that may still grow, as far as they have come; see :meth:`items`."""
        with self._lock:  # what is being written now is not there yet
            if not self.whole and self._descriptor < 0:
                raise EndedError(f"stage {self.id} is gone", remedy=ANOTHER_STAGE)
            return StageItems(self.path, self.begin, self.bytes)

    def discard(self) -> None:
        """Remove the file and give its room back. Again: nothing."""
        with self._lock:
            self.close()
            self._owner.remove(self)

    def release(self) -> None:
        """Discard it, and let its file be written over: only where nobody can be reading it any more."""
        with self._lock:
            self.close()
            self._owner.remove(self, spare=True)

    def discard_idle(self, since: float) -> bool:
        """Discard it unless it has grown after ``since`` (seconds, monotonic); return whether it is gone."""
        with self._lock:
            if self.grown_at > since:
                return False
            self.discard()
            return True

    def close(self) -> None:
        """Close the file and leave it; it takes no more rows."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class Stages:
    """The stages of one stream, in a folder of their own. Thread-safe.

    ``most_value_bytes`` refuses a value no message could hold when the stage is finished, and not first at the commit.
    ``now`` is in seconds and monotonic; what was there before the process counts as grown when it was found.
    """

    def __init__(
        self,
        folder: Path,
        space: StageSpace,
        *,
        now: float,
        expiry_seconds: float = EXPIRY_SECONDS,
        most_value_bytes: int | None = None,
        sync: bool = False,
        new_id: Callable[[], str] = lambda: secrets.token_hex(ID_BYTES),
    ) -> None:
        self.folder = folder
        self.space = space
        self.most_value_bytes = most_value_bytes
        self._expiry = expiry_seconds
        self._sync = sync
        self._new_id = new_id
        self._lock = threading.Lock()
        self._stages: dict[str, Stage] = {}
        self._spares = ReusableStageFiles(folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in sorted(folder.iterdir()):
                self._find(path, now)
        except OSError as error:
            raise write_failed(folder, error) from error

    def __len__(self) -> int:
        return len(self._stages)

    def __contains__(self, stage_id: object) -> bool:
        return stage_id in self._stages

    def open(
        self,
        writer: str,
        run: str,
        transaction: int,
        partition: int,
        task: int,
        content: str,
        schema: bytes | None = None,
        *,
        now: float,
        single_use: bool = False,
    ) -> Stage:
        """Open a stage under a random id. Raises RefusedError where there is no room, TransportError where no disk."""
        described = Description(self._new_id(), writer, run, transaction, partition, task, content, schema, single_use)
        head = encode_head(described)
        self.space.take(len(head) + FILE_BYTES)
        stage = Stage(self, described, len(head), now)
        try:
            stage._descriptor = self._spares.open(stage.path)
            with self._lock:
                self._stages[stage.id] = stage
            write_at(stage._descriptor, head, 0)
        except OSError as error:
            path = stage.path
            if stage._descriptor < 0:
                self.space.give(len(head) + FILE_BYTES)
            else:
                stage.discard()
            raise write_failed(path, error) from error
        return stage

    def get(self, stage_id: str) -> Stage:
        """Return a stage. Raises RefusedError where there is none of this id (any more)."""
        with self._lock:
            stage = self._stages.get(stage_id)
        if stage is None:
            raise RefusedError(
                f"stage {stage_id[:64]!r} is not there: it expired, was discarded, or its server was replaced",
                remedy="Stage the rows of the transaction anew",
            )
        return stage

    def take(self, ref: StageRef, now: float) -> Stage:
        """Return the whole stage that a commit names, checked against what it says of it; its expiry begins anew.

        Raises RefusedError where there is none, DataFormatError where it is another, UsageError where it is not whole.
        """
        stage = self.get(ref.id)
        stage.grown_at = now
        if stage.ref != ref:
            raise DataFormatError(
                f"stage {ref.id} holds {_said(stage.ref)}, and the commit names {_said(ref)}",
                remedy="Stage the rows of the transaction anew",
            )
        return stage

    def of(self, writer: str, transaction: int | None = None) -> list[Stage]:
        """Return the stages of a writer, or of one of its transactions."""
        with self._lock:
            return [
                stage
                for stage in self._stages.values()
                if stage.description.writer == writer and transaction in (None, stage.description.transaction)
            ]

    def is_alone(self, stage: Stage) -> bool:
        """Whether nobody else has staged anything for the partition of a stage that is still there."""
        partition = stage.description.partition
        with self._lock:
            return [one for one in self._stages.values() if one.description.partition == partition] == [stage]

    def expire(self, now: float) -> list[str]:
        """Discard the stages that have not grown for the expiry; return their ids."""
        self._spares.expire(now)
        with self._lock:
            stages = list(self._stages.values())
        return [stage.id for stage in stages if stage.discard_idle(now - self._expiry)]

    def close(self) -> None:
        """Close the files and leave them; those that are not whole are removed when the folder is opened again."""
        with self._lock:
            stages, self._stages = list(self._stages.values()), {}
        self._spares.clear()
        for stage in stages:
            stage.close()
            self.space.give(_cost(stage))

    def keep(self, descriptor: int, path: Path) -> None:
        """Give a checked file the name of a whole one, synced where that was asked for. Raises OSError."""
        if self._sync:
            os.fsync(descriptor)
        path.rename(path.with_suffix(WHOLE))
        if self._sync:
            sync_folder(self.folder)

    def remove(self, stage: Stage, *, spare: bool = False) -> None:
        """Remove a stage's file, or keep it as a ``spare`` one, and give its room back, once."""
        with self._lock:
            if self._stages.pop(stage.id, None) is None:
                return
        with suppress(OSError):
            if spare:
                self._spares.keep(stage.path)
            else:
                stage.path.unlink(missing_ok=True)
        self.space.give(_cost(stage))

    def _find(self, path: Path, now: float) -> None:
        """Take a file of an earlier process in, or remove it: it is half-written, or nobody's."""
        found = read_head(path) if path.suffix == WHOLE else None
        if found is None or found[0].id != path.stem:
            path.unlink()
            return
        described, begin = found
        stage = Stage(self, described, begin, now)
        stage.whole, stage._crc = True, None
        stage.bytes = path.stat().st_size - begin
        try:
            stage.rows = check_items(path, begin, self.most_value_bytes)
        except DataFormatError:
            path.unlink()
            return
        self.space.take(_cost(stage), force=True)
        self._stages[stage.id] = stage


def by_partition(stages: Iterable[Stage]) -> dict[int, list[Stage]]:
    """Put the stages of a commit in the order in which they are published: by task; one task's as they were named."""
    ordered: dict[int, list[Stage]] = {}
    for stage in sorted(stages, key=lambda stage: stage.description.task):
        ordered.setdefault(stage.description.partition, []).append(stage)
    return dict(sorted(ordered.items()))


def _cost(stage: Stage) -> int:
    return FILE_BYTES + stage.begin + stage.bytes


def _said(ref: StageRef) -> str:
    return f"{ref.rows} rows in {ref.bytes} bytes with the checksum {ref.crc:#010x}"
