"""A private key under a passphrase: scrypt (RFC 7914) makes the key, AES-256-GCM seals, as text for a line of a file.

    scrypt 15 8 1 <base64 of the salt> <base64 of nonce and sealed key>

The numbers are scrypt's log2(N), r and p: 32 MiB and some 0.1 s a guess. A reader takes what the text says, up to
eight times as much of both, so that files written with higher numbers later can be read, and a hostile one costs a
bounded time and memory.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

KDF: Final = "scrypt"
COST: Final = (15, 8, 1)  # log2(N), r, p: RFC 7914's advice for interactive use, doubled
HIGHEST: Final = (18, 8, 1)
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
KEY_BYTES: Final = 32
TAG_BYTES: Final = 16


def seal(secret: bytes, passphrase: str, bound: bytes, entropy: Callable[[int], bytes]) -> str:
    """Return the text of ``secret`` under ``passphrase``; ``bound`` is authenticated with it and stands elsewhere."""
    salt, nonce = entropy(SALT_BYTES), entropy(NONCE_BYTES)
    sealed = nonce + AESGCM(_key(passphrase, salt, COST)).encrypt(nonce, secret, bound)
    return " ".join([KDF, *map(str, COST), base64.b64encode(salt).decode(), base64.b64encode(sealed).decode()])


def unseal(text: str, passphrase: str, bound: bytes) -> bytes | None:
    """Return what was sealed; None where the passphrase is another, or the text or ``bound`` was changed.

    Raises ValueError where ``text`` is not one that :func:`seal` makes.
    """
    words = text.split(" ")
    if len(words) != 6 or words[0] != KDF:
        raise ValueError("not sealed by this version")
    try:
        log_n, r, p = map(int, words[1:4])
        salt, sealed = (base64.b64decode(word, validate=True) for word in words[4:])
    except (ValueError, binascii.Error):
        raise ValueError("not sealed by this version") from None
    if any(not 1 <= given <= most for given, most in zip((log_n, r, p), HIGHEST, strict=True)):
        raise ValueError("sealed with more work than this version takes upon itself")
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise ValueError("not sealed by this version")
    try:
        return AESGCM(_key(passphrase, salt, (log_n, r, p))).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
    except InvalidTag:
        return None


def _key(passphrase: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    log_n, r, p = cost
    return Scrypt(salt=salt, length=KEY_BYTES, n=1 << log_n, r=r, p=p).derive(passphrase.encode())
