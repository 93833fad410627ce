"""Files of keys: the identity key, the known servers of a client, and the authorised keys of a server."""

from __future__ import annotations

from aeron_spark.keys.key_files import KnownServers, ipc_server, network_server, parse_server
from aeron_spark.keys.stores import (
    FilePeerStore,
    KeyPaths,
    MemoryPeerStore,
    create_identity,
    ensure_identity,
    load_identity,
    read_identity,
    set_passphrase,
)

__all__ = [
    "FilePeerStore",
    "KeyPaths",
    "KnownServers",
    "MemoryPeerStore",
    "create_identity",
    "ensure_identity",
    "ipc_server",
    "load_identity",
    "network_server",
    "parse_server",
    "read_identity",
    "set_passphrase",
]
