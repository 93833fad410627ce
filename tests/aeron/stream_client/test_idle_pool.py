"""A process whose server connections are idle closes its Aeron client and threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from aeron_spark.node import NodeHandle
from aeron_spark.protocol.keypair import public_text
from aeron_spark.server.server import Server

ROOT = Path(__file__).parents[3]

# A worker's pool with a short idle timeout. With the argument "in use" the process also uses an Aeron client directly.
WORKER = """
import sys
from aeron_spark.aeron import client as clients
from aeron_spark.options import ServerRoute
from aeron_spark.options.values import parse_public_key
from aeron_spark.pool import ConnectionPool, _close_shared_clients
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_rpc import ListStreams
from tests.java_threads import java_threads

address, key, aeron_dir, use = sys.argv[1:]
clients.UNUSED_TIMEOUT_S = 0.2
pool = ConnectionPool(idle_timeout_s=0.2, close_shared=_close_shared_clients)
route = ServerRoute(
    server=((address, address),), server_key=(parse_public_key(key),), stream="s", aeron_dir=aeron_dir,
    client=(("ipc", "never"),),
)
before = clients.client_of(aeron_dir) if use == "in use" else None
for _ in range(2):
    with pool.borrow(route) as sessions:
        assert sessions[address].call(ListStreams()).streams == ()
        assert "aeron-client" in java_threads()
    wait_for(lambda: not pool._watching, 30, "the pool to end its thread")
    wait_for(lambda: "aeron-spark-inb" not in java_threads(), 30, "the poller of idle inboxes to end")
    if before is None:
        wait_for(lambda: "aeron-client" not in java_threads(), 30, "the thread of Aeron's client to end")
        assert not clients.CLIENTS.cached_keys()
    else:
        assert clients.client_of(aeron_dir) is before and not before.closed
assert not java_threads() - {"aeron-client"}, java_threads()
"""


def run(server: Server, node: NodeHandle, use: str) -> None:
    address = ":".join(server.addresses[0].split(":")[:2])
    done = subprocess.run(
        [sys.executable, "-c", WORKER, address, public_text(server.public_key), node.aeron_dir, use],
        cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_closing_the_last_idle_connection_ends_the_aeron_client_and_its_java_threads(
    server: Server, node: NodeHandle
) -> None:
    """Regression: a worker kept an Aeron client and two Java threads after its last connection was closed."""
    run(server, node, "not in use")


def test_an_aeron_client_that_is_still_in_use_is_not_closed(server: Server, node: NodeHandle) -> None:
    run(server, node, "in use")
