"""Checks the arguments of a commit."""

from __future__ import annotations

from typing import Final

from aeron_spark.errors import RefusedError, UsageError
from aeron_spark.streams.stages import StageRef

MAX_TOKEN_BYTES: Final = 1_024  # of UTF-8; the journal has one token for each producer of each writer


def check_token(writer: str, transaction: int, token: str) -> None:
    """Raise UsageError for a token that is too long."""
    size = len(token.encode("utf-8", "surrogatepass"))
    if size > MAX_TOKEN_BYTES:
        raise UsageError(
            f"the token of transaction {transaction} of writer {writer!r} has {size} bytes of UTF-8, expected at most "
            f"{MAX_TOKEN_BYTES}",
            remedy="Give a shorter token.",
        )


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
