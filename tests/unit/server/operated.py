"""A server in memory with the commands of its operator, and clients with named keys."""

from __future__ import annotations

import json
from typing import Any

from aeron_spark.client.client import Client
from aeron_spark.keys.bans import StoredBans
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.keypair import KeyPair, keypair_from
from aeron_spark.server.operator import BanCommands, ConnectionCommands, ConnectionReporter, ServerClients
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import World, quick_client, server_options, wait_for

KEYS = {name: keypair_from(name.encode().ljust(32, b"-")) for name in ("desk-7", "desk-8", "edge")}


SHORT_STEPS = ClientTiming(hello_ack_s=0.5)  # a client waits so long after a hint, which may be forged


class Operated:
    """A server whose clients file names three keys, the commands of its operator, and clients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bans = StoredBans()
        self.store = MemoryPeerStore(
            authorized={keys.public: Grant(name=name, everything=True) for name, keys in KEYS.items()}
        )
        self.server: MessageServer = world.server(
            server_options(measures_round_trip=True), store=self.store, bans=self.bans
        )
        reporter = ConnectionReporter(self.server.endpoint, lambda connection: ["orders"])
        clients = ServerClients(self.server.events, self.store, self.bans, reporter)
        self.commands = ConnectionCommands(clients).commands | BanCommands(clients).commands

    def client(
        self, keys: KeyPair = KEYS["desk-7"], tag: str = "desk-7", source: str = "192.0.2.7:4000",
        timing: ClientTiming | None = None,
    ) -> Client:  # fmt: skip
        """Return a client that is connected, also at the server."""
        before = len(self.server.connections)
        client = self.world.client(
            quick_client(tag=tag, timing=timing or ClientTiming()), store=MemoryPeerStore(keys), source=source
        )
        wait_for(lambda: len(self.server.connections) > before, "the connection at the server")
        return client

    def run(self, command: str, **arguments: Any) -> Any:
        """Run a command as the admin socket does: arguments and result pass through JSON."""
        return json.loads(json.dumps(self.commands[command](json.loads(json.dumps(arguments)))))

    def listed(self) -> list[dict[str, Any]]:
        return self.run("connections.list")["connections"]  # type: ignore[no-any-return]

    def names(self) -> list[str]:
        return sorted(one["name"] for one in self.listed())
