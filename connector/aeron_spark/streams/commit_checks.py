"""Checks the arguments of a commit."""

from __future__ import annotations

from collections.abc import Sequence

from aeron_spark.errors import RefusedError
from aeron_spark.streams.inline_stages import InlineRows
from aeron_spark.streams.stages import StageRef


def check_rows_named(
    writer: str, transaction: int, refs: Sequence[StageRef | InlineRows], rows: int | None
) -> None:  # fmt: skip
    """Raise RefusedError for a commit without parts, or one whose parts have another number of rows than ``rows``."""
    named = sum(ref.rows for ref in refs)
    if refs and rows in (None, named):
        return
    wanted = "" if rows is None else f", but its writer wrote {rows} rows"
    raise RefusedError(
        f"transaction {transaction} of writer {writer!r} is not committed: its commit names {len(refs)} stages with "
        f"{named} rows{wanted}",
        remedy="Stage the rows of the transaction again.",
    )
