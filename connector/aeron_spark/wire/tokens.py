"""Checks a transaction's token: a producer's own text, which is stored with its last transaction."""

from __future__ import annotations

from typing import Final

from aeron_spark.errors import UsageError

MAX_TOKEN_BYTES: Final = 1_024  # of UTF-8; the journal has one token for each producer of each writer


def check_token(writer: str, transaction: int, token: str) -> None:
    """Raise UsageError for a token that is not text, or too long."""
    try:
        size = len(token.encode())
    except (AttributeError, UnicodeEncodeError):
        raise UsageError(
            f"the token of transaction {transaction} of writer {writer!r} is {token!r}, expected text of valid Unicode",
            remedy="Give a str, for example a number as str(number).",
        ) from None
    if size > MAX_TOKEN_BYTES:
        raise UsageError(
            f"the token of transaction {transaction} of writer {writer!r} has {size} bytes of UTF-8, expected at most "
            f"{MAX_TOKEN_BYTES}",
            remedy="Give a shorter token.",
        )
