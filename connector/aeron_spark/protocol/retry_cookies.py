"""Retry cookies: proof that a sender receives packets at its address. The server stores none before they return.

    cookie = number of the secret (1 byte) | HMAC-SHA256(secret, message)[:16]
    message = length of the address (1 byte) | address as text | HELLO's core

The secret changes every ``period_s`` seconds, and the previous secret stays valid, so a cookie is valid for one to two
periods. Each cookie is accepted once: an attacker that repeats a captured HELLO gets a new RETRY, and the server keeps
no state for that. The number of remembered cookies is limited; beyond the limit a repeated HELLO counts as a new one.
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

COOKIE_BYTES: Final = 17

PERIOD_S: Final = 60.0  # much longer than a round trip, much shorter than the lease of an address

MAX_SPENT_COOKIES: Final = 65_536  # remembered for one secret; about 8 MB

SECRET_BYTES: Final = 32


class _Secret:
    def __init__(self, number: int, key: bytes) -> None:
        self.number = number
        self.key = key
        self.spent: dict[bytes, None] = {}  # accepted cookies, oldest first

    def cookie(self, address: str, core: bytes) -> bytes:
        name = address.encode()
        message = len(name).to_bytes(1, "big") + name + core
        return bytes([self.number]) + hmac.digest(self.key, message, "sha256")[: COOKIE_BYTES - 1]


class Cookies:
    """Makes cookies and accepts each once. For one thread."""

    def __init__(
        self, entropy: Entropy, now: float, *, period_s: float = PERIOD_S, max_spent: int = MAX_SPENT_COOKIES
    ) -> None:
        self._entropy = entropy
        self._period_s = period_s
        self._max_spent = max_spent
        self._period_start = now
        self._secrets = [_Secret(0, entropy(SECRET_BYTES))]  # the newest last; at most two

    @property
    def spent_count(self) -> int:
        """The number of remembered cookies."""
        return sum(len(secret.spent) for secret in self._secrets)

    def make(self, now: float, address: str, core: bytes) -> bytes:
        """Return the cookie for a HELLO with this ``core`` (``hello_core``) from a canonical IP ``address``."""
        self._rotate(now)
        return self._secrets[-1].cookie(address, core)

    def accept(self, now: float, address: str, core: bytes, cookie: bytes) -> bool:
        """Accept a cookie once. Return False if it is repeated, expired, or not for this address and HELLO."""
        self._rotate(now)
        for secret in self._secrets:
            if hmac.compare_digest(secret.cookie(address, core), cookie):
                return self._spend(secret, cookie)
        return False

    def _spend(self, secret: _Secret, cookie: bytes) -> bool:
        if cookie in secret.spent:
            return False
        if len(secret.spent) >= self._max_spent:
            del secret.spent[next(iter(secret.spent))]
        secret.spent[cookie] = None
        return True

    def _rotate(self, now: float) -> None:
        periods = int((now - self._period_start) // self._period_s)
        if periods < 1:
            return
        newest = self._secrets[-1]
        previous = [newest] if periods == 1 else []
        self._secrets = [*previous, _Secret((newest.number + 1) % 256, self._entropy(SECRET_BYTES))]
        self._period_start += periods * self._period_s


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
