"""Stores of an endpoint's identity and of its peers' keys: in files, or in memory for tests and temporary programs.

The file of an identity:

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
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_spark.errors import DataFormatError, SetupError, UsageError
from aeron_spark.keys import key_files
from aeron_spark.keys.key_files import KnownServers
from aeron_spark.protocol.access import ServerName, server_key_changed
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.keypair import (
    KEY_BYTES,
    KeyPair,
    decrypt_secret,
    encrypt_secret,
    keypair_from,
    new_keypair,
    public_text,
)

if TYPE_CHECKING:
    from aeron_spark.keys.clients_file import ClientTable

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


def set_passphrase(path: Path, passphrase: str) -> KeyPair:
    """Encrypt the key pair in ``path`` with another ``passphrase``, or store it unencrypted if that is empty."""
    pair = read_identity(path)
    key_files.replace(path, _encode(pair, passphrase, secrets.token_bytes))
    return pair


def ensure_identity(path: Path) -> KeyPair:
    """Return the key pair in ``path``; create it if the file does not exist. Concurrent callers get the same pair."""
    content = key_files.read_secret(path)
    if content is None:
        key_files.create(path, _encode(new_keypair(secrets.token_bytes), "", secrets.token_bytes))
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


@dataclass(frozen=True, slots=True)
class KeyPaths:
    """The paths of one user's key files, by default in this package's configuration folder."""

    identity: Path
    known_servers: Path
    authorized_keys: Path

    @classmethod
    def below(cls, config_home: Path) -> KeyPaths:
        """Return the files in ``config_home``."""
        return cls(config_home / "identity", config_home / "known_servers", config_home / "authorized_keys")

    @property
    def server_identity(self) -> Path:
        """The default file of the identity key of this user's servers."""
        return self.identity.with_name("server")


class FilePeerStore:
    """A store in files. Its first use creates the identity file, unless the caller passes an ``identity``.

    ``clients`` has the grants of a server's clients; None: no client has one.
    """

    def __init__(self, paths: KeyPaths, identity: KeyPair | None = None, clients: ClientTable | None = None) -> None:
        self.clients = clients
        self._paths = paths
        self._identity = identity
        self._known = KnownServers(paths.known_servers)

    def identity(self) -> KeyPair:
        if self._identity is None:
            self._identity = ensure_identity(self._paths.identity)
        return self._identity

    def server_key(self, server: ServerName) -> bytes | None:
        return self._known.key(server)

    def servers(self) -> Mapping[ServerName, bytes]:
        return {server: entry.key for server, entry in self._known.all().items()}

    def trust(self, server: ServerName, key: bytes, comment: str = "") -> None:
        self._known.trust(server, key, comment)

    def forget(self, server: ServerName) -> bool:
        return self._known.forget(server)

    def grant(self, client: bytes) -> Grant | None:
        return None if self.clients is None else self.clients.grant(client)

    def grants(self) -> Mapping[bytes, Grant]:
        return {} if self.clients is None else self.clients.grants()


class MemoryPeerStore:
    """A store in the memory of its process, with a new identity unless the caller passes one."""

    def __init__(self, identity: KeyPair | None = None, authorized: Mapping[bytes, Grant] | None = None) -> None:
        self._identity = identity or new_keypair(secrets.token_bytes)
        self._authorized = dict(authorized or {})
        self._known: dict[ServerName, bytes] = {}
        self._lock = threading.Lock()

    def identity(self) -> KeyPair:
        return self._identity

    def authorize(self, client: bytes, grant: Grant | None) -> None:
        """Give a grant to a client's public key; None removes its grant."""
        with self._lock:
            if grant is None:
                self._authorized.pop(client, None)
            else:
                self._authorized[client] = grant

    def server_key(self, server: ServerName) -> bytes | None:
        return self._known.get(server)

    def servers(self) -> Mapping[ServerName, bytes]:
        with self._lock:
            return dict(self._known)

    def trust(self, server: ServerName, key: bytes, comment: str = "") -> None:
        with self._lock:
            known = self._known.setdefault(server, key)
        if known != key:
            raise server_key_changed(server, known, key)

    def forget(self, server: ServerName) -> bool:
        with self._lock:
            return self._known.pop(server, None) is not None

    def grant(self, client: bytes) -> Grant | None:
        return self._authorized.get(client)

    def grants(self) -> Mapping[bytes, Grant]:
        with self._lock:
            return dict(self._authorized)
