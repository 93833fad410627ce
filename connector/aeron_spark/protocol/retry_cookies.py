"""Retry cookies: proof that a sender receives at the address it sends from, kept by nobody but the sender.

    cookie = number of the secret (1 byte) | HMAC-SHA256(secret, message)[:16]
    message = length of the address (1 byte) | address as text | HELLO's core

The secret is changed after ``period`` seconds, and the one before it still holds: a cookie is good for one to two
periods. It is good for one HELLO only: what a listener repeats within that time is answered by a new RETRY, and costs
nothing. The memory of spent cookies is bounded; beyond the bound a repeated HELLO costs what a new one would.
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

PERIOD: Final = 60.0  # seconds; far more than a round trip, far less than addresses change owners

MAX_SPENT: Final = 65_536  # cookies of one secret; about 8 MB when all are spent

SECRET_BYTES: Final = 32


class _Secret:
    def __init__(self, number: int, key: bytes) -> None:
        self.number = number
        self.key = key
        self.spent: dict[bytes, None] = {}  # in the order they were spent

    def cookie(self, address: str, core: bytes) -> bytes:
        name = address.encode()
        message = len(name).to_bytes(1, "big") + name + core
        return bytes([self.number]) + hmac.digest(self.key, message, "sha256")[: COOKIE_BYTES - 1]


class Cookies:
    """Makes cookies and accepts each once. For one thread."""

    def __init__(self, entropy: Entropy, now: float, *, period: float = PERIOD, max_spent: int = MAX_SPENT) -> None:
        self._entropy = entropy
        self._period = period
        self._max_spent = max_spent
        self._born = now
        self._secrets = [_Secret(0, entropy(SECRET_BYTES))]  # the newest last, two at most

    @property
    def remembered(self) -> int:
        """How many spent cookies are kept in memory."""
        return sum(len(secret.spent) for secret in self._secrets)

    def mint(self, now: float, address: str, core: bytes) -> bytes:
        """Give the cookie for a HELLO with this ``core`` (``packets.hello_core``) from a canonical IP ``address``."""
        self._rotate(now)
        return self._secrets[-1].cookie(address, core)

    def accept(self, now: float, address: str, core: bytes, cookie: bytes) -> bool:
        """Whether the cookie is ours, for this address and HELLO, still good and not spent before. It is spent now."""
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
        periods = int((now - self._born) // self._period)
        if periods < 1:
            return
        newest = self._secrets[-1]
        kept = [newest] if periods == 1 else []
        self._secrets = [*kept, _Secret((newest.number + 1) % 256, self._entropy(SECRET_BYTES))]
        self._born += periods * self._period


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
