"""Compares two tables as multisets of rows: counts the lost, repeated and never sent ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between sent and found rows. An altered row counts as one lost and one never sent."""

    rows_in: int
    rows_out: int
    lost: int
    repeated: int
    never_sent: int

    @property
    def equal(self) -> bool:
        """Whether both tables have the same rows, each equally often."""
        return self.lost == self.repeated == self.never_sent == 0

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        text = f"{self.rows_in} rows in, {self.rows_out} rows out, {self.lost} lost, {self.repeated} repeated"
        return text if not self.never_sent else f"{text}, {self.never_sent} never sent"


def compare(sent: pa.Table, found: pa.Table) -> Comparison:
    """Compare two tables as multisets of rows. NaN equals NaN, null equals null, and neither equals the other.

    Raises ValueError if the names, order or types of the columns differ.
    """
    columns = [[(field.name, field.type) for field in table.schema] for table in (sent, found)]
    if columns[0] != columns[1]:
        raise ValueError(f"the columns differ: {columns[0]} were sent, {columns[1]} were found")
    rows = _rows(pa.concat_tables([pa.table(table.columns, names=sent.column_names) for table in (sent, found)]))
    _, kinds = np.unique(rows, return_inverse=True)
    kinds = kinds.reshape(-1)
    distinct = int(kinds.max()) + 1 if len(kinds) else 0
    sent_counts = np.bincount(kinds[: sent.num_rows], minlength=distinct)
    found_counts = np.bincount(kinds[sent.num_rows :], minlength=distinct)
    surplus = np.maximum(found_counts - sent_counts, 0)
    return Comparison(
        sent.num_rows,
        found.num_rows,
        lost=int(np.maximum(sent_counts - found_counts, 0).sum()),
        repeated=int(surplus[sent_counts > 0].sum()),
        never_sent=int(surplus[sent_counts == 0].sum()),
    )


def _rows(table: pa.Table) -> np.ndarray[Any, Any]:
    """Return each row as one opaque value; two are equal if and only if all columns are."""
    columns = [
        part for column in table.columns for part in (pc.is_null(column).to_numpy().astype(np.int64), _bits(column))
    ]
    matrix = np.ascontiguousarray(np.column_stack(columns))
    return matrix.view(np.dtype((np.void, matrix.shape[1] * matrix.itemsize))).reshape(-1)


def _bits(column: Any) -> Any:
    """Return 64 bits for each value: the same for the same value, 0 for null."""
    compute: Any = pc  # its type stubs lack chunked arrays and dictionaries
    kind = column.type
    if pa.types.is_floating(kind):
        values = compute.fill_null(column, 0.0).to_numpy().astype(np.float64)
        values[np.isnan(values)] = np.nan  # the same bits for every NaN
        return values.view(np.int64)
    if pa.types.is_string(kind):
        codes = compute.dictionary_encode(column).combine_chunks().indices
        return compute.fill_null(codes, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return compute.fill_null(column.cast(pa.int64()), 0).to_numpy().astype(np.int64)
