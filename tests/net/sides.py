"""A server and a client of the package, made of a program's options; they are not started yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aeron_spark.client.client import Client
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.keys.stores import FilePeerStore, KeyPaths, MemoryPeerStore
from aeron_spark.options import ClientOptions
from aeron_spark.server.program import Server

CROWD: dict[str, Any] = {"max_connections_per_address": 0, "max_pending_per_address": 0, "handshakes_per_second": 0}


def server(options: dict[str, Any]) -> Server:
    """A server on the driver in ``dir``, with its key in ``home``."""
    store = FilePeerStore(KeyPaths.below(Path(options["home"])))
    return Server(options["address"], store=store, aeron_dir=options["dir"], **{**CROWD, **options.get("more", {})})


def client(options: dict[str, Any], tag: str) -> Client:
    """A client with a key that nobody has had before."""
    more = options.get("more", {})
    given = ClientOptions.parse(options["address"], {"aeron_dir": options["dir"], "tag": tag, **more})
    return Client(given.server_address, MemoryPeerStore(), ClientSettings.of(given), given, Connection)
