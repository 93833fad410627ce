"""A store whose archive is in memory and can kill the server between any two of its operations. Time is virtual.

The store, its ledger and its journal are the product's own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.facts import Bus
from aeron_spark.options import ServerOptions
from aeron_spark.streams.model import DeletePending, StreamNotOpened, StreamReadOnly
from aeron_spark.streams.retention import Layout
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts, StreamSettings
from aeron_spark.streams.stream import Stream
from aeron_spark.streams.time_index import SECOND_NS
from aeron_spark.wire.staged_items import encode_values_item
from tests.stream_requests import commit_request, create_request, stage_request
from tests.unit.stream_client.recorded import ADDRESS, MemoryArchive, Offers, stand_in

SEGMENT = 1 << 16
PARTITIONS = 2
LEASE_DELAY_S = 600.0
OPTIONS = ServerOptions(lease_delay=LEASE_DELAY_S)


class Killed(BaseException):
    """The server is killed."""


class DeadlyArchive(MemoryArchive):
    """An archive that kills the server before or after its operation number ``deadly``, if that is set."""

    deadly: int | None = None

    def opened(self, *given: Any) -> tuple[Offers, int]:
        return self._do(super().opened, *given)

    def recording(self, *given: Any) -> Recording | None:
        return self._do(super().recording, *given)

    def stop_recording_by_id(self, *given: Any) -> int | None:
        return self._do(super().stop_recording_by_id, *given)

    def truncate(self, *given: Any) -> None:
        self._do(super().truncate, *given)

    def purge_segments(self, *given: Any) -> int:
        return self._do(super().purge_segments, *given)

    def delete(self, *given: Any) -> None:
        self._do(super().delete, *given)

    def _do(self, operation: Callable[..., Any], *given: Any) -> Any:
        self._pass()
        result = operation(*given)
        self._pass()
        return result

    def _pass(self) -> None:
        if self.deadly is not None:
            self.deadly -= 1
            if self.deadly < 0:
                raise Killed


class Clock:
    """A clock that the test sets: in seconds for leases and holds, in nanoseconds for commits."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self.wall_ahead_s = 0.0

    def __call__(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return int((self.now + self.wall_ahead_s) * SECOND_NS)


@dataclass(frozen=True)
class Committed:
    """A transaction in one partition."""

    number: int
    time_ns: int
    begin: int
    end: int
    values: tuple[bytes, ...]


class Problems:
    """Remembers the deleted streams whose files are not deleted, and the damaged and read-only streams."""

    def __init__(self) -> None:
        self.facts = Bus()
        self.pending: list[tuple[str, str]] = []
        self.damaged: list[tuple[str, str]] = []
        self.facts.on(StreamNotOpened, self._add_damaged)
        self.facts.on(StreamReadOnly, self._add_damaged)
        self.facts.on(DeletePending, lambda fact: self.pending.append((fact.stream, fact.why)))

    def _add_damaged(self, fact: StreamNotOpened | StreamReadOnly) -> None:
        self.damaged.append((fact.stream, fact.error.what))


@dataclass
class Site:
    """A store with one stream, in a folder that a restart finds again."""

    retention_bytes: int = 0
    retention_s: float = 0.0
    partitions: int = PARTITIONS
    clock: Clock = field(default_factory=Clock)
    archive: DeadlyArchive = field(default_factory=DeadlyArchive)
    problems: Problems = field(default_factory=Problems)
    address: ArchiveAddress = ADDRESS

    def __post_init__(self) -> None:
        self.patched = pytest.MonkeyPatch()
        stand_in(self.archive, self.patched)
        self.folder = Path(tempfile.mkdtemp(prefix="aeron-spark-space-"))
        self.rows: list[list[Committed]] = [[] for _ in range(self.partitions)]
        self.number = 0
        self.open()
        self.store.create(
            create_request(
                "s",
                self.partitions,
                segment_bytes=SEGMENT,
                retention_bytes=self.retention_bytes,
                retention_seconds=self.retention_s,
            )
        )

    def open(self) -> None:
        settings = StreamSettings(timeout_s=1.0, writing_timeout_s=1.0, options=lambda: OPTIONS)
        self.store = StreamStore(
            self.folder,
            StoreParts(self.address, settings, facts=self.problems.facts, clock=self.clock, wall=self.clock.wall_ns),
        )

    @property
    def stream(self) -> Stream:
        return self.store.get("s")

    def kill(self) -> None:
        """Kill the server; nothing in its memory remains."""
        self.archive.deadly = None
        self.store.close()  # writes no rows and no starts
        self.archive.end_publications()

    def close(self) -> None:
        self.archive.deadly = None
        self.store.close()
        shutil.rmtree(self.folder)
        self.patched.undo()

    def tick(self) -> None:
        """Do the housekeeping; no part of it fails."""
        assert self.store.tick() == []

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, with the housekeeping at each step."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + step)
            self.tick()

    def commit(self, sizes: dict[int, list[int]]) -> None:
        """Commit values of these sizes in the partitions."""
        number, stream = self.number, self.stream
        self.number += 1
        ends = [state.end for state in stream.states()]
        values = {
            partition: tuple(
                b"%d/%d/%d" % (number, partition, at) + bytes(size) for at, size in enumerate(of_partition)
            )
            for partition, of_partition in sizes.items()
        }
        try:
            refs = []
            for partition, rows in values.items():
                stage = stream.open_stage(stage_request("w", "r", number, partition, 0, "raw"))
                for buffer in encode_values_item(pa.array(rows, pa.binary())):
                    stage.append(buffer, stage.used_at)
                refs.append(stage.finish())
            stream.commit(commit_request("w", "r", number, refs))
        finally:
            self._note(number, values, ends)

    def _note(self, number: int, values: dict[int, tuple[bytes, ...]], ends: list[int]) -> None:
        """Remember the transaction if the journal has it."""
        ledger = self.stream._journal.ledger
        if ledger.last_transaction("w") != number:
            return
        for partition, rows in values.items():
            committed = Committed(number, ledger.time_ns, ends[partition], ledger.ends[partition], rows)
            self.rows[partition].append(committed)

    def readable(self, partition: int) -> list[bytes]:
        """Return the rows that a reader from the earliest position on gets, from the partition's recording."""
        state = self.stream.states()[partition]
        kept = self.archive.kept[state.recording.recording_id]
        layout = Layout(kept.described.start_position, SEGMENT, SEGMENT)
        assert layout.segment_base(kept.described.start_position) <= state.start
        assert kept.described.start_position <= state.start
        at, found = state.start, []
        for begin, stop, value in kept.messages:
            if state.start <= begin < state.end:
                assert begin == at
                at = stop
                found.append(value)
        assert at == state.end
        return found

    def held_bytes(self) -> list[int]:
        """Return, by partition, the committed bytes in all recordings of the partition."""
        found = [0] * self.partitions
        for kept in self.archive.kept.values():
            index = self.stream.definition.stream_ids.index(kept.described.stream_id)
            first = kept.described.start_position
            found[index] += max(0, min(kept.end, self.stream.states()[index].end) - first)
        return found

    def disk_bytes(self, partition: int | None = None) -> int:
        """Return the bytes of the segment files of a partition, or of all."""
        ids = [one for index, one in enumerate(self.stream.definition.stream_ids) if partition in (None, index)]
        found = 0
        for kept in self.archive.kept.values():
            first, end = kept.described.start_position, kept.end
            if kept.described.stream_id in ids and end > first:
                layout = Layout(first, SEGMENT, SEGMENT)
                found += layout.segment_base(end - 1) + SEGMENT - layout.segment_base(first)
        return found
