"""X25519 key pairs, and how a public key is written and recognised by people.

A public key in text is ``aeron-spark:`` and the base64url of its 32 bytes, without padding; its fingerprint is
``SHA256:`` and the base64 of their SHA-256, without padding, as ssh prints them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from aeron_spark.errors import DataFormatError

KEY_BYTES: Final = 32
PREFIX: Final = "aeron-spark:"
TEXT_LENGTH: Final = len(PREFIX) + 43

_FIELD_PRIME: Final = 2**255 - 19
_PROBE: Final = X25519PrivateKey.from_private_bytes(bytes([64] * KEY_BYTES))  # any scalar shows a point of low order


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both halves, 32 bytes each as in RFC 7748. Its ``repr`` names the fingerprint and nothing else."""

    private: bytes = field(repr=False)
    public: bytes
    _key: X25519PrivateKey = field(repr=False, compare=False)

    def exchange(self, public: bytes) -> bytes:
        """The 32 bytes of X25519 with somebody's public key. Raises ValueError for a key of low order."""
        return self._key.exchange(X25519PublicKey.from_public_bytes(public))

    def __repr__(self) -> str:
        return f"KeyPair({fingerprint(self.public)})"


def new_keypair(entropy: Callable[[int], bytes]) -> KeyPair:
    """Make a key pair of 32 bytes of ``entropy``."""
    return keypair_from(entropy(KEY_BYTES))


def keypair_from(private: bytes) -> KeyPair:
    """Return the pair of a private key. Raises DataFormatError where it is not 32 bytes long."""
    if len(private) != KEY_BYTES:
        raise DataFormatError(
            f"a private key has {KEY_BYTES} bytes, and this one {len(private)}",
            remedy="Make one with 'aeron-spark keys new'.",
        )
    key = X25519PrivateKey.from_private_bytes(private)
    return KeyPair(bytes(private), key.public_key().public_bytes_raw(), key)


def public_text(public: bytes) -> str:
    """Return a public key as text."""
    return PREFIX + base64.urlsafe_b64encode(public).rstrip(b"=").decode()


def parse_public(text: str) -> bytes:
    """Return the public key of a text; raise DataFormatError where it is none, or one that no private key has."""
    try:
        if len(text) != TEXT_LENGTH or not text.startswith(PREFIX):
            raise ValueError
        public = base64.b64decode(text[len(PREFIX) :] + "=", altchars=b"-_", validate=True)
        if public_text(public) != text:  # the last letter carries two bits that must be 0
            raise ValueError
    except (ValueError, binascii.Error):
        raise DataFormatError(
            f"{text[:TEXT_LENGTH]!r} is not a public key",
            remedy=f"It is {PREFIX!r} and 43 letters, as 'aeron-spark keys show' prints it.",
        ) from None
    _refuse_nobodys(public)
    return public


def _refuse_nobodys(public: bytes) -> None:
    """Raise DataFormatError for points of low order, and for second spellings of a point: no pair has such a half."""
    try:
        if int.from_bytes(public, "little") >= _FIELD_PRIME:
            raise ValueError
        _PROBE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise DataFormatError(
            f"the public key {public_text(public)} belongs to no private key", remedy="Ask its owner for the right one."
        ) from None


def fingerprint(public: bytes) -> str:
    """Return what people compare."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).rstrip(b"=").decode()
