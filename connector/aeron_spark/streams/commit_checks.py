"""Checks the arguments of a commit."""

from __future__ import annotations

from aeron_spark.errors import RefusedError
from aeron_spark.streams.stages import StageRef


def check_rows_named(writer: str, transaction: int, refs: list[StageRef], rows: int | None) -> None:
    """Raise RefusedError for a commit without stages, or one whose stages have another number of rows than ``rows``."""
    named = sum(ref.rows for ref in refs)
    if refs and rows in (None, named):
        return
    wanted = "" if rows is None else f", but its writer wrote {rows} rows"
    raise RefusedError(
        f"transaction {transaction} of writer {writer!r} is not committed: its commit names {len(refs)} stages with "
        f"{named} rows{wanted}",
        remedy="Stage the rows of the transaction again.",
    )
