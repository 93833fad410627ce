"""The groups of a framed range: what begins in it, each whole, whatever chunks and splits lie between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import Log, Range
from aeron_spark.wire.chunks import Group, Reassembler
from aeron_spark.wire.rows import Rows
from aeron_spark.wire.values import Values, read_groups


@dataclass(frozen=True, slots=True)
class SmallValues:
    """A run of values that were one message each, with their places."""

    values: Values
    positions: pa.Array[Any]
    reserved: pa.Array[Any]

    @property
    def position(self) -> int:
        """Where the first of them begins."""
        return int(self.positions[0].as_py())


@dataclass(frozen=True, slots=True)
class Placed:
    """A finished group, with the reserved value of the message that finished it."""

    group: Group
    reserved: int

    @property
    def position(self) -> int:
        """Where it begins."""
        return self.group.position


@contextmanager
def of_recording(key: str, position: int | None = None) -> Iterator[None]:
    """Name the recording in what the block finds wrong with its bytes, and the position where it does not itself."""
    try:
        yield
    except DataFormatError as error:
        place = f"recording {key}" if position is None else f"recording {key} at position {position}"
        raise DataFormatError(f"{place}: {error.what}", remedy=error.remedy) from error


def read_range(log: Log, wanted: Range) -> Iterator[SmallValues | Placed]:
    """Yield the groups that begin in ``[start, end)``; the last one may be read on to the range's ``overrun``."""
    reassembler = Reassembler(wanted.start)
    for rows in log.read(wanted):
        for found in _groups(reassembler, rows):
            inside = _begun_before(found, wanted.end)
            if inside is not None:
                yield inside
            if inside is not found:
                return
        # Behind the end only a group that was begun before it is still wanted.
        unfinished = reassembler.unfinished
        if rows.positions[-1].as_py() >= wanted.end and (unfinished is None or unfinished >= wanted.end):
            return


def _groups(reassembler: Reassembler, rows: Rows) -> Iterator[SmallValues | Placed]:
    for found in read_groups(reassembler, rows.values, rows.positions):
        if isinstance(found, Group):
            yield Placed(found, _reserved_at(rows, found.position))
        else:
            length = len(found)
            yield SmallValues(
                found, rows.positions.slice(found.begin, length), rows.reserved.slice(found.begin, length)
            )


def _reserved_at(rows: Rows, position: int) -> int:
    """Return the reserved value of the group that began at ``position``; the first one here where it began earlier."""
    index = pc.index(rows.positions, position).as_py()
    return int(rows.reserved[max(index, 0)].as_py())


def _begun_before(found: SmallValues | Placed, end: int) -> SmallValues | Placed | None:
    if isinstance(found, Placed):
        return found if found.group.position < end else None
    positions = found.positions
    if positions[-1].as_py() < end:
        return found
    keep = int(np.searchsorted(positions.to_numpy(), end))
    if not keep:
        return None
    values = found.values
    cut = replace(
        values,
        values=values.values.slice(0, keep),
        published=values.published.slice(0, keep),
        writers=values.writers.slice(0, keep),
        batches=values.batches.slice(0, keep),
        partitions=values.partitions.slice(0, keep),
        rows=values.rows.slice(0, keep),
    )
    return SmallValues(cut, positions.slice(0, keep), found.reserved.slice(0, keep))
