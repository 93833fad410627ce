"""The rows of one task that came in the commit request itself: they are in memory only, and have no file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from aeron_spark.aeron.checksum import crc32
from aeron_spark.errors import RefusedError
from aeron_spark.streams.content_checks import check_content
from aeron_spark.streams.stage_files import StageHead, count_rows
from aeron_spark.wire.staged_items import Item, read_items
from aeron_spark.wire.stream_rpc import CommitTransaction, InlinePart


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
        """Return the items."""
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
