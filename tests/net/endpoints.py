"""Makes a server and clients from a program's options, without starting them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aeron_spark.client.client import Client
from aeron_spark.keys.stores import FilePeerStore, KeyPaths, MemoryPeerStore
from aeron_spark.server.server import Server

NO_LIMITS: dict[str, Any] = {"max_connections_per_address": 0, "max_pending_per_address": 0, "handshakes_per_second": 0}


def make_server(options: dict[str, Any]) -> Server:
    """Make a server on the driver in ``dir``, with its key below ``home``."""
    store = FilePeerStore(KeyPaths.below(Path(options["home"])))
    given = {**NO_LIMITS, "allow_any_key": True, **options.get("more", {})}
    return Server(options["address"], store=store, aeron_dir=options["dir"], **given)


def make_client(options: dict[str, Any], tag: str) -> Client:
    """Make a client with a new key."""
    more = options.get("more", {})
    return Client.to(options["address"], store=MemoryPeerStore(), aeron_dir=options["dir"], tag=tag, **more)
