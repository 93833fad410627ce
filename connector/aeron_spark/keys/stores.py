"""Stores of an endpoint's identity and of its peers' keys: in files, or in memory for tests and temporary programs."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aeron_spark.keys.authorized_keys import read_authorized
from aeron_spark.keys.identity import ensure_identity
from aeron_spark.keys.known_servers import KnownServers
from aeron_spark.protocol.access import Grant, ServerName, server_key_changed
from aeron_spark.protocol.keypair import KeyPair, new_keypair


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
    """A store in three files. Its first use creates the identity file, unless the caller passes an ``identity``."""

    def __init__(self, paths: KeyPaths, identity: KeyPair | None = None) -> None:
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
        """Return the client's grant, or None if its key is not authorised, or the file does not exist.

        Each call reads the file, so a removed key is refused from then on.
        """
        path = self._paths.authorized_keys
        return read_authorized(path).get(client) if path.exists() else None


class MemoryPeerStore:
    """A store in the memory of its process, with a new identity unless the caller passes one."""

    def __init__(self, identity: KeyPair | None = None, authorized: Mapping[bytes, Grant] | None = None) -> None:
        self._identity = identity or new_keypair(secrets.token_bytes)
        self._authorized = dict(authorized or {})
        self._known: dict[ServerName, bytes] = {}
        self._lock = threading.Lock()

    def identity(self) -> KeyPair:
        return self._identity

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
