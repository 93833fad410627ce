"""The file of an identity: a private key, in a file of mode 0600 that nobody else can read.

    aeron-spark identity 1
    private: <base64 of 32 bytes>
    public: aeron-spark:<base64url of 32 bytes>

Under a passphrase the second line is ``sealed: <text of endpoint.sealing>`` instead. It comes from the environment
(``AERON_SPARK_PASSPHRASE``), or from whoever sits at the terminal, as with ssh.

The public key is there for people; that it is the private one's is checked. No text of an error ever has a private key.
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
    """Return the key pair of ``text``: ``env:NAME``, a variable that holds a private key in base64, or a file.

    ``find`` gives the path of a file that is named and not here, such as one that Spark brought to an executor.
    Raises SetupError where there is none, others can read it, or its passphrase is missing or wrong, DataFormatError
    where it is no identity.
    """
    if not text.startswith(ENVIRONMENT):
        return read_identity(find(text) if find is not None else Path(text).expanduser())
    name = text[len(ENVIRONMENT) :]
    value = (os.environ if environ is None else environ).get(name)
    if not value:
        raise SetupError(
            f"the environment variable {name} of the identity {text!r} is not set",
            remedy="Put the text after 'private:' of an identity file into it.",
        )
    return keypair_from(_private(value.strip(), f"the environment variable {name}"))


def read_identity(path: Path) -> KeyPair:
    """Return the key pair in a file. Raises SetupError and DataFormatError, as :func:`load_identity` does."""
    content = key_files.read_secret(path)
    if content is None:
        raise SetupError(
            f"there is no identity in {path}",
            remedy=f"Correct the path, or make one with 'aeron-spark keys new --identity {shlex.quote(str(path))}'.",
        )
    return _decode(content, path)


def create_identity(
    path: Path,
    *,
    force: bool = False,
    passphrase: str = "",
    entropy: Callable[[int], bytes] = secrets.token_bytes,
) -> KeyPair:
    """Make a key pair and its file, under ``passphrase`` unless that is empty.

    Raises UsageError, and changes nothing, where a file is there, unless ``force``; SetupError for a folder.
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
            remedy="Keep it; or with --force make another: then nobody who knows this one will recognise you.",
        )
    return pair


def seal_identity(path: Path, passphrase: str, *, entropy: Callable[[int], bytes] = secrets.token_bytes) -> KeyPair:
    """Put the key pair in ``path`` under another ``passphrase``, or under none where that is empty; return it."""
    pair = read_identity(path)
    key_files.replace(path, _encode(pair, passphrase, entropy))
    return pair


def ensure_identity(path: Path, *, entropy: Callable[[int], bytes] = secrets.token_bytes) -> KeyPair:
    """Return the key pair in ``path``, made now if there is none. Of several that make it at once, one wins for all."""
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
            f"{path} is not an identity: it does not begin with {HEADER!r}",
            remedy="Name the file that 'aeron-spark keys new' made.",
        )
    fields = dict(line.partition(": ")[::2] for line in lines[1:])
    if set(fields) not in ({"private", "public"}, {"sealed", "public"}) or len(lines) != 3:
        raise DataFormatError(
            f"{path} does not have one line 'private:' (or 'sealed:') and one line 'public:'",
            remedy="Bring back the file that 'aeron-spark keys new' made, or make another.",
        )
    if "sealed" in fields:
        private = _unsealed(fields["sealed"], fields["public"], path)
    else:
        private = _private(fields["private"], str(path))
    pair = keypair_from(private)
    if fields["public"] != public_text(pair.public):
        raise DataFormatError(
            f"the public key in {path} is not the one of its private key: the file was changed",
            remedy="Bring back the file that 'aeron-spark keys new' made, or make another.",
        )
    return pair


def _unsealed(text: str, public: str, path: Path) -> bytes:
    passphrase = os.environ.get(PASSPHRASE) or _asked(path)
    if not passphrase:
        raise SetupError(
            f"the identity in {path} is under a passphrase, and nobody is there to give it",
            remedy=f"Set {PASSPHRASE} for this process, or start it from a terminal.",
        )
    try:
        private = decrypt_secret(text, passphrase, public.encode())
    except ValueError as error:
        raise DataFormatError(
            f"the sealed key in {path} cannot be read: {error}",
            remedy="Bring back the file that 'aeron-spark keys new' made, or take a newer version.",
        ) from None
    if private is None or len(private) != KEY_BYTES:
        raise SetupError(
            f"the passphrase is not that of the identity in {path}, or the file was changed",
            remedy=f"Try again; {PASSPHRASE}, where it is set, is what is tried.",
        )
    return private


def _asked(path: Path) -> str:
    """Return what somebody types at the terminal; nothing where nobody can."""
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
            f"{where} holds no private key: that is the base64 of {KEY_BYTES} bytes",
            remedy="Take the text after 'private:' of an identity file.",
        )
    return private
