"""The file of an identity: a private key, in a file of mode 0600 that nobody else can read.

    aeron-spark identity 1
    private: <base64 of 32 bytes>
    public: aeron-spark:<base64url of 32 bytes>

The public key is there for people; that it is the private one's is checked. No text of an error ever has a private key.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aeron_spark.endpoint.keypair import KEY_BYTES, KeyPair, keypair_from, new_keypair, public_text
from aeron_spark.errors import DataFormatError, SetupError, UsageError
from aeron_spark.keys import files

HEADER: Final = "aeron-spark identity 1"
ENVIRONMENT: Final = "env:"


def load_identity(
    text: str, environ: Mapping[str, str] | None = None, find: Callable[[str], Path] | None = None
) -> KeyPair:
    """Return the key pair of ``text``: ``env:NAME``, a variable that holds a private key in base64, or a file.

    ``find`` gives the path of a file that is named and not here, such as one that Spark brought to an executor.
    Raises SetupError where there is none or others can read it, DataFormatError where it is no identity.
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
    content = files.read_secret(path)
    if content is None:
        raise SetupError(f"there is no identity in {path}", remedy="Make one with 'aeron-spark keys new'.")
    return _decode(content, path)


def create_identity(
    path: Path, *, force: bool = False, entropy: Callable[[int], bytes] = secrets.token_bytes
) -> KeyPair:
    """Make a key pair and its file. Raises UsageError, and changes nothing, where a file is there, unless ``force``."""
    pair = new_keypair(entropy)
    if force:
        files.replace(path, _encode(pair))
    elif not files.create(path, _encode(pair)):
        raise UsageError(
            f"there is an identity in {path} already",
            remedy="Keep it; or with --force make another: then nobody who knows this one will recognise you.",
        )
    return pair


def ensure_identity(path: Path, *, entropy: Callable[[int], bytes] = secrets.token_bytes) -> KeyPair:
    """Return the key pair in ``path``, made now if there is none. Of several that make it at once, one wins for all."""
    content = files.read_secret(path)
    if content is None:
        files.create(path, _encode(new_keypair(entropy)))
        return read_identity(path)
    return _decode(content, path)


def _encode(pair: KeyPair) -> bytes:
    private = base64.b64encode(pair.private).decode()
    return f"{HEADER}\nprivate: {private}\npublic: {public_text(pair.public)}\n".encode()


def _decode(content: bytes, path: Path) -> KeyPair:
    lines = content.decode("ascii", "replace").splitlines()
    if not lines or lines[0] != HEADER:
        raise DataFormatError(
            f"{path} is not an identity: it does not begin with {HEADER!r}",
            remedy="Name the file that 'aeron-spark keys new' made.",
        )
    fields = dict(line.partition(": ")[::2] for line in lines[1:])
    if set(fields) != {"private", "public"} or len(lines) != 3:
        raise DataFormatError(
            f"{path} does not have one line 'private:' and one line 'public:'",
            remedy="Bring back the file that 'aeron-spark keys new' made, or make another.",
        )
    pair = keypair_from(_private(fields["private"], str(path)))
    if fields["public"] != public_text(pair.public):
        raise DataFormatError(
            f"the public key in {path} is not the one of its private key: the file was changed",
            remedy="Bring back the file that 'aeron-spark keys new' made, or make another.",
        )
    return pair


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
