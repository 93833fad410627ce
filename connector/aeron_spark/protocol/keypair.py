"""X25519 key pairs, their text and fingerprint, and the encryption of private keys in key files.

A public key in text is ``aeron-spark:`` and the base64url of its 32 bytes, without padding; its fingerprint is
``SHA256:`` and the base64 of their SHA-256, without padding, as ssh prints them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from aeron_spark.errors import DataFormatError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

# The functions import cryptography, because each program that parses options imports this module.

KEY_BYTES: Final = 32

PREFIX: Final = "aeron-spark:"

TEXT_LENGTH: Final = len(PREFIX) + 43

_FIELD_PRIME: Final = 2**255 - 19


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private and a public key, 32 bytes each as in RFC 7748. The ``repr`` has only the fingerprint."""

    private: bytes = field(repr=False)
    public: bytes
    _key: X25519PrivateKey = field(repr=False, compare=False)

    def exchange(self, public: bytes) -> bytes:
        """Return the 32 bytes of X25519 with a peer's public key. Raises ValueError for a key of low order."""
        return _exchange(self._key, public)

    def __repr__(self) -> str:
        return f"KeyPair({fingerprint(self.public)})"


def new_keypair(entropy: Callable[[int], bytes]) -> KeyPair:
    """Make a key pair from 32 bytes of ``entropy``."""
    return keypair_from(entropy(KEY_BYTES))


def keypair_from(private: bytes) -> KeyPair:
    """Return the pair of a private key. Raises DataFormatError unless the key has 32 bytes."""
    if len(private) != KEY_BYTES:
        raise DataFormatError(
            f"a private key of {len(private)} bytes, expected {KEY_BYTES}",
            remedy="Make one with 'aeron-spark keys new'.",
        )
    key = _private_key(private)
    return KeyPair(bytes(private), key.public_key().public_bytes_raw(), key)


def public_text(public: bytes) -> str:
    """Return a public key as text."""
    return PREFIX + base64.urlsafe_b64encode(public).rstrip(b"=").decode()


def parse_public(text: str) -> bytes:
    """Parse a public key. Raises DataFormatError for another text, and for a key that belongs to no private key."""
    try:
        if len(text) != TEXT_LENGTH or not text.startswith(PREFIX):
            raise ValueError
        public = base64.b64decode(text[len(PREFIX) :] + "=", altchars=b"-_", validate=True)
        if public_text(public) != text:  # the last character has two unused bits, which must be 0
            raise ValueError
    except (ValueError, binascii.Error):
        raise DataFormatError(
            f"{text[:TEXT_LENGTH]!r} is not a public key",
            remedy=f"Give {PREFIX!r} and 43 characters, as 'aeron-spark keys show' prints them.",
        ) from None
    _check_curve_point(public)
    return public


def _check_curve_point(public: bytes) -> None:
    """Raise DataFormatError for a point of low order or a second encoding of a point. No key pair has such a key."""
    try:
        if int.from_bytes(public, "little") >= _FIELD_PRIME:
            raise ValueError
        _exchange(_probe(), public)
    except ValueError:
        raise DataFormatError(
            f"the public key {public_text(public)} belongs to no private key",
            remedy="Ask its owner for the correct key.",
        ) from None


@cache
def _probe() -> X25519PrivateKey:
    """Return a key to detect points of low order with; any key does."""
    return _private_key(bytes([64] * KEY_BYTES))


def _private_key(private: bytes) -> X25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private)


def _exchange(key: X25519PrivateKey, public: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return key.exchange(X25519PublicKey.from_public_bytes(public))


def fingerprint(public: bytes) -> str:
    """Return the text by which people compare public keys."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).rstrip(b"=").decode()


KDF: Final = "scrypt"

SCRYPT_COST: Final = (15, 8, 1)  # log2(N), r, p: twice RFC 7914's advice for interactive use

MAX_SCRYPT_COST: Final = (18, 8, 1)

SALT_BYTES: Final = 16

NONCE_BYTES: Final = 12

AES_KEY_BYTES: Final = 32

TAG_BYTES: Final = 16


def encrypt_secret(secret: bytes, passphrase: str, bound: bytes, entropy: Callable[[int], bytes]) -> str:
    """Encrypt ``secret`` with ``passphrase``, and return it as text. ``bound`` is authenticated only."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = entropy(SALT_BYTES), entropy(NONCE_BYTES)
    encrypted = nonce + AESGCM(_key(passphrase, salt, SCRYPT_COST)).encrypt(nonce, secret, bound)
    return " ".join(
        [KDF, *map(str, SCRYPT_COST), base64.b64encode(salt).decode(), base64.b64encode(encrypted).decode()]
    )


def decrypt_secret(text: str, passphrase: str, bound: bytes) -> bytes | None:
    """Decrypt a text of :func:`encrypt_secret`; return None if the passphrase, the text or ``bound`` is wrong.

    Raises ValueError if ``text`` does not have the format, or needs more work than this version accepts.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    words = text.split(" ")
    if len(words) != 6 or words[0] != KDF:
        raise ValueError("not sealed by this version")
    try:
        log_n, r, p = map(int, words[1:4])
        salt, encrypted = (base64.b64decode(word, validate=True) for word in words[4:])
    except (ValueError, binascii.Error):
        raise ValueError("not sealed by this version") from None
    if any(not 1 <= cost <= limit for cost, limit in zip((log_n, r, p), MAX_SCRYPT_COST, strict=True)):
        raise ValueError("sealed with more work than this version accepts")
    if len(encrypted) < NONCE_BYTES + TAG_BYTES:
        raise ValueError("not sealed by this version")
    try:
        return AESGCM(_key(passphrase, salt, (log_n, r, p))).decrypt(
            encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:], bound
        )
    except InvalidTag:
        return None


def _key(passphrase: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    log_n, r, p = cost
    return Scrypt(salt=salt, length=AES_KEY_BYTES, n=1 << log_n, r=r, p=p).derive(passphrase.encode())
