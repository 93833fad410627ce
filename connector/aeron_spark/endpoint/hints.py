"""What a server says before it knows anybody: the text of ``Image.reject``, to the sender of a packet alone.

    aeron-spark/1 RETRY <cookie, base64url without padding>
    aeron-spark/1 FAILED <code> <text>

Anybody on the way can forge it, so it is a hint: a RETRY costs a client one more HELLO, and a FAILED is believed only
when nothing better came in time.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from aeron_spark.endpoint.cookies import COOKIE_BYTES
from aeron_spark.endpoint.payloads import CODES, MAX_TEXT, known_code, printable
from aeron_spark.endpoint.refusal import Refusal
from aeron_spark.errors import DataFormatError

MAX_HINT_BYTES: Final = 1000  # Aeron carries 1023
PREFIX: Final = "aeron-spark/1 "
_RETRY: Final = "RETRY"
_FAILED: Final = "FAILED"


@dataclass(frozen=True, slots=True)
class RetryHint:
    """Send HELLO again, with this cookie."""

    cookie: bytes


@dataclass(frozen=True, slots=True)
class RefusalHint:
    """The server seems to refuse."""

    refusal: Refusal


Hint = RetryHint | RefusalHint


def encode_hint(hint: Hint) -> str:
    """The text for ``Image.reject``: printable ASCII. Raises OptionError for an unknown code."""
    match hint:
        case RetryHint(cookie):
            return f"{PREFIX}{_RETRY} {base64.urlsafe_b64encode(cookie).rstrip(b'=').decode()}"
        case RefusalHint(Refusal(code, text)):
            return f"{PREFIX}{_FAILED} {known_code(code)} {printable(text)}"


def decode_hint(text: str) -> Hint:
    """Read the text of a rejection. Raises DataFormatError for one that is not ours, such as Aeron's own."""
    if len(text) > MAX_HINT_BYTES or not text.startswith(PREFIX):
        raise _broken(text)
    kind, _, rest = text[len(PREFIX) :].partition(" ")
    if kind == _RETRY:
        return RetryHint(_cookie(rest, text))
    code, space, reason = rest.partition(" ")
    if kind != _FAILED or code not in CODES or not space or len(reason) > MAX_TEXT or printable(reason) != reason:
        raise _broken(text)
    return RefusalHint(Refusal(code, reason))


def _cookie(text: str, whole: str) -> bytes:
    try:
        cookie = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _broken(whole) from None
    # one spelling each: the last letter carries bits that say nothing
    if len(cookie) != COOKIE_BYTES or encode_hint(RetryHint(cookie)) != whole:
        raise _broken(whole)
    return cookie


def _broken(text: str) -> DataFormatError:
    return DataFormatError(
        f"the rejection {printable(text[:80])!r} is not one of aeron-spark's",
        remedy="See what else listens at that address",
    )
