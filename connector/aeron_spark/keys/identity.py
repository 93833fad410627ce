"""The file of an identity key: a private key in a file of mode 0600, which only its user can read.

    aeron-spark identity 1
    private: <base64 of 32 bytes>
    public: aeron-spark:<base64url of 32 bytes>

With a passphrase the second line is ``sealed: <text of protocol.keypair.seal>`` instead. The passphrase comes from the
environment variable ``AERON_SPARK_PASSPHRASE``, or from the user at the terminal.

The public key is for readers of the file, and is checked against the private key. No error text has a private key.
"""

from __future__ import annotations

import base64
import binascii
import getpass
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aeron_spark.errors import DataFormatError, SetupError, UsageError
from aeron_spark.keys import key_files
from aeron_spark.protocol.keypair import (
    KEY_BYTES,
    KeyPair,
    decrypt_secret,
    encrypt_secret,
    keypair_from,
    new_keypair,
    public_text,
)

HEADER: Final = "aeron-spark identity 1"
ENVIRONMENT: Final = "env:"
PASSPHRASE: Final = "AERON_SPARK_PASSPHRASE"


def load_identity(
    text: str, environ: Mapping[str, str] | None = None, find: Callable[[str], Path] | None = None
) -> KeyPair:
    """Return the key pair of ``text``: a file, or ``env:NAME`` for a variable with a private key in base64.

    ``find`` returns the local path of a file name, such as of a file that Spark copied to an executor. Raises
    SetupError if the identity is missing, others can read it, or its passphrase is missing or wrong; DataFormatError if
    it is not an identity.
    """
    if not text.startswith(ENVIRONMENT):
        return read_identity(find(text) if find is not None else Path(text).expanduser())
    name = text[len(ENVIRONMENT) :]
    value = (os.environ if environ is None else environ).get(name)
    if not value:
        raise SetupError(
            f"the environment variable {name} of the identity {text!r} is not set",
            remedy="Set it to the text after 'private:' in an identity file.",
        )
    return keypair_from(_private(value.strip(), f"the environment variable {name}"))


def read_identity(path: Path) -> KeyPair:
    """Return the key pair in a file. Raises SetupError and DataFormatError like :func:`load_identity`."""
    content = key_files.read_secret(path)
    if content is None:
        raise SetupError(
            f"there is no identity in {path}",
            remedy=f"Correct the path, or create one with 'aeron-spark keys new --identity {shlex.quote(str(path))}'.",
        )
    return _decode(content, path)


def create_identity(
    path: Path,
    *,
    force: bool = False,
    passphrase: str = "",
    entropy: Callable[[int], bytes] = secrets.token_bytes,
) -> KeyPair:
    """Create a key pair and its file, encrypted with ``passphrase`` unless that is empty.

    Raises UsageError if the file exists, unless ``force``; SetupError if ``path`` is a folder.
    """
    if path.is_dir():
        raise SetupError(f"{path} is a folder", remedy="Name a file in it.")
    pair = new_keypair(entropy)
    content = _encode(pair, passphrase, entropy)
    if force:
        key_files.replace(path, content)
    elif not key_files.create(path, content):
        raise UsageError(
            f"there is an identity in {path} already",
            remedy="Keep it, or replace it with --force: peers that know the old key then refuse the new one.",
        )
    return pair


def set_passphrase(path: Path, passphrase: str, *, entropy: Callable[[int], bytes] = secrets.token_bytes) -> KeyPair:
    """Encrypt the key pair in ``path`` with another ``passphrase``, or store it unencrypted if that is empty."""
    pair = read_identity(path)
    key_files.replace(path, _encode(pair, passphrase, entropy))
    return pair


def ensure_identity(path: Path, *, entropy: Callable[[int], bytes] = secrets.token_bytes) -> KeyPair:
    """Return the key pair in ``path``; create it if the file does not exist. Concurrent callers get the same pair."""
    content = key_files.read_secret(path)
    if content is None:
        key_files.create(path, _encode(new_keypair(entropy), "", entropy))
        return read_identity(path)
    return _decode(content, path)


def _encode(pair: KeyPair, passphrase: str, entropy: Callable[[int], bytes]) -> bytes:
    public = public_text(pair.public)
    if passphrase:
        line = f"sealed: {encrypt_secret(pair.private, passphrase, public.encode(), entropy)}"
    else:
        line = f"private: {base64.b64encode(pair.private).decode()}"
    return f"{HEADER}\n{line}\npublic: {public}\n".encode()


def _decode(content: bytes, path: Path) -> KeyPair:
    lines = content.decode("ascii", "replace").splitlines()
    if not lines or lines[0] != HEADER:
        raise DataFormatError(
            f"{path} is not an identity: expected {HEADER!r} on the first line",
            remedy="Name a file of 'aeron-spark keys new'.",
        )
    fields = dict(line.partition(": ")[::2] for line in lines[1:])
    if set(fields) not in ({"private", "public"}, {"sealed", "public"}) or len(lines) != 3:
        raise DataFormatError(
            f"{path} does not have one line 'private:' (or 'sealed:') and one line 'public:'",
            remedy="Restore the file of 'aeron-spark keys new', or create another.",
        )
    if "sealed" in fields:
        private = _decrypt(fields["sealed"], fields["public"], path)
    else:
        private = _private(fields["private"], str(path))
    pair = keypair_from(private)
    if fields["public"] != public_text(pair.public):
        raise DataFormatError(
            f"the public key in {path} does not belong to its private key: the file was changed",
            remedy="Restore the file of 'aeron-spark keys new', or create another.",
        )
    return pair


def _decrypt(text: str, public: str, path: Path) -> bytes:
    passphrase = os.environ.get(PASSPHRASE) or _read_passphrase(path)
    if not passphrase:
        raise SetupError(
            f"the identity in {path} needs a passphrase, but standard input is not a terminal",
            remedy=f"Set {PASSPHRASE} for this process, or start it from a terminal.",
        )
    try:
        private = decrypt_secret(text, passphrase, public.encode())
    except ValueError as error:
        raise DataFormatError(
            f"the encrypted key in {path} cannot be read: {error}",
            remedy="Restore the file of 'aeron-spark keys new', or use a newer version.",
        ) from None
    if private is None or len(private) != KEY_BYTES:
        raise SetupError(
            f"wrong passphrase for the identity in {path}, or the file was changed",
            remedy=f"Try again, and correct or unset {PASSPHRASE}, which has priority over the terminal.",
        )
    return private


def _read_passphrase(path: Path) -> str:
    """Return the passphrase that the user types at the terminal, or an empty text without a terminal."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return ""
    return getpass.getpass(f"Passphrase of {path}: ", sys.stderr)


def _private(text: str, where: str) -> bytes:
    try:
        private = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        private = b""
    if len(private) != KEY_BYTES:
        raise DataFormatError(
            f"{where} is not a private key, expected the base64 of {KEY_BYTES} bytes",
            remedy="Use the text after 'private:' in an identity file.",
        )
    return private
