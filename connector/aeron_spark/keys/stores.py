"""Stores of an endpoint's identity and of its peers' keys: in files, or in memory for tests and temporary programs."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aeron_spark.keys.client_table import ClientTable
from aeron_spark.keys.identity import ensure_identity
from aeron_spark.keys.known_servers import KnownServers
from aeron_spark.protocol.access import ServerName, server_key_changed
from aeron_spark.protocol.grants import Grant
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
