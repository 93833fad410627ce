"""Retry cookies: proof that a sender receives packets at its address. The server stores none before they return.

    cookie = number of the period modulo 256 (1 byte) | HMAC-SHA256(secret, message)[:16]
    message = number of the period (8 bytes) | address (16 bytes, IPv4 mapped into IPv6) | HELLO's core

A period has ``PERIOD_S`` seconds of the monotonic clock. A cookie is valid in its period and the next one. Each cookie
is accepted once: an attacker that repeats a captured HELLO gets a new RETRY, and the server keeps no state for that.
The number of remembered cookies is limited; beyond the limit a repeated HELLO counts as a new one.

The guard of a media driver makes and verifies the same cookies with the server's secret, before it makes an image
(``HelloCookies`` in Java).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.handshake_payloads import CODES, MAX_TEXT, known_code, printable
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.sources import mapped_address

COOKIE_BYTES: Final = 17

PERIOD_S: Final = 60.0  # much longer than a round trip, much shorter than the lease of an address; as in Java

MAX_SPENT_COOKIES: Final = 65_536  # remembered for one period; about 8 MB

SECRET_BYTES: Final = 32


class Cookies:
    """Makes cookies and accepts each once. For one thread, except ``secret``."""

    def __init__(self, entropy: Entropy, *, period_s: float = PERIOD_S, max_spent: int = MAX_SPENT_COOKIES) -> None:
        self.secret: Final = entropy(SECRET_BYTES)
        """The secret of all cookies, for the guard of the media driver."""
        self._period_s = period_s
        self._max_spent = max_spent
        self._spent: dict[int, dict[bytes, None]] = {}  # accepted cookies by period, oldest first

    @property
    def spent_count(self) -> int:
        """The number of remembered cookies."""
        return sum(len(spent) for spent in self._spent.values())

    def make(self, now: float, address: str, core: bytes) -> bytes:
        """Return the cookie for a HELLO with this ``core`` (``hello_core``) from a canonical IP ``address``."""
        return self._cookie(self._period(now), address, core)

    def accept(self, now: float, address: str, core: bytes, cookie: bytes) -> bool:
        """Accept a cookie once. Return False if it is repeated, expired, or not for this address and HELLO."""
        present = self._period(now)
        # the guard may have read the clock a moment later than ``now``
        for period in (present, present - 1, present + 1):
            if hmac.compare_digest(self._cookie(period, address, core), cookie):
                return self._spend(period, cookie)
        return False

    def _spend(self, period: int, cookie: bytes) -> bool:
        spent = self._spent.setdefault(period, {})
        if cookie in spent:
            return False
        if len(spent) >= self._max_spent:
            del spent[next(iter(spent))]
        spent[cookie] = None
        return True

    def _period(self, now: float) -> int:
        present = int(now // self._period_s)
        for period in [one for one in self._spent if one < present - 1]:
            del self._spent[period]
        return present

    def _cookie(self, period: int, address: str, core: bytes) -> bytes:
        message = period.to_bytes(8, "big", signed=True) + mapped_address(address) + core
        return bytes([period % 256]) + hmac.digest(self.secret, message, "sha256")[: COOKIE_BYTES - 1]


MAX_HINT_BYTES: Final = 1000  # Aeron's limit is 1023

PREFIX: Final = "aeron-spark/1 "

_RETRY: Final = "RETRY"

_FAILED: Final = "FAILED"


@dataclass(frozen=True, slots=True)
class RetryHint:
    """The client must send HELLO again, with this cookie."""

    cookie: bytes


@dataclass(frozen=True, slots=True)
class RefusalHint:
    """The server refuses; the hint is not authenticated."""

    refusal: Refusal


Hint = RetryHint | RefusalHint


def encode_hint(hint: Hint) -> str:
    """Return the reason for ``Image.reject``, in printable ASCII. Raises OptionError for an unknown code."""
    match hint:
        case RetryHint(cookie):
            return f"{PREFIX}{_RETRY} {base64.urlsafe_b64encode(cookie).rstrip(b'=').decode()}"
        case RefusalHint(Refusal(code, text)):
            return f"{PREFIX}{_FAILED} {known_code(code)} {printable(text)}"


def decode_hint(text: str) -> Hint:
    """Parse the reason of a rejection. Raises DataFormatError for other texts, such as Aeron's own."""
    if len(text) > MAX_HINT_BYTES or not text.startswith(PREFIX):
        raise _malformed(text)
    kind, _, argument = text[len(PREFIX) :].partition(" ")
    if kind == _RETRY:
        return RetryHint(_cookie(argument, text))
    code, space, reason = argument.partition(" ")
    if kind != _FAILED or code not in CODES or not space or len(reason) > MAX_TEXT or printable(reason) != reason:
        raise _malformed(text)
    return RefusalHint(Refusal(code, reason))


def _cookie(text: str, whole: str) -> bytes:
    try:
        cookie = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _malformed(whole) from None
    # the last character has unused bits, so only one encoding of a cookie is accepted
    if len(cookie) != COOKIE_BYTES or encode_hint(RetryHint(cookie)) != whole:
        raise _malformed(whole)
    return cookie


def _malformed(text: str) -> DataFormatError:
    return DataFormatError(
        f"the rejection {printable(text[:80])!r} is not one of aeron-spark's",
        remedy="Check which other program receives at that address.",
    )
